package state

import (
	"log/slog"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Options says how to open a State. Dir is required; for the rest the zero
// value works.
type Options struct {
	Dir        string   // the node's directory; Open makes it
	NodeID     string   // this node's name among its peers; default: the one the directory was made with, or a random one
	ServerName string   // shown as the leader in cluster information
	Tags       []string // of the node; topics may ask for nodes that have some
	Domain     string   // named in PubAcks when set
	Groups     int      // data groups of a new node; default 1

	// Replier gives the way to answer the publishers of an account. It is called
	// once per account and group, and the result is used by one goroutine.
	// Without it nobody is answered.
	Replier func(a *front.Account) Replier

	// Network connects this node to its peers; nil: it is alone. NodeID is then the
	// network's name. State registers its handlers with it in Open and uses it until
	// Close; who opened it starts it after Open and before Start, and closes it
	// after Close.
	Network *peer.Network
	// WriteFirst has a leader send its nodes what it has written, not while it writes.
	WriteFirst bool
	// Account finds an account by name, nil when there is none: of messages that
	// other nodes captured for a group that this node leads.
	Account func(name string) *front.Account

	// Limits tells what an account may hold; nil means no limits. It is asked on
	// the leader, and the answer travels in the entry, so that every replica
	// decides alike.
	Limits func(account string) catalogue.Limits

	TailBytes     int64         // of messages kept in memory per group; default 64 MiB
	FlushBytes    int64         // of new messages before they go to a data file; the store's default
	FlushInterval time.Duration // the longest a message waits for that; the store's default
	Batches       BatchLimits   // of publishers' batches
	BatchBytes    int           // a batch of twice this size is proposed even when others are in flight; default 256 KiB
	InFlight      int           // most batches of a group in flight; default 4

	Now         func() topics.Nanos       // default: the system's clock
	ClockOffset time.Duration             // added to it; for tests of clocks that are off
	Log         *slog.Logger              // default: discards
	tune        func(*replication.Config) // for tests
	// OnRemoved is told when this node is no longer part of the cluster, and when it is
	// again, on a goroutine of the network. It must not block.
	OnRemoved func(removed bool)
	Fatal     func(error) // called once the node can't go on (failed write, damaged log); default: panic
}

// Replier sends the answers to publishers. *front.Publisher is one.
type Replier interface {
	// Deliver sends a message to those who listen to `to`, shown as subject. The
	// bytes are the caller's again on return.
	Deliver(to, subject, reply string, header, payload []byte) bool
	// Answer sends an answer to those who listen to reply. node is the node whose client
	// asks, "" for this one: it gets the answer even if this node hasn't heard yet that
	// anybody listens there. The bytes are the caller's again on return.
	Answer(node, reply string, header, payload []byte)
	// Flush hands over what was staged.
	Flush()
}

// Change says what happened to a topic or a consumer.
type Change int

// The changes.
const (
	Created Change = iota + 1
	Updated
	Deleted
	Reset  // of a consumer: it was moved to another sequence
	Frozen // of a topic: it is about to move, nothing of it changes until it has Moved
	Moved  // of a topic: it is served again, maybe in another group
)

// String returns the change as a verb.
func (c Change) String() string {
	switch c {
	case Created:
		return "created"
	case Updated:
		return "updated"
	case Deleted:
		return "deleted"
	case Reset:
		return "reset"
	case Frozen:
		return "frozen"
	case Moved:
		return "moved"
	}
	return "unknown"
}

// Hooks are told what the groups have decided. Each may be nil. They run where
// entries are applied, in order, before the proposer gets its answer: they must
// not block, and must not call what proposes and waits.
type Hooks struct {
	// OnTopic: a topic exists, has another config, or is gone. On Start it is
	// called for every topic there is (Created).
	OnTopic func(t *Topic, c Change)
	// OnLeaving: a topic whose group this node leads is about to be frozen: what is not
	// recorded of it yet must be now. It may block; Frozen or Moved follows.
	OnLeaving func(t *Topic)
	// OnGrown: these topics got messages. ids is valid during the call.
	OnGrown func(g *Group, ids []topics.TopicID)
	// OnLeader: this node leads the group and has all that was committed before, or
	// no longer leads. It runs on a goroutine of its own, never at once for the
	// same group.
	OnLeader func(g *Group, leads bool)
	// OnGroup: this node got a replica of a group (local), or no longer has one.
	// Groups that are there already are told by Start. It is called before OnLeader
	// is, and after it was told that this node doesn't lead. It may block.
	OnGroup func(g *Group, local bool)
	// OnLeaderKnown: another node leads the group as far as this one knows, "" for
	// none. It runs on a goroutine of its own, and may miss what didn't last.
	OnLeaderKnown func(g *Group, leader string)
	// OnCatalogueLeader: this node leads group 0, or no longer does. It is called
	// by Start, then on a goroutine of its own.
	OnCatalogueLeader func(leads bool)
	// OnConsumer: a consumer of a topic exists, has another config, or is gone.
	OnConsumer func(t *Topic, name string, c Change)
	// OnStep: a step of an operator was committed. What it holds must not be changed.
	OnStep func(g *Group, s Step)
	// OnProducer: an epoch of a producer began, or it was removed.
	OnProducer func(g *Group, e Epoch)
	// OnAdopted: this node's replica of a group is now as another one's was: what was
	// committed meanwhile is not told.
	OnAdopted func(g *Group)
	// OnFlush: the store of a group is about to be flushed up to an index; afterwards the
	// log may be released up to it. It runs on the flusher's goroutine and may block. It
	// is called until the State is closed.
	OnFlush func(g *Group, i topics.Index)
	// OnOperator: an operator is new, changed or gone.
	OnOperator func(id uint64)
	// OnBatchAbandoned: an atomic batch was given up, and why ("timeout", "large",
	// "incomplete", "unsupported"). It runs on a goroutine of the group's own.
	OnBatchAbandoned func(t *Topic, id, why string)
	// OnAdvertisement: an advertisement is new, changed, expired or withdrawn.
	OnAdvertisement func(e catalogue.Event)
	// OnAdvertisements: all advertisements may be others than before, without an event
	// for each: a snapshot of another node took the place of the catalogue.
	OnAdvertisements func()
}
