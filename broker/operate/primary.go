package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/engine"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/subject"
)

// primary is what a unit has beside its state where the group is led.
type primary struct {
	arrivals []engine.Arrival  // read and not yet run
	next     []topics.Sequence // by input: where to read on; nil: at the instance's position
	brought  []bool            // by input: reading brought it on the last time
	stale    bool              // arrivals are what an earlier step has left
	since    time.Time         // the first of arrivals was read
	flying   []*flight         // proposed and not yet committed
	after    time.Time         // nothing is proposed before
	blocked  string            // why
	shown    time.Time         // when how far it is was noted last
	behind   time.Time         // since when the state has missed something
	behindAt topics.Place      // where it is then

	teller teller

	deltas, inputs float64 // bytes of a step, on average
	replays        bool    // steps have no delta: standbys run them
}

// flight is a step under way.
type flight struct {
	seq, digest uint64
	live        []live
	stored      []topics.Publish // in topics of the operator's group
	began       time.Time
	records     int
	step        *engine.Step
	arrivals    []engine.Arrival // those that it took
	outputs     int
}

// live is a message for a subject that nobody keeps.
type live struct {
	subject         string
	header, payload []byte
}

func (p *primary) reset() {
	p.arrivals, p.next, p.brought, p.flying = nil, nil, nil, nil
}

func (p *primary) first() *flight {
	if len(p.flying) == 0 {
		return nil
	}
	return p.flying[0]
}

// committed is told of a step that was run here.
func (u *unit) committed(f *flight) {
	u.p.flying = u.p.flying[1:]
	u.follow(f)
	if a := u.e.o.Account(u.op.Load().Account); a != nil {
		u.p.teller.tell(a, f.stored)
		for i := range f.live {
			l := &f.live[i]
			a.Publish(l.subject, "", l.header, l.payload)
		}
	}
	u.count(func(st *Stats) {
		st.Steps++
		st.Seq = f.seq
		st.In += uint64(f.records)
		st.Out += uint64(f.outputs)
		u.gaveLocked(f.outputs)
		st.CommitTime = time.Since(f.began)
	})
}

// Herald's own headers of outputs.
const (
	headerOperator = "Herald-Operator"
	headerOrigin   = "Herald-Origin"
	// Of recovery upstream: what is the same when an output comes again, and that it may
	// have come before.
	headerID        = "Herald-Id"
	headerDuplicate = "Herald-Duplicate"
)

// idle is how long a unit sleeps that waits for nothing but to be woken.
const idle = time.Hour

// lead runs and proposes steps, where this node leads and the operator is to run, and
// returns how long to sleep.
func (u *unit) lead() (time.Duration, error) {
	o := u.op.Load()
	if u.inst == nil || !u.group.IsLeader() || !u.e.runs() {
		u.outbox.stop()
		u.tendShadow()
		if u.inst != nil && (len(u.p.flying) > 0 || u.inst.Open() > 0) && !u.group.IsLeader() {
			return idle, u.abort()
		}
		return u.standBy(), nil
	}
	runs := o.State == catalogue.Running || o.State == catalogue.Paused && o.Next != nil
	if data := u.group.Store(); data != nil && data.Place(u.id, u.slot).Epoch < u.epoch {
		return retryEvery, u.declare(o)
	}
	if runs && o.Epoch > u.epoch {
		return retryEvery, u.declare(o)
	}
	if ready, err := u.takeOver(runs); err != nil || !ready {
		return retryEvery, err
	}
	u.isReady()
	u.tendShadow()
	if err := u.afterTrouble(); err != nil {
		return 0, err
	}
	if err := u.outbox.tend(u.inst, runs); err != nil {
		return 0, err
	}
	if wait := time.Until(u.p.after); wait > 0 {
		return wait, nil
	}
	u.p.blocked = ""
	for u.inst.Open() < max(u.g.Limits.InFlight, 1) {
		done, sleep, err := u.advance(runs)
		if done || err != nil {
			return sleep, err
		}
	}
	return idle, nil
}

