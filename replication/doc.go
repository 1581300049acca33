// Package replication agrees on a sequence of opaque byte entries, writes it
// once, and hands it to a state machine on each node. It does not know what a
// subject or a topic is.
//
// A Node owns a directory. It runs a small number of groups; each is one
// hashicorp/raft instance with its own state machine. The data groups share one
// write-ahead log (package wal): whatever all of them have to store goes out in
// one write and one fdatasync. Group 0, the catalogue, keeps its log in
// raft-boltdb (package boltlog), because it is small and rarely written.
//
//	Open ──► Node ──Start──► Group ──Propose──► raft ──StoreLogs──► wal
//	                           ▲                  │
//	                           └──StateMachine◄───┘ committed entries
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
//	meta/                group 0: log.bolt and its marker
//	wal/                 segments and marker of the shared log
//	stable/<group>       term and vote
//	groups/<group>/      the state machine's own files, and snapshots/
package replication
