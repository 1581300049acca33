package engine

// cache keeps what nodes have made of their state (stream.Context's Cached), so that they
// need not read it again for each record. It holds nothing that the state doesn't: whoever
// finds nothing reads. What was touched is dropped when what was done is undone.
//
// It has two halves: what is used stays in the young one; when that is full it becomes the
// old one, and what nobody has asked for since then goes.
type cache struct {
	young, old map[string]*cached
	bytes      int // of young
	touched    []*cached
	seq        uint64 // the step after which it is as the state
}

type cached struct {
	key   string
	obj   any
	bytes int
}

// cacheBytes is about how much a half may take: of each instance of an operator.
const cacheBytes = 4 << 20

// cachedCost is about what an object costs beside what its node says.
const cachedCost = 160

func (c *cache) clear() {
	c.young, c.old, c.bytes, c.touched = nil, nil, 0, nil
}

// get returns the object under a key, nil where there is none. It may be changed from now
// on, as if touched.
func (c *cache) get(key []byte) any {
	e := c.young[string(key)]
	if e == nil {
		if e = c.old[string(key)]; e == nil {
			return nil
		}
		delete(c.old, e.key)
		c.add(e)
	}
	c.touched = append(c.touched, e)
	return e.obj
}

func (c *cache) add(e *cached) {
	if c.young == nil {
		c.young = map[string]*cached{}
	}
	c.young[e.key] = e
	if c.bytes += e.bytes; c.bytes > cacheBytes {
		c.young, c.old, c.bytes = map[string]*cached{e.key: e}, c.young, e.bytes
		delete(c.old, e.key)
	}
}

// put keeps an object; nil: none.
func (c *cache) put(key []byte, obj any, bytes int) {
	if obj == nil {
		delete(c.old, string(key))
		c.drop(c.young[string(key)])
		return
	}
	bytes += cachedCost + len(key)
	e := c.young[string(key)]
	if e == nil {
		delete(c.old, string(key))
		e = &cached{key: string(key), obj: obj, bytes: bytes}
		c.touched = append(c.touched, e)
		c.add(e)
		return
	}
	if e.obj != obj {
		c.touched = append(c.touched, e)
	}
	c.bytes += bytes - e.bytes
	e.obj, e.bytes = obj, bytes
}

// undo drops what was touched since there were so many.
func (c *cache) undo(touched int) {
	for _, e := range c.touched[touched:] {
		delete(c.old, e.key)
		c.drop(e)
	}
	c.touched = c.touched[:touched]
}

func (c *cache) drop(e *cached) {
	if e != nil && c.young[e.key] == e {
		delete(c.young, e.key)
		c.bytes -= e.bytes
	}
}

// forget makes what was touched final.
func (c *cache) forget() {
	clear(c.touched)
	c.touched = c.touched[:0]
}
