package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"slices"
	"unicode/utf8"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// executor is the step that runs.
type executor struct {
	i    *Instance
	byID map[uint16]int // node's index by the place of its state

	overlay *state.Overlay
	now     moment
	event   stream.Time        // how far event time has come, as nodes see it
	saved   *eventtime.Tracker // as it was before the record
	reads   []Read
	outputs []Output
	routes  []topics.TopicID
	sharing
	trimmed  bool // what was sent has been taken out of the outbox
	inBytes  int
	outBytes int
	fired    bool
	measured bool              // this step's calls of nodes are
	loads    []Load            // by node
	firing   bool              // a timer does, now
	windows  int               // how many steps that sum up records are above the current one
	sums     []bool            // by node: it is one of them
	alike    map[uint64]uint64 // outputs of the record or moment, by what they are
	at       stream.Position   // the record that is taken, for errors
	draws    uint64            // how often Random was asked
	counts   map[counter]uint64
	flows    [][2]uint64 // by node: records in and out, which are counted most
	ticks    []int32     // undo log of flows: twice the node, and one for out
	watchers []int       // nodes that want to hear of the watermark
	written  []counter   // undo log of counts: one entry for each addition
	added    []uint64
	contexts []*nodeContext // by depth of calls
	depth    int
	cache    cache
}

type counter struct {
	node uint16
	name string
}

func (x *executor) init(i *Instance) {
	x.i = i
	x.byID = map[uint16]int{}
	x.initSharing()
	x.flows = make([][2]uint64, len(i.graph.Nodes))
	x.loads = make([]Load, len(i.graph.Nodes))
	for n := range i.graph.Nodes {
		x.loads[n].Step = i.graph.Nodes[n].Name
	}
	for n, node := range i.graph.Nodes {
		x.byID[node.ID] = n
		if _, ok := node.Node.(stream.Watcher); ok {
			x.watchers = append(x.watchers, n)
		}
		x.sums = append(x.sums, node.Span != 0 && node.Kind != "join")
	}
}

func (x *executor) begin(o *state.Overlay, clock stream.Time, before *moment) {
	x.overlay = o
	x.now = *before
	x.now.ends = slices.Clone(before.ends)
	x.now.tracker = before.tracker.Clone()
	x.saved = before.tracker.Clone()
	x.event = before.tracker.Watermark()
	x.now.clock = clock
	x.reads, x.outputs, x.routes, x.trimmed = nil, nil, nil, false
	x.inBytes, x.outBytes, x.draws, x.depth, x.fired = 0, 0, 0, 0, false
	x.firing, x.windows = false, 0
	x.measured = x.i.o.Stopwatch != nil && before.seq%measuredEvery == 0
	x.counts, x.written, x.added, x.ticks = map[counter]uint64{}, x.written[:0], x.added[:0], x.ticks[:0]
	clear(x.flows)
	if x.cache.forget(); x.cache.seq != before.seq {
		x.cache.clear()
	}
}

// size is how big the step is, for its bound.
func (x *executor) size() int { return x.inBytes + x.outBytes + int(x.overlay.Bytes()) }

// grew tells whether the step writes state of nodes: what is always written must not
// stop an operator that frees its state.
func (x *executor) grew() bool {
	grew := false
	_ = state.EachChange(x.overlay.Delta(), func(key, _ []byte, deleted bool) error {
		grew = grew || !deleted && key[0] != spaceMeta && key[0] != spaceOutbox
		return nil
	})
	return grew
}

// mark is where the step was before a record.
type mark struct {
	overlay, outputs, outBytes, counts int
	event                              stream.Time
	timers                             [2]stream.Time
	draws                              uint64
}

func (x *executor) mark() mark {
	x.written, x.added, x.ticks = x.written[:0], x.added[:0], x.ticks[:0]
	x.saved.CopyFrom(x.now.tracker)
	x.cache.forget()
	return mark{
		overlay: x.overlay.Mark(), outputs: len(x.outputs), outBytes: x.outBytes, counts: 0,
		event: x.event, timers: x.now.timers, draws: x.draws,
	}
}

// back undoes what was done since a mark.
func (x *executor) back(m mark) {
	x.overlay.Rollback(m.overlay)
	x.cache.undo(0)
	x.outputs, x.outBytes = x.outputs[:m.outputs], m.outBytes
	x.uncount(m.counts, 0)
	x.now.tracker.CopyFrom(x.saved)
	x.event, x.now.timers, x.draws, x.depth = m.event, m.timers, m.draws, 0
	x.owned = true
	x.firing, x.windows = false, 0
}

