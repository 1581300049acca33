package schema

import (
	"container/list"
	"sync"
)

// Cache keeps compiled schemas by their digest, those used last. Its methods may be
// called by any number of goroutines.
type Cache struct {
	mu       sync.Mutex
	max, now int // bytes of text
	order    list.List
	all      map[string]*list.Element // of *cached
}

type cached struct {
	schema *Schema
	err    error
	digest string
	size   int
}

// entryBytes is what a schema counts beside its text.
const entryBytes = 4 << 10

// NewCache returns a cache for schemas of so many bytes of text together, a few KiB more
// for each. What compiled schemas take is a multiple of that.
func NewCache(bytes int) *Cache {
	return &Cache{max: bytes, all: map[string]*list.Element{}}
}

// Get returns the compiled schema of a source. The error is a *SourceError; errors are
// kept too, so that a wrong schema costs its compilation once.
func (c *Cache) Get(src Source) (*Schema, error) {
	digest := src.Digest()
	c.mu.Lock()
	if e := c.all[digest]; e != nil {
		c.order.MoveToFront(e)
		one := e.Value.(*cached)
		c.mu.Unlock()
		return one.schema, one.err
	}
	c.mu.Unlock()
	s, err := Compile(src) // without the lock: it takes a while
	one := &cached{schema: s, err: err, digest: digest, size: len(src.Text) + len(src.Writers) + entryBytes}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[digest]; e != nil { // somebody else was faster
		return e.Value.(*cached).schema, e.Value.(*cached).err
	}
	if one.size > c.max {
		return s, err
	}
	c.all[digest] = c.order.PushFront(one)
	for c.now += one.size; c.now > c.max; {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.all, last.digest)
		c.now -= last.size
	}
	return s, err
}

// Len returns how many schemas are kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}
