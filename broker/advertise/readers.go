package advertise

import (
	"context"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// readers is somebody who is told when those who read a pattern come and go. It is told
// on a reply subject and ends when nobody listens there any more.
type readers struct {
	pattern string
	cancel  func()
	at      front.Interested
	count   int
}

// readersMessage is what it is told.
type readersMessage struct {
	Event       string `json:"event"` // "subscribers"
	Subscribers int    `json:"subscribers"`
}

// The pauses between two looks.
const (
	readersEvery = 250 * time.Millisecond // whether interest has changed
	quietEvery   = 5 * time.Second        // whether somebody fell silent, or readers elsewhere changed
)

// watchReaders begins to tell of readers; count is how many there are now.
func (s *Service) watchReaders(r *request, pattern string, count int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.accounts[r.account]
	if v == nil || s.closed {
		return 0, faultNotLeader
	}
	if len(v.readers) >= watchesMax {
		return 0, faultWatches
	}
	on := r.reply
	w := &readers{pattern: pattern, count: count, at: v.bus.interested(pattern)}
	w.cancel = v.bus.watchInterest(on, func(has bool) {
		if has {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if v.readers[on] == w {
			delete(v.readers, on)
			w.cancel()
		}
	})
	v.readers[on] = w
	select {
	case s.look <- struct{}{}:
	default:
	}
	return count, nil
}

// lookAround looks now and then whether readers have changed and whether advertised
// traffic fell silent.
func (s *Service) lookAround() {
	timer := time.NewTimer(s.o.quietEvery)
	defer timer.Stop()
	var full time.Time // of the last look at everything
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.look:
		case <-timer.C:
		}
		all := time.Since(full) >= s.o.quietEvery
		if all {
			full = time.Now()
			s.lookForSilence()
		}
		next := s.o.quietEvery
		if s.lookAtReaders(all && s.o.Peers != nil) {
			next = min(next, readersEvery)
		}
		timer.Reset(next)
	}
}

// lookAtReaders tells those who want to know of readers that came or went, and whether
// there is anybody. all counts also where nothing has changed on this node.
func (s *Service) lookAtReaders(all bool) (some bool) {
	type due struct {
		v  *served
		on string
		w  *readers
	}
	var list []due
	s.mu.Lock()
	for _, v := range s.accounts {
		for on, w := range v.readers {
			some = true
			if all || !w.at.Same() {
				w.at = v.bus.interested(w.pattern)
				list = append(list, due{v, on, w})
			}
		}
	}
	s.mu.Unlock()
	for _, d := range list {
		n := s.countReaders(d.v.name, d.w.pattern)
		if n == d.w.count {
			continue
		}
		d.w.count = n
		d.v.bus.publish(d.on, encode(readersMessage{"subscribers", n}))
	}
	return some
}

func (s *Service) countReaders(account, pattern string) (n int) {
	ctx, cancel := context.WithTimeout(s.ctx, seenPatience)
	defer cancel()
	q := &seenQuestion{Account: account, Keys: noKey, Patterns: []string{pattern}}
	answers, _ := s.everywhere(ctx, q)
	for _, list := range answers {
		n += list[0].Subscribers + list[0].Consumers
	}
	return n + len(s.readers(account).Overlapping(pattern, nil))
}
