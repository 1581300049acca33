package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// cells is a key-value bucket that several clients read and change by
// compare-and-set, and the history of what they did.
type cells struct {
	w    *world
	keys []string

	mu      sync.Mutex
	history []operation
}

// outcome is how an operation ended.
type outcome int

const (
	unknown outcome = iota
	done
	refused // the revision was not the expected one
)

// operation is one read or write of a key. Values are written once only.
type operation struct {
	key        string
	write      bool
	value      string // "": nothing read
	expected   uint64 // writes: the revision that had to be last
	revision   uint64 // of what was read or written; 0: unknown or none
	outcome    outcome
	start, end time.Duration
}

const forever = time.Duration(1<<63 - 1)

func newCells(w *world, js jetstream.JetStream) *cells {
	c := &cells{w: w}
	for i := range 6 {
		c.keys = append(c.keys, fmt.Sprintf("key%d", i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "CELLS", History: 5}); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (c *cells) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[outcome]int{}
	for i := range c.history {
		n[c.history[i].outcome]++
	}
	return fmt.Sprintf("%d operations on keys (%d refused, %d unknown)", len(c.history), n[refused], n[unknown])
}

func (c *cells) run() {
	for i := range 4 {
		c.w.actors.Go(func() { c.client(fmt.Sprintf("client%d", i)) })
	}
}

// client reads keys and changes what it has read.
func (c *cells) client(name string) {
	_, js := c.w.connect(name)
	rng := c.w.random(name)
	known := map[string]uint64{} // key → revision, as far as this client knows
	for i := 0; !c.w.stopped(); i++ {
		key := c.keys[rng.IntN(len(c.keys))]
		if rng.IntN(2) == 0 {
			if o := c.read(js, key); o.outcome == done {
				known[key] = o.revision
			} else {
				<-time.After(20 * time.Millisecond)
			}
		} else {
			o := c.write(js, rng, key, fmt.Sprintf("%s-%d", name, i), known[key])
			switch o.outcome {
			case done:
				known[key] = o.revision
			case unknown:
				<-time.After(20 * time.Millisecond)
				fallthrough
			case refused:
				delete(known, key)
				if r := c.read(js, key); r.outcome == done {
					known[key] = r.revision
				}
			}
		}
		c.w.rest(rng, 8*time.Millisecond)
	}
}

func (c *cells) enter(o operation) operation {
	o.end = time.Since(c.w.began)
	if o.outcome == unknown {
		o.end = forever
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, o)
	return o
}

func (c *cells) read(js jetstream.JetStream, key string) operation {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := operation{key: key, start: time.Since(c.w.began)}
	s, err := js.Stream(ctx, "KV_CELLS")
	if err != nil {
		return c.enter(o)
	}
	o.start = time.Since(c.w.began)
	m, err := s.GetLastMsgForSubject(ctx, "$KV.CELLS."+key)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		o.outcome = done
	case err == nil:
		o.outcome, o.revision, o.value = done, m.Sequence, string(m.Data)
	}
	return c.enter(o)
}

// write puts a value, or deletes or purges the key, if a revision is the last.
func (c *cells) write(js jetstream.JetStream, rng *rand.Rand, key, value string, expected uint64) operation {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m := &nats.Msg{Subject: "$KV.CELLS." + key, Data: []byte(value), Header: nats.Header{}}
	switch rng.IntN(12) {
	case 0:
		m.Header.Set("KV-Operation", "DEL") // a marker with a value, so that it is known again
	case 1:
		m.Header.Set("KV-Operation", "PURGE")
		m.Header.Set("Nats-Rollup", "sub")
	}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(expected, 10))
	o := operation{key: key, write: true, value: value, expected: expected, start: time.Since(c.w.began)}
	ack, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	var api *jetstream.APIError
	switch {
	case err == nil:
		o.outcome, o.revision = done, ack.Sequence
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		o.outcome = refused
	case errors.As(err, &api):
		c.w.bad("write refused", "%s: %v", key, err)
	}
	return c.enter(o)
}

