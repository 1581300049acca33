package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look at the brokers of a cluster, add and remove them",
		Long: `Look at the brokers (nodes) of a cluster and decide which of them hold topics.
It needs a user of the system account, unless the brokers let everybody in.

A new node needs no command: start it with the routes and the secret of the others
and it joins. "add" is for one that was drained or removed.`,
		Example: `  pubsub cluster status
  pubsub cluster drain n3 && pubsub cluster remove n3`,
	}
	cmd.AddCommand(a.clusterStatus(), a.clusterAdd(), a.clusterDrain(), a.clusterRemove(), a.clusterTransfer(), a.clusterScrub(), a.clusterDev(), a.clusterNode())
	return group(cmd)
}

func (a *app) clusterStatus() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "status", Aliases: []string{"ls", "info"}, Short: "Show nodes, groups, damage, and what to do next", Args: args(0, 0, ""),
		Long: `Show the nodes, the groups of topics with their replicas, damaged files, and what to
do next. Exit code 7 when something is to be done; with --wait it is asked again until
nothing is, for as long as --timeout.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		s, err := c.ClusterStatus(cmd.Context())
		if wait && err == nil && !s.Healthy {
			s, err = a.awaitCluster(cmd.Context(), c, a.timeout, "waiting for the cluster", func(s *client.ClusterStatus) string {
				return strings.Join(s.Advice, "; ")
			})
		}
		if s != nil && (err == nil || wait && s.Time.Unix() > 0) {
			if err := a.printCluster(s); err != nil {
				return err
			}
		}
		if err != nil {
			return clusterProblem(err)
		}
		if !s.Healthy {
			return &problem{code: exitUnhealthy, what: s.Advice[0], next: "pubsub cluster status", err: client.ErrUnavailable}
		}
		return nil
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "until all is well, at most --timeout")
	return cmd
}

// printCluster prints tables for people, and the whole as one thing for programs.
func (a *app) printCluster(s *client.ClusterStatus) error {
	if a.ui.Template != nil || a.ui.Format != ui.Table && a.ui.Format != ui.CSV && a.ui.Format != ui.Raw {
		return a.ui.Item(s, nil)
	}
	nodes := ui.Rows{Columns: []string{"node", "state", "ready", "groups", "leads", "rtt", "version", "address"}, Right: []bool{false, false, false, true, true, true}}
	for _, n := range s.Nodes {
		nodes.Cells = append(nodes.Cells, []string{n.Name, nodeState(&n), nodeReady(&n), ui.Count(n.Groups), ui.Count(n.Leads), rtt(s, &n), n.Version, n.Address})
	}
	if a.ui.Format != ui.Table {
		return a.ui.List(nil, nodes)
	}
	if err := a.ui.List(nil, nodes); err != nil {
		return err
	}
	fmt.Fprintln(a.env.Out)
	groups := ui.Rows{Columns: []string{"group", "leader", "term", "topics", "entries", "replicas"}, Right: []bool{false, false, true, true, true}, Empty: "no groups: durable topics are off"}
	for _, g := range s.Groups {
		name := strconv.FormatUint(uint64(g.ID), 10)
		topics := ui.Count(g.Topics)
		if g.ID == 0 {
			name, topics = "catalogue", ""
		}
		groups.Cells = append(groups.Cells, []string{name, or(g.Leader, "none"), ui.Count(g.Term), topics, ui.Count(g.Committed), replicas(&g)})
	}
	if err := a.ui.List(nil, groups); err != nil {
		return err
	}
	if len(s.Damage) > 0 {
		fmt.Fprintln(a.env.Out)
		damage := ui.Rows{Columns: []string{"damaged", "group", "since", "done", "what"}, Right: []bool{false, true}}
		for _, d := range s.Damage {
			damage.Cells = append(damage.Cells, []string{d.Node, ui.Count(d.Group), ui.Since(d.Time, a.env.Now()), or(d.Action, "nothing"), d.What})
		}
		if err := a.ui.List(nil, damage); err != nil {
			return err
		}
	}
	if len(s.Advice) == 0 {
		a.ui.Note("\nall is well")
	}
	for i, text := range s.Advice {
		a.ui.Note("%s%s", map[bool]string{true: "\n"}[i == 0], text)
	}
	return nil
}

func nodeState(n *client.ClusterNode) string {
	if n.Online || n.State == "removed" {
		return n.State
	}
	return n.State + ", offline"
}

func nodeReady(n *client.ClusterNode) string {
	switch {
	case n.Ready:
		return "yes"
	case !n.Online:
		return ""
	}
	return "no"
}

func rtt(s *client.ClusterStatus, n *client.ClusterNode) string {
	if n.Name == s.Server || !n.Online {
		return ""
	}
	return n.RTT.Round(10 * time.Microsecond).String()
}

// replicas writes "n1* n2 n3(-120) n4?": the leader, one that is behind, one that
// can't be reached; a replica without a vote is in parentheses.
func replicas(g *client.ClusterGroup) string {
	var out []string
	for _, m := range g.Members {
		text := m.Node
		if m.Node == g.Leader {
			text += "*"
		}
		if m.Lag > 0 {
			text += fmt.Sprintf("(-%d)", m.Lag)
		}
		if !m.Online {
			text += "?"
		}
		if !m.Voter {
			text = "(" + text + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (a *app) clusterAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NODE", Short: "Let a drained or removed node hold topics again", Args: args(1, 1, "NODE"), ValidArgsFunction: a.completeNodes,
		Long: "Let a node hold topics again that was drained or removed. A node that was never\npart of the cluster joins by being started with the cluster's routes and secret.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.clusterChange(cmd, "add node "+args[0], func(c *client.Client) (string, error) { return c.AddNode(cmd.Context(), args[0]) }, nil)
	}
	return a.changes(cmd)
}

func (a *app) clusterDrain() *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Move all topics away from a node", Args: args(1, 1, "NODE"), ValidArgsFunction: a.completeNodes,
		Long: "Move every replica away from a node, for example before it is removed, and wait\nuntil none is left; a topic that wants more replicas than other nodes are there\nkeeps its own. Clients notice nothing. Waiting ends with --timeout (10m unless given).",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		left := func(s *client.ClusterStatus) string {
			for _, n := range s.Nodes {
				if n.Name == args[0] && n.Groups > 0 {
					return fmt.Sprintf("%d groups left on %s", n.Groups, n.Name)
				}
			}
			return ""
		}
		if noWait {
			left = nil
		}
		return a.clusterChange(cmd, "drain node "+args[0], func(c *client.Client) (string, error) { return c.DrainNode(cmd.Context(), args[0]) }, left)
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "don't wait until it is drained")
	return a.changes(cmd)
}

func (a *app) clusterRemove() *cobra.Command {
	var force, noWait bool
	cmd := &cobra.Command{
		Use: "remove NODE", Aliases: []string{"rm"}, Short: "Take a node out of the cluster", Args: args(1, 1, "NODE"), ValidArgsFunction: a.completeNodes,
		Long: `Take a node out of the cluster: one that was drained, or one that is lost. Its
