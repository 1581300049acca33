package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/operators/optest"
)

// Options are how the demo is run.
type Options struct {
	Keep       bool   // leave the broker running
	Directory  string // "" is a temporary one, removed at the end
	Executable string // "" is this one
	Note       func(format string, args ...any)
}

// patience bounds each step: the whole takes a few seconds.
const patience = 30 * time.Second

// Run runs the demo. The report is complete when the error is nil; whether its
// counts add up is for Faults to say. Close it.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o.Note == nil {
		o.Note = func(string, ...any) {}
	}
	if o.Executable == "" {
		if o.Executable, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
	}
	all, err := quakes()
	if err != nil {
		return nil, err
	}
	r := &Report{Directory: o.Directory}
	if r.Directory == "" {
		if r.Directory, err = os.MkdirTemp("", "herald-demo-"); err != nil {
			return nil, fmt.Errorf("make a temporary directory: %w", err)
		}
		r.temporary = true
	}
	d := &run{Options: o, Report: r, all: all, seen: map[string]int{}}
	defer func() {
		err = errors.Join(err, d.leave())
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	began := time.Now()
	for _, step := range []func(context.Context) error{d.begin, d.deploy, d.firstHalf, d.crash, d.secondHalf, d.replay, d.results} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(began).Seconds()
	r.Facts = facts(all)
	return r, nil
}

// run is one run of the demo.
type run struct {
	Options
	*Report
	all  []quake
	c    *client.Client
	pub  *client.Publisher
	live *client.Subscription

	back chan struct{} // told when the connection is back

	pending []sent
	stored  []optest.Record // what the topic holds

	mu   sync.Mutex
	seen map[string]int // live messages by id
}

// sent is an event without receipt.
type sent struct {
	quake  *quake
	future *client.Future
}

