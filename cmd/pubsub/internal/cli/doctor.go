package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// What doctor calls slow, far apart, or few.
const (
	slowAck      = 50 * time.Millisecond
	slowSync     = 20 * time.Millisecond
	clockApart   = 500 * time.Millisecond
	clockBroken  = 10 * time.Second
	fewFiles     = 8192
	doctorWrites = 20
)

// The verdicts of doctor.
const (
	verdictOK   = "ok"
	verdictWarn = "warn"
	verdictFail = "fail"
	verdictSkip = "skipped"
)

// finding is what one check came to.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Found   string `json:"found"`
	Do      string `json:"do,omitempty"` // what to do about it
}

func (a *app) doctorCommand() *cobra.Command {
	var noWrite bool
	var dir string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check a broker and this machine, and say what to do", Args: args(0, 0, ""),
		Long: `Check the connection, the clocks of the nodes, their versions, the quorum of the
cluster, how long a durable message takes (with a topic that is made for it and deleted
again; not with --no-write), operators that have failed, and the limit of open files. --dir measures the fsync of a
directory of this machine, such as the broker's store_dir. The exit code is 7 when a
check fails; a warning leaves it 0.`,
		Example: "  pubsub doctor\n  pubsub doctor --dir /var/lib/herald -o json",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		list := a.examine(cmd.Context(), c)
		if !noWrite {
			list = append(list, examineAcks(cmd.Context(), c))
		}
		if dir != "" {
			list = append(list, examineSync(dir))
		}
		list = append(list, examineFiles())
		rows := ui.Rows{Columns: []string{"check", "verdict", "found", "do"}}
		failed := ""
		for _, f := range list {
			rows.Cells = append(rows.Cells, []string{f.Check, f.Verdict, f.Found, f.Do})
			if f.Verdict == verdictFail && failed == "" {
				failed = f.Check + ": " + f.Found
			}
		}
		if err := a.ui.List(toAny(list), rows); err != nil {
			return err
		}
		if failed != "" {
			return &problem{code: exitUnhealthy, what: failed, next: "what the column DO says", err: client.ErrUnavailable}
		}
		return nil
	}
	cmd.Flags().BoolVar(&noWrite, "no-write", false, "make no topic to measure durable messages with")
	cmd.Flags().StringVar(&dir, "dir", "", "measure the fsync of this directory of this machine")
	return cmd
}

// examine are the checks that only ask.
func (a *app) examine(ctx context.Context, c *client.Client) []finding {
	list := []finding{}
	rtt, err := c.Conn().RTT()
	f := finding{Check: "connection", Verdict: verdictOK, Found: fmt.Sprintf("%s, round trip %v", c.Conn().ConnectedUrlRedacted(), rtt.Round(10*time.Microsecond))}
	if err != nil {
		f.Verdict, f.Found, f.Do = verdictFail, err.Error(), "look at the broker's log"
	}
	list = append(list, f)
	asked := time.Now()
	nodes, err := a.askNodes(ctx, c)
	if err != nil {
		list = append(list, finding{"clock", verdictSkip, "the broker doesn't tell: " + plain(err), ""}, finding{"versions", verdictSkip, "the broker doesn't tell", ""})
	} else {
		list = append(list, examineClocks(nodes, asked), examineVersions(nodes))
	}
	return append(list, examineQuorum(ctx, c), examineOperators(ctx, c))
}

// examineClocks compares the nodes' clocks with this machine's. An answer was written
// between the question and its arrival: only what lies outside is an error.
func examineClocks(nodes []nodeAnswer, asked time.Time) finding {
	worst, where := time.Duration(0), ""
	for _, n := range nodes {
		off := time.Duration(0)
		switch {
		case n.Data.Now.IsZero():
			continue
		case n.Data.Now.Before(asked):
			off = n.Data.Now.Sub(asked)
		case n.Data.Now.After(n.at):
			off = n.Data.Now.Sub(n.at)
		}
		if off.Abs() > worst.Abs() {
			worst, where = off, n.Server.Name
		}
	}
	f := finding{Check: "clock", Verdict: verdictOK, Found: fmt.Sprintf("%s within 500 ms of this machine", plural(len(nodes), "node"))}
	if worst.Abs() > time.Millisecond {
		f.Found = fmt.Sprintf("%s is %v off this machine", where, worst.Round(time.Millisecond))
	}
	const sync = "synchronise the clocks (chrony, ntpd): ages, expiry and schedules go by them"
	switch {
	case worst.Abs() > clockBroken:
		f.Verdict, f.Do = verdictFail, sync
	case worst.Abs() > clockApart:
		f.Verdict, f.Do = verdictWarn, sync
	}
	return f
}

