package advertise

import (
	"context"
	"errors"
	"time"

	"github.com/heraldmq/herald/topics/catalogue"
)

// nudge makes the sweeper look at the leases.
func (s *Service) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	sweepPause = 100 * time.Millisecond // the least between two sweeps
	sweepLate  = time.Second            // a sweep later than that was held up: so were the renewals
)

// sweep ends what nobody holds any more. No timer runs while no lease has an end.
func (s *Service) sweep() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var planned time.Time // of the next sweep, by the system's clock; zero: none
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		now := s.o.Now()
		s.mu.Lock()
		if late := time.Since(planned); !planned.IsZero() && late > sweepLate {
			s.leases.extend(late)
		}
		ended, next := s.leases.sweep(now)
		s.mu.Unlock()
		retry := s.expire(ended)
		planned = time.Time{}
		switch {
		case retry:
			planned = time.Now().Add(time.Second)
		case !next.IsZero():
			planned = time.Now().Add(max(next.Sub(s.o.Now()), sweepPause))
		default:
			timer.Stop()
			continue
		}
		timer.Reset(time.Until(planned))
	}
}

// expire withdraws advertisements whose lease has ended and tells whether some
// have to be tried again.
func (s *Service) expire(ended []leaseKey) (retry bool) {
	if len(ended) > 0 && !s.stillLeads() {
		return false // whoever does gives each a full term
	}
	for _, k := range ended {
		a := s.find(k)
		if a == nil {
			s.forget(k)
			continue
		}
		if s.held(k) {
			continue // taken up again since the sweep
		}
		ctx, cancel := context.WithTimeout(s.ctx, requestPatience)
		err := s.o.Catalogue.Withdraw(ctx, a, true)
		cancel()
		if err != nil && !errors.Is(err, catalogue.FaultNoAdvertised) {
			s.o.Log.Warn("an advertisement whose lease has ended could not be withdrawn yet", "name", k.Name, "account", k.account, "error", err)
			retry = true
			continue
		}
		s.forget(k)
	}
	return retry
}

// forget drops the lease of an advertisement unless somebody took it up again.
func (s *Service) forget(k leaseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(k)
}

func (s *Service) forgetLocked(k leaseKey) {
	if e := s.leases.all[k]; e != nil && len(e.holders) == 0 {
		s.leases.drop(k)
	}
}

func (s *Service) held(k leaseKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.leases.all[k]
	return e != nil && len(e.holders) > 0
}

func (s *Service) find(k leaseKey) *catalogue.Advertisement {
	return s.o.Catalogue.Advertisement(k.account, k.Key)
}
