package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// operatorLive are the commands about operators that a broker runs.
func (a *app) operatorLive() []*cobra.Command {
	return []*cobra.Command{
		a.operatorDeploy("deploy", "DEPLOY", "Have the broker run an operator"),
		a.operatorDeploy("update", "UPDATE", "Put another version in an operator's place"),
		a.operatorList(), a.operatorInfo(),
		a.operatorState("pause", "PAUSE", "Stop an operator where it is"), a.operatorState("resume", "RESUME", "Have an operator go on"),
		a.operatorRescale(), a.operatorRemove(), a.operatorLogs(), a.operatorKeys(), a.operatorTop(), a.operatorSavepoint(), a.operatorRestore(), a.operatorPromote(), a.operatorDiscard(),
	}
}

func (a *app) operatorDeploy(use, verb, short string) *cobra.Command {
	var r client.OperatorRequest
	cmd := &cobra.Command{Use: use + " FILE", Short: short, Args: args(1, 1, "the operator's file")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return fmt.Errorf("read operator: %w", err)
		}
		r.Spec, r.File = string(text), args[0]
		// What is wrong the broker says, which also knows its process functions.
		if _, g, problems, err := compiled(args[0]); err == nil && g != nil {
			for _, p := range problems {
				a.ui.Note("%s", p)
			}
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		return a.operatorChange(cmd, c, verb, r)
	}
	cmd.Flags().StringVar(&r.Savepoint, "from-savepoint", "", "begin with the state of a savepoint: NAME, or OPERATOR/NAME")
	cmd.Flags().BoolVar(&r.Dry, "dry-run", false, "only check it against the broker, and say what would be done")
	if verb == "UPDATE" {
		cmd.Flags().BoolVar(&r.Reset, "reset", false, "begin with no state, from the beginning of the inputs")
		cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask before state is dropped")
		cmd.Flags().BoolVar(&r.Shadow, "shadow", false, "run it beside the operator without outputs, and compare (operator info): then promote or discard it")
	}
	return cmd
}

// operatorChange asks for a change, and says before what becomes of the state of each step.
func (a *app) operatorChange(cmd *cobra.Command, c *client.Client, verb string, r client.OperatorRequest) error {
	var d client.OperatorChange
	dry := r
	dry.Dry = true
	if err := c.Operators(cmd.Context(), verb, dry, &d); err != nil {
		return err
	}
	dropped := []string{}
	for _, step := range sortedKeys(d.Steps) {
		a.ui.Note("state of step %s: %s", step, d.Steps[step])
		if strings.HasPrefix(d.Steps[step], "dropped") {
			dropped = append(dropped, step)
		}
	}
	if r.Dry {
		a.ui.Note("nothing was changed")
		return a.operatorItem(&d.Operator)
	}
	question := ""
	switch {
	case r.Shadow: // nothing is dropped
	case r.Reset:
		question = fmt.Sprintf("Drop all state of operator %s, and begin anew?", d.Operator.Name)
	case verb == "RESTORE" || verb == "UPDATE" && r.Savepoint != "":
		question = fmt.Sprintf("Drop the state that operator %s has now, and go on from savepoint %s?", d.Operator.Name, r.Savepoint)
	case len(dropped) > 0:
		question = fmt.Sprintf("Drop the state of %s of operator %s?", strings.Join(dropped, ", "), d.Operator.Name)
	}
	if verb != "DEPLOY" && question != "" {
		if err := a.confirm(cmd, question); err != nil {
			return err
		}
	}
	if err := c.Operators(cmd.Context(), verb, r, &d); err != nil {
		return err
	}
	return a.operatorItem(&d.Operator)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (a *app) operatorItem(o *client.Operator) error {
	pairs := [][2]string{
		{"operator", o.Name}, {"version", o.Version}, {"state", o.State}, {"epoch", fmt.Sprint(o.Epoch)}, {"group", fmt.Sprint(o.Group)},
	}
	if o.Partitions() > 1 {
		pairs = append(pairs, [2]string{"partitions", fmt.Sprint(o.Partitions())}, [2]string{"groups", strings.Trim(fmt.Sprint(o.Groups), "[]")})
	}
	if o.Next != nil {
		pairs = append(pairs, [2]string{"being replaced by", fmt.Sprintf("%s, in groups %s", plural(len(o.Next.Groups), "instance"), strings.Trim(fmt.Sprint(o.Next.Groups), "[]"))})
	}
	if o.Error != "" {
		pairs = append(pairs, [2]string{"error", o.Error})
	}
	return a.ui.Item(o, pairs)
}

func (a *app) operatorList() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List operators", Args: args(0, 0, "")}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		var all struct {
			Operators []client.Operator `json:"operators"`
		}
		if err := c.Operators(cmd.Context(), "LIST", client.OperatorRequest{}, &all); err != nil {
			return err
		}
		rows := ui.Rows{Columns: []string{"operator", "version", "state", "epoch", "group", "changed", "error"}, Right: []bool{false, false, false, true, true}, Empty: "no operators"}
		var items []any
		for i := range all.Operators {
			o := &all.Operators[i]
			items = append(items, o)
			rows.Cells = append(rows.Cells, []string{o.Name, o.Version, o.State, fmt.Sprint(o.Epoch), fmt.Sprint(o.Group), ui.Since(o.Changed.Time(), a.env.Now()), o.Error})
		}
		return a.ui.List(items, rows)
	}
	return cmd
}