func examineVersions(nodes []nodeAnswer) finding {
	seen := map[string][]string{}
	for _, n := range nodes {
		seen[n.Server.Ver] = append(seen[n.Server.Ver], n.Server.Name)
	}
	var texts []string
	for _, v := range sortedNames(seen) {
		slices.Sort(seen[v])
		texts = append(texts, fmt.Sprintf("%s: %s", v, strings.Join(seen[v], " ")))
	}
	f := finding{Check: "versions", Verdict: verdictOK, Found: strings.Join(texts, "; ")}
	if len(seen) > 1 {
		f.Verdict, f.Do = verdictWarn, "complete the upgrade: nodes of different versions are for a rolling restart only"
	}
	return f
}

func examineQuorum(ctx context.Context, c *client.Client) finding {
	f := finding{Check: "quorum", Verdict: verdictOK}
	s, err := c.ClusterStatus(ctx)
	if err == nil {
		online := 0
		for _, n := range s.Nodes {
			if n.Online {
				online++
			}
		}
		f.Found = fmt.Sprintf("%d of %s online, %s", online, plural(len(s.Nodes), "node"), plural(len(s.Groups), "group"))
		if !s.Healthy {
			f.Verdict, f.Do = verdictFail, strings.Join(s.Advice, "; ")
		}
		return f
	}
	if !errors.Is(err, client.ErrNoResponders) {
		return finding{f.Check, verdictFail, plain(err), "pubsub cluster status"}
	}
	// One node, or a user who may not ask: the topics tell as much as they can.
	topics, err := c.Topics(ctx)
	if err != nil {
		return finding{f.Check, verdictSkip, "durable topics are off, or not for this user: " + plain(err), ""}
	}
	for _, t := range topics {
		if t.Cluster != nil && t.Cluster.Leader == "" {
			return finding{f.Check, verdictFail, fmt.Sprintf("topic %s has no leader", t.Config.Name), "start the nodes that are down: pubsub topic info " + t.Config.Name}
		}
	}
	f.Found = plural(len(topics), "topic") + ", none without a leader"
	return f
}

// examineAcks measures how long a durable message takes, one at a time.
func examineAcks(ctx context.Context, c *client.Client) finding {
	f := finding{Check: "durable messages", Verdict: verdictOK}
	name := "doctor-" + nuid.Next()
	if _, err := c.CreateTopic(ctx, client.TopicConfig{Name: name, Subjects: []string{name}}); err != nil {
		verdict := verdictFail
		if errors.Is(err, client.ErrRefused) || errors.Is(err, client.ErrNoResponders) {
			verdict = verdictSkip
		}
		return finding{f.Check, verdict, plain(err), "a user who may create topics, or --no-write"}
	}
	defer func() { _ = c.DeleteTopic(context.WithoutCancel(ctx), name) }() // the user is told of what was measured
	var took []time.Duration
	for range doctorWrites {
		begun := time.Now()
		if _, err := c.PublishDurable(ctx, name, []byte("doctor")); err != nil {
			return finding{f.Check, verdictFail, plain(err), "look at the broker's log and its disk"}
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	f.Found = fmt.Sprintf("%v until stored (median of %d; longest %v)", median.Round(10*time.Microsecond), len(took), took[len(took)-1].Round(10*time.Microsecond))
	if median > slowAck {
		f.Verdict, f.Do = verdictWarn, "measure the broker's disk there: pubsub doctor --dir STORE_DIR"
	}
	return f
}

// examineSync measures the fsync of a directory.
func examineSync(dir string) finding {
	f := finding{Check: "disk", Verdict: verdictOK}
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return finding{f.Check, verdictFail, err.Error(), "a directory that can be written"}
	}
	path := file.Name()
	defer func() { _ = errors.Join(file.Close(), os.Remove(path)) }()
	var took []time.Duration
	for range doctorWrites {
		begun := time.Now()
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			return finding{f.Check, verdictFail, err.Error(), "free space, or another disk"}
		}
		if err := file.Sync(); err != nil {
			return finding{f.Check, verdictFail, err.Error(), "another disk: what it has acknowledged is not safe there"}
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	f.Found = fmt.Sprintf("fsync of 4 KiB in %s takes %v (median of %d)", filepath.Clean(dir), median.Round(10*time.Microsecond), len(took))
	switch {
	case median > slowSync:
		f.Verdict, f.Do = verdictWarn, "a disk with a write cache that is safe on power loss; every durable message waits for this"
	case median < 20*time.Microsecond:
		f.Verdict, f.Do = verdictWarn, "too fast to be true: this is memory, or a disk that does not sync"
	}
	return f
}

// examineFiles looks at the limit of open files that a broker started here would have.
func examineFiles() finding {
	f := finding{Check: "open files", Verdict: verdictOK}
	limit, ok := fileLimit()
	if !ok {
		return finding{f.Check, verdictSkip, "this system doesn't tell", ""}
	}
	f.Found = fmt.Sprintf("at most %s on this machine", ui.Count(limit))
	if limit < fewFiles {
		f.Verdict, f.Do = verdictWarn, "ulimit -n 65536, or LimitNOFILE=65536 in the unit: each connection and segment takes one"
	}
	return f
}
