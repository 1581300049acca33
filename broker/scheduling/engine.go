package scheduling

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// Options says what an Engine works with. Account is required.
type Options struct {
	Account func(name string) *front.Account // nil when there is none
	Now     func() time.Time                 // default: the system's clock
	Log     *slog.Logger                     // default: discards
}

// Engine publishes what is scheduled. TopicChanged, Grown and Lead may be called
// from where entries are applied: they don't block.
type Engine struct {
	o    Options
	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wake chan struct{} // holds one
	wg   sync.WaitGroup

	mu      sync.Mutex
	watched map[topics.TopicID]*watch
}

// New returns an engine with its goroutine started; Close ends it.
func New(o Options) *Engine {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{o: o, wake: make(chan struct{}, 1), watched: map[topics.TopicID]*watch{}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.wg.Go(e.run)
	return e
}

// Close ends the engine's goroutine and waits for it.
func (e *Engine) Close() {
	e.stop()
	e.wg.Wait()
}

// TopicChanged follows a topic that allows schedules, or no longer.
func (e *Engine) TopicChanged(t *state.Topic, c state.Change) {
	follow := c != state.Deleted && t.Config().AllowMsgSchedules
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.watched[t.ID()]
	switch {
	case follow && (w == nil || c == state.Moved):
		fresh := newWatch(e, t)
		fresh.leads = w != nil && t.Group().IsLeader()
		e.watched[t.ID()] = fresh
		e.poke()
	case !follow && w != nil:
		delete(e.watched, t.ID())
	}
}

// Grown looks for schedules among new messages.
func (e *Engine) Grown(ids []topics.TopicID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		if w := e.watched[id]; w != nil {
			w.grown = true
			e.poke()
		}
	}
}

// Lead tells that what this node leads has changed: what it leads anew is read
// from its beginning, what it no longer leads is forgotten.
func (e *Engine) Lead() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, w := range e.watched {
		if leads := w.topic.Group().IsLeader(); leads != w.leads {
			fresh := newWatch(e, w.topic)
			fresh.leads = leads
			e.watched[id] = fresh
		}
	}
	e.poke()
}

func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// idle is how long the engine sleeps when nothing is scheduled.
const idle = time.Hour

func (e *Engine) run() {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for e.ctx.Err() == nil {
		timer.Reset(e.turn())
		select {
		case <-e.ctx.Done():
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// turn publishes what is due and returns how long to sleep.
func (e *Engine) turn() time.Duration {
	e.mu.Lock()
	var all, grown []*watch
	for _, w := range e.watched {
		all = append(all, w)
		if w.grown && w.topic.Group().IsLeader() {
			grown = append(grown, w)
			w.grown = false
			w.leads = true
		}
	}
	e.mu.Unlock()
	for _, w := range grown {
		w.read()
	}
	now := e.o.Now()
	sleep := idle
	for _, w := range all {
		if next, ok := w.fire(now); ok {
			sleep = min(sleep, next.Sub(now))
		}
	}
	return max(sleep, 0)
}
