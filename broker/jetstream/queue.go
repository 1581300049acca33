package jetstream

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A queue runs jobs on a few goroutines. Jobs with the same key run in the
// order they came; the total that waits is bounded, and what comes on top is
// refused.
type queue struct {
	limit   int64
	waiting atomic.Int64
	seed    maphash.Seed
	lanes   []*lane
	wg      sync.WaitGroup
}

// A lane is the work of one goroutine.
type lane struct {
	mu     sync.Mutex
	ready  sync.Cond
	jobs   []func()
	closed bool
}

func newQueue(workers, limit int) *queue {
	q := &queue{limit: int64(limit), seed: maphash.MakeSeed(), lanes: make([]*lane, workers)}
	for i := range q.lanes {
		q.lanes[i] = &lane{}
		q.lanes[i].ready.L = &q.lanes[i].mu
	}
	return q
}

func (q *queue) start() {
	for _, l := range q.lanes {
		q.wg.Go(func() { q.run(l) })
	}
}

// add takes a job; false when too much is waiting or the queue is closed.
func (q *queue) add(key string, job func()) bool {
	if q.waiting.Add(1) > q.limit {
		q.waiting.Add(-1)
		return false
	}
	l := q.lanes[maphash.String(q.seed, key)%uint64(len(q.lanes))]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		q.waiting.Add(-1)
		return false
	}
	l.jobs = append(l.jobs, job)
	l.ready.Signal()
	return true
}

func (q *queue) run(l *lane) {
	var batch []func()
	for {
		l.mu.Lock()
		for len(l.jobs) == 0 && !l.closed {
			l.ready.Wait()
		}
		if len(l.jobs) == 0 {
			l.mu.Unlock()
			return
		}
		batch, l.jobs = l.jobs, batch[:0]
		l.mu.Unlock()
		for i, job := range batch {
			job()
			batch[i] = nil
			q.waiting.Add(-1)
		}
	}
}

// close runs what is waiting and ends the goroutines.
func (q *queue) close() {
	for _, l := range q.lanes {
		l.mu.Lock()
		l.closed = true
		l.ready.Signal()
		l.mu.Unlock()
	}
	q.wg.Wait()
}
