package monitor

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/heraldmq/herald/broker/jsapi"
)

// HealthzOptions says what to check.
type HealthzOptions struct {
	JSEnabledOnly bool   `json:"js-enabled-only,omitempty"`
	JSEnabled     bool   `json:"js-enabled,omitempty"`
	JSServerOnly  bool   `json:"js-server-only,omitempty"`
	JSMetaOnly    bool   `json:"js-meta-only,omitempty"`
	Account       string `json:"account,omitempty"`
	Stream        string `json:"stream,omitempty"`
	Consumer      string `json:"consumer,omitempty"`
	Details       bool   `json:"details,omitempty"`
}

// Healthz says whether the broker is well.
type Healthz struct {
	Status     string        `json:"status"`
	StatusCode int           `json:"status_code,omitempty"`
	Error      string        `json:"error,omitempty"`
	Errors     []HealthError `json:"errors,omitempty"`
}

// HealthError is one thing that is not well.
type HealthError struct {
	Type     string `json:"type"` // CONNECTION, JETSTREAM, ACCOUNT, STREAM, CONSUMER, BAD_REQUEST
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	Error    string `json:"error"`
}

// Healthz checks the broker. Ok answers are short, as clients compare them.
func (m *Monitor) Healthz(o HealthzOptions) *Healthz {
	bad := func(code int, e HealthError) *Healthz {
		h := &Healthz{Status: "unavailable", StatusCode: code}
		if code == http.StatusBadRequest || code == http.StatusNotFound {
			h.Status = "error"
		}
		if o.Details {
			h.Errors = []HealthError{e}
		} else {
			h.Error = e.Error
		}
		return h
	}
	switch {
	case o.Stream != "" && o.Account == "":
		return bad(http.StatusBadRequest, HealthError{Type: "BAD_REQUEST", Error: `"account" must not be empty when checking stream health`})
	case o.Consumer != "" && o.Stream == "":
		return bad(http.StatusBadRequest, HealthError{Type: "BAD_REQUEST", Error: `"stream" must not be empty when checking consumer health`})
	}
	if reasons := m.s.Pending(); len(reasons) > 0 {
		return bad(http.StatusServiceUnavailable, HealthError{Type: "CONNECTION", Error: reasons[0]})
	}
	durable := m.s.Durable()
	enabled := durable != nil
	if (o.JSEnabledOnly || o.JSEnabled) && !enabled {
		return bad(http.StatusServiceUnavailable, HealthError{Type: "JETSTREAM", Error: "JetStream not enabled"})
	}
	if enabled && !o.JSEnabledOnly && !o.JSEnabled {
		if e, ok := m.checkGroups(durable, o); !ok {
			return bad(http.StatusServiceUnavailable, e)
		}
	}
	if enabled && !o.JSEnabledOnly && !o.JSEnabled && !o.JSServerOnly && !o.JSMetaOnly && o.Account != "" {
		if code, e := m.checkAsset(durable, o); code != 0 {
			return bad(code, e)
		}
	}
	return &Healthz{Status: "ok", StatusCode: http.StatusOK}
}

// checkGroups checks, in a cluster, that this node is in touch with the leader of
// the catalogue and, unless only the server is asked about, that it has caught up.
func (m *Monitor) checkGroups(durable Durable, o HealthzOptions) (HealthError, bool) {
	if m.cluster() == nil {
		return HealthError{}, true
	}
	for _, g := range durable.Groups() {
		if g.ID == 0 && g.Leader == "" {
			return HealthError{Type: "JETSTREAM", Error: "JetStream has not established contact with a meta leader"}, false
		}
	}
	for _, l := range durable.Behind() {
		switch {
		case l.Group == 0:
			return HealthError{Type: "JETSTREAM", Error: "JetStream is not current with the meta leader: " + l.Reason}, false
		case !o.JSServerOnly && !o.JSMetaOnly:
			return HealthError{Type: "STREAM", Error: "JetStream is not current: " + l.Reason}, false
		}
	}
	return HealthError{}, true
}

// checkAsset checks one account, topic or consumer; 0 is well.
func (m *Monitor) checkAsset(durable Durable, o HealthzOptions) (int, HealthError) {
	if m.s.Options().LimitsOf(o.Account) == nil {
		return http.StatusNotFound, HealthError{Type: "ACCOUNT", Account: o.Account, Error: fmt.Sprintf("JetStream account %q not found", o.Account)}
	}
	if o.Stream == "" {
		return 0, HealthError{}
	}
	t, ok := durable.Topic(o.Account, o.Stream)
	if !ok {
		return http.StatusNotFound, HealthError{
			Type: "STREAM", Account: o.Account, Stream: o.Stream,
			Error: fmt.Sprintf("JetStream stream '%s > %s' not found", o.Account, o.Stream),
		}
	}
	if o.Consumer == "" {
		return 0, HealthError{}
	}
	if !slices.ContainsFunc(t.Consumers(), func(c *jsapi.ConsumerInfo) bool { return c.Name == o.Consumer }) {
		return http.StatusNotFound, HealthError{
			Type: "CONSUMER", Account: o.Account, Stream: o.Stream, Consumer: o.Consumer,
			Error: fmt.Sprintf("JetStream consumer '%s > %s > %s' not found", o.Account, o.Stream, o.Consumer),
		}
	}
	return 0, HealthError{}
}

// Readiness is the answer of /readyz: whether the broker takes clients, its groups
// have leaders and it has caught up with them, with the reasons when not.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
}

// Readyz tells whether the broker serves.
func (m *Monitor) Readyz() Readiness {
	r := Readiness{Reasons: m.s.Pending()}
	if r.Reasons == nil {
		r.Reasons = []string{}
	}
	if durable := m.s.Durable(); durable != nil {
		for _, g := range durable.Groups() {
			if g.Leader == "" {
				r.Reasons = append(r.Reasons, fmt.Sprintf("group %d has no leader", g.ID))
			}
		}
		for _, l := range durable.Behind() {
			r.Reasons = append(r.Reasons, l.Reason)
		}
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// Startup is the answer of /startupz: whether the node's start is over.
type Startup struct {
	Started bool   `json:"started"`
	Reason  string `json:"reason,omitempty"` // why not
}

// Startupz tells whether the node has read its log, opened its groups and taken
// up its listeners. Once it has it stays so until the process ends, whatever the
// other nodes do: a probe of it may wait long, and needs no quorum.
func (m *Monitor) Startupz() Startup {
	if !m.s.Opened() {
		return Startup{Reason: "the broker is starting: it reads its log and opens its groups"}
	}
	return Startup{Started: true}
}
