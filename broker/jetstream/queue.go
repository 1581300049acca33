package jetstream

import (
	"slices"
	"sync"
	"time"
)

// A queue runs jobs on goroutines that it starts when there is work, at most
// workers of them. Jobs with the same key run in the order they came, one at a
// time; the total that waits is bounded, and what comes on top is refused.
//
// A goroutine that has nothing to do waits for more for a while: while many requests
// come, starting one and growing its stack anew for each would cost as much as some of
// them.
type queue struct {
	workers, limit int
	rest           time.Duration

	mu      sync.Mutex
	waiting int              // jobs taken and not yet done
	running int              // goroutines, idle ones included
	idle    []*worker        // that wait for work, longest waiting first
	spare   int              // as many were idle all the time since dismiss looked last
	dismiss *time.Timer      // runs while any is idle
	lanes   map[string]*lane // of the keys that have jobs
	ready   []*lane          // lanes with jobs that nobody runs, longest waiting first
	started bool
	closed  bool
	wg      sync.WaitGroup
}

// idleMost is how long a goroutine of a queue waits for work, at most twice that.
const idleMost = 5 * time.Second

// A worker is one goroutine of a queue.
type worker struct {
	wake chan struct{} // one deep
	gone bool          // it is to end; set before wake
}

// A lane is the jobs of one key.
type lane struct {
	key  string
	jobs []func()
}

func newQueue(workers, limit int) *queue {
	return &queue{workers: workers, limit: limit, rest: idleMost, lanes: map[string]*lane{}}
}

// start begins to run what is added. It is called once.
func (q *queue) start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started = true
	for range q.ready {
		q.hireLocked()
	}
}

// hireLocked sees to it that somebody looks for a lane that waits.
func (q *queue) hireLocked() {
	switch n := len(q.idle); {
	case !q.started:
	case n > 0:
		w := q.idle[n-1]
		q.idle[n-1] = nil
		q.idle = q.idle[:n-1]
		q.spare = min(q.spare, n-1)
		w.wake <- struct{}{}
	case q.running < q.workers:
		q.running++
		q.wg.Go(func() { q.run(&worker{wake: make(chan struct{}, 1)}) })
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
	q.hireLocked()
	return true
}

// run runs lanes, one job of each in turn, until it isn't needed any more. It is a
// goroutine.
func (q *queue) run(w *worker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
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
		if q.closed || w.gone {
			q.running--
			return
		}
		q.restLocked(w)
	}
}

// restLocked lets a worker wait for work.
func (q *queue) restLocked(w *worker) {
	q.idle = append(q.idle, w)
	switch {
	case q.dismiss == nil:
		q.dismiss = time.AfterFunc(q.rest, q.dismissSpare)
	case len(q.idle) == 1:
		q.dismiss.Reset(q.rest)
	}
	q.mu.Unlock()
	<-w.wake
	q.mu.Lock()
}

// dismissSpare ends the goroutines that weren't needed since it was called last.
func (q *queue) dismissSpare() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.endLocked(min(q.spare, len(q.idle)))
	if q.spare = len(q.idle); q.spare > 0 {
		q.dismiss.Reset(q.rest)
	}
}

// endLocked ends the first n of those that wait.
func (q *queue) endLocked(n int) {
	for _, w := range q.idle[:n] {
		w.gone = true
		w.wake <- struct{}{}
	}
	q.idle = slices.Delete(q.idle, 0, n)
}

// close runs what is waiting and ends the goroutines.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.endLocked(len(q.idle))
	if q.dismiss != nil {
		q.dismiss.Stop()
	}
	q.mu.Unlock()
	q.wg.Wait()
}