// operatorShow asks about one operator.
func (a *app) operatorShow(use, short, verb string, show func(cmd *cobra.Command, b json.RawMessage) error) *cobra.Command {
	cmd := &cobra.Command{Use: use + " NAME", Short: short, Args: args(1, 1, "the operator's name")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		var b json.RawMessage
		if err := c.Operators(cmd.Context(), verb, client.OperatorRequest{Name: args[0]}, &b); err != nil {
			return err
		}
		return show(cmd, b)
	}
	return cmd
}

func (a *app) operatorInfo() *cobra.Command {
	return a.operatorShow("info", "Show an operator, its replicas and its steps", "INFO", func(_ *cobra.Command, b json.RawMessage) error {
		var i client.OperatorInfo
		if err := json.Unmarshal(b, &i); err != nil {
			return err
		}
		return a.operatorShowing(&i, func(i *client.OperatorInfo) error {
			if err := a.operatorItem(&i.Operator); err != nil {
				return err
			}
			fmt.Fprintln(a.env.Out)
			if err := a.operatorReplicas(i); err != nil || len(i.Outputs) == 0 {
				return err
			}
			fmt.Fprintln(a.env.Out)
			return a.ui.List(nil, operatorOutputs(i))
		})
	})
}

// operatorOutputs is how the outputs are advertised.
func operatorOutputs(i *client.OperatorInfo) ui.Rows {
	rows := ui.Rows{Columns: []string{"output", "advertised as", "on", "note"}}
	for _, o := range i.Outputs {
		as, note := "", o.Why
		switch {
		case o.Advertised:
			as = o.Name
		case note == "":
			note = "not advertised yet"
		default:
			note = "not advertised: " + note
		}
		rows.Cells = append(rows.Cells, []string{o.Output, as, o.Subject, note})
	}
	return rows
}

// operatorShowing prints all of it for programs, and what show prints for people.
func (a *app) operatorShowing(i *client.OperatorInfo, show func(i *client.OperatorInfo) error) error {
	if a.ui.Format != ui.Table || a.ui.Template != nil {
		return a.ui.Item(i, nil)
	}
	return show(i)
}

func (a *app) operatorReplicas(i *client.OperatorInfo) error {
	rows := ui.Rows{
		Columns: []string{"node", "role", "step", "behind", "lag", "lag s", "in", "out", "busy", "blocked", "keys", "bytes", "watermark", "note"},
		Right:   []bool{false, false, true, true, true, true, true, true, true, true, true, true},
	}
	for _, r := range i.Replicas {
		role := "standby"
		if r.Leads {
			role = "primary"
		}
		note := r.Blocked
		switch {
		case r.Faulty && note != "":
			note = "quarantined: " + note
		case r.Faulty:
			note = "quarantined"
		case r.Checkpoint > 0 && r.Kept > 0 && note == "":
			note = fmt.Sprintf("checkpoint of %.0f s ago, %d steps behind it", r.Checkpoint, r.Kept)
		}
		busy, blocked := "", ""
		if all := r.Stats.Busy + r.Stats.Blocked + r.Stats.Idle; all > 0 && r.Leads {
			busy, blocked = fmt.Sprintf("%d %%", 100*r.Stats.Busy/all), fmt.Sprintf("%d %%", 100*r.Stats.Blocked/all)
		}
		mark := ""
		if !r.Watermark.IsZero() {
			mark = r.Watermark.Format(time.RFC3339)
		}
		for _, l := range r.Outbox {
			if l.Blocked != "" && note == "" {
				note = l.Blocked
			}
		}
		if r.Instance > 0 {
			role += fmt.Sprintf(" of %d", r.Instance)
		}
		rows.Cells = append(rows.Cells, []string{
			r.Node, role, fmt.Sprint(r.Seq), fmt.Sprint(r.Behind), fmt.Sprint(r.Lag), fmt.Sprintf("%.1f", r.LagFor), fmt.Sprint(r.Stats.In), fmt.Sprint(r.Stats.Out),
			busy, blocked, fmt.Sprint(r.Keys), fmt.Sprint(r.Bytes), mark, note,
		})
	}
	if err := a.ui.List(nil, rows); err != nil {
		return err
	}
	if rows := operatorSteps(i); len(rows.Cells) > 0 {
		fmt.Fprintln(a.env.Out)
		if err := a.ui.List(nil, rows); err != nil {
			return err
		}
	}
	for _, r := range i.Replicas {
		a.operatorShadow(r.Shadow)
	}
	return nil
}

