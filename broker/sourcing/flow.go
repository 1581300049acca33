package sourcing

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
	"github.com/heraldmq/herald/topics/subject"
	"github.com/heraldmq/herald/topics/transform"
)

// headerSource says on a sourced message where it is from:
// <stream> <sequence> <filter> <destination> <subject>
const headerSource = "Nats-Stream-Source"

const (
	roundMessages = 256     // read and appended at once
	roundBytes    = 1 << 20 // of headers and payloads, likewise
)

var (
	errOrigin    = errors.New("stream not found")
	errExternal  = errors.New("external stream not reachable")
	errShared    = errors.New("a consumer takes the same messages from the work queue")
	errRecreated = errors.New("the origin was made anew, its sequences start over")
)

// flow copies one origin into one target.
type flow struct {
	e      *Engine
	target *state.Topic
	source *topics.StreamSource
	mirror bool
	maps   []*transform.Transform
	filter *topics.Filter
	ctx    context.Context // ends with the flow
	stop   context.CancelFunc
	wake   chan struct{} // holds one

	// Owned by run.

	from topics.TopicID // the origin read so far; 0 before the first
	next topics.Sequence
	at   topics.Nanos // where to begin, by time; 0 once that is known
	term uint64       // of the target's group, in which all this was found out
	away bool         // the origin has no replica here, so that nobody may tell of its growth
	// done is up to where a work queue's messages are stored in the target: when one
	// of them is still in the queue, it only has to go.
	done topics.Sequence

	mu     sync.Mutex
	err    error
	lag    uint64
	active time.Time // when a message last came; zero if never
}

func newFlow(e *Engine, t *state.Topic, s *topics.StreamSource, mirror bool) *flow {
	f := &flow{e: e, target: t, source: s, mirror: mirror, wake: make(chan struct{}, 1)}
	f.ctx, f.stop = context.WithCancel(e.ctx)
	patterns := []string{s.FilterSubject}
	for i, m := range s.SubjectTransforms {
		tr, err := transform.New(m.Source, m.Destination)
		if err != nil {
			continue // the config was checked before it was stored
		}
		f.maps = append(f.maps, tr)
		if i == 0 {
			patterns = nil
		}
		patterns = append(patterns, tr.Source())
	}
	if len(patterns) > 0 && patterns[0] != "" {
		f.filter = topics.NewFilter(patterns)
	}
	return f
}

func (f *flow) origin() origin { return origin{f.target.Account(), f.source.Name} }

// among finds the flow's source in a config, -1 when it isn't there.
func (f *flow) among(list []*topics.StreamSource) int {
	for i, s := range list {
		if reflect.DeepEqual(s, f.source) {
			return i
		}
	}
	return -1
}

func (f *flow) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run copies until the flow is stopped.
func (f *flow) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for f.ctx.Err() == nil {
		more, err := f.round()
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
		if err == nil && more {
			continue
		}
		var retry <-chan time.Time
		switch {
		case err != nil:
			timer.Reset(f.e.o.Retry)
			retry = timer.C
		case f.away:
			timer.Reset(lookAgain)
			retry = timer.C
		}
		select {
		case <-f.ctx.Done():
		case <-f.wake:
		case <-retry:
		}
	}
}

// round copies some messages; more tells that there may be others.
func (f *flow) round() (more bool, err error) {
	f.away = false
	if !f.target.Group().IsLeader() || f.target.Data() == nil {
		return false, nil // Lead pokes
	}
	f.newTerm()
	x := f.source.External
	if x != nil && x.API != "" && (f.e.o.APIPrefix == "" || strings.TrimSuffix(x.API, ".") != f.e.o.APIPrefix) {
		return false, errExternal
	}
	t, ok := f.e.o.State.Topic(f.target.Account(), f.source.Name)
	if !ok {
		return false, errOrigin
	}
	account := f.e.o.Account(f.target.Account())
	if account == nil {
		return false, errOrigin
	}
	if err := f.resume(t); err != nil {
		return false, err
	}
	p, err := f.e.fetch(f.ctx, t, &readQuery{Topic: t.ID(), Patterns: f.filter.Patterns(), From: f.next, At: f.at})
	if err != nil {
		return false, err
	}
	if f.at > 0 {
		f.at, f.next, f.done = 0, p.From, max(f.done, p.From-1)
	}
	f.away = t.Data() == nil
	if f.newTerm() {
		return true, nil // others may have copied what was read
	}
	if len(p.messages) == 0 {
		f.next = max(f.next, p.Next)
		f.note(p.Lag, false)
		return false, nil
	}
	if err := f.copy(t, account, p); err != nil {
		return false, err
	}
	f.next = p.Next
	f.note(p.Lag, true)
	return true, nil
}

// newTerm tells whether the target's lead has moved since the flow found out how far
// it has come, and has it found out again.
func (f *flow) newTerm() bool {
	term := f.target.Group().Stats().Term
	if term == f.term {
		return false
	}
	f.term, f.from = term, 0
	return true
}

