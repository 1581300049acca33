// Package topics holds the vocabulary of the durable side of Herald: what a
// topic, a message, a consumer and an advertisement are, as values.
//
// The packages below it are what a topic *is* on one node, with no network and
// no consensus:
//
//   - topics/subject: the grammar of subjects and patterns
//   - topics/transform: mappings from subjects to subjects
//   - topics/schedule: times at which a message is to be published
//   - topics/interest: the index from a subject to those who want it
//   - topics/store: the messages of one group's topics, in memory and on disk
//   - topics/datafile: the immutable files they are flushed into
//   - topics/consumer: a reader's place in a topic, as a pure state machine
//   - topics/catalogue: which topics and advertisements exist
//
// Nothing here reads a clock, draws a random number or opens a socket: time
// and identifiers come in with the log entry, so that every replica that has
// applied the same entries holds the same state.
package topics
