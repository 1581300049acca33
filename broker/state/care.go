package state

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// Damage is something on this node's disk that can't be used, or couldn't.
type Damage struct {
	Group topics.GroupID // 0 is the catalogue
	What  string
	Found time.Time
	// Files is where the damaged files were moved to, so that the replica is filled
	// again by others; "" where nothing was done, since there are no others.
	Files string
}

// resetsKept is how many resets are remembered, for monitoring.
const resetsKept = 32

// resets are the replicas of this node that were filled anew since it started.
type resets struct {
	mu  sync.Mutex
	all []Damage // the newest last
}

func (r *resets) note(d Damage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d)
	if len(r.all) > resetsKept {
		r.all = slices.Delete(r.all, 0, len(r.all)-resetsKept)
	}
}

func (r *resets) list() []Damage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Damage returns the damage that this node has found since it started: first what
// could not be repaired.
func (s *State) Damage() []Damage {
	var out []Damage
	add := func(id topics.GroupID, log *replication.Group, why string) {
		d := Damage{Group: id, What: why}
		if log != nil {
			if found, err := log.Damaged(); err != nil {
				d.Found = found
				if d.What == "" {
					d.What = err.Error()
				}
			}
		}
		if d.What != "" {
			out = append(out, d)
		}
	}
	add(topics.CatalogueGroup, s.meta.Load(), "")
	for _, g := range s.groups.list() {
		var log *replication.Group
		if r := g.local.Load(); r != nil {
			log = r.repl.Load()
		}
		add(g.id, log, g.Why())
	}
	if s.cl != nil {
		out = append(out, s.cl.resets.list()...)
	}
	return out
}

// Scrub reads and checks everything that this node has of a group on the disk, now.
// With no replica here there is nothing to read.
func (s *State) Scrub(ctx context.Context, id topics.GroupID) (replication.ScrubResult, error) {
	log := s.meta.Load()
	if id != topics.CatalogueGroup {
		log = nil
		if g := s.groups.find(id); g != nil {
			if r := g.local.Load(); r != nil {
				log = r.repl.Load()
			}
		}
	}
	if log == nil {
		return replication.ScrubResult{}, nil
	}
	return log.ScrubNow(ctx)
}
