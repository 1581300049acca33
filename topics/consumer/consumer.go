package consumer

import (
	"errors"
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
)

// ErrBadRecord is returned for a record or a flushed state that can't be read.
// It was written by a newer version or is damaged; the process must not go on.
var ErrBadRecord = errors.New("consumer record is not readable")

// Position is a place in a consumer's deliveries and the topic sequence that
// belongs to it.
type Position struct {
	Consumer uint64          // deliveries so far, redeliveries included
	Stream   topics.Sequence // topic sequence
	Time     topics.Nanos    // when it last moved; 0 if never
}

// Delivery is one message picked for delivery.
type Delivery struct {
	Sequence topics.Sequence
	Consumer uint64 // its number among this consumer's deliveries
	Attempt  uint32 // 1 for the first delivery
	Pending  uint64 // messages still to be delivered after this one (live copy)
}

// Record is a change of a live copy, to be applied to the replicated ones.
// Records must be applied in the order in which they were handed out.
type Record struct {
	Kind topics.RecordKind // RecordDelivered or RecordAcked
	Body []byte
}

// Consumer is one consumer of one topic. See the package comment.
type Consumer struct {
	id      topics.ConsumerID
	name    string
	created topics.Nanos
	config  string // encoded, see config.go: decoded it would be most of a Consumer
	filter  *topics.Filter
	rules   rules

	epoch     uint64   // number of resets; records of another epoch are void
	delivered Position // Invariant: floor <= delivered, in both parts
	floor     Position // everything up to it is acknowledged
	pending   *window  // nil until something is pending
	initial   *initial // nil unless messages of last_per_subject are left
	letters   *letters // nil until dead letters have left
	live      *live    // nil in a replicated copy
}

// rules is what of the config is asked for with every message.
type rules struct {
	ackWait       time.Duration
	backOff       []time.Duration
	pausedUntil   topics.Nanos
	maxDeliver    int32 // <= 0: no limit
	maxAckPending int32 // <= 0: no limit
	ack           ackPolicy
	buries        bool // what is given up goes to another subject first
}

// initial is what a last_per_subject consumer delivers before it follows the
// topic.
type initial struct {
	seqs   []topics.Sequence // those after delivered.Stream, in order
	resume topics.Sequence   // where it goes on after them
}

// New returns a consumer that has delivered nothing. Where it starts is decided
// here, from the topic as it is now; created is the time of the entry.
func New(id topics.ConsumerID, name string, cfg topics.ConsumerConfig, created topics.Nanos, log Log) *Consumer {
	c := &Consumer{id: id, name: name, created: created}
	c.setConfig(cfg)
	c.start(&cfg, log)
	return c
}

func (c *Consumer) setConfig(cfg topics.ConsumerConfig) {
	c.config = string(appendConfig(nil, &cfg))
	c.filter = topics.NewFilter(cfg.Filters())
	c.rules = rules{
		ackWait:       cfg.AckWait,
		backOff:       slices.Clone(cfg.BackOff),
		maxDeliver:    int32(cfg.MaxDeliver),
		maxAckPending: int32(cfg.MaxAckPending),
		ack:           ackPolicyOf(cfg.AckPolicy),
	}
	c.rules.buries = cfg.Metadata[KeyDeadSubject] != "" && (c.rules.ack == ackExplicit || c.rules.ack == ackAll)
	if c.rules.ackWait <= 0 {
		c.rules.ackWait = defaultAckWait
	}
	if cfg.PauseUntil != nil && cfg.PauseUntil.Unix() > 0 {
		c.rules.pausedUntil = topics.NanosOf(*cfg.PauseUntil)
	}
}

// defaultAckWait is used for a config that was never given its defaults.
const defaultAckWait = 30 * time.Second

// ackPolicy is topics.AckPolicy as a number.
type ackPolicy uint8

const (
	ackNone ackPolicy = iota
	ackAll
	ackExplicit
	ackFlow
)

func ackPolicyOf(p topics.AckPolicy) ackPolicy {
	switch p {
	case topics.AckAll:
		return ackAll
	case topics.AckExplicit:
		return ackExplicit
	case topics.AckFlowControl:
		return ackFlow
	default:
		return ackNone
	}
}

// start decides the first message by the deliver policy.
func (c *Consumer) start(cfg *topics.ConsumerConfig, log Log) {
	first, last := log.Bounds()
	from := first
	switch cfg.DeliverPolicy {
	case topics.DeliverLast:
		if seq, ok := log.Prev(c.filter, last); ok {
			from = seq
		} else {
			from = last + 1
		}
	case topics.DeliverNew:
		from = last + 1
	case topics.DeliverByStartSeq:
		from = max(topics.Sequence(cfg.OptStartSeq), first) // may be in the future
	case topics.DeliverByStartTime:
		if cfg.OptStartTime != nil {
			from = max(log.SequenceAt(topics.NanosOf(*cfg.OptStartTime)), first)
		}
	case topics.DeliverLastPerSubject:
		from = last + 1
		if seqs := log.LastPerSubject(c.filter); len(seqs) > 0 {
			c.initial = &initial{seqs: slices.Clone(seqs), resume: last + 1}
			from = seqs[0]
		}
	}
	from = max(from, 1)
	c.delivered.Stream, c.floor.Stream = from-1, from-1
}

