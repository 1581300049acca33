package front

import (
	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/topics"
)

// Account is an isolated subject space: its interest, its topics, its users.
// All methods may be called by any number of goroutines.
type Account struct {
	name string
}

// Name is the account's name.
func (a *Account) Name() string { return a.name }

// System tells whether this is the system account.
func (a *Account) System() bool { panic("not yet") }

// Limits are those of the configuration.
func (a *Account) Limits() auth.Limits { panic("not yet") }

// Stats returns the account's counters.
func (a *Account) Stats() AccountStats { panic("not yet") }

// Internal is a subscription of the broker itself.
type Internal struct{}

// Subscribe registers h for the pattern; with a queue, one member of it gets
// each message.
func (a *Account) Subscribe(subject, queue string, h Handler) (*Internal, error) { panic("not yet") }

// Close ends the subscription. A handler that runs on another goroutine may
// still be running when it returns.
func (i *Internal) Close() { panic("not yet") }

// Publish publishes one message at once. Unlike a Publisher it is for the
// occasional message, from any goroutine. It reports whether anybody listened.
func (a *Account) Publish(subject, reply string, header, payload []byte) bool { panic("not yet") }

// HasInterest tells whether a subscription of a client or of the broker
// matches the literal subject. Topics don't count.
func (a *Account) HasInterest(subject string) bool { panic("not yet") }

// QueueInterest tells whether a member of the queue group listens to the
// literal subject.
func (a *Account) QueueInterest(subject, queue string) bool { panic("not yet") }

// WatchInterest calls f whenever interest in the literal subject begins or
// ends, until cancel. It isn't called for the state at the time of the call:
// ask HasInterest afterwards. Calls come one at a time, on the goroutine that
// changed it, with no lock of the account held; f must not block.
func (a *Account) WatchInterest(subject string, f func(has bool)) (cancel func()) {
	panic("not yet")
}

// TopicInterest is a topic's place in the account's interest.
type TopicInterest struct{}

// AddTopic makes the topic capture what is published to its subjects.
func (a *Account) AddTopic(id topics.TopicID, group topics.GroupID, subjects []string, sink Sink) *TopicInterest {
	panic("not yet")
}

// Remove ends the capture. Read batches under way may still be captured.
func (t *TopicInterest) Remove() { panic("not yet") }

// Publisher publishes for the broker, with its own match cache and staging.
// One goroutine at a time.
type Publisher struct{}

// NewPublisher returns a publisher. It holds no resources to give back.
func (a *Account) NewPublisher() *Publisher { panic("not yet") }

// Publish stages one message for everybody who listens, topics included, and
// reports whether there was anybody. The bytes are copied. What is staged
// leaves at Flush, or earlier when it is much.
func (p *Publisher) Publish(subject, reply string, header, payload []byte) bool { panic("not yet") }

// Deliver stages a message that is routed by one subject and shown as another:
// what a consumer delivers. Topics never capture it.
func (p *Publisher) Deliver(to, subject, reply string, header, payload []byte) bool {
	panic("not yet")
}

// Flush hands over what is staged.
func (p *Publisher) Flush() { panic("not yet") }

// SetStall makes Flush wait a little (at most 100 ms) for receivers that are far
// behind but moving. Off by default.
func (p *Publisher) SetStall(on bool) { panic("not yet") }
