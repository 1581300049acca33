package sourcing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
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
		if err != nil {
			timer.Reset(f.e.o.Retry)
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
	if !f.target.Group().IsLeader() {
		return false, nil // Lead pokes
	}
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
	msgs, next, err := t.Data().Read(f.filter, f.next, roundMessages, roundBytes, nil)
	if err != nil {
		return false, err
	}
	if len(msgs) == 0 {
		f.next = max(f.next, next)
		f.note(t, false)
		return false, nil
	}
	queue := t.Config().Retention == topics.RetainWorkQueue
	fresh := msgs
	if queue {
		if err := f.alone(t); err != nil {
			return false, err
		}
		for len(fresh) > 0 && fresh[0].Sequence <= f.done {
			fresh = fresh[1:]
		}
	}
	if err := f.append(account, fresh, queue); err != nil {
		return false, err
	}
	if queue {
		f.done = max(f.done, msgs[len(msgs)-1].Sequence)
		if err := f.consume(t, msgs); err != nil {
			return false, err
		}
	}
	f.next = next
	f.note(t, true)
	return true, nil
}

func (f *flow) note(t *state.Topic, moved bool) {
	lag := t.Data().Count(f.filter, f.next)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag = lag
	if moved {
		f.active = time.Now()
	}
}

// resume finds out where to go on in an origin not read before.
func (f *flow) resume(t *state.Topic) error {
	if f.from == t.ID() {
		return nil
	}
	if f.from != 0 {
		if f.mirror {
			return errRecreated
		}
		f.from, f.next, f.done = t.ID(), 1, 0
		return nil
	}
	data := f.target.Data()
	switch _, last := data.Bounds(); {
	case f.mirror && last > 0 && t.Config().Retention == topics.RetainWorkQueue && t.Created().UnixNano() > int64(data.State().LastTime):
		return errRecreated // as long as it isn't mirrored, nothing of it may go
	case f.mirror && last > 0:
		f.next = last + 1
	case f.mirror:
		f.next = f.begin(t)
	default:
		seq, at, err := f.lastSourced()
		if err != nil {
			return err
		}
		if t.Config().Retention == topics.RetainWorkQueue && t.Created().UnixNano() > int64(at) {
			seq = 0 // it is another one of that name: what it holds was never stored
		}
		if f.next = seq + 1; seq == 0 {
			f.next = f.begin(t)
		}
	}
	if f.done = f.next - 1; t.Config().Retention == topics.RetainWorkQueue {
		f.next = f.begin(t) // what a crash has left there goes first
		f.done = max(f.done, f.next-1)
	}
	f.from = t.ID()
	return nil
}

// alone tells whether nobody else reads the messages of a work queue that the flow
// takes.
func (f *flow) alone(t *state.Topic) error {
	var other string
	t.Data().Consumers(func(c *consumer.Consumer) bool {
		if overlap(c.Filter().Patterns(), f.filter.Patterns()) {
			other = c.Name()
		}
		return other == ""
	})
	if other != "" {
		return fmt.Errorf("%w: %s", errShared, other)
	}
	return nil
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
	return f.e.o.State.DeleteMessages(f.ctx, t, seqs)
}

// begin returns where the config says to start.
func (f *flow) begin(t *state.Topic) topics.Sequence {
	switch s := f.source; {
	case s.OptStartSeq > 0:
		return topics.Sequence(s.OptStartSeq)
	case s.OptStartTime != nil:
		return t.Data().SequenceAt(topics.NanosOf(*s.OptStartTime))
	}
	return 1
}

// lastSourced returns the last message of this source, and when it was stored. The
// target knows; one restored from a backup is searched from its end.
func (f *flow) lastSourced() (topics.Sequence, topics.Nanos, error) {
	data := f.target.Data()
	filter, destination := f.labels()
	if seq, at, ok := data.Sourced(f.source.Name, filter, destination); ok {
		return seq, at, nil
	}
	_, seq := data.Bounds()
	for seq > 0 && f.ctx.Err() == nil {
		at, ok := data.Prev(nil, seq)
		if !ok {
			break
		}
		m, err := data.Load(at)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, 0, err
		}
		if err == nil {
			if v, ok := jsapi.HeaderValue(m.Header, headerSource); ok {
				if from, ok := f.mine(v); ok {
					return from, m.Time, nil
				}
			}
		}
		seq = at - 1
	}
	return 0, 0, f.ctx.Err()
}

// mine tells whether a source header is of this flow, and its sequence.
func (f *flow) mine(value string) (topics.Sequence, bool) {
	parts := strings.Split(value, " ")
	filter, destination := f.labels()
	if len(parts) < 2 || parts[0] != f.source.Name ||
		len(parts) >= 4 && (parts[2] != filter || parts[3] != destination) {
		return 0, false
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	return topics.Sequence(n), err == nil
}

// labels are what tells the sources of one stream apart.
func (f *flow) labels() (filter, destination string) {
	filter, destination = ">", ">"
	if f.source.FilterSubject != "" {
		filter = f.source.FilterSubject
	}
	if len(f.source.SubjectTransforms) > 0 {
		var from, to []string
		for _, m := range f.source.SubjectTransforms {
			from, to = append(from, m.Source), append(to, m.Destination)
		}
		filter, destination = strings.Join(from, ","), strings.Join(to, ",")
	}
	return filter, destination
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

// checks are how the header fields begin that the origin has checked. They say
// nothing about the copy.
var checks = [][]byte{[]byte("Nats-Expected-"), []byte("Nats-Batch-")}

// withoutChecks returns a header without those fields.
func withoutChecks(header []byte) []byte {
	if !slices.ContainsFunc(checks, func(c []byte) bool { return bytes.Contains(header, c) }) {
		return header
	}
	b := appendFields(nil, header, "")
	if len(b) == 0 {
		return nil
	}
	return append(append([]byte("NATS/1.0\r\n"), b...), "\r\n"...)
}

// appendFields appends the lines of a header's fields, but for the checks and one
// more field.
func appendFields(dst, header []byte, without string) []byte {
	_, rest, _ := bytes.Cut(header, []byte("\r\n"))
	for len(rest) > 2 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		switch {
		case len(line) == 0 || without != "" && bytes.HasPrefix(line, []byte(without+":")):
		case slices.ContainsFunc(checks, func(c []byte) bool { return bytes.HasPrefix(line, c) }):
		default:
			dst = append(append(dst, line...), "\r\n"...)
		}
	}
	return dst
}

// header returns a message's header with where it is from. A source header it
// already has is of a source of the origin: it is replaced.
func (f *flow) header(m *topics.Message) []byte {
	filter, destination := f.labels()
	b := append(make([]byte, 0, len(m.Header)+128), "NATS/1.0\r\n"...)
	b = appendFields(b, m.Header, headerSource)
	b = append(append(b, headerSource+": "+f.source.Name+" "...), strconv.FormatUint(uint64(m.Sequence), 10)...)
	return append(b, " "+filter+" "+destination+" "+m.Subject+"\r\n\r\n"...)
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
