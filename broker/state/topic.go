package state

import (
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
	"github.com/heraldmq/herald/topics/transform"
)

// Topic is a topic: what the catalogue says about it, its group and, where this
// node has a replica of that, its messages. It stays valid after the topic is deleted (Gone tells), but
// then leads to nothing. All methods are safe for any number of callers and take
// no lock that publishing waits for.
type Topic struct {
	id      topics.TopicID
	account string
	name    string
	created topics.Nanos
	ackHead []byte // how its PubAcks begin

	group atomic.Pointer[Group] // another one once it has moved
	held  atomic.Bool           // it is moving: nothing of it is proposed now
	moves atomic.Uint64         // the number of the move that group follows from
	limbo atomic.Pointer[limbo] // what was captured meanwhile; nil: nothing
	was   atomic.Pointer[Group] // the group that it left last, as far as is known here

	data   atomic.Pointer[store.Topic] // nil where its group isn't local
	config atomic.Pointer[topics.Config]
	noAck  atomic.Bool
	gone   atomic.Bool
	mapper atomic.Pointer[transform.Transform] // of what is captured; nil: as it comes
	echo   atomic.Pointer[republish]           // nil: nothing is republished
}

func newTopic(g *Group, data *store.Topic) *Topic {
	cfg := data.SharedConfig()
	t := &Topic{
		id: data.ID(), account: data.Account(), name: cfg.Name, created: data.Created(),
		ackHead: ackHead(cfg.Name),
	}
	t.group.Store(g)
	t.moves.Store(data.Moves())
	t.data.Store(data)
	t.configure(cfg)
	return t
}

// newRemoteTopic returns a topic as the catalogue knows it.
func newRemoteTopic(g *Group, e *catalogue.Topic) *Topic {
	t := &Topic{
		id: e.ID, account: e.Account, name: e.Config.Name, created: e.Created,
		ackHead: ackHead(e.Config.Name),
	}
	t.group.Store(g)
	t.moves.Store(switched(e))
	t.configure(&e.Config)
	return t
}

func (t *Topic) configure(cfg *topics.Config) {
	t.config.Store(cfg)
	t.noAck.Store(cfg.NoAck)
	t.mapper.Store(mapperOf(cfg))
	t.echo.Store(republishOf(cfg))
}

// ID returns the topic's identifier.
func (t *Topic) ID() topics.TopicID { return t.id }

// Account returns the name of the account that owns the topic.
func (t *Topic) Account() string { return t.account }

// Name returns the topic's name, unique in its account.
func (t *Topic) Name() string { return t.name }

// Created returns when the topic was created.
func (t *Topic) Created() time.Time { return time.Unix(0, int64(t.created)).UTC() }

// Config returns the topic's config. It is shared: the caller must not change
// what it points to.
func (t *Topic) Config() *topics.Config { return t.config.Load() }

// Data returns the topic's messages and consumers; nil where this node has no
// replica of its group, or the replica doesn't have the topic yet.
func (t *Topic) Data() *store.Topic { return t.data.Load() }

// Group returns the group the topic lives in, which changes when it moves.
func (t *Topic) Group() *Group { return t.group.Load() }

// Moving tells whether the topic is between two groups: what changes it waits a moment.
func (t *Topic) Moving() bool { return t.held.Load() }

// Gone tells whether the topic has been deleted.
func (t *Topic) Gone() bool { return t.gone.Load() }
