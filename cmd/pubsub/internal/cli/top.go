package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// topSettle is how long the nodes' answers may be apart.
const topSettle = 250 * time.Millisecond

// topRow is a line of top: what it is called, its figures, and what its columns
// are sorted by.
type topRow struct {
	key    string
	item   map[string]any     // for programs
	counts map[string]float64 // that only grow: their rates are shown
	sort   map[string]float64
}

// topView is one of the things top shows.
type topView struct {
	columns []string // the first is the name; "x/s" are rates of the count x
	read    func(ctx context.Context, c *client.Client) ([]*topRow, error)
}

func (a *app) topViews() map[string]topView {
	return map[string]topView{
		"topics":      {[]string{"topic", "messages", "bytes", "msgs/s", "bytes/s", "consumers", "leader"}, topTopics},
		"consumers":   {[]string{"consumer", "pending", "unacked", "redelivered", "delivered/s", "acked/s", "waiting"}, topConsumers},
		"operators":   {[]string{"operator", "state", "lag", "in/s", "out/s", "keys", "state_bytes", "primary"}, topOperators},
		"connections": {[]string{"connection", "node", "subs", "pending", "in/s", "out/s", "in_bytes/s", "out_bytes/s", "idle"}, a.topConnections},
	}
}

// topFlags are the flags of top.
type topFlags struct {
	every        time.Duration
	once         bool
	sort, filter string
	limit        int
}

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	views := a.topViews()
	cmd := &cobra.Command{
		Use: "top [topics|consumers|operators|connections]", Short: "Show what is busy, again and again", Args: args(0, 1, "[topics|consumers|operators|connections]"),
		Long: `Show topics (the default), consumers, operators or connections with what they do a
second. --once looks for one interval and prints one list, for programs with -o json.
Connections are those of the user's account, on all nodes.`,
		Example:   "  pubsub top consumers --sort pending --filter 'orders/'\n  pubsub top topics --once -o json",
		ValidArgs: sortedNames(views),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what := "topics"
		if len(args) == 1 {
			what = args[0]
		}
		view, ok := views[what]
		if !ok {
			return usage(cmd, "top shows no %q%s", what, suggestion(what, cmd.ValidArgs))
		}
		if f.every < 50*time.Millisecond {
			return usage(cmd, "--every is at least 50ms")
		}
		if f.sort != "" && !slices.Contains(view.columns, f.sort) {
			return usage(cmd, "%s have no column %q%s; they have %s", what, f.sort, suggestion(f.sort, view.columns), strings.Join(view.columns, ", "))
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		return a.top(cmd.Context(), c, view, f)
	}
	cmd.Flags().DurationVar(&f.every, "every", time.Second, "how often; rates are over this time")
	cmd.Flags().BoolVar(&f.once, "once", false, "print one list and end")
	cmd.Flags().StringVar(&f.sort, "sort", "", "column to sort by, the largest first (default: by name)")
	cmd.Flags().StringVar(&f.filter, "filter", "", "only those whose name contains this")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "at most so many; 0 is all, or what the terminal has room for")
	return cmd
}

func (a *app) top(ctx context.Context, c *client.Client, view topView, f topFlags) error {
	before, at := map[string]*topRow{}, time.Time{}
	for {
		rows, err := view.read(ctx, c)
		if err != nil {
			return err
		}
		now := time.Now()
		rows = slices.DeleteFunc(rows, func(r *topRow) bool { return !strings.Contains(r.key, f.filter) })
		if !at.IsZero() {
			rate(rows, before, now.Sub(at))
			if err := a.printTop(rows, view, f); err != nil || f.once {
				return err
			}
		}
		before, at = map[string]*topRow{}, now
		for _, r := range rows {
			before[r.key] = r
		}
		if err := pause(ctx, f.every); err != nil {
			return err
		}
	}
}

