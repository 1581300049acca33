package service

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// Identity is how a room presents itself as one of NATS's micro services (ADR-32): it
// answers $SRV.PING, INFO and STATS by its name, and by its name and ID.
//
// Not without a name. Whoever asks all and takes the first answer means the services of
// users, as nats.go's own tests do; the broker would always be first, in every account and
// on each node. And a request without a name is to find "no responders" where no user has
// a service.
type Identity struct {
	Name        string // a token; "": it presents nothing
	ID          string // of this instance, a token
	Version     string // SemVer
	Description string
	Metadata    map[string]string
}

// endpoint is a subject that is answered.
type endpoint struct {
	subject string
	asked   atomic.Int64

	// Guarded by Subscriptions.mu.

	failed int64
	last   string
}

func bySubject(a, b *endpoint) int { return cmp.Compare(a.subject, b.subject) }

// failed counts an answer that was an error. Subscriptions.mu is held.
func (v *served) failed(subject, why string) {
	i, ok := slices.BinarySearchFunc(v.endpoints, subject, func(e *endpoint, s string) int { return cmp.Compare(e.subject, s) })
	if ok {
		v.endpoints[i].failed++
		v.endpoints[i].last = why
	}
}

// The answers, as ADR-32 has them.
type (
	microIdentity struct {
		Type     string            `json:"type"`
		Name     string            `json:"name"`
		ID       string            `json:"id"`
		Version  string            `json:"version"`
		Metadata map[string]string `json:"metadata"`
	}
	microInfo struct {
		microIdentity
		Description string          `json:"description"`
		Endpoints   []microEndpoint `json:"endpoints"`
	}
	microEndpoint struct {
		Name       string            `json:"name"`
		Subject    string            `json:"subject"`
		QueueGroup string            `json:"queue_group"`
		Metadata   map[string]string `json:"metadata"`
	}
	microStats struct {
		microIdentity
		Started   time.Time    `json:"started"`
		Endpoints []microCount `json:"endpoints"`
	}
	microCount struct {
		Name        string `json:"name"`
		Subject     string `json:"subject"`
		QueueGroup  string `json:"queue_group"`
		NumRequests int64  `json:"num_requests"`
		NumErrors   int64  `json:"num_errors"`
		LastError   string `json:"last_error"`
	}
)

// handlers answer $SRV.> for an account.
func (i *Identity) handlers(s *Subscriptions, v *served) map[string]front.Handler {
	if i.Name == "" {
		return nil
	}
	all := map[string]front.Handler{}
	for verb, answer := range map[string]func() any{
		"PING":  func() any { return i.typed("ping") },
		"INFO":  func() any { return i.info(v) },
		"STATS": func() any { return i.stats(s, v) },
	} {
		h := func(m *front.Message) {
			b, err := json.Marshal(answer())
			if err != nil {
				return // texts and numbers always encode
			}
			m.Respond(nil, b)
		}
		all["$SRV."+verb+"."+i.Name] = h
		all["$SRV."+verb+"."+i.Name+"."+i.ID] = h
	}
	return all
}

func (i *Identity) typed(kind string) microIdentity {
	m := i.Metadata
	if m == nil {
		m = map[string]string{}
	}
	return microIdentity{Type: "io.nats.micro.v1." + kind + "_response", Name: i.Name, ID: i.ID, Version: i.Version, Metadata: m}
}

func (i *Identity) info(v *served) microInfo {
	out := microInfo{microIdentity: i.typed("info"), Description: i.Description, Endpoints: []microEndpoint{}}
	for _, e := range v.endpoints {
		out.Endpoints = append(out.Endpoints, microEndpoint{Name: e.name(), Subject: e.subject, Metadata: map[string]string{}})
	}
	return out
}

func (i *Identity) stats(s *Subscriptions, v *served) microStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := microStats{microIdentity: i.typed("stats"), Started: v.since.UTC(), Endpoints: []microCount{}}
	for _, e := range v.endpoints {
		out.Endpoints = append(out.Endpoints, microCount{
			Name: e.name(), Subject: e.subject, NumRequests: e.asked.Load(), NumErrors: e.failed, LastError: e.last,
		})
	}
	return out
}

// name is the subject's last token.
func (e *endpoint) name() string { return e.subject[strings.LastIndexByte(e.subject, '.')+1:] }