// copy stores a page in the target, and takes it out of an origin that is a work
// queue.
func (f *flow) copy(t *state.Topic, account *front.Account, p *page) error {
	queue := t.Config().Retention == topics.RetainWorkQueue
	fresh := p.messages
	if queue {
		if p.Shared != "" {
			return fmt.Errorf("%w: %s", errShared, p.Shared)
		}
		for len(fresh) > 0 && fresh[0].Sequence <= f.done {
			fresh = fresh[1:]
		}
	}
	if err := f.append(account, fresh, queue); err != nil {
		return err
	}
	if !queue {
		return nil
	}
	f.done = max(f.done, p.messages[len(p.messages)-1].Sequence)
	return f.consume(t, p.messages)
}

func (f *flow) note(lag uint64, moved bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag = lag
	if moved {
		f.active = time.Now()
	}
}

// shared names a consumer that reads some of the messages of a work queue that a
// filter lets through, "" if there is none.
func shared(data *store.Topic, f *topics.Filter) (other string) {
	data.Consumers(func(c *consumer.Consumer) bool {
		if overlap(c.Filter().Patterns(), f.Patterns()) {
			other = c.Name()
		}
		return other == ""
	})
	return other
}

// overlap tells whether two lists of patterns let the same subject through; none is
// all.
func overlap(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return subject.Overlap(x, y) })
	})
}

// consume takes messages out of a work queue that the target has stored.
func (f *flow) consume(t *state.Topic, msgs []topics.Message) error {
	seqs := make([]topics.Sequence, len(msgs))
	for i := range msgs {
		seqs[i] = msgs[i].Sequence
	}
	return f.e.take(f.ctx, t, seqs)
}

// append copies messages and waits until they are stored. When one is refused,
// none behind it is stored, and the flow goes on there later.
func (f *flow) append(account *front.Account, msgs []topics.Message, all bool) error {
	for len(msgs) > 0 {
		n, size := 0, 0
		for n < len(msgs) && (n == 0 || size < entryBytes) {
			size += len(msgs[n].Subject) + len(msgs[n].Header) + len(msgs[n].Payload)
			n++
		}
		stored, err := f.store(account, msgs[:n])
		if err != nil {
			f.from = 0 // look again how far the target has come
			return err
		}
		msgs = msgs[stored:]
	}
	return nil
}

// entryBytes is about how much is copied in one entry.
const entryBytes = 256 << 10

// store copies messages in one entry, waits for the outcome and returns how many
// are done with: those stored, and one that the target can never take.
func (f *flow) store(account *front.Account, msgs []topics.Message) (done int, err error) {
	type outcome struct {
		fault *topics.Fault
		err   error
	}
	outcomes := make(chan outcome, len(msgs))
	all := make([]state.Addition, len(msgs))
	for i := range msgs {
		m, a := &msgs[i], &all[i]
		*a = state.Addition{
			Publish: topics.Publish{Flags: topics.PublishSourced, Subject: []byte(f.subject(m.Subject)), Payload: m.Payload},
			Account: account,
			Done:    func(r topics.PublishResult, err error) { outcomes <- outcome{r.Fault, err} },
		}
		if f.mirror {
			a.After = m.Sequence - 1
			a.Flags |= topics.PublishTimed
			a.Time = m.Time
			a.Header = withoutChecks(m.Header)
		} else {
			a.Header = f.header(m)
		}
	}
	f.target.Group().Append(f.target, all...)
	done = -1
	for i := range msgs {
		o := <-outcomes // they come in order
		switch {
		case done >= 0 || o.err == nil && o.fault == nil:
		case o.err != nil:
			done, err = i, o.err
		case o.fault.ErrCode == tooBig:
			done = i + 1
		default:
			done, err = i, o.fault
		}
	}
	if done < 0 {
		done = len(msgs)
	}
	return done, err
}

// tooBig is the err_code of a message the target can never take: it is left out,
// unless it would be lost with that.
const tooBig = 10054

func (f *flow) subject(s string) string {
	for _, m := range f.maps {
		if to, ok := m.Apply(s, nil); ok {
			return to
		}
	}
	return s
}

func (f *flow) info() *jsapi.SourceInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &jsapi.SourceInfo{
		Name: f.source.Name, External: f.source.External, Lag: f.lag, Active: -1,
		FilterSubject: f.source.FilterSubject, SubjectTransforms: f.source.SubjectTransforms,
	}
	if !f.active.IsZero() {
		s.Active = time.Since(f.active)
	}
	if f.err != nil && f.ctx.Err() == nil {
		s.Error = jsapi.ErrorOf(f.err)
		if s.Error.ErrCode == jsapi.ErrClusterUnavailable.ErrCode {
			s.Error = &jsapi.Error{Code: 404, ErrCode: jsapi.ErrStreamNotFound.ErrCode, Description: f.err.Error()}
		}
	}
	return s
}
