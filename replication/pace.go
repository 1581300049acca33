package replication

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication/snapshot"
)

// Files that this node sends to one that refills give way to what is written live: while
// syncs of the log take more than twice as long as they do without files being sent, each
// block of a file is followed by a longer pause, and by a shorter one otherwise. The disk
// may be shared with the receiver's, and the processor always is.
const (
	paceMost  = 2 * time.Millisecond // between two blocks: a refill is never slower than that for the sake of others
	paceMore  = 200 * time.Microsecond
	paceLess  = 100 * time.Microsecond
	paceLeast = 500 * time.Microsecond // a sync that takes no longer than that is none that was slowed
	paceCalm  = 200 * time.Millisecond // after the last block the syncs are those without files
)

// pacer is a node's measure of that. Any number of goroutines.
type pacer struct {
	mu    sync.Mutex
	calm  time.Duration // what a sync takes when no files are sent, about half of the times
	pause time.Duration
	sent  time.Time // when the last block was
}

// synced notes how long a sync of the log took.
func (p *pacer) synced(took time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case now.Sub(p.sent) > paceCalm:
		if p.pause = 0; p.calm == 0 {
			p.calm = took
		}
		if took > p.calm { // towards the median: a few that took very long say nothing
			p.calm += p.calm / 16
		} else {
			p.calm -= p.calm / 16
		}
	case p.calm > 0 && took > max(2*p.calm, paceLeast):
		p.pause = min(p.pause+paceMore, paceMost)
	default:
		p.pause = max(p.pause-paceLess, 0)
	}
}

// next notes that a block is sent, and returns how long to wait before.
func (p *pacer) next(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle := now.Sub(p.sent); idle > paceCalm {
		p.pause = 0
	}
	p.sent = now
	return p.pause
}

// pacedWriter writes blocks of files at the pace that the log leaves.
type pacedWriter struct {
	io.Writer
	ctx  context.Context
	pace *pacer
}

// WriteKept implements snapshot.Keeper.
func (w *pacedWriter) WriteKept(b []byte, done func()) error {
	if d := w.pace.next(time.Now()); d > 0 {
		select {
		case <-time.After(d):
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	if k, ok := w.Writer.(snapshot.Keeper); ok {
		return k.WriteKept(b, done)
	}
	_, err := w.Write(b)
	return err
}
