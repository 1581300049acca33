package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// remoteEvery is how often a topic is looked at that has no replica here.
const remoteEvery = 200 * time.Millisecond

// remote tells whether an input has no replica on this node.
func (u *unit) remote() bool {
	for i := range u.g.Inputs {
		if t, ok := u.e.state.Topic(u.op.Load().Account, u.g.Inputs[i].Topic); ok && t.Data() == nil {
			return true
		}
	}
	return false
}

// gather reads what has arrived, of each input in its order and of all by the time they
// were stored; up to the cut, where there is one.
func (u *unit) gather(cut []topics.Sequence) error {
	if u.p.stale = len(u.p.arrivals) > 0; u.p.stale {
		return nil
	}
	u.p.brought = make([]bool, len(u.g.Inputs))
	o := u.op.Load()
	if u.p.next == nil {
		u.p.next = make([]topics.Sequence, len(u.g.Inputs))
		for i := range u.p.next {
			u.p.next[i] = max(u.inst.Position(i), start(o, i)) + 1
		}
	}
	limit := max(u.g.Limits.Records, 1)
	for i := range u.g.Inputs {
		messages, next, err := u.read(i, u.p.next[i], limit, u.g.Limits.Bytes)
		if err != nil {
			return fmt.Errorf("read input %s: %w", u.g.Inputs[i].Name, err)
		}
		if i < len(cut) {
			next = min(next, cut[i]+1)
			messages = slices.DeleteFunc(messages, func(m topics.Message) bool { return m.Sequence > cut[i] })
		}
		u.p.brought[i] = next > u.p.next[i]
		u.p.next[i] = max(next, u.p.next[i])
		for m := range messages {
			u.p.arrivals = append(u.p.arrivals, engine.Arrival{Input: i, Message: &messages[m]})
		}
	}
	if len(u.g.Inputs) > 1 {
		slices.SortStableFunc(u.p.arrivals, func(a, b engine.Arrival) int {
			return int(min(max(a.Message.Time-b.Message.Time, -1), 1))
		})
	}
	if len(u.p.arrivals) > 0 {
		u.p.since = time.Now()
	}
	return nil
}

// start is behind which sequence an input begins.
func start(o *catalogue.Operator, input int) topics.Sequence {
	if input < len(o.Starts) {
		return o.Starts[input]
	}
	return 0
}

// read reads some messages of an input, and where to go on.
func (u *unit) read(input int, from topics.Sequence, most, bytes int) ([]topics.Message, topics.Sequence, error) {
	o, in := u.op.Load(), &u.g.Inputs[input]
	t, err := u.topic(o.Account, in.Topic)
	if err != nil {
		return nil, from, err
	}
	if other := t != nil && input < len(o.Inputs) && o.Inputs[input] != t.ID(); t == nil || other {
		return nil, from, &goneError{in.Name, in.Topic, max(from, 1) - 1, other}
	}
	var messages []topics.Message
	var next topics.Sequence
	if data := t.Data(); data != nil {
		messages, next, err = data.Read(topics.NewFilter(in.Subjects), from, most, bytes, nil)
	} else if u.e.o.Fetch != nil {
		ctx, cancel := context.WithTimeout(u.e.ctx, 5*time.Second)
		defer cancel()
		messages, next, err = u.e.o.Fetch(ctx, t, in.Subjects, from)
	}
	if s := o.Skip; s != nil && s.Input == input && (s.Instance == 0 || s.Instance == u.instance()) {
		messages = slices.DeleteFunc(messages, func(m topics.Message) bool { return m.Sequence == s.Sequence })
	}
	return messages, next, err
}

// readAgain reads what a step has read, for a replica that runs it again: all of it, or the
// error is a *rereadError.
//
// A replica may be ahead of its own copy of an input: that is of another group, which goes at
// its own pace, and after a restart from the beginning. So records that aren't there have
// gone only where the copy has come past them.
func (u *unit) readAgain(r engine.Read) (all []topics.Message, err error) {
	o, in := u.op.Load(), &u.g.Inputs[r.Input]
	if slices.Contains(o.RenewedSince(u.epoch), r.Input) {
		return nil, &rereadError{&goneError{in.Name, in.Topic, r.To, true}}
	}
	for from := r.From; len(all) < r.Count; {
		messages, next, err := u.read(r.Input, from, r.Count-len(all), 0)
		if err != nil {
			return nil, &rereadError{fmt.Errorf("read input %s: %w", in.Name, err)}
		}
		for _, m := range messages {
			if m.Sequence <= r.To && len(all) < r.Count {
				all = append(all, m)
			}
		}
		switch {
		case len(all) == r.Count:
		case next > r.To:
			return nil, &rereadError{fmt.Errorf("%w: input %s has %d of the %d records from %d to %d of topic %s", errDeleted, in.Name, len(all), r.Count, r.From, r.To, in.Topic)}
		case next <= from:
			return nil, &rereadError{fmt.Errorf("topic %s of input %s has come to sequence %d here, and the step has read up to %d", in.Topic, in.Name, max(next, 1)-1, r.To)}
		}
		from = next
	}
	if n := len(all); n > 0 && all[n-1].Sequence != r.To {
		return nil, &rereadError{fmt.Errorf("the step has passed a record of input %s over that the catalogue here doesn't name, in front of sequence %d", in.Name, r.To)}
	}
	return all, nil
}

// errDeleted: records that a step has read have been deleted since.
var errDeleted = errors.New("records are deleted that the step has read")

// rereadError says that the records of a step can't be read here now, which says nothing
// about the state.
type rereadError struct{ err error }

func (e *rereadError) Error() string { return e.err.Error() }
func (e *rereadError) Unwrap() error { return e.err }

// gone tells whether the records will never be there again.
func (e *rereadError) gone() bool {
	var g *goneError
	return errors.As(e.err, &g) || errors.Is(e.err, errDeleted)
}

// fleeting tells whether an input's records need not be there for long once they have been
// read: what standbys are to run again must be.
func (u *unit) fleeting() bool {
	for i := range u.g.Inputs {
		t, ok := u.e.state.Topic(u.op.Load().Account, u.g.Inputs[i].Topic)
		if !ok {
			continue
		}
		if c := t.Config(); c.Retention != topics.RetainLimits || c.MaxMsgsPer > 0 || c.MaxAge > 0 && c.MaxAge < longEnough {
			return true
		}
	}
	return u.atRisk()
}

// longEnough is how long records are kept that standbys may have to read again.
const longEnough = time.Minute

// ends is how far each input has been looked at once all that arrived is taken.
func (u *unit) ends() []topics.Sequence {
	ends := make([]topics.Sequence, len(u.p.next))
	for i, n := range u.p.next {
		ends[i] = max(n, 1) - 1
	}
	return ends
}

// moved tells whether an input was read on without anything arriving: what its filter
// left out.
func (u *unit) moved() bool {
	for i, n := range u.p.next {
		if n > u.inst.Position(i)+1 && n > start(u.op.Load(), i)+1 {
			return true
		}
	}
	return false
}

// waiting tells whether an input has more than what is in the batch, or may have: it is then
// not called idle. What is in the batch may have been read long ago, while the operator was
// held up.
func (u *unit) waiting(input int) bool {
	t, ok := u.e.state.Topic(u.op.Load().Account, u.g.Inputs[input].Topic)
	if !ok {
		return false
	}
	if t.Data() == nil { // what there is elsewhere is known for as long as it takes to read it
		return u.p.stale || input < len(u.p.brought) && u.p.brought[input]
	}
	_, last := t.Data().Bounds()
	return u.p.next[input] <= last
}
