// Package state is what the nodes agree on: it turns what clients ask for into
// entries of Raft groups, and applied entries into topics, consumers and
// advertisements.
//
// There are two kinds of group. Group 0 holds the catalogue: which topics and
// advertisements exist (topics/catalogue). The data groups hold the topics
// themselves with their messages and consumers (topics/store). A node opens one
// State; it owns the replication node, the stores and all that runs between.
//
// The way of a publish through this package:
//
//		front reader ──Group.Capture──► open batch ──Propose──► write-ahead log
//		                                                             │ committed
//		PubAck ◄── acker ◄── results ◄── dataMachine.Apply ◄─────────┘
//		                                        └──► store, Hooks.OnGrown
//
//	  - batch.go gathers what one group is asked for and proposes it: at once when
//	    nothing is in flight, else when what is in flight comes back or the batch
//	    is full. It also runs the acker, which answers publishers.
//	  - machine.go applies the entries of a data group; record.go has the records'
//	    layout; catalogue.go applies those of group 0.
//	  - topicops.go and messageops.go change things; what spans group 0 and a data
//	    group is done in steps that reconcile.go finishes after a crash.
//	  - atomic.go and fast.go take the batches of publishers (ADR-50), teller.go
//	    answers them where no entry does; republish.go publishes again.
//	  - forget.go drops what the restart of the only node ends.
//	  - expiry.go proposes the removal of what is too old.
//
// In a cluster every node holds the catalogue, and of the data groups those replicas
// that the catalogue gives it. A Group is a handle that works everywhere:
//
//		Group.Capture ──► forward.go, parcel.go ──channel──► the leader's queue
//		Group.ask ──────► remote.go ──call──► the leader's queue ──► the encoded result
//		State.decide ───► decide.go ──call──► the leader of group 0
//
//	  - cluster.go forms the cluster or finds it formed, and follows who leads.
//	  - arrange.go starts and ends this node's replicas, resets damaged ones, and keeps
//	    the registry of topics: a replica that holds a topic knows best, elsewhere the
//	    catalogue tells.
//	  - peers.go has what nodes tell each other: what they lead, and what time it is.
//	  - controller.go steers, on the leader of group 0: it enters nodes, plans groups
//	    (replication/placement), founds and opens them, gives leads back.
//	  - move.go has topics move to other groups, as the leader of group 0; movecopy.go
//	    copies them, limbo.go keeps what is captured meanwhile, movehooks.go tells the rest.
//	  - sweep.go puts away what removals and moves that were cut short have left.
//	  - nodes.go is what operators ask for; usage.go sums up over groups.
//
// Two rules make time safe: a leader proposes nothing before it has applied all that
// was committed before it led, so that the time in entries never goes back; and a
// clock that is more than a second off the median of the nodes' clocks is corrected
// to within that, so that nothing expires and no message id is forgotten because one
// clock is wrong.
//
// Whatever only a group's leader may do asks IsLeader, or is refused by the
// group; nothing but forget.go counts the voters.
package state
