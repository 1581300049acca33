// Package replication agrees on a sequence of opaque byte entries, writes it
// once, and hands it to a state machine on each node. It does not know what a
// subject or a topic is.
//
// A Node owns a directory. It runs a small number of groups; each is one
// hashicorp/raft instance with its own state machine. The data groups share one
// write-ahead log (package wal): whatever all of them have to store goes out in
// one write and one fdatasync. Group 0, the catalogue, has a log of the same kind for
// itself: its few entries stay until the next snapshot of the catalogue, and would keep
// the segments of all the others from being recycled. Versions before kept it in
// raft-boltdb; such a log is moved at the first start (package boltlog). What group 0 must
// never forget (its vote, and how far its log has come) is noted a second time in
// raft-boltdb (package witness), so that a lost or rolled back file is noticed.
//
//	Open ──► Node ──Start──► Group ──Propose──► raft ──StoreLogs──► wal
//	                           ▲                  │
//	                           └──StateMachine◄───┘ committed entries
//
// In a cluster (Config.Network) a group has a replica on some of the nodes. A replica's
// Raft id is the node's name and an incarnation, which is as old as its vote: who has
// lost the one has lost the other, and comes back as somebody new, which can't vote
// for what the old one has seen. A replica that isn't a member asks the leader to be
// let in; the leader knows which nodes shall hold the group (SetMembers), and moves
// the configuration towards it (decide.go). The same mechanism forms a cluster (Form
// says who begins), adds nodes, moves groups, and refills what was damaged
// (ResetGroup).
//
// hashicorp/raft 1.8.0 has open safety and liveness bugs. The packages guard,
// stable and snapshot are the wrappers that make it safe; each names the issue
// it is there for and has a test that shows the unwrapped flaw.
//
// What is promised: a proposal that answered without error is on the disks of a
// majority (fdatasync has returned), was applied here, and survives any crash. A
// failed write, a failed fsync or a disk that hangs ends the process through
// Config.Fatal; nothing is retried.
//
// Files, below Config.Dir:
//
//	LOCK                 held while a process has the node open; its pid
//	NODE                 the identity of the node, with a checksum
//	meta/wal/            group 0's log
//	meta/marker          says to versions before that the log is not in log.bolt any more
//	wal/                 segments and marker of the shared log
//	stable/<group>       term, vote and incarnation
//	stable/0.bolt        group 0's witness
//	groups/<group>/      the state machine's own files, and snapshots/
//	damaged/             what could not be used, moved there and never touched again
package replication
