// Package interest is the index from a published subject to those who want it:
// a trie of pattern tokens with values of any comparable type at its leaves.
//
// Readers are expected to cache what Match returns for as long as Generation
// stays the same, so that the trie is walked once per subject and change of
// interest, not once per message. The generation is kept per first token:
// subscribing to reply inboxes all day long doesn't spoil what is cached for
// other subjects.
//
// An Index may be used by any number of goroutines. It takes no time, starts
// nothing, and accepts only patterns that subject.Valid accepts.
package interest

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/topics/subject"
)

const shards = 64 // of the generation, by the first token; a power of two

// Index maps patterns to values. The zero value is empty and ready.
type Index[V comparable] struct {
	mu   sync.RWMutex
	root node[V]
	size int

	// generations move after each change: those of a shard for patterns with
	// a literal first token, wild for the others.
	generations [shards]atomic.Uint64
	wild        atomic.Uint64

	inserts, removes, matches atomic.Uint64
}

// node stands for the tokens on the way to it.
type node[V comparable] struct {
	literal map[string]*node[V]
	star    *node[V]
	here    bag[V] // patterns that end at this node
	rest    bag[V] // patterns that go on with ">" as their last token
}

// Stats are counts for monitoring.
type Stats struct {
	Values                    int
	Inserts, Removes, Matches uint64
}

// Stats returns the index's counts.
func (x *Index[V]) Stats() Stats {
	x.mu.RLock()
	n := x.size
	x.mu.RUnlock()
	return Stats{Values: n, Inserts: x.inserts.Load(), Removes: x.removes.Load(), Matches: x.matches.Load()}
}

// Len is the number of values.
func (x *Index[V]) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.size
}

// Stamp remembers a generation, so that asking whether it still holds takes two
// loads. The zero Stamp never holds.
type Stamp struct {
	shard, wild *atomic.Uint64
	at          uint64
}

// Fresh tells whether what was matched after taking the stamp still holds.
func (s Stamp) Fresh() bool { return s.shard != nil && s.shard.Load()+s.wild.Load() == s.at }

// Stamp returns the present generation for a subject, or for all subjects that
// share its first token. Take it before Match.
func (x *Index[V]) Stamp(subject string) Stamp {
	s := Stamp{shard: &x.generations[shardOf(subject)], wild: &x.wild}
	s.at = s.shard.Load() + s.wild.Load()
	return s
}

// Generation changes whenever what Match(subject) returns may have changed.
// Read it before Match, and trust the result only while it stays the same.
func (x *Index[V]) Generation(subject string) uint64 {
	// Both counters only grow, so their sum moves when either does.
	return x.generations[shardOf(subject)].Load() + x.wild.Load()
}

func shardOf(s string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(s) && s[i] != '.'; i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return (h ^ h>>16) & (shards - 1)
}

func (x *Index[V]) changed(pattern string) {
	if first, _, _ := strings.Cut(pattern, "."); first == "*" || first == ">" {
		x.wild.Add(1)
		return
	}
	x.generations[shardOf(pattern)].Add(1)
}

// Touch moves the generation of a pattern, for a change that the index can't
// see (of a value's own state). Cached matches are then made anew.
func (x *Index[V]) Touch(pattern string) { x.changed(pattern) }

// Add puts v under the pattern; false when the pattern isn't valid or v is
// there already.
func (x *Index[V]) Add(pattern string, v V) bool {
	if !subject.Valid(pattern) {
		return false
	}
	x.mu.Lock()
	n, rest := &x.root, false
	for tail, more := pattern, true; more; {
		var tok string
		tok, tail, more = strings.Cut(tail, ".")
		if tok == ">" {
			rest = true
			break
		}
		n = n.child(tok)
	}
	values := &n.here
	if rest {
		values = &n.rest
	}
	added := values.add(v)
	if added {
		x.size++
	}
	x.mu.Unlock()
	if added {
		x.inserts.Add(1)
		x.changed(pattern)
	}
	return added
}

// Remove takes v from under the pattern; false when it wasn't there.
func (x *Index[V]) Remove(pattern string, v V) bool {
	x.mu.Lock()
	removed := x.root.remove(pattern, v)
	if removed {
		x.size--
	}
	x.mu.Unlock()
	if removed {
		x.removes.Add(1)
		x.changed(pattern)
	}
	return removed
}

// Match appends to dst the values whose patterns ask for the literal subject.
func (x *Index[V]) Match(s string, dst []V) []V {
	x.matches.Add(1)
	x.mu.RLock()
	dst = x.root.match(s, dst)
	x.mu.RUnlock()
	return dst
}

// Has tells whether any pattern asks for the literal subject and its value
// passes the test; nil passes all.
func (x *Index[V]) Has(s string, test func(V) bool) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.root.has(s, test)
}

// MatchPrefix appends to dst the values that ask for prefix plus exactly one
// more token, when they are the same whatever that token is. ok is false, and
// dst as it was, when a literal pattern below the prefix makes a difference.
// Subjects that are used once, as reply inboxes are, can be matched by it.
func (x *Index[V]) MatchPrefix(prefix string, dst []V) (_ []V, ok bool) {
	x.matches.Add(1)
	x.mu.RLock()
	defer x.mu.RUnlock()
	start := len(dst)
	dst, ok = x.root.matchPrefix(prefix, dst)
	if !ok {
		return dst[:start], false
	}
	return dst, true
}

// Overlapping appends to dst the values whose patterns share a subject with
// the given pattern.
func (x *Index[V]) Overlapping(pattern string, dst []V) []V {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.root.overlapping(pattern, func(v V) bool { dst = append(dst, v); return true })
	return dst
}

// Overlaps tells whether any stored pattern shares a subject with the pattern.
func (x *Index[V]) Overlaps(pattern string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return !x.root.overlapping(pattern, func(V) bool { return false })
}

// OverlapsOther tells whether a pattern with a value other than v shares a subject
// with the pattern.
func (x *Index[V]) OverlapsOther(pattern string, v V) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return !x.root.overlapping(pattern, func(o V) bool { return o == v })
}

// Each calls f for every value until it returns false. The index is locked for
// reading meanwhile.
func (x *Index[V]) Each(f func(V) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.root.each(f)
}