// advance runs the next step, if there is something to do: done is true when there isn't,
// for as long as sleep or until the unit is woken. One that isn't to run only takes out of
// its outbox what has been sent.
func (u *unit) advance(runs bool) (done bool, sleep time.Duration, err error) {
	sent, alone, err := u.outbox.settled()
	if err != nil {
		if errors.Is(err, opstate.ErrDamaged) {
			return true, 0, err
		}
		if !runs || u.inst.Open() > 0 {
			return true, idle, nil
		}
		return true, idle, u.fail(err.Error(), nil)
	}
	waiting, err := u.inst.Outbox()
	if err != nil {
		return true, 0, err
	}
	halt, rests, cut, err := u.making(u.op.Load())
	if err != nil {
		return true, 0, err
	}
	if halt > 0 {
		u.p.arrivals, u.p.next = nil, nil
		return false, 0, u.trim(sent, halt)
	}
	if cut == nil && !rests {
		if rests, cut, err = u.marking(); err != nil {
			return true, 0, err
		}
	}
	if full := waiting > u.e.o.OutboxBytes; full || alone || rests || !runs {
		if full && runs {
			u.p.blocked = u.outbox.full(waiting)
		}
		if len(sent) == 0 {
			return true, idle, nil
		}
		return false, 0, u.trim(sent, 0)
	}
	var gone *goneError
	switch err := u.gather(cut); {
	case errors.As(err, &gone) && u.inst.Open() > 0:
		return true, idle, nil // once what is under way is committed
	case errors.As(err, &gone):
		return true, idle, u.fail(gone.Error(), nil)
	case err != nil:
		return true, 0, err
	}
	now := u.now()
	next, err := u.inst.Next()
	if err != nil {
		return true, 0, err
	}
	full := u.g.Limits.Records > 0 && len(u.p.arrivals) >= u.g.Limits.Records
	linger := u.g.Limits.Linger - time.Since(u.p.since)
	switch {
	case len(u.p.arrivals) > 0 && !full && linger > 0 && u.inst.Open() > 0:
		return true, linger, nil
	case len(u.p.arrivals) == 0 && !u.moved() && next > now && (len(sent) == 0 || u.inst.Open() > 0):
		return true, u.sleep(next, now), nil
	}
	done, err = u.step(now, sent)
	return done, u.sleep(next, now), err
}

func (u *unit) now() stream.Time { return stream.Time(u.e.state.Now()) }

func (u *unit) sleep(next, now stream.Time) time.Duration {
	if next == stream.TimeMax {
		if u.remote() {
			return remoteEvery
		}
		return idle
	}
	d := min(max(time.Duration(next-now), 5*time.Millisecond), idle)
	if u.remote() {
		d = min(d, remoteEvery)
	}
	return d
}

// declare begins the epoch that the catalogue asks for, in the group.
func (u *unit) declare(o *catalogue.Operator) error {
	ctx, cancel := context.WithTimeout(u.e.ctx, 5*time.Second)
	defer cancel()
	_, err := u.group.DeclareProducer(ctx, u.id, o.Epoch)
	return err
}

// afterTrouble looks at a proposal that wasn't taken: everything that was run is thrown
// away, and run again from what is committed.
func (u *unit) afterTrouble() error {
	u.mu.Lock()
	t := u.trouble
	u.trouble = nil
	u.mu.Unlock()
	if t == nil {
		return nil
	}
	if err := u.abort(); err != nil {
		return err
	}
	pause := 20 * time.Millisecond
	switch {
	case t.fault != nil && t.fault.ErrCode == codeNoTopic: // it is moving, or gone: see routes
	case t.fault != nil && permanent(t.fault):
		return u.fail(fmt.Sprintf("an output was refused: %v", t.fault), nil)
	case t.fault != nil:
		u.p.blocked, pause = t.fault.Error(), time.Second
		u.note("warn", "an output is refused for now: %v", t.fault)
	case t.err != nil && !errors.Is(t.err, state.ErrBusy) && !errors.Is(t.err, replication.ErrNotLeader) && !errors.Is(t.err, state.ErrUnknown):
		u.p.blocked, pause = t.err.Error(), time.Second
		u.note("warn", "a step could not be proposed: %v", t.err)
	}
	u.p.after = time.Now().Add(pause)
	return nil
}

// permanent tells whether a refusal will be there the next time too. A topic that is full
// gets room again.
func permanent(f *topics.Fault) bool {
	switch f.ErrCode {
	case 10077, 10047, 10002, 10023, 10008: // maximum messages, bytes; storage; resources; unavailable
		return false
	}
	return f.Status == 400 || f.Status == 404
}

// fail stops the operator for good, until it is resumed.
func (u *unit) fail(why string, at *catalogue.Skipped) error {
	return u.failed(func(o *catalogue.Operator) { o.Error, o.At = why, at })
}

func (u *unit) failed(say func(o *catalogue.Operator)) error {
	o := *u.op.Load()
	o.State, o.At, o.Revision = catalogue.Failed, nil, o.Revision+1
	say(&o)
	u.note("error", "failed: %s", o.Error)
	ctx, cancel := context.WithTimeout(u.e.ctx, 5*time.Second)
	defer cancel()
	n, err := u.e.state.PutOperator(ctx, &o)
	if err != nil {
		return fmt.Errorf("note that operator %s has failed (%s): %w", o.Name, o.Error, err)
	}
	u.update(n)
	return u.abort()
}

