package replication

import (
	"context"
	"time"
)

// Scrubber is a StateMachine with files of its own that can be checked. Scrub reads
// all of them and verifies every checksum. It calls pace before it reads so many
// bytes, and ends with what pace returns when that is an error. Damage doesn't end
// it: it is counted and given to found. It may be called on any goroutine, beside
// Apply.
type Scrubber interface {
	Scrub(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error
}

// ScrubResult is what one scrub of a group came to.
type ScrubResult struct {
	Began, Ended time.Time
	Bytes        int64   // read and checked
	Damage       []error // at most a few
	Err          error   // why it ended early
}

// ScrubStats is what scrubbing a group came to since the start.
type ScrubStats struct {
	Running bool
	Bytes   int64
	Damage  int64       // damaged places
	Last    ScrubResult // the last that ended
}

// scrubs is a group's scrubbing; careMu guards it.
type scrubs struct {
	stats ScrubStats
}

// Scrubs returns what scrubbing came to.
func (g *Group) Scrubs() ScrubStats {
	g.careMu.Lock()
	defer g.careMu.Unlock()
	return g.scrubs.stats
}

// ScrubNow checks all files of the group at once, as fast as the disk allows, and
// returns what it found. Damage is reported as well.
func (g *Group) ScrubNow(ctx context.Context) (ScrubResult, error) {
	return ScrubResult{}, nil
}