// rate puts into the rows what their counts have grown by a second.
func rate(rows []*topRow, before map[string]*topRow, over time.Duration) {
	for _, r := range rows {
		for name, n := range r.counts {
			perSecond := 0.0
			if was, ok := before[r.key]; ok {
				// A count that is smaller began anew, after a restart.
				perSecond = max(n-was.counts[name], 0) / over.Seconds()
			}
			r.sort[name+"/s"] = perSecond
			r.item[name+"_per_second"] = perSecond
		}
	}
}

func (a *app) printTop(rows []*topRow, view topView, f topFlags) error {
	slices.SortFunc(rows, func(x, y *topRow) int {
		if f.sort != "" && x.sort[f.sort] != y.sort[f.sort] {
			if x.sort[f.sort] > y.sort[f.sort] {
				return -1
			}
			return 1
		}
		return strings.Compare(x.key, y.key)
	})
	if f.limit > 0 && len(rows) > f.limit {
		rows = rows[:f.limit]
	}
	table := ui.Rows{Columns: view.columns, Empty: "nothing"}
	items := []any{}
	for _, r := range rows {
		items = append(items, r.item)
		cells := []string{r.key}
		for _, col := range view.columns[1:] {
			text, isText := r.item[col].(string)
			switch {
			case isText:
				cells = append(cells, text)
			case strings.Contains(col, "bytes"):
				cells = append(cells, ui.Bytes(int64(r.sort[col])))
			case strings.HasSuffix(col, "/s"):
				cells = append(cells, strconv.FormatFloat(r.sort[col], 'f', 1, 64))
			default:
				cells = append(cells, ui.Count(int64(r.sort[col])))
			}
		}
		table.Cells = append(table.Cells, cells)
	}
	for _, col := range view.columns {
		table.Right = append(table.Right, len(table.Right) > 0 && !slices.Contains([]string{"leader", "state", "primary", "node", "idle"}, col))
	}
	if !f.once && a.ui.OutTTY() {
		fmt.Fprint(a.env.Out, "\x1b[H\x1b[2J") // a terminal is redrawn; anything else gets one list after the other
	}
	return a.ui.List(items, table)
}

// newTopRow makes a row of numbers: what is there, and counts that grow.
func newTopRow(kind, key string, numbers, counts map[string]float64) *topRow {
	r := &topRow{key: key, item: map[string]any{kind: key}, counts: counts, sort: map[string]float64{}}
	for name, n := range numbers {
		r.sort[name], r.item[name] = n, n
	}
	return r
}

func topTopics(ctx context.Context, c *client.Client) ([]*topRow, error) {
	all, err := c.Topics(ctx)
	rows := make([]*topRow, 0, len(all))
	for _, t := range all {
		s := t.State
		r := newTopRow("topic", t.Config.Name,
			map[string]float64{"messages": float64(s.Msgs), "bytes": float64(s.Bytes), "consumers": float64(s.Consumers)},
			// Sequences are never taken back, so they count what was stored whatever was deleted.
			map[string]float64{"msgs": float64(s.LastSeq), "bytes": float64(s.Bytes)})
		r.item["leader"] = ""
		if t.Cluster != nil {
			r.item["leader"] = t.Cluster.Leader
		}
		rows = append(rows, r)
	}
	return rows, err
}