func (x *executor) count(node uint16, name string, n uint64) {
	if !x.told() {
		return
	}
	c := counter{node, name}
	x.counts[c] += n
	x.written, x.added = append(x.written, c), append(x.added, n)
}

// tick counts a record in (0) or out (1) of a node.
func (x *executor) tick(node, out int) {
	if !x.told() {
		return
	}
	x.flows[node][out]++
	x.ticks = append(x.ticks, int32(2*node+out))
}

func (x *executor) uncount(to, ticks int) {
	for _, t := range x.ticks[ticks:] {
		x.flows[t/2][t%2]--
	}
	x.ticks = x.ticks[:ticks]
	for k := len(x.written) - 1; k >= to; k-- {
		x.counts[x.written[k]] -= x.added[k]
	}
	x.written, x.added = x.written[:to], x.added[:to]
}

// writeCounts adds the step's counts to those of all steps.
func (x *executor) writeCounts() {
	for n := range x.flows {
		for out, name := range [2]string{"in", "out"} {
			if c := x.flows[n][out]; c > 0 {
				x.counts[counter{x.i.graph.Nodes[n].ID, name}] += c
			}
		}
	}
	names := make([]counter, 0, len(x.counts))
	for c, n := range x.counts {
		if n > 0 {
			names = append(names, c)
		}
	}
	slices.SortFunc(names, func(a, b counter) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.name, b.name)) })
	for _, c := range names {
		key := counterKey(c)
		old, _, _ := x.overlay.Get(key) // a failure is the overlay's, asked for at the end
		was, _ := binary.Uvarint(old)
		x.overlay.Put(key, binary.AppendUvarint(nil, was+x.counts[c]))
	}
}

func counterKey(c counter) []byte {
	return append(binary.BigEndian.AppendUint16(bytes.Clone(metaCounts), c.node), c.name...)
}

// deliver passes a record to a node's port or a sink.
func (x *executor) deliver(e graph.Edge, r *stream.Record) error {
	pass, owned := x.passes(e, r)
	if !pass {
		return nil
	}
	was := x.owned
	x.owned = owned
	err := x.carry(e, r)
	x.owned = was
	return err
}

// carry is deliver for what is this instance's to work on.
func (x *executor) carry(e graph.Edge, r *stream.Record) error {
	if e.Node < 0 {
		return x.emit(e.Port, r)
	}
	node := &x.i.graph.Nodes[e.Node]
	key := r.Key
	if !node.Keyed {
		key = nil
	}
	x.tick(e.Node, 0)
	return x.call(e.Node, key, invocation{port: e.Port, r: r})
}

// emit makes a record an output.
func (x *executor) emit(sink int, r *stream.Record) error {
	s := &x.i.graph.Sinks[sink]
	to := topics.TopicID(0)
	if sink < len(x.routes) {
		to = x.routes[sink]
	}
	if to == RouteGone {
		return x.failed(failure{name: s.Name, policy: s.Policy, err: fmt.Errorf("there is no topic %s any more", s.Topic), r: r})
	}
	out, err := s.Encode(r)
	if err != nil {
		return x.failed(failure{name: s.Name, policy: s.Policy, err: err, r: r})
	}
	o := Output{Sink: sink, To: to, Subject: out.Subject, Header: out.Header, Payload: out.Payload}
	if x.now.back != nil {
		keep := false
		if keep, o.Again = x.judge(); !keep {
			x.count(uint16(0xffff-x.at.Input), "withheld", 1)
			return nil
		}
		if x.i.graph.Recovery == graph.Upstream {
			o.ID = x.identity(sink, r, &out)
		}
	}
	x.outputs = append(x.outputs, o)
	x.outBytes += len(out.Subject) + len(out.Header) + len(out.Payload)
	return nil
}

