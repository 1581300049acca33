package replication

import (
	"maps"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// comparer finds the replica that holds something else than the majority. It is a pure
// function of what was said so far.
type comparer struct {
	rounds    map[topics.Index]*markRound
	condemned map[string]bool // replicas that were found out
	agreed    topics.Index    // last round with a majority
	digest    uint64
}

// markRound is what replicas said at one marker.
type markRound struct {
	said  map[string]uint64 // digest by replica
	alarm bool              // that there is no majority was told
}

// roundsMax is how many markers are remembered: a replica that is later than that is
// compared at the next.
const roundsMax = 32

// verdict is what came of a report.
type verdict struct {
	odd    []string // replicas, found out now
	theirs uint64   // what the majority holds
	// split: all voters have spoken, and no majority holds the same.
	split bool
}

// say takes a report. voters are the replicas that vote now; only they make a
// majority, but others can be found out as well.
func (c *comparer) say(at topics.Index, replica string, digest uint64, voters []string) (v verdict) {
	if c.rounds == nil {
		c.rounds, c.condemned = map[topics.Index]*markRound{}, map[string]bool{}
	}
	r := c.rounds[at]
	if r == nil {
		r = &markRound{said: map[string]uint64{}}
		c.rounds[at] = r
		if len(c.rounds) > roundsMax {
			delete(c.rounds, slices.Min(slices.Collect(maps.Keys(c.rounds))))
		}
	}
	r.said[replica] = digest
	votes, spoken := map[uint64]int{}, 0
	for _, id := range voters {
		if d, ok := r.said[id]; ok {
			votes[d]++
			spoken++
		}
	}
	for d, n := range votes {
		if n <= len(voters)/2 {
			continue
		}
		if at > c.agreed {
			c.agreed, c.digest = at, d
		}
		v.theirs = d
		for _, id := range slices.Sorted(maps.Keys(r.said)) {
			if r.said[id] != d && !c.condemned[id] {
				c.condemned[id] = true
				v.odd = append(v.odd, id)
			}
		}
		return v
	}
	if spoken == len(voters) && spoken > 0 && !r.alarm {
		r.alarm, v.split = true, true
	}
	return v
}