// begin starts the broker, connects, advertises and subscribes.
func (d *run) begin(ctx context.Context) error {
	var err error
	if d.child, err = start(d.Executable, d.Report.Directory, 0); err != nil {
		return err
	}
	d.URLs = d.child.urls
	d.Note("broker %s, its data in %s", d.URLs.Client, d.Report.Directory)
	d.back = make(chan struct{}, 1)
	d.c, err = client.Connect(d.URLs.Client, client.Name("pubsub demo"), client.ReconnectWait(20*time.Millisecond), client.NATS(nats.ReconnectJitter(0, 0)),
		client.OnReconnect(func(string) {
			select {
			case d.back <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return err
	}
	if d.pub, err = d.c.Advertise(ctx, feed()); err != nil {
		return err
	}
	ad := d.pub.Advertisement()
	d.Note("advertised %s on %s (revision %d); the broker made topic %s", ad.Name, ad.Subject, ad.Revision, ad.Keep.Topic)
	d.live, err = d.c.Subscribe("quakes.>", func(m *client.Message) error {
		d.mu.Lock()
		d.seen[m.ID()]++
		d.mu.Unlock()
		return nil
	})
	return err
}

// publish sends events without waiting for receipts.
func (d *run) publish(ctx context.Context, events []quake) error {
	for i := range events {
		q := &events[i]
		f, err := d.pub.SendAsync(ctx, q.tokens(), q.line, client.MessageID(q.ID))
		if err != nil {
			return err
		}
		d.pending = append(d.pending, sent{q, f})
	}
	return nil
}

// settle waits for receipts; what got none is returned, in order.
func (d *run) settle(ctx context.Context) []sent {
	var lost []sent
	for _, s := range d.pending {
		r, err := s.future.Wait(ctx)
		if err != nil {
			lost = append(lost, s)
			continue
		}
		d.Acked++
		if r.Duplicate {
			d.FoundStored++
		}
	}
	d.pending = d.pending[:0]
	return lost
}

// firstHalf publishes until the middle; the last events are still on their way
// when it returns.
func (d *run) firstHalf(ctx context.Context) error {
	half := len(d.all) / 2
	settled := half * 3 / 4
	if err := d.publish(ctx, d.all[:settled]); err != nil {
		return err
	}
	if lost := d.settle(ctx); len(lost) > 0 {
		return fmt.Errorf("%d events without receipt before anything happened", len(lost))
	}
	return d.publish(ctx, d.all[settled:half])
}

// crash kills the broker, starts it again on the same files, and publishes again
// what has no receipt. The ids make that safe: what was stored without its
// receipt getting through is found, not stored twice.
func (d *run) crash(ctx context.Context) error {
	select { // forget an earlier reconnect
	case <-d.back:
	default:
	}
	port, err := d.child.port()
	if err != nil {
		return err
	}
	if err := d.child.kill(); err != nil {
		return err
	}
	d.CrashedAfter = len(d.all) / 2
	killed := time.Now()
	if d.child, err = start(d.Executable, d.Report.Directory, port); err != nil {
		return err
	}
	d.URLs = d.child.urls
	d.RestartMillis = time.Since(killed).Milliseconds()
	select {
	case <-d.back:
	case <-time.After(patience):
		return errors.New("the client did not reconnect to the restarted broker")
	case <-ctx.Done():
		return ctx.Err()
	}
	lost := d.settle(ctx)
	d.Note("killed the broker (kill -9) after %d events and started it again: back in %d ms, %d events were without receipt", d.CrashedAfter, d.RestartMillis, len(lost))
	return d.again(ctx, lost)
}

// again publishes what has no receipt until it has one.
func (d *run) again(ctx context.Context, lost []sent) error {
	for try := 0; len(lost) > 0; try++ {
		if try == 5 {
			return fmt.Errorf("%d events still have no receipt after %d tries", len(lost), try)
		}
		d.Republished += len(lost)
		for _, s := range lost {
			f, err := d.pub.SendAsync(ctx, s.quake.tokens(), s.quake.line, client.MessageID(s.quake.ID))
			if err != nil {
				return err
			}
			d.pending = append(d.pending, sent{s.quake, f})
		}
		lost = d.settle(ctx)
	}
	return nil
}

func (d *run) secondHalf(ctx context.Context) error {
	if err := d.publish(ctx, d.all[d.CrashedAfter:]); err != nil {
		return err
	}
	if err := d.again(ctx, d.settle(ctx)); err != nil {
		return err
	}
	d.Published = len(d.all)
	// A receipt comes on the connection that the live message came on before, so
	// after the last one the live side is complete, too; the flush makes sure
	// that it was handled.
	if err := d.c.Flush(ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	for {
		d.mu.Lock()
		n := len(d.seen)
		d.mu.Unlock()
		if n >= len(d.all) || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := d.live.Close(); err != nil {
		return err
	}
	for _, q := range d.all {
		n := d.seen[q.ID]
		if n == 0 {
			d.MissingLive++
			continue
		}
		d.Live++
		d.LiveRepeats += n - 1
	}
	return nil
}

// replay reads the topic from the beginning and compares every byte.
func (d *run) replay(ctx context.Context) error {
	info, err := d.c.Topic(ctx, "quakes")
	if err != nil {
		return err
	}
	d.Stored = int(info.State.Msgs)
	known := make(map[string]int, len(d.all))
	for i := range d.all {
		known[d.all[i].ID] = i
	}
	arrived := make([]int, len(d.all))
	next := 0
	done := make(chan struct{})
	sub, err := d.c.Subscribe("quakes.>", func(m *client.Message) error {
		d.Replayed++
		d.stored = append(d.stored, optest.Record{Input: "quakes", Subject: m.Subject, Payload: m.Payload})
		i, ok := known[m.ID()]
		switch {
		case !ok || !bytes.Equal(m.Payload, d.all[i].line):
			d.Damaged++
		default:
			arrived[i]++
			if i != next {
				d.OutOfOrder++
			}
			next = i + 1
		}
		if m.Stored.Sequence == info.State.LastSeq {
			close(done)
		}
		return nil
	}, client.From(client.First()))
	if err != nil {
		return err
	}
	select {
	case <-done:
	case <-time.After(patience):
	case <-ctx.Done():
	}
	if err := sub.Close(); err != nil {
		return err
	}
	for _, n := range arrived {
		if n == 0 {
			d.Missing++
		} else {
			d.Duplicates += n - 1
		}
	}
	d.Note("read the topic from the beginning: %d messages", d.Replayed)
	return ctx.Err()
}

// leave disconnects. With Keep the advertisement stays until its lease ends.
func (d *run) leave() error {
	if d.c == nil {
		return nil
	}
	if d.Keep && d.pub != nil {
		d.keep = d.c // holds the lease
		return nil
	}
	return d.c.Close()
}