replicas are made anew on other nodes, and the command waits until they are there. The
node is refused until "pubsub cluster add" takes it back.

A node that runs and holds topics has to be drained first. Without --force, nothing is
removed whose only copy is on that node.`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !a.dryRun {
			if err := a.confirm(cmd, "Take node "+args[0]+" out of the cluster?"); err != nil {
				return err
			}
		}
		left := func(s *client.ClusterStatus) string {
			for _, g := range s.Groups {
				voters := 0
				for _, m := range g.Members {
					if m.Node == args[0] {
						return fmt.Sprintf("%s is still in group %d", args[0], g.ID)
					}
					if m.Voter {
						voters++
					}
				}
				if g.ID != 0 && voters < min(g.Replicas, len(active(s))) {
					return fmt.Sprintf("group %d has %d of %d voters", g.ID, voters, g.Replicas)
				}
			}
			return ""
		}
		if noWait {
			left = nil
		}
		return a.clusterChange(cmd, "remove node "+args[0], func(c *client.Client) (string, error) {
			return c.RemoveNode(cmd.Context(), args[0], force)
		}, left)
	}
	cmd.Flags().BoolVar(&force, "force", false, "also when it runs, or has the only copy of a topic")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "don't wait until others have taken over")
	return a.destroys(cmd)
}

func active(s *client.ClusterStatus) []string {
	var names []string
	for _, n := range s.Nodes {
		if n.State == "active" {
			names = append(names, n.Name)
		}
	}
	return names
}

func (a *app) clusterTransfer() *cobra.Command {
	var id, to, from string
	cmd := &cobra.Command{
		Use: "transfer", Short: "Make another node lead", Args: args(0, 0, ""),
		Long:    "Hand the lead of a group, or of all groups that a node leads, to another node.\nNothing acknowledged is lost and clients wait for some milliseconds.",
		Example: "  pubsub cluster transfer --from n1             # before n1 is restarted\n  pubsub cluster transfer --group 2 --to n3\n  pubsub cluster transfer --group catalogue",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (id == "") == (from == "") {
			return usage(cmd, "%s needs --group or --from", cmd.CommandPath())
		}
		if from != "" {
			if to != "" {
				return usage(cmd, "--to goes with --group")
			}
			return a.clusterChange(cmd, "hand over all that "+from+" leads", func(c *client.Client) (string, error) {
				return c.TransferLeads(cmd.Context(), from)
			}, nil)
		}
		n, err := groupNumber(id)
		if err != nil {
			return usage(cmd, "--group: %v", err)
		}
		return a.clusterChange(cmd, "hand over group "+id, func(c *client.Client) (string, error) {
			return c.TransferGroup(cmd.Context(), n, to)
		}, nil)
	}
	cmd.Flags().StringVar(&id, "group", "", `number of the group, or "catalogue"`)
	cmd.Flags().StringVar(&to, "to", "", "node that shall lead it (the one that suits best)")
	cmd.Flags().StringVar(&from, "from", "", "node that shall lead nothing")
	_ = cmd.RegisterFlagCompletionFunc("to", a.completeNodes)
	_ = cmd.RegisterFlagCompletionFunc("from", a.completeNodes)
	return a.changes(cmd)
}

func groupNumber(s string) (uint32, error) {
	if strings.EqualFold(s, "catalogue") {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf(`%q is neither a number nor "catalogue"`, s)
	}
	return uint32(n), nil
}

func (a *app) clusterScrub() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "scrub", Short: "Read and check every byte on the disks", Args: args(0, 0, ""),
		Long: "Read every file of a group, or of all, on all nodes, and check it. The brokers do so\nby themselves now and then; damaged replicas refill from the others. Exit code 7 when\nsomething is damaged. It takes as long as the disks do; --timeout is 30m unless given.",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var only *uint32
		if id != "" {
			n, err := groupNumber(id)
			if err != nil {
				return usage(cmd, "--group: %v", err)
			}
			only = &n
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), a.patience(cmd, 30*time.Minute))
		defer cancel()
		a.ui.Note("reading …")
		all, err := c.Scrub(ctx, only)
		if err != nil {
			return clusterProblem(err)
		}
		rows := ui.Rows{Columns: []string{"node", "group", "size", "damage"}, Right: []bool{false, true, true}, Empty: "nothing to read"}
		var items []any
		bad := 0
		for _, s := range all {
			items = append(items, s)
			if s.Fault != "" {
				bad++
			}
			rows.Cells = append(rows.Cells, []string{s.Node, ui.Count(s.Group), ui.Bytes(uint64(max(s.Bytes, 0))), or(s.Fault, "none")})
		}
		if err := a.ui.List(items, rows); err != nil {
			return err
		}
		if bad > 0 {
			return &problem{code: exitUnhealthy, what: fmt.Sprintf("%d replicas are damaged", bad), next: "pubsub cluster status", err: errors.New("damaged")}
		}
		return nil
	}
	cmd.Flags().StringVar(&id, "group", "", `number of the group, or "catalogue" (all)`)
	return cmd
}
