package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Scrubber is a StateMachine with files of its own that can be checked. Scrub reads
// all of them and verifies every checksum. It calls pace before it reads so many
// bytes, and ends with what pace returns when that is an error. Damage doesn't end
// it: it is given to found. It may be called on any goroutine, beside Apply.
type Scrubber interface {
	Scrub(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error
}

// The rhythm of scrubbing.
const (
	scrubEvery = 24 * time.Hour
	scrubFirst = 2 * time.Minute // after the start, at the earliest
	scrubRate  = 4 << 20         // bytes a second at least, while there is little else to do
	// scrubBusy is how many entries a second are more than that: then it waits, but no
	// longer than it may to be through in scrubEvery.
	scrubBusy = 200
	scrubStep = 1 << 20 // of the log
	damageMax = 16      // that a result names
)

// ScrubResult is what one scrub of a group came to.
type ScrubResult struct {
	Began, Ended time.Time
	Bytes        int64   // read and checked
	Found        int     // damaged places
	Damage       []error // the first of them
	Err          error   // why it ended early
}

// ScrubStats is what scrubbing a group came to since the start.
type ScrubStats struct {
	Running bool
	Bytes   int64
	Damage  int64       // damaged places
	Last    ScrubResult // the last that ended
}

// scrubs is a group's scrubbing. careMu guards it.
type scrubs struct {
	stats  ScrubStats
	yield  context.CancelFunc // ends the one that goes on in the background
	ended  chan struct{}      // closed when the one that goes on ends; nil when none does
	pacing bool               // the one that goes on is the background's
}

// Scrubs returns what scrubbing came to.
func (g *Group) Scrubs() ScrubStats {
	g.careMu.Lock()
	defer g.careMu.Unlock()
	return g.scrubs.stats
}

// ScrubNow checks everything the group has on the disk at once: the machine's files,
// its part of the log, the snapshots. It returns what it found; damage is reported as
// well. The error says that it could not look at everything.
func (g *Group) ScrubNow(ctx context.Context) (ScrubResult, error) {
	r := g.scrub(ctx, false, func(ctx context.Context, _ int64) error { return ctx.Err() })
	return r, r.Err
}

// scrub waits for its turn and checks everything. One in the background gives way.
func (g *Group) scrub(ctx context.Context, background bool, pace func(ctx context.Context, bytes int64) error) (r ScrubResult) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	g.careMu.Lock()
	for g.scrubs.ended != nil {
		other := g.scrubs.ended
		if g.scrubs.pacing && !background {
			g.scrubs.yield()
		}
		g.careMu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return ScrubResult{Err: ctx.Err()}
		case <-g.stop:
			return ScrubResult{Err: ErrClosed}
		}
		g.careMu.Lock()
	}
	g.scrubs.ended, g.scrubs.yield, g.scrubs.pacing = ended, cancel, background
	g.scrubs.stats.Running = true
	g.careMu.Unlock()

	r.Began = time.Now()
	counted := func(ctx context.Context, n int64) error {
		if err := pace(ctx, n); err != nil {
			return err
		}
		r.Bytes += n
		g.careMu.Lock()
		g.scrubs.stats.Bytes += n
		g.careMu.Unlock()
		return nil
	}
	r.Err = g.scrubAll(ctx, counted, func(err error) {
		if r.Found++; len(r.Damage) < damageMax {
			r.Damage = append(r.Damage, err)
		}
		g.ReportDamage(err)
	})
	r.Ended = time.Now()

	g.careMu.Lock()
	defer g.careMu.Unlock()
	g.scrubs.stats.Running = false
	g.scrubs.stats.Damage += int64(r.Found)
	if r.Err == nil {
		g.scrubs.stats.Last = r
	}
	g.scrubs.ended = nil
	close(ended)
	return r
}

func (g *Group) scrubAll(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error {
	if s, ok := g.machine.sm.(Scrubber); ok {
		if err := s.Scrub(ctx, pace, found); err != nil {
			return fmt.Errorf("scrub group %d: %w", g.id, err)
		}
	}
	if err := g.scrubLog(ctx, pace, found); err != nil {
		return fmt.Errorf("scrub the log of group %d: %w", g.id, err)
	}
	if err := pace(ctx, g.snapshots.Size()); err != nil {
		return err
	}
	return notDamage(g.snapshots.Verify(), found)
}

// notDamage gives damage to found and returns other errors.
func notDamage(err error, found func(error)) error {
	var damage *CorruptError
	if errors.As(err, &damage) {
		found(err)
		return nil
	}
	return err
}

func (g *Group) scrubLog(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error {
	for next := uint64(1); next > 0; {
		var bytes int64
		var err error
		next, bytes, err = g.wal.Verify(next, scrubStep)
		if err = notDamage(err, found); err != nil {
			return err
		}
		if err := pace(ctx, bytes); err != nil {
			return err
		}
	}
	return nil
}

// keepScrubbing scrubs once a day, a little at a time. It is a goroutine.
func (g *Group) keepScrubbing() {
	// Not all groups at once, nor all nodes.
	wait := scrubFirst + rand.N(scrubFirst)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-g.stop:
			timer.Stop()
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		g.running.Go(func() {
			select {
			case <-g.stop:
				cancel()
			case <-ended:
			}
		})
		r := g.scrub(ctx, true, g.pace)
		cancel()
		close(ended)
		wait = max(scrubEvery-time.Since(r.Began), scrubFirst)
		if r.Err != nil {
			wait = scrubFirst // another gave it no chance
			continue
		}
		g.wantFullMark()
		if r.Found > 0 {
			g.node.cfg.Log.Error("scrubbing found damage", "group", g.id, "places", r.Found, "first", r.Damage[0])
		}
	}
}

// pace makes a scrub in the background as slow as it should be.
func (g *Group) pace(ctx context.Context, bytes int64) error {
	daily := float64(g.Scrubs().Last.Bytes) / scrubEvery.Seconds() // what it takes
	most := time.Duration(float64(bytes) / max(daily, 1) * float64(time.Second))
	step := time.Duration(float64(bytes) / max(scrubRate, daily) * float64(time.Second))
	most = min(most, time.Minute)
	for waited := time.Duration(0); ; {
		applied := g.applied.Load()
		timer := time.NewTimer(step)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		waited += step
		if float64(g.applied.Load()-applied) <= scrubBusy*step.Seconds()+1 || waited >= most {
			return nil
		}
		step = 250 * time.Millisecond
	}
}
