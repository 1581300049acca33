package delivery

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/filter"
)

// Topic is what the engine needs of a topic of the store. All methods may be
// called by any number of goroutines.
type Topic interface {
	consumer.Log
	ID() topics.TopicID
	Account() string
	Config() topics.Config
	// Load returns one message; any error means that it can't be delivered.
	Load(seq topics.Sequence) (topics.Message, error)
	// Read appends to dst up to max messages (and about maxBytes, but at least one)
	// that f lets through, from the sequence from on. next is where to go on.
	Read(f *topics.Filter, from topics.Sequence, max, maxBytes int, dst []topics.Message) (out []topics.Message, next topics.Sequence, err error)
	// Consumer returns a Clone of the replicated copy, nil if there is none.
	Consumer(name string) *consumer.Consumer
	// LookAt calls f with the replicated copy, nil if there is none. f must not keep or
	// change it, nor call the topic.
	LookAt(name string, f func(*consumer.Consumer))
	// ConsumerNames returns the names of the topic's consumers.
	ConsumerNames() []string
}

// Proposer makes changes of consumers durable. Submit never blocks and takes
// body over. done is called on another goroutine, once the change has been
// applied or refused; bodies submitted one after the other are applied in that
// order.
type Proposer interface {
	Submit(kind topics.RecordKind, body []byte, done func(result any, err error))
}

// Publisher sends messages; one goroutine at a time. *front.Publisher is one.
type Publisher interface {
	Publish(subject, reply string, header, payload []byte) bool
	Deliver(to, subject, reply string, header, payload []byte) bool
	Flush()
	SetStall(on bool)
}

// Account is what the engine needs of an account. All methods may be called by
// any number of goroutines.
type Account interface {
	NewPublisher() Publisher
	HasInterest(subject string) bool
	QueueInterest(subject, queue string) bool
	WatchInterest(subject string, f func(has bool)) (cancel func())
}

// Options says what an engine works with. Topic, Topics, Proposer, Account and
// DeleteConsumer are required; for the rest the zero value works.
type Options struct {
	// Topic returns a topic of the group, nil if there is none (any more).
	Topic func(id topics.TopicID) Topic
	// Topics calls f with every topic of the group until it returns false.
	Topics func(f func(Topic) bool)
	// Account returns an account, nil if there is none.
	Account  func(name string) Account
	Proposer Proposer
	// DeleteConsumer proposes to delete a consumer that nobody uses. It must not
	// block; when it fails, the engine asks again later.
	DeleteConsumer func(id topics.TopicID, name string)

	// Letters is the way of dead letters to their topics. nil: there is none, and such
	// messages stay pending.
	Letters Letters

	// Filters are the content filters of consumers, shared with other rooms; default: a
	// set of its own.
	Filters *filter.Set

	Domain  string              // named in advisories when set
	Now     func() topics.Nanos // default: the system's clock
	NewID   func() string       // unique ids for pins and advisories; default: nuid
	Log     *slog.Logger        // default: discards
	Workers int                 // default: two per processor, at least 8: some may wait for slow receivers
	// EphemeralThreshold is how long an ephemeral consumer without a threshold of
	// its own lives unused; default 5 s.
	EphemeralThreshold time.Duration
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = func() topics.Nanos { return topics.Nanos(time.Now().UnixNano()) }
	}
	if o.Filters == nil {
		o.Filters = filter.NewSet()
	}
	if o.NewID == nil {
		o.NewID = newID
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Workers <= 0 {
		o.Workers = max(2*runtime.GOMAXPROCS(0), 8)
	}
	if o.EphemeralThreshold <= 0 {
		o.EphemeralThreshold = 5 * time.Second
	}
	return o
}
