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
	sorted  int         // how many entries are in tree
	scans   []*scanning // that are under way
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
	o.settle()
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

// settle has scans that are under way see what there is now, whatever is written from now on.
func (o *Overlay) settle() {
	for _, s := range o.scans {
		if !s.all {
			s.take(0)
		}
	}
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
	o.settle()
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
		o.tree.Ascend(keyText(from), func(k string, at int32) bool {
			if to != nil && k >= keyText(to) {
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
			return raw(found), o.entries[own].v, true, nil
		}
		from = append([]byte(found), 0)
	}
}

// Scan implements Reader: what is below, changed by what was written. f may write:
// it sees what was there when Scan began.
func (o *Overlay) Scan(from, to []byte, f func(key, v []byte) bool) error {
	o.order()
	own := scanning{o: o, from: keyText(from), to: keyText(to), open: to == nil}
	o.scans = append(o.scans, &own)
	defer func() { o.scans = o.scans[:len(o.scans)-1] }()
	more := true
	// give hands over what was written before key, and tells whether key itself was.
	give := func(key []byte, last bool) (mine bool) {
		for more {
			p, ok := own.next()
			if !ok || !last && p.key > keyText(key) {
				return false
			}
			own.at++
			if p.w.is == present {
				more = f(raw(p.key), p.w.v)
			}
			if !last && p.key == keyText(key) {
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

// scanning is a scan of what an overlay has written. It takes a handful at a time, since
// many look at the first only, and all of the rest in front of a write.
type scanning struct {
	o        *Overlay
	from, to string
	open     bool // there is no to
	own      []pair
	at       int // in own
	all      bool
}

type pair struct {
	key string
	w   written
}

// next returns the next pair, which stays the next until at goes on.
func (s *scanning) next() (pair, bool) {
	if s.at == len(s.own) && !s.all {
		s.own, s.at = s.own[:0], 0
		s.take(8)
	}
	if s.at == len(s.own) {
		return pair{}, false
	}
	return s.own[s.at], true
}

// take takes up to most more; 0: all there are.
func (s *scanning) take(most int) {
	n := 0
	s.all = true
	s.o.tree.Ascend(s.from, func(k string, at int32) bool {
		if !s.open && k >= s.to {
			return false
		}
		if most > 0 && n == most {
			s.from, s.all = k, false
			return false
		}
		if w := s.o.entries[at].written; w.is != untouched {
			s.own = append(s.own, pair{k, w})
			n++
		}
		return true
	})
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
