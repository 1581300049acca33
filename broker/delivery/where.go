package delivery

import (
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/filter"
)

// A consumer with metadata "herald.where" gets only the messages that the condition
// holds for. The others are passed over as messages of other subjects are: they are
// not delivered, leave no gap in the numbers of deliveries, and lie below the ack floor
// once it has moved beyond them. Nothing of them is written; a new leader evaluates
// anew, with the same results, what lies behind the last delivery.
//
// In a topic with interest retention they have to be given up, or they would be kept
// for ever: there they count as delivered and terminated, which is written.

// where is a consumer's content filter on the leader.
type where struct {
	text, codec string
	filter      *filter.Filter // nil: it doesn't compile, and nothing is delivered
	tally       filter.Tally
	giveUp      bool // what doesn't match is acknowledged: interest retention
}

// verdict is what a filter says of a message.
type verdict struct {
	ok  bool
	err error
}

// configureWhere follows the config. Metadata is that of the config, before it is
// dropped.
func (r *reader) configureWhere(metadata map[string]string) {
	text, codec := metadata[filter.KeyWhere], metadata[filter.KeyCodec]
	old := r.where.Load()
	if old != nil && old.text == text && old.codec == codec {
		return
	}
	if text == "" {
		r.dropWhere()
		return
	}
	w := &where{text: text, codec: codec, giveUp: r.topic.data.Config().Retention == topics.RetainInterest}
	f, err := r.e.o.Filters.Get(text, codec)
	if err != nil {
		r.e.o.Log.Error("a consumer's filter can't be used; it gets nothing until it is changed", "stream", r.topic.name, "consumer", r.name, "where", text, "error", err)
	}
	w.filter = f
	r.dropWhere()
	r.where.Store(w)
}

// dropWhere gives the filter back.
func (r *reader) dropWhere() {
	if old := r.where.Swap(nil); old != nil {
		old.filter.Release()
	}
}

// blind tells whether the consumer has a filter or a key that can't be used.
func (r *reader) blind() bool {
	w, o := r.where.Load(), r.order.Load()
	return w != nil && w.filter == nil || o != nil && o.bad
}

// judge evaluates the consumer's filter over what was read. Redeliveries have passed
// it before. It takes no lock.
func (r *reader) judge(b *batch) {
	b.where = r.where.Load()
	if b.where == nil || b.where.filter == nil {
		b.where = nil
		return
	}
	for i := range b.old {
		v := verdict{ok: true}
		if i >= b.again && b.old[i].Sequence != 0 {
			v = b.where.judge(&b.message, &b.old[i])
		}
		b.oldVerdicts = append(b.oldVerdicts, v)
	}
	for i := range b.fresh {
		b.verdicts = append(b.verdicts, b.where.judge(&b.message, &b.fresh[i]))
	}
	b.message.Reset("", nil, nil)
}

func (w *where) judge(fm *filter.Message, m *topics.Message) (v verdict) {
	fm.Reset(m.Subject, m.Header, m.Payload)
	fm.Place(uint64(m.Sequence), int64(m.Time))
	v.ok, v.err = w.filter.Match(fm)
	return v
}

// admits tells whether a new message is to be delivered, and passes over it if not.
// The caller holds r.mu.
func (r *reader) admits(b *batch, list []verdict, i int, m *topics.Message, now topics.Nanos) bool {
	if b.where == nil || list[i].ok {
		return true
	}
	b.count(list, i, m)
	if !b.where.giveUp {
		r.c.Pass(m.Sequence)
		return false
	}
	r.c.Deliver(m.Sequence, now)
	if r.c.Term(m.Sequence, now) {
		r.recordAcks(now, false)
	}
	r.e.recorder.add(r, now+topics.Nanos(lingerDeliveries))
	return false
}

// count notes what became of a message: once, when the reader has got beyond it.
func (b *batch) count(list []verdict, i int, m *topics.Message) {
	if b.where == nil {
		return
	}
	b.message.Reset(m.Subject, m.Header, m.Payload)
	b.message.Place(uint64(m.Sequence), int64(m.Time))
	b.where.tally.Count(&b.message, list[i].ok, list[i].err)
	if list[i].ok {
		b.where.tally.Deliver()
	}
}
