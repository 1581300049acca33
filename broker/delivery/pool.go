package delivery

import "sync"

// task is something a worker can be given: a reader, a topic to scan, a call.
type task interface {
	// turn works on the task; it runs on one worker at a time.
	turn(w *worker)
}

// pool is the ready queue. Its bound is the number of readers and topics, since
// each stands in it at most once (see state), plus the creations not yet looked
// at.
type pool struct {
	mu     sync.Mutex
	cond   sync.Cond
	tasks  []task // tasks[head:] wait
	head   int
	closed bool
}

func (p *pool) init() { p.cond.L = &p.mu }

func (p *pool) push(t task) {
	p.mu.Lock()
	if p.head > 256 && p.head > len(p.tasks)/2 {
		n := copy(p.tasks, p.tasks[p.head:])
		clear(p.tasks[n:])
		p.tasks, p.head = p.tasks[:n], 0
	}
	p.tasks = append(p.tasks, t)
	p.mu.Unlock()
	p.cond.Signal()
}

// pop waits for a task; false when the pool is closed and empty.
func (p *pool) pop() (task, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.head == len(p.tasks) {
		if p.closed {
			return nil, false
		}
		p.tasks, p.head = p.tasks[:0], 0
		p.cond.Wait()
	}
	t := p.tasks[p.head]
	p.tasks[p.head] = nil
	p.head++
	return t, true
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cond.Broadcast()
}

// call has a function run by a worker.
func (p *pool) call(f func()) { p.push(call(f)) }

type call func()

func (c call) turn(*worker) { c() }

// worker takes tasks out of the ready queue. It owns its publishers and buffers.
type worker struct {
	e          *Engine
	publishers map[publisherKey]Publisher
	batch      batch
}

type publisherKey struct {
	account string
	stall   bool
}

func newWorker(e *Engine) *worker {
	return &worker{e: e, publishers: map[publisherKey]Publisher{}}
}

func (w *worker) run() {
	for {
		t, ok := w.e.pool.pop()
		if !ok {
			return
		}
		t.turn(w)
	}
}

// publisher returns the worker's publisher of an account, nil if there is no
// such account. One that stalls waits a little for receivers far behind: push
// consumers without flow control have nothing else to hold them back.
func (w *worker) publisher(account string, stall bool) Publisher {
	k := publisherKey{account, stall}
	if p := w.publishers[k]; p != nil {
		return p
	}
	a := w.e.o.Account(account)
	if a == nil {
		return nil
	}
	p := a.NewPublisher()
	p.SetStall(stall)
	w.publishers[k] = p
	return p
}