// operatorSteps is what primaries have counted of each step, over all instances.
func operatorSteps(i *client.OperatorInfo) ui.Rows {
	type step struct {
		name   string
		counts map[string]uint64
		calls  uint64
		busy   time.Duration
		keys   int64
		bytes  int64
	}
	var all []*step
	at := func(name string) *step {
		if n := slices.IndexFunc(all, func(s *step) bool { return s.name == name }); n >= 0 {
			return all[n]
		}
		all = append(all, &step{name: name, counts: map[string]uint64{}})
		return all[len(all)-1]
	}
	for _, r := range i.Replicas {
		if !r.Leads {
			continue
		}
		for _, l := range r.Loads {
			s := at(l.Step)
			s.calls, s.busy = s.calls+l.Calls, s.busy+l.Busy
		}
		for _, c := range r.Counts {
			at(c.Step).counts[c.Name] += c.N
		}
		for _, z := range r.Sizes {
			if z.Step == "" {
				continue // clocks and counts; what waits to be sent is told where it does
			}
			s := at(z.Step)
			s.keys, s.bytes = s.keys+z.Keys, s.bytes+z.Bytes
		}
	}
	rows := ui.Rows{Columns: []string{"step", "in", "out", "could/s", "keys", "bytes", "other"}, Right: []bool{false, true, true, true, true, true}}
	for _, s := range all {
		could, other := "", []string{}
		if s.busy > 0 && s.calls > 0 {
			could = fmt.Sprintf("%.0f", float64(s.calls)/s.busy.Seconds())
		}
		for _, name := range sortedKeys(s.counts) {
			if name != "in" && name != "out" {
				other = append(other, fmt.Sprintf("%d %s", s.counts[name], name))
			}
		}
		keys, bytes := "", ""
		if s.keys > 0 {
			keys, bytes = fmt.Sprint(s.keys), fmt.Sprint(s.bytes)
		}
		rows.Cells = append(rows.Cells, []string{s.name, fmt.Sprint(s.counts["in"]), fmt.Sprint(s.counts["out"]), could, keys, bytes, strings.Join(other, ", ")})
	}
	return rows
}

func (a *app) operatorState(use, verb, short string) *cobra.Command {
	var skip bool
	cmd := &cobra.Command{Use: use + " NAME", Short: short, Args: args(1, 1, "the operator's name")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		var d client.OperatorChange
		if err := c.Operators(cmd.Context(), verb, client.OperatorRequest{Name: args[0], Skip: skip}, &d); err != nil {
			return err
		}
		return a.operatorItem(&d.Operator)
	}
	if verb == "RESUME" {
		cmd.Flags().BoolVar(&skip, "skip", false, "pass over the record in front of which it stopped")
	}
	return cmd
}

func (a *app) operatorRemove() *cobra.Command {
	return a.operatorShow("rm", "Remove an operator and its state; its outputs stay", "REMOVE", func(cmd *cobra.Command, _ json.RawMessage) error {
		a.ui.Note("removed %s", cmd.Flags().Arg(0))
		return nil
	})
}

func (a *app) operatorLogs() *cobra.Command {
	return a.operatorShow("logs", "Show what happened to an operator, on all nodes", "LOGS", func(_ *cobra.Command, b json.RawMessage) error {
		var all struct {
			Lines []struct {
				Time              time.Time
				Node, Level, Text string
			}
		}
		if err := json.Unmarshal(b, &all); err != nil {
			return err
		}
		for _, l := range all.Lines {
			fmt.Fprintf(a.env.Out, "%s %s %-5s %s\n", l.Time.Format(time.RFC3339), l.Node, strings.ToUpper(l.Level), l.Text)
		}
		return nil
	})
}

func (a *app) operatorKeys() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "state NAME [KEY]", Short: "Show what an operator remembers, of keys that contain KEY (as JSON)", Args: args(1, 2, "the operator's name")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		r := client.OperatorRequest{Name: args[0], Limit: limit}
		if len(args) > 1 {
			r.Key = args[1]
		}
		var s struct {
			Keys, Bytes int64
			Entries     []struct {
				Step  string `json:"step"`
				Key   string `json:"key"`
				Name  string `json:"name"`
				Sub   string `json:"sub,omitempty"`
				Value string `json:"value"`
			}
		}
		if err := c.Operators(cmd.Context(), "STATE", r, &s); err != nil {
			return err
		}
		rows := ui.Rows{Columns: []string{"step", "key", "name", "sub", "value"}, Empty: "nothing"}
		var items []any
		for _, e := range s.Entries {
			items = append(items, e)
			rows.Cells = append(rows.Cells, []string{e.Step, e.Key, e.Name, e.Sub, e.Value})
		}
		a.ui.Note("%d keys, %d bytes", s.Keys, s.Bytes)
		return a.ui.List(items, rows)
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "show at most so many")
	return cmd
}

func (a *app) operatorTop() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{Use: "top NAME", Short: "Show an operator's replicas again and again", Args: args(1, 1, "the operator's name")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		tick := time.NewTicker(max(every, 100*time.Millisecond))
		defer tick.Stop()
		for {
			var i client.OperatorInfo
			if err := c.Operators(cmd.Context(), "INFO", client.OperatorRequest{Name: args[0]}, &i); err != nil {
				return err
			}
			if err := a.operatorShowing(&i, a.operatorReplicas); err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-tick.C:
			}
		}
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often")
	return cmd
}
