package state

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// Overlay is what a step that isn't committed yet has written, above what it reads.
// For one goroutine.
//
// Writes go to a hash map; only Scan and First need order, and sort what was written
// since the last of them.
type Overlay struct {
	below   Reader
	index   map[string]int32 // of entries
	entries []entry          // each key once, in the order of its first write
	tree    btree.Map[string, int32]
	sorted  int // how many entries are in tree
	undo    []change
	bytes   int64 // of what was written
	failed  error // the first failure of what is below
}

// standing is what an overlay says of a key.
type standing uint8

const (
	untouched standing = iota // nothing: its write was undone
	present
	deleted
)

type written struct {
	v  []byte
	is standing
}

type entry struct {
	key string
	written
}

// change is what stood in the overlay before a write.
type change struct {
	at  int32
	was written
}

// NewOverlay returns an empty overlay above what it reads: a Store, or the overlay of
// the step before.
func NewOverlay(below Reader) *Overlay {
	return &Overlay{below: below, index: make(map[string]int32, 64)}
}

// Get implements Reader.
func (o *Overlay) Get(key []byte) ([]byte, bool, error) {
	if at, ok := o.index[string(key)]; ok && o.entries[at].is != untouched {
		return o.entries[at].v, o.entries[at].is == present, nil
	}
	v, ok, err := o.below.Get(key)
	o.note(err)
	return v, ok, err
}

func (o *Overlay) note(err error) {
	if o.failed == nil {
		o.failed = err
	}
}

// Err returns the first failure of what is below: what was read since is not to be
// believed.
func (o *Overlay) Err() error { return o.failed }

// Put sets a key's value and keeps the value; the key is copied.
func (o *Overlay) Put(key, v []byte) { o.write(key, written{v, present}) }

// Delete removes a key.
func (o *Overlay) Delete(key []byte) { o.write(key, written{nil, deleted}) }

func (o *Overlay) write(key []byte, w written) {
	at, ok := o.index[string(key)]
	if !ok {
		at = int32(len(o.entries))
		k := string(key)
		o.entries = append(o.entries, entry{key: k})
		o.index[k] = at
	}
	o.undo = append(o.undo, change{at, o.entries[at].written})
	o.set(at, w)
}

func (o *Overlay) set(at int32, w written) {
	e := &o.entries[at]
	o.bytes += e.size(w) - e.size(e.written)
	e.written = w
}

func (e *entry) size(w written) int64 {
	if w.is == untouched {
		return 0
	}
	return int64(len(e.key) + len(w.v))
}

// Bytes returns about how big the delta will be.
func (o *Overlay) Bytes() int64 { return o.bytes }

// Mark returns where the overlay is now, for Rollback.
func (o *Overlay) Mark() int { return len(o.undo) }

// Forget makes what was written so far final: marks made before are void.
func (o *Overlay) Forget() { o.undo = o.undo[:0] }

// Rollback undoes what was written since a mark.
func (o *Overlay) Rollback(mark int) {
	for i := len(o.undo) - 1; i >= mark; i-- {
		o.set(o.undo[i].at, o.undo[i].was)
	}
	o.undo = o.undo[:mark]
}

// order puts the keys written since into the tree.
func (o *Overlay) order() {
	for ; o.sorted < len(o.entries); o.sorted++ {
		o.tree.Set(o.entries[o.sorted].key, int32(o.sorted))
	}
}

// First returns the first key and value from from (inclusive) to to (exclusive; nil:
// the end), in one look-up.
func (o *Overlay) First(from, to []byte) (key, v []byte, ok bool, err error) {
	o.order()
	for {
		own, found := int32(-1), ""
		o.tree.Ascend(string(from), func(k string, at int32) bool {
			if to != nil && k >= string(to) {
				return false
			}
			if o.entries[at].is == untouched {
				return true
			}
			own, found = at, k
			return false
		})
		key, v, ok, err := First(o.below, from, to)
		if err != nil {
			o.note(err)
			return nil, nil, false, err
		}
		if own < 0 || ok && string(key) < found {
			return key, v, ok, nil
		}
		if o.entries[own].is == present {
			return []byte(found), o.entries[own].v, true, nil
		}
		from = append([]byte(found), 0)
	}
}

// Scan implements Reader: what is below, changed by what was written. f may write:
// it sees what was there when Scan began.
func (o *Overlay) Scan(from, to []byte, f func(key, v []byte) bool) error {
	type pair struct {
		key string
		w   written
	}
	var own []pair
	end := string(to)
	o.order()
	o.tree.Ascend(string(from), func(k string, at int32) bool {
		if to != nil && k >= end {
			return false
		}
		if w := o.entries[at].written; w.is != untouched {
			own = append(own, pair{k, w})
		}
		return true
	})
	more := true
	// give hands over what was written before key, and tells whether key itself was.
	give := func(key []byte, last bool) (mine bool) {
		for more && len(own) > 0 && (last || own[0].key <= string(key)) {
			p := own[0]
			own = own[1:]
			if p.w.is == present {
				more = f([]byte(p.key), p.w.v)
			}
			if !last && p.key == string(key) {
				return true
			}
		}
		return false
	}
	err := o.below.Scan(from, to, func(key, v []byte) bool {
		if !give(key, false) && more {
			more = f(key, v)
		}
		return more
	})
	o.note(err)
	if err == nil {
		give(nil, true)
	}
	return err
}

// Delta returns what was written, as bytes that are the same wherever the same was.
// A key written and removed again is in it as removed.
func (o *Overlay) Delta() []byte {
	live := make([]int32, 0, len(o.entries))
	for at := range o.entries {
		if o.entries[at].is != untouched {
			live = append(live, int32(at))
		}
	}
	slices.SortFunc(live, func(a, b int32) int { return strings.Compare(o.entries[a].key, o.entries[b].key) })
	dst := make([]byte, 0, o.bytes+int64(6*len(live)))
	for _, at := range live {
		e := &o.entries[at]
		dst = appendChange(dst, e.key, e.v, e.is == deleted)
	}
	return dst
}

// Digest returns a figure that is equal for equal deltas and, for others, with a
// chance of 2^-64.
func Digest(delta []byte) uint64 { return xxhash.Sum64(delta) }

// Rebase gives the overlay something else to read through to: the Store, once the
// overlay between them has been applied to it.
func (o *Overlay) Rebase(below Reader) { o.below = below }
