// Package scheduling publishes scheduled messages when they are due.
//
// A message with the header Nats-Schedule, in a stream that allows it, asks for
// messages on another subject of the stream. An Engine knows the schedules of
// the topics this node leads: it reads each topic once and then follows it. One
// goroutine waits for the earliest and appends what is due.
//
// Nothing is kept beside the messages themselves. A produced message says in
// Nats-Scheduler where its schedule is and in Nats-Schedule-Next when that is
// due next; "purge" makes the store remove a schedule with the entry that stores
// its last message. So a crash between two messages loses none: what was due in
// the meantime is published once, late.
package scheduling