// call calls a node. What it emits is passed on once it has returned well; what it did
// before an error is undone.
func (x *executor) call(n int, key []byte, in invocation) error {
	node := &x.i.graph.Nodes[n]
	c := x.context(n, key)
	defer func() { x.depth-- }()
	m, counts, ticks, timers, draws, touched := x.overlay.Mark(), len(x.written), len(x.ticks), x.now.timers, x.draws, len(x.cache.touched)
	var from int64
	if x.measured {
		from = x.i.o.Stopwatch()
	}
	stack, err := guarded(c, in)
	if x.measured {
		x.loads[n].Calls++
		x.loads[n].Busy += x.i.o.Stopwatch() - from
	}
	if failed := x.overlay.Err(); failed != nil {
		return failed
	}
	if err != nil {
		x.overlay.Rollback(m)
		x.cache.undo(touched)
		x.uncount(counts, ticks)
		x.now.timers, x.draws = timers, draws
		return x.failed(failure{name: node.Name, policy: node.Policy, node: node, err: err, r: in.r, stack: stack})
	}
	if x.sums[n] {
		x.windows++
		defer func() { x.windows-- }()
	}
	for k := range c.emitted {
		e := &c.emitted[k]
		x.tick(n, 1)
		for _, to := range e.to {
			if err := x.deliver(to, e.r); err != nil {
				return err
			}
		}
	}
	return nil
}

// invocation is what a node is called with: a record on a port, else a timer, else how
// far event time has come.
type invocation struct {
	r     *stream.Record
	port  int
	timer *stream.Timer
	event stream.Time
}

// guarded calls a node and turns a panic into an error with its stack.
func guarded(c *nodeContext, in invocation) (stack []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err, stack = fmt.Errorf("panic: %v", p), debug.Stack()
		}
	}()
	switch {
	case in.r != nil:
		err = c.node.Node.Process(c, in.port, in.r)
	case in.timer != nil:
		err = c.node.Node.OnTimer(c, *in.timer)
	default:
		if w, ok := c.node.Node.(stream.Watcher); ok {
			err = w.OnWatermark(c, in.event)
		}
	}
	return nil, err
}

// failure is a record (or a timer, without r) that a step can't process.
type failure struct {
	name    string
	policy  graph.Policy
	node    *graph.Node
	count   int // -1-input for an input
	err     error
	r       *stream.Record
	message *topics.Message // where it could not be decoded
	stack   []byte
}

// failed does with it what its step's policy says.
func (x *executor) failed(f failure) error {
	id := uint16(0xffff)
	switch {
	case f.node != nil:
		id = f.node.ID
	case f.count < 0:
		id = uint16(0xffff + f.count + 1)
	}
	if f.policy == graph.Stop || f.stack != nil {
		s := &StoppedError{Step: f.name, At: x.at, Err: f.err, Stack: f.stack, Shared: !x.owned}
		if f.r != nil {
			s.At = f.r.Origin
		}
		if s.At.Sequence > 0 {
			s.Input = x.i.graph.Inputs[s.At.Input].Name
		}
		return s
	}
	x.count(id, stream.SideError, 1)
	if f.policy == graph.Skip || !x.told() {
		return nil
	}
	r := f.r
	if r == nil {
		r = &stream.Record{Origin: x.at}
	}
	return x.errorRecord(f.name, r, f.message, f.err.Error())
}

// errorRecord sends what could not be processed to the error output, with the reason,
// the step and where it came from.
func (x *executor) errorRecord(step string, r *stream.Record, m *topics.Message, reason string) error {
	list := []value.Field{
		{Name: "operator", Value: value.OfString(x.i.graph.Name)},
		{Name: "step", Value: value.OfString(step)},
		{Name: "error", Value: value.OfString(reason)},
		{Name: "clock", Value: value.OfNanos(int64(x.now.clock))},
	}
	if r.Origin.Sequence > 0 {
		in := &x.i.graph.Inputs[r.Origin.Input]
		list = append(list,
			value.Field{Name: "input", Value: value.OfString(in.Name)},
			value.Field{Name: "topic", Value: value.OfString(in.Topic)},
			value.Field{Name: "sequence", Value: value.OfUint(uint64(r.Origin.Sequence))},
			value.Field{Name: "subject", Value: value.OfString(r.Subject)})
	}
	record := r.Value
	if m != nil {
		if record = value.OfBytes(m.Payload); utf8.Valid(m.Payload) {
			record = value.OfString(string(m.Payload))
		}
	}
	list = append(list, value.Field{Name: "record", Value: record})
	e := *r
	e.Value = value.OfObject(list...)
	was := x.owned
	x.owned = true
	defer func() { x.owned = was }()
	for _, to := range x.i.graph.Errors {
		if err := x.deliver(to, &e); err != nil {
			return err
		}
	}
	return nil
}
