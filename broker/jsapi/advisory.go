package jsapi

import (
	"time"
)

// Subjects of advisories and metrics, without the stream and consumer tokens.
const (
	AdvisoryPrefix    = "$JS.EVENT.ADVISORY."
	MetricPrefix      = "$JS.EVENT.METRIC."
	AdvisoryAPI       = AdvisoryPrefix + "API"
	AdvisoryAPILimit  = AdvisoryPrefix + "API.LIMIT_REACHED"
	advisoryTypeStart = "io.nats.jetstream.advisory.v1."
)

// Event is the head of every advisory and metric.
type Event struct {
	Type string    `json:"type"`
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

// NewEvent returns the head of an advisory of a short type such as
// "stream_action".
func NewEvent(short, id string, now time.Time) Event {
	return Event{Type: advisoryTypeStart + short, ID: id, Time: now.UTC()}
}

// ClientInfo says who sent a request.
type ClientInfo struct {
	Start      *time.Time    `json:"start,omitempty"`
	Host       string        `json:"host,omitempty"`
	ID         uint64        `json:"id,omitempty"`
	Account    string        `json:"acc"`
	User       string        `json:"user,omitempty"`
	Name       string        `json:"name,omitempty"`
	Lang       string        `json:"lang,omitempty"`
	Version    string        `json:"ver,omitempty"`
	RTT        time.Duration `json:"rtt,omitempty"`
	Server     string        `json:"server,omitempty"`
	Kind       string        `json:"kind,omitempty"`
	ClientType string        `json:"client_type,omitempty"`
}

// APIAudit tells of one API request and its reply.
type APIAudit struct {
	Event
	Server  string      `json:"server"`
	Client  *ClientInfo `json:"client"`
	Subject string      `json:"subject"`
	Request string      `json:"request,omitempty"`
	Reply   string      `json:"response"`
	Domain  string      `json:"domain,omitempty"`
}

// APILimitReached tells that requests were dropped.
type APILimitReached struct {
	Event
	Server  string `json:"server"`
	Domain  string `json:"domain,omitempty"`
	Dropped int64  `json:"dropped"`
}

// The values of an advisory's action.
const (
	ActionCreated  = "create"
	ActionDeleted  = "delete"
	ActionModified = "modify"
)

// StreamAction tells that a stream came, changed or went.
type StreamAction struct {
	Event
	Stream string `json:"stream"`
	Action string `json:"action"`
	Domain string `json:"domain,omitempty"`
}

// ConsumerAction tells that a consumer came or went.
type ConsumerAction struct {
	Event
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Action   string `json:"action"`
	Domain   string `json:"domain,omitempty"`
}

// ConsumerPause tells that a consumer was paused or resumed.
type ConsumerPause struct {
	Event
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	Paused     bool      `json:"paused"`
	PauseUntil time.Time `json:"pause_until,omitzero"`
	Domain     string    `json:"domain,omitempty"`
}

// SnapshotCreate tells that a backup of a stream began.
type SnapshotCreate struct {
	Event
	Stream string      `json:"stream"`
	State  StreamState `json:"state"`
	Client *ClientInfo `json:"client"`
	Domain string      `json:"domain,omitempty"`
}

// SnapshotComplete tells that a backup of a stream ended.
type SnapshotComplete struct {
	Event
	Stream string      `json:"stream"`
	Start  time.Time   `json:"start"`
	End    time.Time   `json:"end"`
	Client *ClientInfo `json:"client"`
	Domain string      `json:"domain,omitempty"`
	Error  string      `json:"error,omitempty"`
}

// RestoreCreate tells that a restore of a stream began.
type RestoreCreate struct {
	Event
	Stream string      `json:"stream"`
	Client *ClientInfo `json:"client"`
	Domain string      `json:"domain,omitempty"`
}

// RestoreComplete tells that a restore of a stream ended, well or not.
type RestoreComplete struct {
	Event
	Stream string      `json:"stream"`
	Start  time.Time   `json:"start"`
	End    time.Time   `json:"end"`
	Bytes  int64       `json:"bytes"`
	Client *ClientInfo `json:"client"`
	Domain string      `json:"domain,omitempty"`
}

// BatchAbandoned tells that an atomic batch was given up: Reason is "timeout",
// "large", "incomplete" or "unsupported".
type BatchAbandoned struct {
	Event
	Account string `json:"account,omitempty"`
	Stream  string `json:"stream"`
	Domain  string `json:"domain,omitempty"`
	Batch   string `json:"batch"`
	Reason  string `json:"reason"`
}

// LeaderElected tells who leads a stream, a consumer, or (without either) the
// cluster's catalogue.
type LeaderElected struct {
	Event
	Account  string      `json:"account,omitempty"`
	Stream   string      `json:"stream,omitempty"`
	Consumer string      `json:"consumer,omitempty"`
	Leader   string      `json:"leader"`
	Replicas []*PeerInfo `json:"replicas"`
	Domain   string      `json:"domain,omitempty"`
	Cluster  string      `json:"cluster,omitempty"`
}

// QuorumLost tells that nobody can lead a stream or consumer, or the catalogue.
type QuorumLost struct {
	Event
	Account  string      `json:"account,omitempty"`
	Stream   string      `json:"stream,omitempty"`
	Consumer string      `json:"consumer,omitempty"`
	Replicas []*PeerInfo `json:"replicas"`
	Domain   string      `json:"domain,omitempty"`
}
