package delivery

import (
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// A consumer with metadata "herald.key" has at most one message of each key in flight.
// The rules are topics/consumer's; here the keys are read from messages.

// byKey is what a reader has for its key. It is replaced, not changed.
type byKey struct {
	text string
	key  consumer.Key
	bad  bool // it can't be read, and nothing is delivered
}

// keyed is a message's key.
type keyed struct {
	key string
	has bool
}

// KeyStats is how a consumer with a key stands.
type KeyStats struct {
	Key     string `json:"key"`
	Waiting int    `json:"waiting"` // messages, for others of their key
	Busy    int    `json:"busy"`    // keys with something in flight
	Keyless uint64 `json:"keyless"` // messages without a key since the node leads, which waited for nobody
}

// configureKey follows the config; anew tells that the live copy is another one.
func (r *reader) configureKey(text string, anew bool) {
	old := r.order.Load()
	if old == nil && text == "" || old != nil && old.text == text && !anew {
		return
	}
	if text == "" {
		r.order.Store(nil)
		r.c.LeadByKey(false)
		return
	}
	k, err := consumer.ParseKey(text)
	if err != nil {
		r.e.o.Log.Error("A consumer's key can't be used; it gets nothing until it is changed", "stream", r.topic.name, "consumer", r.name, "error", err)
	}
	r.order.Store(&byKey{text: text, key: k, bad: err != nil})
	r.c.LeadByKey(true)
}

// identify finds the keys of what was read. It takes no lock.
func (r *reader) identify(b *batch) {
	b.order = r.order.Load()
	if b.order == nil {
		return
	}
	of := func(m *topics.Message) (k keyed) {
		if m.Sequence != 0 {
			k.key, k.has = b.order.key.Of(m)
		}
		return k
	}
	for i := range b.old {
		b.oldKeys = append(b.oldKeys, of(&b.old[i]))
	}
	for i := range b.fresh {
		b.keys = append(b.keys, of(&b.fresh[i]))
	}
}

// learn tells the live copy the keys of what was pending before it led. The caller holds
// r.mu.
func (r *reader) learn(b *batch) {
	for i, seq := range b.redo {
		if i >= len(b.oldKeys) {
			return
		}
		r.c.Learn(seq, b.oldKeys[i].key, b.oldKeys[i].has)
	}
}

// parked tells whether a new message has to wait for its key, and parks it. The caller
// holds r.mu.
func (r *reader) parked(b *batch, list []keyed, i int, m *topics.Message, now topics.Nanos) bool {
	if b.order == nil || !list[i].has || r.c.Free(list[i].key) {
		return false
	}
	r.c.Park(m.Sequence, list[i].key, now)
	r.e.recorder.add(r, now+topics.Nanos(lingerDeliveries))
	return true
}

// flies notes the key of a new message that was delivered. The caller holds r.mu.
func (r *reader) flies(b *batch, list []keyed, i int, m *topics.Message) {
	if b.order == nil {
		return
	}
	if !list[i].has {
		r.keyless++
	}
	r.c.Learn(m.Sequence, list[i].key, list[i].has)
}

// keyStats are for infos. The caller holds r.mu.
func (r *reader) keyStats() *KeyStats {
	o := r.order.Load()
	if o == nil {
		return nil
	}
	waiting, busy := r.c.Parked()
	return &KeyStats{Key: o.text, Waiting: waiting, Busy: busy, Keyless: r.keyless}
}