func topConsumers(ctx context.Context, c *client.Client) ([]*topRow, error) {
	names, err := c.TopicNames(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*topRow
	for _, name := range names {
		all, err := c.Consumers(ctx, name)
		if err != nil {
			continue // the topic was deleted meanwhile
		}
		for _, i := range all {
			rows = append(rows, newTopRow("consumer", name+"/"+i.Name, map[string]float64{
				"pending": float64(i.NumPending), "unacked": float64(i.NumAckPending), "redelivered": float64(i.NumRedelivered), "waiting": float64(i.NumWaiting),
			}, map[string]float64{"delivered": float64(i.Delivered.Consumer), "acked": float64(i.AckFloor.Consumer)}))
		}
	}
	return rows, ctx.Err()
}

func topOperators(ctx context.Context, c *client.Client) ([]*topRow, error) {
	var all struct {
		Operators []client.Operator `json:"operators"`
	}
	if err := c.Operators(ctx, "LIST", client.OperatorRequest{}, &all); err != nil {
		return nil, err
	}
	var rows []*topRow
	for _, o := range all.Operators {
		var i client.OperatorInfo
		if err := c.Operators(ctx, "INFO", client.OperatorRequest{Name: o.Name}, &i); err != nil {
			continue // it was removed meanwhile
		}
		numbers, counts := map[string]float64{"lag": 0, "keys": 0, "state_bytes": 0}, map[string]float64{"in": 0, "out": 0}
		primary := []string{}
		for _, r := range i.Replicas {
			if !r.Leads {
				continue
			}
			numbers["lag"] += float64(r.Lag)
			numbers["keys"] += float64(r.Keys)
			numbers["state_bytes"] += float64(r.Bytes)
			counts["in"] += float64(r.Stats.In)
			counts["out"] += float64(r.Stats.Out)
			primary = append(primary, r.Node)
		}
		r := newTopRow("operator", o.Name, numbers, counts)
		r.item["state"], r.item["primary"] = o.State, strings.Join(primary, " ")
		rows = append(rows, r)
	}
	return rows, nil
}

// nodeAnswer is what one node says of itself and its connections.
type nodeAnswer struct {
	Server struct {
		Name string `json:"name"`
		Ver  string `json:"ver"`
	} `json:"server"`
	Data struct {
		Now         time.Time `json:"now"`
		Connections []struct {
			CID      uint64 `json:"cid"`
			Name     string `json:"name"`
			Idle     string `json:"idle"`
			Pending  int64  `json:"pending_bytes"`
			InMsgs   int64  `json:"in_msgs"`
			OutMsgs  int64  `json:"out_msgs"`
			InBytes  int64  `json:"in_bytes"`
			OutBytes int64  `json:"out_bytes"`
			Subs     int    `json:"subscriptions"`
		} `json:"connections"`
	} `json:"data"`
	at time.Time // when the answer came
}

// askNodes asks all nodes about the connections of the account.
func (a *app) askNodes(ctx context.Context, c *client.Client) ([]nodeAnswer, error) {
	inbox := c.Conn().NewInbox()
	sub, err := c.Conn().SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.Conn().PublishRequest("$SYS.REQ.ACCOUNT.PING.CONNZ", inbox, []byte(`{"limit":1024}`)); err != nil {
		return nil, err
	}
	var all []nodeAnswer
	for wait := a.timeout; ; wait = topSettle {
		ctx, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, &client.Error{Op: "ask the nodes", Kind: kindOfWait(err), Err: err}
		}
		answer := nodeAnswer{at: time.Now()}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return nil, fmt.Errorf("read a node's answer: %w", err)
		}
		all = append(all, answer)
	}
}

func kindOfWait(err error) error {
	if strings.Contains(err.Error(), nats.ErrNoResponders.Error()) {
		return client.ErrNoResponders
	}
	return client.ErrTimeout
}

func (a *app) topConnections(ctx context.Context, c *client.Client) ([]*topRow, error) {
	nodes, err := a.askNodes(ctx, c)
	var rows []*topRow
	for _, n := range nodes {
		for _, k := range n.Data.Connections {
			r := newTopRow("connection", fmt.Sprintf("%s/%d %s", n.Server.Name, k.CID, k.Name),
				map[string]float64{"subs": float64(k.Subs), "pending": float64(k.Pending)},
				map[string]float64{"in": float64(k.InMsgs), "out": float64(k.OutMsgs), "in_bytes": float64(k.InBytes), "out_bytes": float64(k.OutBytes)})
			r.item["node"], r.item["idle"] = n.Server.Name, k.Idle
			rows = append(rows, r)
		}
	}
	return rows, err
}
