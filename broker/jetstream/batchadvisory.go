package jetstream

import (
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
)

// BatchAbandoned advises that an atomic batch was given up. It may wait for room
// in the groups, when a stream captures the advisory.
func (s *Service) BatchAbandoned(t *state.Topic, id, reason string) {
	s.mu.Lock()
	a := s.accounts[t.Account()]
	s.mu.Unlock()
	if a == nil {
		return
	}
	a.advise(jsapi.AdvisoryPrefix+"STREAM.BATCH_ABANDONED."+t.Name(), &jsapi.BatchAbandoned{
		Event: a.event("stream_batch_abandoned"), Account: t.Account(), Stream: t.Name(), Domain: s.o.Domain,
		Batch: id, Reason: reason,
	})
}