// check holds the history against a register per key that is changed by
// compare-and-set: there is an order of the operations, each between its start and
// its end, in which all answers are right. Revisions give that order, so it
// suffices to look at them.
func (c *cells) check(js jetstream.JetStream) {
	for _, key := range c.keys {
		if o := c.read(js, key); o.outcome != done {
			c.w.bad("key not readable", "%s", key)
		}
	}
	byKey := map[string][]operation{}
	for _, o := range c.history {
		byKey[o.key] = append(byKey[o.key], o)
	}
	for _, key := range c.keys {
		c.checkKey(key, byKey[key])
	}
}

func (c *cells) checkKey(key string, ops []operation) {
	written := map[string]*operation{} // by value
	for i := range ops {
		if o := &ops[i]; o.write {
			written[o.value] = o
		}
	}
	// What was read tells the revision of writes whose answer was lost.
	for i := range ops {
		o := &ops[i]
		if o.write || o.value == "" {
			continue
		}
		switch w := written[o.value]; {
		case w == nil:
			c.w.bad("phantom value", "%s: %q", key, o.value)
		case w.outcome == refused:
			c.w.bad("refused value read", "%s: %q at %d", key, o.value, o.revision)
		case w.revision == 0:
			w.revision = o.revision
		case w.revision != o.revision:
			c.w.bad("two revisions", "%s: %q is at %d and %d", key, o.value, w.revision, o.revision)
		}
	}
	c.checkChain(key, ops)
	c.checkOrder(key, ops)
	c.checkRefusals(key, ops)
}

// checkChain looks for lost updates: nothing lies between a write and the
// revision it expected.
func (c *cells) checkChain(key string, ops []operation) {
	var revisions []uint64
	for i := range ops {
		if ops[i].write && ops[i].revision != 0 {
			revisions = append(revisions, ops[i].revision)
		}
	}
	slices.Sort(revisions)
	for i := range ops {
		o := &ops[i]
		if !o.write || o.revision == 0 {
			continue
		}
		at, _ := slices.BinarySearch(revisions, o.revision)
		if at+1 < len(revisions) && revisions[at+1] == o.revision {
			c.w.bad("one revision for two writes", "%s: %d", key, o.revision)
		}
		if at > 0 && revisions[at-1] > o.expected {
			c.w.bad("lost update", "%s: %q at %d expected %d, but there was %d", key, o.value, o.revision, o.expected, revisions[at-1])
		}
	}
}

// checkOrder looks for reads and writes that go back behind what had been
// answered before they began.
func (c *cells) checkOrder(key string, ops []operation) {
	byEnd := slices.Clone(ops)
	slices.SortFunc(byEnd, func(a, b operation) int { return cmp.Compare(a.end, b.end) })
	byStart := slices.Clone(ops)
	slices.SortFunc(byStart, func(a, b operation) int { return cmp.Compare(a.start, b.start) })
	var last uint64 // the highest revision answered before
	k := 0
	for i := range byStart {
		o := &byStart[i]
		for ; k < len(byEnd) && byEnd[k].end < o.start; k++ {
			last = max(last, byEnd[k].revision)
		}
		switch {
		case o.outcome != done:
		case o.write && o.revision <= last:
			c.w.bad("write goes back", "%s: %q at %d after %d", key, o.value, o.revision, last)
		case !o.write && o.revision < last:
			c.w.bad("stale read", "%s: %q at %d after %d", key, o.value, o.revision, last)
		}
	}
}

// checkRefusals looks for refusals without a reason: the expected revision was
// last all the time. A write that nobody has seen the revision of, though every
// key was read at the end, had no effect: nobody could have written after it.
func (c *cells) checkRefusals(key string, ops []operation) {
	var writes []operation
	for i := range ops {
		if ops[i].write && ops[i].revision != 0 {
			writes = append(writes, ops[i])
		}
	}
	slices.SortFunc(writes, func(a, b operation) int { return cmp.Compare(a.revision, b.revision) })
	began := make([]time.Duration, len(writes)+1) // the earliest of those from here on
	began[len(writes)] = forever
	for i := len(writes) - 1; i >= 0; i-- {
		began[i] = min(began[i+1], writes[i].start)
	}
	for i := range ops {
		o := &ops[i]
		if o.outcome != refused {
			continue
		}
		at, _ := slices.BinarySearchFunc(writes, o.expected+1, func(w operation, r uint64) int { return cmp.Compare(w.revision, r) })
		if began[at] >= o.end {
			c.w.bad("refused for nothing", "%s: %q expected %d", key, o.value, o.expected)
		}
	}
}
