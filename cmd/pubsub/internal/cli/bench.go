package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// latencies are percentiles in milliseconds.
type latencies struct {
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// result is what a benchmark found.
type result struct {
	Test        string     `json:"test"`
	Clients     int        `json:"clients"`
	Messages    int64      `json:"messages"`
	Size        int        `json:"size"`
	Window      int        `json:"window,omitempty"`
	Seconds     float64    `json:"seconds"`
	PerSecond   float64    `json:"messages_per_second"`
	BytesSecond float64    `json:"bytes_per_second"`
	Latency     *latencies `json:"latency_ms,omitempty"`
	Lost        int64      `json:"lost,omitempty"`
	Processors  float64    `json:"client_processors,omitempty"` // that this process kept busy

	// Where the limit was, and what it was found out from.
	BrokerProcessors float64 `json:"broker_processors,omitempty"` // of the busiest, with --monitor
	SyncShare        float64 `json:"sync_share,omitempty"`        // of the time its log was syncing, with --monitor
	RTT              float64 `json:"rtt_ms,omitempty"`            // before it began
	Lone             float64 `json:"lone_ms,omitempty"`           // one durable message alone, before it began
	Limit            *limit  `json:"limit,omitempty"`
}

type benchFlags struct {
	messages, clients, size, window, subs int
	wait                                  time.Duration
	keep, sync                            bool
	monitor                               []string
}

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure rates and latencies",
		Long: `Measure what a broker does with this client. The rates of one process are often
the client's limit, not the broker's. Each says where the limit was, as far as it can
be seen from here: with --monitor also from the brokers' metrics.`,
	}
	cmd.AddCommand(a.benchPub(), a.benchSub(), a.benchDurable())
	return group(cmd)
}

func (f *benchFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVarP(&f.messages, "msgs", "n", 100_000, "messages in all")
	fl.IntVar(&f.clients, "clients", 1, "connections")
	fl.IntVar(&f.size, "size", 128, "bytes of each message")
	fl.StringSliceVar(&f.monitor, "monitor", nil, "HTTP ports of the brokers (http://127.0.0.1:8222): says more of where the limit was")
}

// stamped is a payload whose first 8 bytes are the time it was sent.
func (f *benchFlags) stamped() ([]byte, error) {
	if f.size < 8 {
		return nil, errors.New("--size must be at least 8: the time of sending is in the message")
	}
	if f.messages < 1 || f.clients < 1 || f.clients > f.messages {
		return nil, errors.New("--msgs and --clients must be at least 1, and no more clients than messages")
	}
	return make([]byte, f.size), nil
}

func stampNow(b []byte) { binary.LittleEndian.PutUint64(b, uint64(time.Now().UnixNano())) }

func sentAt(b []byte) (time.Time, bool) {
	if len(b) < 8 {
		return time.Time{}, false
	}
	t := time.Unix(0, int64(binary.LittleEndian.Uint64(b)))
	d := time.Since(t)
	return t, d > -time.Hour && d < 24*time.Hour
}

// many opens connections for a benchmark; closeAll closes them.
func (a *app) many(cmd *cobra.Command, n int, options ...client.Option) ([]*client.Client, func(), error) {
	var clients []*client.Client
	closeAll := func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
	r, err := a.resolve(cmd)
	if err != nil {
		return nil, closeAll, err
	}
	auth, err := identity(r.Settings)
	if err != nil {
		return nil, closeAll, err
	}
	for range n {
		c, err := client.Connect(r.URL, append(append(auth, client.Name("pubsub bench"), client.Timeout(a.timeout)), options...)...)
		if err != nil {
			return nil, closeAll, connectProblem(err, r)
		}
		clients = append(clients, c)
	}
	return clients, closeAll, nil
}

// share is the i-th client's part of the messages.
func (f *benchFlags) share(i int) int {
	part := f.messages / f.clients
	if i < f.messages%f.clients {
		part++
	}
	return part
}

