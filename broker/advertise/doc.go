// Package advertise answers $HERALD.ADV.>: publishers declare what they will
// publish, others find it, and are told when it comes and goes. docs/advertise.md
// has the subjects and their JSON.
//
// The definitions are in the catalogue (topics/catalogue) and go through group 0.
// What keeps an advertisement alive, its leases, does not: renewals would be most
// of the traffic and are worth nothing after a restart. They are held in the
// memory of the node that leads group 0 (lease.go), and a new leader grants each
// one full term, so that no lease ends early because leaders change.
//
// Requests come in on the sessions' goroutines, where nothing may block; workers
// carry them out (service.go, request.go), those about one name in order. Changes
// come back from where entries are applied and are published by one goroutine
// (watch.go), in the order of their revisions.
package advertise
