// Package peer connects the nodes of a cluster: one authenticated connection for
// each pair of them, which carries everything they say to each other.
//
//	Network ─┬─ Call, Handle              small requests with an answer
//	         ├─ OpenStream, HandleStream  answers of any length
//	         ├─ Send, HandleChannel       ordered chunks, with credit
//	         ├─ SetStatus, OnChange       what the others should know of this node
//	         └─ Transport                 raft, one for each replica
//
// A node dials the routes it was given and whatever addresses its peers know, so
// that one seed is enough. Peers prove to each other that they know the cluster's
// secret or hold a certificate of its authority (package handshake); nothing else
// is read from anybody who hasn't.
//
// What is said is cut into frames of at most 128 KiB (package wire), and the one
// that matters most is written first: raft's heartbeats and votes, then its
// entries, calls, channels, streams. Raft is never behind messages, messages never
// behind files, and a channel whose handler is slow stalls nothing but itself.
//
// A connection that is silent for three seconds is given up; one that the other
// side has ended is noticed at once, and whether somebody still listens there is
// found out by dialing again (Refused).
package peer
