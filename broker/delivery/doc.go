// Package delivery is the engine that the leader of a group runs for the
// consumers of that group's topics: it answers pull requests, feeds push
// consumers, takes acknowledgements, repeats what wasn't acknowledged, and
// removes consumers nobody uses.
//
// There is no lasting goroutine and no timer per consumer. A consumer that has something
// to do stands in the ready queue (pool.go); one of a few workers takes it out
// and gives it a turn (turn.go): what is due, what has expired, a bounded number
// of messages, one flush. A consumer is worked on by at most one worker at a
// time. All deadlines stand in one heap with one goroutine (clock.go). What the
// live copies of the consumers did is proposed by one goroutine (recorder.go):
// deliveries within 50 ms, acknowledgements within 2 ms, those whose sender wants
// an answer at once. A consumer with a key sends what it decided on only then
// (written.go). While a consumer has dead letters that can leave, a goroutine of its own
// sees to them (burial.go). An idle engine has no timer running.
//
//	Pull, Ack, FlowControl   any goroutine ─► reader (one lock each) ─► ready queue
//	Grown                    apply side ─► topic's hungry readers ─► ready queue
//	worker                   ready queue ─► reader ─► store.Read ─► Publisher
//	recorder                 readers ─► Proposer ─► log ─► double acks
//
// A consumer that has read everything and has somebody to deliver to is hungry.
// When its topic grows, hungry readers without a filter are woken; those with a
// filter are found through an index of their patterns, so that ten thousand
// filtered consumers of one topic don't make a publish cost ten thousand matches
// (topic.go).
//
// Locks: a reader's mu is never held across a read of messages, a send or a
// proposal. It may be held while the store's read lock is taken; therefore what
// is called from where entries are applied (Grown, ConsumerChanged, TopicDeleted)
// takes no reader's mu and only leaves a note. Purges and limits need no call: a
// reader compares what is pending with where its topic begins.
package delivery
