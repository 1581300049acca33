package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ballast fills the state with n keys.
func (c *cell) ballast(n int) error {
	pad := strings.Repeat("x", c.o.value-100)
	batch := max(1, min(500, (2<<20)/c.o.value)) // some MiB at once, whatever a record holds
	for i := 0; i < n; i += batch {
		err := c.publish("in", "ballast", i, min(batch, n-i), func(i int) string {
			return fmt.Sprintf(`{"k":"ballast %d","v":1,"at":%d,"pad":%q}`, i, start, pad)
		})
		if err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	return within("the ballast to be read", func(context.Context) error {
		i, err := c.info()
		if err != nil {
			return err
		}
		for _, r := range i.Replicas {
			if r.Leads && r.Keys >= int64(n) && r.Lag == 0 { // a window's key and its accumulator count each
				return nil
			}
		}
		return fmt.Errorf("not yet: %d replicas", len(i.Replicas))
	})
}

// record is the i-th of IN: a millisecond of event time each.
func record(i int) string {
	return fmt.Sprintf(`{"k":"k%d","v":%d,"at":%d,"pad":""}`, i%keys, i%97, start+int64(i))
}

// load publishes at the given rate until it is stopped. It goes on after failures.
func (c *cell) load() {
	const batch = 20
	tick := time.NewTicker(time.Second * batch / time.Duration(c.o.rate))
	defer tick.Stop()
	for {
		select {
		case <-c.stopped:
			return
		case <-tick.C:
		}
		at := int(c.sent.Load())
		if err := c.publish("in", "live", at, batch, record); err != nil {
			fmt.Fprintln(os.Stderr, "recovery:", err)
			return
		}
		c.sent.Add(batch)
	}
}

// publish publishes records until each is acknowledged.
func (c *cell) publish(subject, series string, from, n int, text func(int) string) error {
	for deadline := time.Now().Add(patience); ; {
		err := c.once(subject, series, from, n, text)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (c *cell) once(subject, series string, from, n int, text func(int) string) error {
	box := nats.NewInbox()
	answers := make(chan *nats.Msg, n)
	sub, err := c.nc.ChanSubscribe(box, answers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := from; i < from+n; i++ {
		m := &nats.Msg{Subject: subject, Reply: box, Data: []byte(text(i)), Header: nats.Header{"Nats-Msg-Id": {series + strconv.Itoa(i)}}}
		if err := c.nc.PublishMsg(m); err != nil {
			return err
		}
	}
	patient := 200 * time.Millisecond // a lost answer must not hide how soon the broker is back
	if series == "ballast" {
		patient = 10 * time.Second // nothing is measured yet
	}
	late := time.After(patient)
	for range n {
		select {
		case m := <-answers:
			if !strings.Contains(string(m.Data), `"seq"`) || strings.Contains(string(m.Data), `"error"`) {
				return fmt.Errorf("publish to %s: %s", subject, m.Data)
			}
		case <-late:
			return fmt.Errorf("publish to %s: no answer", subject)
		}
	}
	return nil
}

// overhead measures what the mode costs while nothing fails.
func (c *cell) overhead(r *result, m mode) error {
	type figures struct {
		records, in, log, spent float64
	}
	look := func() (f figures, err error) {
		i, err := c.info()
		for _, r := range i.Replicas {
			f.log += float64(r.Stats.CheckpointBytes)
			if r.Leads {
				f.in, f.log = float64(r.Stats.InBytes), f.log+float64(r.Stats.LogBytes)
			}
		}
		f.records, f.spent = float64(c.sent.Load()), c.Spent()
		return f, err
	}
	if strings.HasPrefix(m.name, "passive") {
		<-time.After(13 * time.Second) // the ballast's own checkpoint is no cost of going on
	}
	before, err := look()
	if err != nil {
		return err
	}
	<-time.After(10 * time.Second)
	after, err := look()
	if err != nil {
		return err
	}
	if after.in == before.in {
		return errors.New("nothing was read while its cost was to be measured")
	}
	r.overhead = (after.log - before.log) / (after.in - before.in)
	r.processor = (after.spent - before.spent) * 1e6 / (after.records - before.records)
	return nil
}

// window is a result.
type window struct {
	K   string `json:"k"`
	End string `json:"window_end"`
	N   int    `json:"n"`
	Sum int    `json:"total"`
}

// want are the results of n records, computed at once: windows that are over.
func want(n int) map[window]bool {
	all := map[string]*window{}
	last := start + int64(n) - 1
	for i := range n {
		end := start + int64(i) - int64(i)%100 + 100
		if end > last {
			break
		}
		k := "k" + strconv.Itoa(i%keys)
		id := fmt.Sprint(k, end)
		if all[id] == nil {
			all[id] = &window{K: k, End: time.UnixMilli(end).UTC().Format(time.RFC3339Nano)}
		}
		all[id].N++
		all[id].Sum += i % 97
	}
	set := map[window]bool{}
	for _, w := range all {
		set[*w] = true
	}
	return set
}

// judge holds the results against those computed at once, and against the promise.
func (c *cell) judge(r *result, m mode) error {
	n, ended := int(c.sent.Load()), time.Now().Add(patience)
	all := want(n)
	err := within("the input to be read", func(context.Context) error {
		i, err := c.info()
		for _, r := range i.Replicas {
			if r.Leads && r.Lag == 0 && err == nil {
				return nil
			}
		}
		return errors.Join(err, errors.New("records wait"))
	})
	if err != nil {
		return err
	}
	<-time.After(time.Second)
	missing := len(all)
	repeated, unflagged, foreign := 0, 0, 0
	got := map[window]bool{}
	rows, err := c.read()
	if err != nil {
		return err
	}
	for i, at := range c.killed {
		next := ended
		if i+1 < len(c.killed) {
			next = c.killed[i+1]
		}
		r.silence = append(r.silence, silence(rows, at, next))
	}
	for _, row := range rows {
		switch {
		case !all[row.window]:
			foreign++
		case got[row.window]:
			repeated++
			if !row.flagged {
				unflagged++
			}
		default:
			got[row.window] = true
			missing--
		}
	}
	switch {
	case foreign == 0 && missing == 0 && repeated == 0:
		r.verdict = "equal"
	default:
		r.verdict = fmt.Sprintf("%d of %d missing, %d repeated", missing, len(all), repeated)
		if repeated > 0 {
			r.verdict += fmt.Sprintf(" (%d not flagged)", unflagged)
		}
		if foreign > 0 {
			r.verdict += fmt.Sprintf(", %d wrong", foreign)
		}
	}
	if c.lost > 0 || c.again > 0 {
		r.verdict += fmt.Sprintf("; %d records told lost, %d steps or records run again", c.lost, c.again)
	}
	switch m.name {
	case "upstream":
		r.broken = foreign > 0 || missing > 0 || unflagged > 0
	case "amnesia":
		r.broken = foreign > 0 || repeated > 0 || missing > 0 && c.lost == 0
	default:
		r.broken = foreign > 0 || missing > 0 || repeated > 0
	}
	if r.broken {
		r.verdict = "**broken**: " + r.verdict
	}
	return nil
}

type row struct {
	window
	flagged bool
	stored  time.Time
}

// silence returns the longest time without a result that ends between a kill and the next, or the
// end.
func silence(rows []row, killed, next time.Time) (longest time.Duration) {
	for i := 1; i < len(rows); i++ {
		a, b := rows[i-1].stored, rows[i].stored
		if b.After(killed) && !b.After(next) {
			longest = max(longest, b.Sub(a))
		}
	}
	return longest
}

// read reads the output in full.
func (c *cell) read() (rows []row, err error) {
	err = within("the output to be read", func(ctx context.Context) error {
		rows = nil
		s, err := c.js.Stream(ctx, "OUT")
		if err != nil {
			return err
		}
		cons, err := c.js.OrderedConsumer(context.Background(), "OUT", jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		for n := int(s.CachedInfo().State.Msgs); len(rows) < n; {
			b, err := cons.Fetch(min(n-len(rows), 500), jetstream.FetchMaxWait(3*time.Second))
			if err != nil {
				return err
			}
			for m := range b.Messages() {
				var r row
				if err := json.Unmarshal(m.Data(), &r.window); err != nil {
					return err
				}
				meta, err := m.Metadata()
				if err != nil {
					return err
				}
				r.stored = meta.Timestamp
				r.flagged = m.Headers().Get("Herald-Duplicate") != ""
				rows = append(rows, r)
			}
			if err := b.Error(); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}
