package store

import (
	"sync"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// Topic is one topic of a store. Its exported methods are the read side: safe
// for any number of goroutines, and each sees the state between two entries.
type Topic struct {
	s       *Store
	id      topics.TopicID
	account string
	created topics.Nanos

	// Guarded by s.mu; changed by the apply side only.
	cfg       *topics.Config // replaced, never changed
	messages  uint64
	bytes     uint64
	first     topics.Sequence // first live message; last+1 when empty
	last      topics.Sequence
	firstTime topics.Nanos
	lastTime  topics.Nanos
	saved     topics.Sequence // up to here everything alive is in runs
	runs      []run
	refs      refRing
	dead      deadSet
	subjects  subjectTable
	dedupe    *dedupe            // nil until a message had an id
	expiries  *expiries          // nil until a message had a time to live
	members   *consumers         // nil until there was a consumer
	removals  *removals          // nil until a message was removed
	sources   map[string]sourced // by sourceKey
	lastMsgID string
	grew      bool   // in s.grown
	gone      bool   // deleted
	dirty     bool   // in s.dirty
	marking   bool   // in s.marks.touched
	summary   uint64 // at the last marker, 0 if it was not there
	checked   bool   // what is published has passed the checks, as part of a batch
	move      move
	arrived   bool   // it came by a move: runs of files before fromFile are not its own
	fromFile  uint64 // 0 until something of it has been flushed

	matchMu  sync.Mutex // taken with s.mu held either way
	matchers []*matcher
}

// consumers are a topic's consumers.
type consumers struct {
	byName  map[string]*member
	byID    map[topics.ConsumerID]*member
	lastID  topics.ConsumerID
	dropped []topics.ConsumerID // since the last flush
}

type member struct {
	c       *consumer.Consumer
	dirty   bool   // changed since the last flush
	summary uint64 // of what it was when it was last summed up
	summed  bool   // it has not changed since
}

func newTopic(s *Store, id topics.TopicID, account string, cfg topics.Config, created topics.Nanos) *Topic {
	t := &Topic{s: s, id: id, account: account, created: created, first: 1}
	if cfg.FirstSeq > 1 {
		t.first = topics.Sequence(cfg.FirstSeq)
		t.last = t.first - 1
	}
	t.configure(cfg)
	return t
}

// historyMax is the largest max_msgs_per_subject for which every sequence of a
// subject is held in memory. Beyond it, the next message of a subject is looked
// for when the first one goes.
const historyMax = 1 << 16

func (t *Topic) configure(cfg topics.Config) {
	t.cfg = &cfg
	keep := cfg.MaxMsgsPer > 1 && cfg.MaxMsgsPer <= historyMax
	if keep != t.subjects.histories {
		t.subjects.histories = keep
		t.rebuildHistories()
	}
}

// size is what a message counts for in a topic's bytes: what nats-server's
// stores count.
func (t *Topic) size(subject, header, payload int) uint64 {
	n := uint64(subject + header + payload)
	if t.cfg.Storage == topics.StoreMemory {
		return n + 16
	}
	if header > 0 {
		return n + 34
	}
	return n + 30
}

// ID returns the topic's identifier.
func (t *Topic) ID() topics.TopicID { return t.id }

// Account returns the name of the account the topic is in.
func (t *Topic) Account() string { return t.account }

// Created returns the time of the entry that created the topic.
func (t *Topic) Created() topics.Nanos { return t.created }

// Config returns the topic's config. Its slices, maps and pointers are shared:
// don't change them.
func (t *Topic) Config() topics.Config {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return *t.cfg
}

// State returns the topic's counters.
func (t *Topic) State() topics.State {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.state()
}

func (t *Topic) state() topics.State {
	st := topics.State{
		Messages:  t.messages,
		Bytes:     t.bytes,
		First:     t.first,
		FirstTime: t.firstTime,
		Last:      t.last,
		LastTime:  t.lastTime,
		Subjects:  t.subjects.live,
		Deleted:   t.dead.total,
	}
	if t.members != nil {
		st.Consumers = len(t.members.byName)
	}
	return st
}

// LastMsgID returns the Nats-Msg-Id of the last message, "" if it had none.
func (t *Topic) LastMsgID() string {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.lastMsgID
}

// NextExpiry returns when the next message or message id of the topic is due to
// go, 0 if nothing is: the time at which the leader should propose an expiry.
func (t *Topic) NextExpiry() topics.Nanos {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.nextExpiry()
}
