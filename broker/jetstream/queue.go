package jetstream

import (
	"sync"
)

// A queue runs jobs on goroutines that it starts when there is work, at most
// workers of them. Jobs with the same key run in the order they came, one at a
// time; the total that waits is bounded, and what comes on top is refused.
type queue struct {
	workers, limit int

	mu      sync.Mutex
	waiting int              // jobs taken and not yet done
	running int              // goroutines
	lanes   map[string]*lane // of the keys that have jobs
	ready   []*lane          // lanes with jobs that nobody runs, longest waiting first
	started bool
	closed  bool
	wg      sync.WaitGroup
}

// A lane is the jobs of one key.
type lane struct {
	key  string
	jobs []func()
}

func newQueue(workers, limit int) *queue {
	return &queue{workers: workers, limit: limit, lanes: map[string]*lane{}}
}

// start begins to run what is added. It is called once.
func (q *queue) start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started = true
	q.hireLocked()
}

// hireLocked starts goroutines for lanes that wait for one.
func (q *queue) hireLocked() {
	for n := len(q.ready); q.started && n > 0 && q.running < q.workers; n-- {
		q.running++
		q.wg.Go(q.run)
	}
}

// add takes a job; false when too much is waiting or the queue is closed.
func (q *queue) add(key string, job func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.waiting >= q.limit {
		return false
	}
	q.waiting++
	if l := q.lanes[key]; l != nil {
		l.jobs = append(l.jobs, job)
		return true
	}
	l := &lane{key: key, jobs: []func(){job}}
	q.lanes[key] = l
	q.ready = append(q.ready, l)
	if q.started && q.running < q.workers {
		q.running++
		q.wg.Go(q.run)
	}
	return true
}

// run runs lanes, one job of each in turn, until none waits. It is a goroutine.
func (q *queue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 {
		l := q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
		job := l.jobs[0]
		q.mu.Unlock()
		job()
		q.mu.Lock()
		q.waiting--
		l.jobs[0] = nil
		if l.jobs = l.jobs[1:]; len(l.jobs) > 0 {
			q.ready = append(q.ready, l)
		} else {
			delete(q.lanes, l.key)
		}
	}
	q.running--
}

// close runs what is waiting and ends the goroutines.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wg.Wait()
}
