// Package filtering answers $HERALD.FILTER.>: any NATS client asks for the live
// messages of a subject that a condition holds for, and is told a subject to
// subscribe to. docs/filters.md has the requests and their JSON.
//
// A registration is known on every node of the cluster. Each node filters what enters
// the cluster there (router.go), so a message crosses to another node only if
// somebody there gets it, it doesn't matter which node a client is connected to, and
// one that reconnects elsewhere goes on. Nodes tell each other of registrations at
// once, and compare what they have every two seconds (peers.go); nothing goes through
// a log: a registration lives as long as somebody listens to it, and a grace.
//
// Filtering is done on the publisher's goroutine, staged with its read batch. All
// registrations of one subject share the decoding of a message; those with the same
// condition share its evaluation.
//
// Goroutines: a few workers for requests, a sweeper, and with peers one that compares.
// Close waits for them.
package filtering
