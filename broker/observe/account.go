package observe

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/interest"
)

// Declared is what an Account counts for one advertisement.
type Declared struct {
	Pattern  string
	Declares bool // it is by one who publishes or answers: its traffic is declared
	Key      Key
	Sampled  bool // samples of its messages are wanted
}

// Account counts what is published in one account. All methods are safe for any number
// of callers.
type Account struct {
	now   func() time.Time
	offer func(*Tally, Sample)

	index      interest.Index[*Tally]
	undeclared undeclared

	mu       sync.Mutex
	declared map[any]*Tally // by what the caller calls them

	at atomic.Uint64 // of the view in force
}

// New returns an account's counters. now is the clock; offer gets samples and must not
// block, nil wants none.
func New(now func() time.Time, offer func(*Tally, Sample)) *Account {
	a := &Account{now: now, offer: offer, declared: map[any]*Tally{}}
	a.undeclared.init(now)
	return a
}

// View is the account's counters as front.Observer. A new one has to be set whenever
// what is declared has changed: publishers keep what they were told under it.
func (a *Account) View() front.Observer { return &view{a, a.at.Add(1)} }

type view struct {
	*Account
	_ uint64 // so that views have different addresses
}

// Tallies implements front.Observer.
func (a *Account) Tallies(subject string, prefix bool) ([]front.Tally, bool) {
	if strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_") {
		return nil, true
	}
	var found []*Tally
	if prefix {
		var ok bool
		if found, ok = a.index.MatchPrefix(subject, nil); !ok {
			return nil, false
		}
	} else {
		found = a.index.Match(subject, nil)
	}
	out := make([]front.Tally, 0, len(found)+1)
	declared := false
	for _, t := range found {
		declared = declared || t.declares
		out = append(out, t)
	}
	if declared {
		return out, true
	}
	if prefix {
		return nil, false // whether the last token looks made up makes a difference
	}
	return append(out, a.undeclared.tally(generalise(subject))), true
}

// Declare makes the messages of an advertisement counted, from now on; one that was
// declared under the name already goes on when it is the same as before.
func (a *Account) Declare(name any, d Declared) *Tally {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.declared[name]
	if old != nil && old.Pattern == d.Pattern && old.key == d.Key && old.declares == d.Declares && (old.offer != nil) == d.Sampled {
		return old
	}
	t := &Tally{Pattern: d.Pattern, declares: d.Declares, key: d.Key, now: a.now}
	if d.Sampled {
		t.offer = a.offer
	}
	a.declared[name] = t
	if old != nil {
		a.index.Remove(old.Pattern, old)
		if old.Pattern == d.Pattern { // it goes on counting
			t.busy.Store(old.busy.Load())
			if old.key == d.Key {
				t.keys.Store(old.keys.Load())
			}
		}
	}
	a.index.Add(t.Pattern, t)
	if d.Declares {
		a.undeclared.drop(d.Pattern)
	}
	return t
}

// Withdraw ends the counting for an advertisement.
func (a *Account) Withdraw(name any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.declared[name]; t != nil {
		delete(a.declared, name)
		a.index.Remove(t.Pattern, t)
	}
}

// Of returns the counter of an advertisement; nil when it isn't declared.
func (a *Account) Of(name any) *Tally {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.declared[name]
}

// Undeclared returns what is published without an advertisement and was within the last
// hour, by pattern.
func (a *Account) Undeclared() []Stats { return a.undeclared.stats() }
