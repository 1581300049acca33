package state

import (
	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// Overlay is what a step that isn't committed yet has written, above what it reads.
// For one goroutine.
type Overlay struct {
	below  Reader
	tree   btree.Map[string, written]
	undo   []change
	bytes  int64 // of what was written
	failed error // the first failure of what is below
}

type written struct {
	v       []byte
	deleted bool
}

// change is what stood in the overlay before a write.
type change struct {
	key string
	was written
	had bool
}

// NewOverlay returns an empty overlay above what it reads: a Store, or the overlay of
// the step before.
func NewOverlay(below Reader) *Overlay { return &Overlay{below: below} }

// Get implements Reader.
func (o *Overlay) Get(key []byte) ([]byte, bool, error) {
	if w, ok := o.tree.Get(string(key)); ok {
		return w.v, !w.deleted, nil
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

// Put sets a key's value and keeps it.
func (o *Overlay) Put(key, v []byte) { o.write(string(key), written{v: v}) }

// Delete removes a key.
func (o *Overlay) Delete(key []byte) { o.write(string(key), written{deleted: true}) }

func (o *Overlay) write(key string, w written) {
	was, had := o.tree.Set(key, w)
	o.undo = append(o.undo, change{key, was, had})
	o.bytes += int64(len(key) + len(w.v))
	if had {
		o.bytes -= int64(len(key) + len(was.v))
	}
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
		c := o.undo[i]
		w, _ := o.tree.Get(c.key)
		o.bytes -= int64(len(c.key) + len(w.v))
		if !c.had {
			o.tree.Delete(c.key)
			continue
		}
		o.tree.Set(c.key, c.was)
		o.bytes += int64(len(c.key) + len(c.was.v))
	}
	o.undo = o.undo[:mark]
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
	o.tree.Ascend(string(from), func(k string, w written) bool {
		if to != nil && k >= end {
			return false
		}
		own = append(own, pair{k, w})
		return true
	})
	more := true
	// give hands over what was written before key, and tells whether key itself was.
	give := func(key []byte, last bool) (mine bool) {
		for more && len(own) > 0 && (last || own[0].key <= string(key)) {
			p := own[0]
			own = own[1:]
			if !p.w.deleted {
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
	dst := make([]byte, 0, o.bytes+int64(4*o.tree.Len()))
	o.tree.Scan(func(k string, w written) bool {
		dst = appendChange(dst, []byte(k), w.v, w.deleted)
		return true
	})
	return dst
}

// Digest returns a figure that is equal for equal deltas and, for others, with a
// chance of 2^-64.
func Digest(delta []byte) uint64 { return xxhash.Sum64(delta) }

// Rebase gives the overlay something else to read through to: the Store, once the
// overlay between them has been applied to it.
func (o *Overlay) Rebase(below Reader) { o.below = below }
