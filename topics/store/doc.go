// Package store holds the messages of one group's topics, in memory and on disk.
//
// A Store is the part of a replicated state machine that knows what a topic is.
// One goroutine, the apply side, brackets every committed entry with Begin and
// End and calls Publish, Purge, Acked and so on in between; what they do depends
// only on the entries so far, so that every replica holds the same. Any number
// of goroutines read at the same time through *Topic.
//
// Where a message is:
//
//   - The entry it came in is kept whole in the tail (tail.go), a ring bounded in
//     bytes. A topic holds a pointer-free 8-byte reference per message, so there
//     is one copy of each message in memory and nothing for the collector to scan.
//   - The flusher (flush.go) now and then writes what is new and still alive,
//     sorted by topic, into one data file (topics/datafile) and everything else
//     that changed into state.db in one transaction; what was consumed before
//     never reaches a file. Restart opens state.db and the indexes of the files,
//     and the log's entries above Applied are applied again.
//   - A reader that is behind the tail reads whole runs of the files, each
//     verified by checksum, never under the store's lock.
//
// Replicas: Export makes a copy of the files for another replica, Adopt takes such a
// copy over in place, Mark gives the digest by which replicas find out whether they
// hold the same, Scrub reads everything and checks it. Damage that anybody meets goes
// to OnDamage: an owner with other replicas resets this one, without them that part
// stays refused.
//
// What is known about each message in memory is its reference while it is in the
// tail, and one bit once it is dead (dead.go). What is known per subject is in
// subjects.go. The rest (sizes, times, subjects of messages in files) is in the
// index blocks of the files, loaded when asked for and bounded (blockcache.go).
package store
