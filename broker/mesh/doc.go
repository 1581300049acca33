// Package mesh connects the accounts of this node with those of the other nodes
// of its cluster: what is published on one node reaches who listens on another,
// at most one hop away.
//
// Nodes tell each other what they listen to (account, subject, queue group and
// its members): all of it when they connect, then each change. To the accounts of
// package front a peer is one more kind of subscriber, found by the same cached
// match. What is published during a read batch is staged per peer and leaves as
// one chunk. Interest and messages share one ordered channel, so the interest in
// a reply is there before the request.
//
// Messages captured by topics don't come this way: see package state. They may be
// answered before the interest in the reply is known where their group is led: then the
// answer goes to the node that they came from (front.Publisher.Answer).
//
// # Bounds
//
// Up to queueMax bytes wait for one peer. Publishers are held back from behindAt
// on as long as the peer takes something. One that has taken nothing for
// stuckAfter gets no more messages until it does: they are dropped and counted.
// Nobody waits for it. A client whose receiver on another node is far behind is
// held back on its own node, by itself: what others send there goes on.
//
// # Queue groups
//
// A member is picked where a message is published, in proportion to the members on
// all nodes. When the last one of a node has left while a message was on its way,
// the message comes back, once, and another is picked.
//
// # Goroutines
//
// One, started by Start and awaited by Close: it tells changes of interest and
// looks after peers that are stuck. One for each client of a peer that is being
// held back. The rest runs on the network's goroutines (one for each peer) and on
// those of publishers.
package mesh