// each runs work once per client at the same time and joins the errors.
func each(clients []*client.Client, work func(i int, c *client.Client) error) error {
	errs := make([]error, len(clients))
	var wait sync.WaitGroup
	for i, c := range clients {
		wait.Go(func() { errs[i] = work(i, c) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// spread collects latencies, at most spreadMax per collector.
type spread struct {
	mu  sync.Mutex
	all []time.Duration
}

const spreadMax = 1 << 20

func (s *spread) add(d []time.Duration) {
	s.mu.Lock()
	s.all = append(s.all, d...)
	s.mu.Unlock()
}

func (s *spread) percentiles() *latencies {
	if len(s.all) == 0 {
		return nil
	}
	slices.Sort(s.all)
	at := func(q float64) float64 {
		return float64(s.all[min(int(q*float64(len(s.all))), len(s.all)-1)].Microseconds()) / 1000
	}
	return &latencies{at(0), at(.5), at(.9), at(.99), at(.999), at(1)}
}

func (f *benchFlags) result(test string, elapsed time.Duration, n int64, s *spread) result {
	r := result{Test: test, Clients: f.clients, Messages: n, Size: f.size, Seconds: elapsed.Seconds()}
	r.PerSecond = float64(n) / max(elapsed.Seconds(), 1e-9)
	r.BytesSecond = r.PerSecond * float64(f.size)
	if s != nil {
		r.Latency = s.percentiles()
	}
	return r
}

func (a *app) printResults(results ...result) error {
	rows := ui.Rows{Columns: []string{"test", "clients", "messages", "size", "seconds", "msgs/s", "bytes/s", "p50 ms", "p99 ms", "max ms"}, Right: []bool{false, true, true, true, true, true, true, true, true, true}}
	var items []any
	for _, r := range results {
		if l := r.Limit; l != nil {
			a.ui.Note("%s: limit: %s: %s; try: %s", r.Test, l.What, l.Why, l.Try)
		}
		items = append(items, r)
		p50, p99, top := "", "", ""
		if l := r.Latency; l != nil {
			p50, p99, top = fmt.Sprintf("%.3f", l.P50), fmt.Sprintf("%.3f", l.P99), fmt.Sprintf("%.3f", l.Max)
		}
		rows.Cells = append(rows.Cells, []string{r.Test, ui.Count(r.Clients), ui.Count(r.Messages), ui.Bytes(r.Size), fmt.Sprintf("%.3f", r.Seconds), ui.Count(int64(r.PerSecond)), ui.Bytes(int64(r.BytesSecond)), p50, p99, top})
	}
	return a.ui.List(items, rows)
}

func (a *app) benchPub() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "pub [SUBJECT]", Short: "Publish live, with --subs also receive", Args: args(0, 1, "[SUBJECT]"),
		Long: "Publish live messages and, with --subs, receive each of them so many times on\nconnections of their own, with the latency from send to receipt.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		payload, err := f.stamped()
		if err != nil {
			return usage(cmd, "%v", err)
		}
		subject := "bench.live"
		if len(args) > 0 {
			subject = args[0]
		}
		subs, closeSubs, err := a.many(cmd, f.subs)
		defer closeSubs()
		if err != nil {
			return err
		}
		pubs, closePubs, err := a.many(cmd, f.clients)
		defer closePubs()
		if err != nil {
			return err
		}
		counters, err := a.receive(cmd.Context(), subs, subject, f.messages, f.wait)
		if err != nil {
			return err
		}
		g, err := a.gaugeFrom(cmd.Context(), pubs[0], &f, "")
		if err != nil {
			return err
		}
		start := time.Now()
		err = each(pubs, func(i int, c *client.Client) error {
			mine := slices.Clone(payload)
			for n := range f.share(i) {
				stampNow(mine)
				if err := c.Publish(subject, mine); err != nil {
					return err
				}
				if n%1024 == 0 && cmd.Context().Err() != nil {
					return cmd.Context().Err()
				}
			}
			return c.Flush(cmd.Context())
		})
		if err != nil {
			return err
		}
		results := []result{f.result("pub "+subject, time.Since(start), int64(f.messages), nil)}
		if f.subs > 0 {
			results = append(results, counters.result(&f, subject, start))
		}
		last := &results[len(results)-1] // with subscribers it is over when they have all
		*last = g.into(cmd.Context(), *last, &f, false)
		return a.printResults(results...)
	}
	f.add(cmd)
	cmd.Flags().IntVar(&f.subs, "subs", 0, "subscribers on connections of their own")
	cmd.Flags().DurationVarP(&f.wait, "wait", "w", 10*time.Second, "how long subscribers wait without a message")
	return cmd
}

func (a *app) benchSub() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "sub [SUBJECT]", Short: "Receive live messages of a bench pub elsewhere", Args: args(0, 1, "[SUBJECT]"),
		Long: "Receive live messages on each of --clients connections. The rate counts from the\nfirst message; latencies mean something when both clocks are the same.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := f.stamped(); err != nil {
			return usage(cmd, "%v", err)
		}
		subject := "bench.live"
		if len(args) > 0 {
			subject = args[0]
		}
		clients, closeAll, err := a.many(cmd, f.clients)
		defer closeAll()
		if err != nil {
			return err
		}
		r, err := a.receive(cmd.Context(), clients, subject, f.messages, f.wait)
		if err != nil {
			return err
		}
		a.ui.Note("waiting for %s on %s", plural(f.messages, "message"), subject)
		r.all.Wait()
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		got := r.result(&f, subject, time.Unix(0, r.begin.Load()))
		if got.Messages == 0 {
			return &problem{code: exitTimeout, what: fmt.Sprintf("no message on %s in %s", subject, f.wait), next: "pubsub bench pub " + subject, err: client.ErrTimeout}
		}
		return a.printResults(got)
	}
	f.add(cmd)
	cmd.Flags().DurationVarP(&f.wait, "wait", "w", 30*time.Second, "give up when no message came for this long")
	return cmd
}

