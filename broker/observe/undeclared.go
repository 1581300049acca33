package observe

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/topics/subject"
)

// undeclaredMax is how many undeclared patterns an account counts at a time.
const undeclaredMax = 512

// undeclared counts the most used patterns that nobody advertises: Space-Saving (Metwally
// et al. 2005) with undeclaredMax counters, so that each pattern with more than 1/512 of
// the messages has one. Where there are more patterns, one message in admitEvery of those
// without a counter tries to get that of the least used.
//
// Invariant: every tally that was handed out counts; one that lost its place passes on to
// rest.
type undeclared struct {
	now   func() time.Time
	all   sync.Map // pattern → *Tally
	tries atomic.Uint64
	rest  *Tally // whatever has no counter

	mu sync.Mutex   // of those who change all
	n  atomic.Int64 // in all
}

const admitEvery = 16

func (u *undeclared) init(now func() time.Time) {
	u.now = now
	u.rest = &Tally{Pattern: ">", now: now}
}

func (u *undeclared) tally(pattern string) *Tally {
	if t, ok := u.all.Load(pattern); ok {
		return t.(*Tally) //nolint:forcetypeassert // only tallies are stored
	}
	if u.n.Load() >= undeclaredMax && u.tries.Add(1)%admitEvery != 0 {
		return u.rest
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t, ok := u.all.Load(pattern); ok {
		return t.(*Tally) //nolint:forcetypeassert // only tallies are stored
	}
	t := &Tally{Pattern: pattern, now: u.now}
	if u.n.Load() >= undeclaredMax {
		least := u.least()
		t.rank.Store(least.rank.Load())
		u.all.Delete(least.Pattern)
		least.evicted.Store(u.rest)
		u.n.Add(-1)
	}
	u.all.Store(pattern, t)
	u.n.Add(1)
	return t
}

func (u *undeclared) least() (least *Tally) {
	u.all.Range(func(_, v any) bool {
		if t := v.(*Tally); least == nil || t.rank.Load() < least.rank.Load() { //nolint:forcetypeassert // only tallies are stored
			least = t
		}
		return true
	})
	return least
}

// drop forgets the patterns that are declared now.
func (u *undeclared) drop(declared string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all.Range(func(_, v any) bool {
		if t := v.(*Tally); subject.Covers(declared, t.Pattern) { //nolint:forcetypeassert // only tallies are stored
			u.all.Delete(t.Pattern)
			t.evicted.Store(u.rest)
			u.n.Add(-1)
		}
		return true
	})
}

func (u *undeclared) stats() []Stats {
	var out []Stats
	u.all.Range(func(_, v any) bool {
		if s := v.(*Tally).Stats(); s.Msgs1h > 0 { //nolint:forcetypeassert // only tallies are stored
			out = append(out, s)
		}
		return true
	})
	slices.SortFunc(out, func(a, b Stats) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return out
}