// ID returns the consumer's identifier within its topic.
func (c *Consumer) ID() topics.ConsumerID { return c.id }

// Name returns the consumer's name.
func (c *Consumer) Name() string { return c.name }

// Created returns the time of the entry that created the consumer.
func (c *Consumer) Created() topics.Nanos { return c.created }

// Config returns the consumer's config. It is decoded at each call.
func (c *Consumer) Config() topics.ConsumerConfig {
	cfg, err := parseConfig(c.config)
	if err != nil {
		panic("consumer: own config is not readable: " + err.Error())
	}
	return cfg
}

// Filter returns what the consumer wants of the topic; nil is everything.
func (c *Consumer) Filter() *topics.Filter { return c.filter }

// Epoch returns how often the consumer was reset.
func (c *Consumer) Epoch() uint64 { return c.epoch }

// Delivered returns the last delivery.
func (c *Consumer) Delivered() Position { return c.delivered }

// AckFloor returns the place up to which everything is acknowledged.
func (c *Consumer) AckFloor() Position { return c.floor }

// NumAckPending returns how many messages wait for their acknowledgement.
func (c *Consumer) NumAckPending() int {
	if c.pending == nil {
		return 0
	}
	return c.pending.count
}

// NumRedelivered returns how many of those were delivered more than once.
func (c *Consumer) NumRedelivered() int {
	if c.pending == nil {
		return 0
	}
	return c.pending.redelivered
}

// OldestPending returns the pending message with the lowest sequence and when it
// was last delivered.
func (c *Consumer) OldestPending() (seq topics.Sequence, at topics.Nanos, ok bool) {
	e := c.pending.first()
	if e == nil {
		return 0, 0, false
	}
	return e.seq, e.at, true
}

// PendingAt returns when a pending message was last delivered, and how often.
func (c *Consumer) PendingAt(seq topics.Sequence) (at topics.Nanos, attempts uint32, ok bool) {
	e := c.pending.find(seq)
	if e == nil {
		return 0, 0, false
	}
	return e.at, e.attempts, true
}

// DueAt returns when a pending message is due to be delivered again.
func (c *Consumer) DueAt(seq topics.Sequence) (due topics.Nanos, ok bool) {
	e := c.pending.find(seq)
	if e == nil {
		return 0, false
	}
	return e.due, true
}

// PausedUntil returns until when nothing is delivered; 0 when not paused.
func (c *Consumer) PausedUntil() topics.Nanos { return c.rules.pausedUntil }

// Needs tells whether the message is still to be delivered or acknowledged:
// interest retention keeps it as long as a consumer whose filter lets it
// through needs it.
func (c *Consumer) Needs(seq topics.Sequence) bool {
	if seq <= c.floor.Stream {
		return false
	}
	if seq <= c.delivered.Stream {
		return c.pending.find(seq) != nil
	}
	if c.initial != nil && seq < c.initial.resume {
		_, found := slices.BinarySearch(c.initial.seqs, seq)
		return found
	}
	return true
}

// Clone returns an independent copy of the replicated state.
func (c *Consumer) Clone() *Consumer {
	out := *c
	out.live = nil
	out.pending = c.pending.clone()
	if out.pending != nil {
		for i := range out.pending.entries {
			out.pending.entries[i].ready = false
		}
	}
	if c.initial != nil {
		out.initial = &initial{seqs: slices.Clone(c.initial.seqs), resume: c.initial.resume}
	}
	return &out
}

// Equal tells whether two copies hold the same replicated state.
func (c *Consumer) Equal(o *Consumer) bool {
	if c.id != o.id || c.name != o.name || c.created != o.created || c.config != o.config ||
		c.epoch != o.epoch || c.delivered != o.delivered || c.floor != o.floor ||
		c.rules.pausedUntil != o.rules.pausedUntil ||
		c.NumAckPending() != o.NumAckPending() || c.NumRedelivered() != o.NumRedelivered() {
		return false
	}
	if (c.initial == nil) != (o.initial == nil) ||
		c.initial != nil && (c.initial.resume != o.initial.resume || !slices.Equal(c.initial.seqs, o.initial.seqs)) {
		return false
	}
	same := c.sameLetters(o)
	if !same {
		return false
	}
	c.pending.each(func(e *entry) bool {
		p := o.pending.find(e.seq)
		same = p != nil && p.number == e.number && p.at == e.at && p.due == e.due && p.attempts == e.attempts
		return same
	})
	return same
}