func (a *app) benchDurable() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: "durable [SUBJECT]", Short: "Publish durably, waiting for every receipt", Args: args(0, 1, "[SUBJECT]"),
		Long: "Publish durable messages with --window of them without receipt per connection\n(--sync: one), with the latency from send to receipt. Without SUBJECT it uses a\ntopic of its own and deletes it afterwards.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := f.stamped(); err != nil {
			return usage(cmd, "%v", err)
		}
		if f.sync {
			f.window = 1
		}
		clients, closeAll, err := a.many(cmd, f.clients, client.PublishWindow(f.window))
		defer closeAll()
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		subject := "pubsub.bench.durable"
		if len(args) > 0 {
			subject = args[0]
		} else {
			const topic = "pubsub_bench"
			if _, err := clients[0].CreateTopic(ctx, client.TopicConfig{Name: topic, Subjects: []string{"pubsub.bench.>"}}); err != nil {
				return err
			}
			if !f.keep {
				defer func() { _ = clients[0].DeleteTopic(context.WithoutCancel(ctx), topic) }()
			}
		}
		g, err := a.gaugeFrom(ctx, clients[0], &f, subject)
		if err != nil {
			return a.storeProblem(ctx, err, subject)
		}
		var s spread
		start := time.Now()
		err = each(clients, func(i int, c *client.Client) error {
			return f.storeMany(ctx, c, subject, f.share(i), &s)
		})
		if err != nil {
			return a.storeProblem(ctx, err, subject)
		}
		r := f.result("durable "+subject, time.Since(start), int64(f.messages), &s)
		r.Window = f.window
		return a.printResults(g.into(ctx, r, &f, true))
	}
	f.add(cmd)
	cmd.Flags().IntVar(&f.window, "window", 500, "messages without receipt per connection")
	cmd.Flags().BoolVar(&f.sync, "sync", false, "wait for each receipt before the next message")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "keep the topic")
	return cmd
}
