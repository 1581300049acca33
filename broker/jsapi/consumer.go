package jsapi

import (
	"time"

	"github.com/heraldmq/herald/topics"
)

// ConsumerInfo describes a consumer.
type ConsumerInfo struct {
	Stream         string                 `json:"stream_name"`
	Name           string                 `json:"name"`
	Created        time.Time              `json:"created"`
	Config         *topics.ConsumerConfig `json:"config,omitempty"`
	Delivered      SequenceInfo           `json:"delivered"`
	AckFloor       SequenceInfo           `json:"ack_floor"`
	NumAckPending  int                    `json:"num_ack_pending"`
	NumRedelivered int                    `json:"num_redelivered"`
	NumWaiting     int                    `json:"num_waiting"`
	NumPending     uint64                 `json:"num_pending"`
	Cluster        *ClusterInfo           `json:"cluster,omitempty"`
	PushBound      bool                   `json:"push_bound,omitempty"`
	Paused         bool                   `json:"paused,omitempty"`
	PauseRemaining time.Duration          `json:"pause_remaining,omitempty"`
	Time           time.Time              `json:"ts"`
	PriorityGroups []PriorityGroupState   `json:"priority_groups,omitempty"`
}

// SequenceInfo pairs a consumer's own count with the stream's sequence.
type SequenceInfo struct {
	Consumer uint64     `json:"consumer_seq"`
	Stream   uint64     `json:"stream_seq"`
	Last     *time.Time `json:"last_active,omitempty"`
}

// PriorityGroupState says which client a group is pinned to.
type PriorityGroupState struct {
	Group          string    `json:"group"`
	PinnedClientID string    `json:"pinned_client_id,omitempty"`
	PinnedTime     time.Time `json:"pinned_ts"`
}

// The values of ConsumerRequest.Action.
const (
	ActionCreateOrUpdate = ""
	ActionCreate         = "create"
	ActionUpdate         = "update"
)

// ConsumerRequest creates or updates a consumer.
type ConsumerRequest struct {
	Stream   string                `json:"stream_name"`
	Config   topics.ConsumerConfig `json:"config"`
	Action   string                `json:"action"`
	Pedantic bool                  `json:"pedantic,omitempty"`
}

// ConsumerInfoReply answers CONSUMER.INFO and, with another type, CONSUMER.CREATE.
type ConsumerInfoReply struct {
	Reply
	*ConsumerInfo
}

// ConsumerNamesReply answers CONSUMER.NAMES; no consumer is an empty list.
type ConsumerNamesReply struct {
	Reply
	Page
	Consumers []string `json:"consumers"`
}

// ConsumerListReply answers CONSUMER.LIST; no consumer is an empty list.
type ConsumerListReply struct {
	Reply
	Page
	Consumers []*ConsumerInfo   `json:"consumers"`
	Missing   []string          `json:"missing,omitempty"`
	Offline   map[string]string `json:"offline,omitempty"`
}

// PauseRequest pauses a consumer until a time; the zero time resumes it.
type PauseRequest struct {
	PauseUntil time.Time `json:"pause_until,omitzero"`
}

// PauseReply answers CONSUMER.PAUSE.
type PauseReply struct {
	Reply
	Paused         bool          `json:"paused"`
	PauseUntil     time.Time     `json:"pause_until"`
	PauseRemaining time.Duration `json:"pause_remaining,omitempty"`
}

// UnpinRequest releases a group's pinned client.
type UnpinRequest struct {
	Group string `json:"group"`
}

// ResetRequest moves a consumer; 0 is back to its ack floor.
type ResetRequest struct {
	Seq uint64 `json:"seq,omitempty"`
}

// ResetReply answers CONSUMER.RESET.
type ResetReply struct {
	Reply
	*ConsumerInfo
	ResetSeq uint64 `json:"reset_seq"`
}
