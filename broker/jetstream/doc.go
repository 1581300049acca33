// Package jetstream answers the JetStream API: what clients send to $JS.API.>,
// $JS.ACK.> and $JS.FC.>.
//
// A Service has one part per account (accountAPI), with one subscription per
// family of subjects. What reads or moves messages (MSG.NEXT, DIRECT.GET, acks,
// flow control) is answered on the publisher's goroutine; everything else goes
// through a bounded queue to workers, and the requests about one stream stay in
// order. The files follow the subjects:
//
//   - service.go, account.go, queue.go, gate.go: life, subscriptions, workers, and
//     what waits for an answer to be out
//   - routes.go, request.go: from a subject to its handler, and the reply
//   - streams.go, streamlists.go, messages.go, direct.go: streams
//   - consumers.go, consumerinfo.go: consumers
//   - cluster.go, nodes.go: what is needed of the other nodes, and a cluster that
//     gives it
//   - place.go, waiting.go, directplace.go, restoreplace.go: which node answers
//   - calls.go, gather.go: what the nodes ask each other; lists of what several lead
//   - clusterinfo.go, leaderadvisory.go: who holds and leads what, in infos and
//     advisories
//   - stepdown.go: moving leads, and what a single node refuses
//   - streamconfig.go, sourceconfig.go, streamupdate.go, consumerconfig.go,
//     consumerupdate.go: what a config must be; pure functions
//   - snapshot.go, restore.go, consumerbackup.go: backups, in the archive of
//     broker/backup
//   - advisory.go, batchadvisory.go: what is told on $JS.EVENT.ADVISORY.>
//
// In a cluster a request is answered by the node that leads what it is about: the
// stream's group, or the catalogue for what is about which streams there are. The
// node it came to checks the account, and hands the message on. While nobody leads
// it waits, for up to four seconds. Streams share groups: what moves the lead of one
// moves that of its group.
//
// Nothing is decided here that replicas could disagree on: a handler checks a
// request and hands it to broker/state, whose committed answer it passes on.
package jetstream
