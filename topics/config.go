package topics

import "time"

// Retention says when a topic lets a message go.
type Retention string

// The retention policies, by their names on the wire.
const (
	RetainLimits    Retention = "limits"    // until a limit pushes it out
	RetainInterest  Retention = "interest"  // until every consumer has acknowledged it
	RetainWorkQueue Retention = "workqueue" // until its one consumer has acknowledged it
)

// Discard says what a full topic does with a new message.
type Discard string

// The discard policies.
const (
	DiscardOld Discard = "old" // the oldest message goes
	DiscardNew Discard = "new" // the new message is refused
)

// Storage is where a client asks a topic to be kept. Herald keeps both kinds in
// its log: "memory" is remembered, reported and accounted, and just as durable.
type Storage string

// The storage kinds.
const (
	StoreFile   Storage = "file"
	StoreMemory Storage = "memory"
)

// Placement asks for where a topic's replicas live.
type Placement struct {
	Cluster   string   `json:"cluster,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	Preferred string   `json:"preferred,omitempty"`
}

// SubjectTransform maps subjects that match Source to Destination.
type SubjectTransform struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
}

// Republish sends each stored message on to another subject.
type Republish struct {
	Source      string `json:"src,omitempty"`
	Destination string `json:"dest"`
	HeadersOnly bool   `json:"headers_only,omitempty"`
}

// ExternalStream names a stream in another account or domain.
type ExternalStream struct {
	API     string `json:"api"`
	Deliver string `json:"deliver,omitempty"`
}

// SourceConsumer names the durable consumer a source reads through (2.14).
type SourceConsumer struct {
	Name           string `json:"name,omitempty"`
	DeliverSubject string `json:"deliver_subject,omitempty"`
}

// StreamSource is a topic that another one mirrors or draws from.
type StreamSource struct {
	Name              string             `json:"name"`
	OptStartSeq       uint64             `json:"opt_start_seq,omitempty"`
	OptStartTime      *time.Time         `json:"opt_start_time,omitempty"`
	FilterSubject     string             `json:"filter_subject,omitempty"`
	SubjectTransforms []SubjectTransform `json:"subject_transforms,omitempty"`
	External          *ExternalStream    `json:"external,omitempty"`
	Consumer          *SourceConsumer    `json:"consumer,omitempty"`
}

// ConsumerLimits are defaults and caps for a topic's consumers.
type ConsumerLimits struct {
	InactiveThreshold time.Duration `json:"inactive_threshold,omitempty"`
	MaxAckPending     int           `json:"max_ack_pending,omitempty"`
}

// Config is what a topic was asked to be: JetStream's StreamConfig as of 2.15.
// Unlimited is -1; durations are nanoseconds on the wire.
type Config struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Subjects     []string        `json:"subjects,omitempty"`
	Retention    Retention       `json:"retention"`
	MaxConsumers int             `json:"max_consumers"`
	MaxMsgs      int64           `json:"max_msgs"`
	MaxBytes     int64           `json:"max_bytes"`
	MaxAge       time.Duration   `json:"max_age"`
	MaxMsgsPer   int64           `json:"max_msgs_per_subject"`
	MaxMsgSize   int32           `json:"max_msg_size"`
	Discard      Discard         `json:"discard"`
	Storage      Storage         `json:"storage"`
	Replicas     int             `json:"num_replicas"`
	NoAck        bool            `json:"no_ack,omitempty"`
	Duplicates   time.Duration   `json:"duplicate_window,omitempty"`
	Placement    *Placement      `json:"placement,omitempty"`
	Mirror       *StreamSource   `json:"mirror,omitempty"`
	Sources      []*StreamSource `json:"sources,omitempty"`
	Compression  string          `json:"compression,omitempty"`
	FirstSeq     uint64          `json:"first_seq,omitempty"`

	SubjectTransform *SubjectTransform `json:"subject_transform,omitempty"`
	Republish        *Republish        `json:"republish,omitempty"`

	Sealed         bool           `json:"sealed"`
	DenyDelete     bool           `json:"deny_delete"`
	DenyPurge      bool           `json:"deny_purge"`
	AllowRollup    bool           `json:"allow_rollup_hdrs"`
	AllowDirect    bool           `json:"allow_direct"`
	MirrorDirect   bool           `json:"mirror_direct"`
	DiscardNewPer  bool           `json:"discard_new_per_subject,omitempty"`
	ConsumerLimits ConsumerLimits `json:"consumer_limits,omitzero"`

	AllowMsgTTL            bool          `json:"allow_msg_ttl,omitempty"`
	SubjectDeleteMarkerTTL time.Duration `json:"subject_delete_marker_ttl,omitempty"`
	AllowMsgCounter        bool          `json:"allow_msg_counter,omitempty"`
	AllowAtomic            bool          `json:"allow_atomic,omitempty"`
	AllowMsgSchedules      bool          `json:"allow_msg_schedules,omitempty"`
	AllowBatched           bool          `json:"allow_batched,omitempty"`
	PersistMode            string        `json:"persist_mode,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// DeliverPolicy says where a new consumer starts.
type DeliverPolicy string

// The deliver policies.
const (
	DeliverAll            DeliverPolicy = "all"
	DeliverLast           DeliverPolicy = "last"
	DeliverNew            DeliverPolicy = "new"
	DeliverByStartSeq     DeliverPolicy = "by_start_sequence"
	DeliverByStartTime    DeliverPolicy = "by_start_time"
	DeliverLastPerSubject DeliverPolicy = "last_per_subject"
)

// AckPolicy says what a consumer must acknowledge.
type AckPolicy string

// The acknowledgement policies.
const (
	AckNone        AckPolicy = "none"
	AckAll         AckPolicy = "all"
	AckExplicit    AckPolicy = "explicit"
	AckFlowControl AckPolicy = "flow_control"
)

// ReplayPolicy says how fast a consumer gets what was stored.
type ReplayPolicy string

// The replay policies.
const (
	ReplayInstant  ReplayPolicy = "instant"
	ReplayOriginal ReplayPolicy = "original"
)

// ConsumerConfig is what a consumer was asked to be: JetStream's ConsumerConfig
// as of 2.15.
type ConsumerConfig struct {
	Durable         string          `json:"durable_name,omitempty"`
	Name            string          `json:"name,omitempty"`
	Description     string          `json:"description,omitempty"`
	DeliverPolicy   DeliverPolicy   `json:"deliver_policy"`
	OptStartSeq     uint64          `json:"opt_start_seq,omitempty"`
	OptStartTime    *time.Time      `json:"opt_start_time,omitempty"`
	AckPolicy       AckPolicy       `json:"ack_policy"`
	AckWait         time.Duration   `json:"ack_wait,omitempty"`
	MaxDeliver      int             `json:"max_deliver,omitempty"`
	BackOff         []time.Duration `json:"backoff,omitempty"`
	FilterSubject   string          `json:"filter_subject,omitempty"`
	FilterSubjects  []string        `json:"filter_subjects,omitempty"`
	ReplayPolicy    ReplayPolicy    `json:"replay_policy"`
	RateLimit       uint64          `json:"rate_limit_bps,omitempty"`
	SampleFrequency string          `json:"sample_freq,omitempty"`
	MaxWaiting      int             `json:"max_waiting,omitempty"`
	MaxAckPending   int             `json:"max_ack_pending,omitempty"`
	FlowControl     bool            `json:"flow_control,omitempty"`
	HeadersOnly     bool            `json:"headers_only,omitempty"`

	MaxRequestBatch    int           `json:"max_batch,omitempty"`
	MaxRequestExpires  time.Duration `json:"max_expires,omitempty"`
	MaxRequestMaxBytes int           `json:"max_bytes,omitempty"`

	DeliverSubject string        `json:"deliver_subject,omitempty"`
	DeliverGroup   string        `json:"deliver_group,omitempty"`
	Heartbeat      time.Duration `json:"idle_heartbeat,omitempty"`

	InactiveThreshold time.Duration `json:"inactive_threshold,omitempty"`

	Replicas      int               `json:"num_replicas"`
	MemoryStorage bool              `json:"mem_storage,omitempty"`
	Direct        bool              `json:"direct,omitempty"`
	Sourcing      bool              `json:"sourcing,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	PauseUntil    *time.Time        `json:"pause_until,omitempty"`

	PriorityGroups  []string      `json:"priority_groups,omitempty"`
	PriorityPolicy  string        `json:"priority_policy,omitempty"`
	PriorityTimeout time.Duration `json:"priority_timeout,omitempty"`
}

// IsDurable tells whether the consumer outlives its readers.
func (c *ConsumerConfig) IsDurable() bool { return c.Durable != "" }

// IsPush tells whether the broker sends without being asked.
func (c *ConsumerConfig) IsPush() bool { return c.DeliverSubject != "" }

// Filters returns the filter subjects, whichever field they came in; none means
// all messages.
func (c *ConsumerConfig) Filters() []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}