// step runs a step and proposes it. done: there was nothing to do, or no more can be done
// now.
func (u *unit) step(now stream.Time, sent []engine.Sent) (done bool, err error) {
	routes, err := u.routes()
	if err != nil {
		return true, err
	}
	began := time.Now()
	s, taken, err := u.inst.Run(engine.Batch{
		Clock: now, Arrivals: u.p.arrivals, Ends: u.ends(), Waiting: u.waiting, Routes: routes, Sent: sent,
	})
	u.count(func(st *Stats) { st.Busy += time.Since(began) })
	if s != nil || err == nil {
		u.outbox.note(sent)
	}
	if s != nil {
		input := 0
		for _, a := range u.p.arrivals[:taken] {
			input += len(a.Message.Payload) + len(a.Message.Header)
		}
		took := u.p.arrivals[:taken:taken]
		u.p.arrivals = u.p.arrivals[taken:]
		u.p.choose(u.g, s, input, u.fleeting)
		u.count(func(st *Stats) { st.InBytes += uint64(input); st.DeltaBytes += uint64(len(s.Delta)) })
		u.propose(s, took, began)
	}
	var stopped *engine.StoppedError
	switch {
	case err == nil:
		return s == nil, nil
	case s != nil: // what stopped it is met again, with nothing in front of it
		return false, nil
	case errors.As(err, &stopped), errors.Is(err, engine.ErrStateFull):
		if u.inst.Open() > 0 {
			return true, nil // once what is under way is committed
		}
		why := err.Error()
		var at *catalogue.Skipped
		if stopped != nil && stopped.At.Sequence > 0 {
			at = &catalogue.Skipped{Input: stopped.At.Input, Sequence: stopped.At.Sequence, Instance: u.instance()}
			if stopped.Shared {
				at.Instance = 0
			}
		}
		if stopped != nil && stopped.Stack != nil {
			u.note("error", "%s", stopped.Stack)
		}
		return true, u.fail(why, at)
	}
	u.faulty = true
	return true, err
}

func (u *unit) propose(s *engine.Step, took []engine.Arrival, began time.Time) {
	o := u.op.Load()
	f := &flight{seq: s.Seq, digest: s.Digest, began: began, records: len(took), outputs: len(s.Outputs), step: s, arrivals: took}
	x := &state.Guarded{Guard: topics.Guard{Producer: u.id, Partition: s.Partition, Epoch: s.Epoch, Seq: s.Seq}}
	for i := range s.Outputs {
		out := &s.Outputs[i]
		if out.To != 0 {
			continue // it waits in the outbox
		}
		sink := &u.g.Sinks[out.Sink]
		keeps, header := u.keeperOf(out.Sink), out.Header
		if keeps != nil && keeps.Group() != u.group {
			keeps = nil // it has come since the step was run
		}
		if keeps != nil {
			header = storable(header)
		}
		header = u.withOrigin(header, origin{s.Epoch, s.Seq, i, out.ID, out.Again})
		if sink.Topic == "" && keeps == nil {
			f.live = append(f.live, live{out.Subject, header, out.Payload})
			continue
		}
		p := topics.Publish{Subject: []byte(out.Subject), Header: header, Payload: out.Payload}
		if keeps != nil {
			p.Topic = keeps.ID()
		} else if t, ok := u.e.state.Topic(o.Account, sink.Topic); ok {
			p.Topic = t.ID()
			if out.Subject == "" {
				p.Subject = []byte(firstSubject(t.Config()))
			}
		}
		x.Publishes = append(x.Publishes, p)
	}
	f.stored = x.Publishes
	x.Step = u.logged(s)
	u.count(func(st *Stats) { st.LogBytes += uint64(len(x.Step)) })
	u.p.flying = append(u.p.flying, f)
	u.group.SubmitGuarded(x, func(r topics.GuardResult, err error) {
		if err == nil && r.Verdict == topics.GuardNext {
			return // it comes by way of the log
		}
		u.mu.Lock()
		u.trouble = &trouble{fault: r.Fault, err: err}
		u.mu.Unlock()
		u.poke()
	})
}

// firstSubject is where outputs without a subject go.
func firstSubject(cfg *topics.Config) string {
	if len(cfg.Subjects) > 0 && subject.IsLiteral(cfg.Subjects[0]) {
		return cfg.Subjects[0]
	}
	return cfg.Name
}

// origin is where a message comes from: an output's step, its place among the step's
// outputs, and what it says of itself.
type origin struct {
	epoch, seq uint64
	index      int
	id         string
	again      bool
}

// withOrigin adds who made a message, and of which step it is which output.
func (u *unit) withOrigin(header []byte, from origin) []byte {
	const first = "NATS/1.0\r\n"
	operator := u.op.Load().Name
	b := make([]byte, 0, len(header)+len(operator)+len(from.id)+120)
	b = append(b, first+headerOperator+": "...)
	b = append(append(b, operator...), "\r\n"+headerOrigin+": "...)
	b = append(strconv.AppendUint(b, from.epoch, 10), ':')
	b = append(strconv.AppendUint(b, from.seq, 10), ':')
	b = strconv.AppendInt(b, int64(from.index), 10)
	if n := u.instance(); n > 0 {
		b = strconv.AppendInt(append(b, ':'), int64(n), 10)
	}
	b = append(b, "\r\n"...)
	if from.id != "" {
		b = append(append(append(b, headerID+": "...), from.id...), "\r\n"...)
	}
	if from.again {
		b = append(b, headerDuplicate+": possible\r\n"...)
	}
	if len(header) > len(first) {
		return append(b, header[len(first):]...)
	}
	return append(b, "\r\n"...)
}
