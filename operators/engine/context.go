package engine

import (
	"bytes"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/stream"
)

// nodeContext is what a node sees while it is called.
type nodeContext struct {
	x       *executor
	node    *graph.Node
	key     []byte
	emitted []emission
	scratch []byte
}

type emission struct {
	to []graph.Edge
	r  *stream.Record
}

var (
	_ stream.Context = (*nodeContext)(nil)
	_ stream.State   = (*nodeContext)(nil)
)

// context returns the context for one more call in the others.
func (x *executor) context(n int, key []byte) *nodeContext {
	if x.depth == len(x.contexts) {
		x.contexts = append(x.contexts, &nodeContext{x: x})
	}
	c := x.contexts[x.depth]
	x.depth++
	clear(c.emitted)
	c.node, c.key, c.emitted = &x.i.graph.Nodes[n], key, c.emitted[:0]
	return c
}

func (c *nodeContext) Emit(port int, r *stream.Record) {
	if port < len(c.node.Outs) {
		c.emitted = append(c.emitted, emission{c.node.Outs[port], r})
	}
}

func (c *nodeContext) Side(name string, r *stream.Record, reason string) {
	c.x.count(c.node.ID, name, 1)
	to := c.node.Sides[name]
	if len(to) == 0 {
		return
	}
	side := *r
	if reason != "" {
		side.Header = withReason(r.Header, c.node.Name, reason)
	}
	c.emitted = append(c.emitted, emission{to, &side})
}

// withReason returns a header block that says why a record is where it is.
func withReason(header []byte, step, reason string) []byte {
	const first = "NATS/1.0\r\n"
	b := append([]byte(nil), first+"Herald-Step: "+step+"\r\nHerald-Reason: "+reason+"\r\n"...)
	if len(header) > len(first) && string(header[:len(first)]) == first {
		return append(b, header[len(first):]...)
	}
	return append(b, "\r\n"...)
}

func (c *nodeContext) State() stream.State         { return c }
func (c *nodeContext) Key() []byte                 { return c.key }
func (c *nodeContext) Clock() stream.Time          { return c.x.now.clock }
func (c *nodeContext) Watermark() stream.Time      { return behind(c.x.event, c.node.Lag) }
func (c *nodeContext) Count(name string, n uint64) { c.x.count(c.node.ID, name, n) }

// Random is splitmix64 from a seed that only the step decides.
func (c *nodeContext) Random() uint64 {
	c.x.draws++
	z := (c.x.i.o.Operator*0x9e3779b97f4a7c15 ^ c.x.i.o.Epoch<<48 ^ (c.x.now.seq + 1)) + c.x.draws*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (c *nodeContext) SetTimer(t stream.Timer) {
	t.At = late(t, c.node.Lag)
	c.scratch = appendTimerKey(c.scratch[:0], c.node.ID, c.key, t)
	if _, ok, _ := c.x.overlay.Get(c.scratch); ok {
		return
	}
	c.x.overlay.Put(c.scratch, nil)
	c.x.now.timers[t.Kind] = min(c.x.now.timers[t.Kind], t.At)
}

func (c *nodeContext) DeleteTimer(t stream.Timer) {
	t.At = late(t, c.node.Lag)
	key := appendTimerKey(nil, c.node.ID, c.key, t)
	if _, ok, _ := c.x.overlay.Get(key); ok {
		c.x.overlay.Delete(key)
	}
}

func (c *nodeContext) Get(name string, sub []byte) ([]byte, bool) {
	c.scratch = appendStateKey(c.scratch[:0], c.node.ID, c.key, name, sub)
	v, ok, _ := c.x.overlay.Get(c.scratch) // a failure is asked for after the call
	return v, ok
}

func (c *nodeContext) Put(name string, sub, v []byte) {
	c.scratch = appendStateKey(c.scratch[:0], c.node.ID, c.key, name, sub)
	c.x.overlay.Put(c.scratch, v)
}

func (c *nodeContext) Delete(name string, sub []byte) {
	c.scratch = appendStateKey(c.scratch[:0], c.node.ID, c.key, name, sub)
	c.x.overlay.Delete(c.scratch)
}

func (c *nodeContext) Scan(name string, from, to []byte, f func(sub, v []byte) bool) {
	prefix := appendStateKey(nil, c.node.ID, c.key, name, nil)
	first := append(bytes.Clone(prefix), from...)
	last := after(prefix)
	if to != nil {
		last = append(bytes.Clone(prefix), to...)
	}
	_ = c.x.overlay.Scan(first, last, func(key, v []byte) bool { return f(key[len(prefix):], v) })
}

func (c *nodeContext) Cached(name string, sub []byte) any {
	c.scratch = appendStateKey(c.scratch[:0], c.node.ID, c.key, name, sub)
	return c.x.cache.get(c.scratch)
}

func (c *nodeContext) Cache(name string, sub []byte, obj any, bytes int) {
	c.scratch = appendStateKey(c.scratch[:0], c.node.ID, c.key, name, sub)
	c.x.cache.put(c.scratch, obj, bytes)
}

// after returns the first key behind all that begin with a prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for n := len(end) - 1; n >= 0; n-- {
		if end[n]++; end[n] != 0 {
			return end[:n+1]
		}
	}
	return nil
}
