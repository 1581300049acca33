package advertise

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/observe"
	"github.com/heraldmq/herald/topics/value"
)

// sampleQueueMax bounds the samples that wait to be looked at; more are left out.
const sampleQueueMax = 256

// sampled is a message that was published, for what is too much work to be done there:
// whether it conforms where nothing is enforced, and its key in the payload.
type sampled struct {
	tally *observe.Tally
	observe.Sample
}

// take is given samples on the publishers' goroutines.
func (s *Service) take(t *observe.Tally, m observe.Sample) {
	select {
	case s.samples <- sampled{t, m}:
	default:
		s.metrics.missed.Add(1)
	}
}

// examine looks at samples.
func (s *Service) examine() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case m := <-s.samples:
			s.examineOne(m)
		}
	}
}

func (s *Service) examineOne(m sampled) {
	var r *rule
	s.mu.Lock()
	for _, v := range s.accounts {
		if r = v.rules.byTally[m.tally]; r != nil {
			break
		}
	}
	s.mu.Unlock()
	if r == nil {
		return
	}
	if !r.ad.Enforced() && (r.payload != nil || r.headers != nil) && r.broken == "" {
		msg := front.Message{Subject: m.Subject, Header: m.Header, Payload: m.Payload}
		m.tally.Checked(r.check(&msg, false) == nil)
	}
	if p := m.tally.KeyPointer(); p != "" {
		if key, ok := r.at(p, m.Payload); ok {
			m.tally.SawKey(key)
		}
	}
}

// at returns the canonical JSON of the value at a pointer into a payload.
func (r *rule) at(pointer string, payload []byte) ([]byte, bool) {
	if r.payload != nil {
		if v, err := r.payload.Decode(payload); err == nil {
			payload = value.AppendJSON(nil, v)
		}
	}
	var v any
	if json.Unmarshal(payload, &v) != nil {
		return nil, false
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = unescape.Replace(token)
		switch at := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = at[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	b, err := json.Marshal(v)
	return b, err == nil
}
