// Package sourcing copies messages from topic to topic: what mirrors and
// sources of a stream's config ask for.
//
// An Engine has one flow per mirror or source of the topics this node leads. A
// flow is a goroutine that reads its origin from where its target has come, and
// appends to the target what it finds; it sleeps until the origin grows. Where
// the target has come is read from the target itself: a mirror has its origin's
// sequences, and each sourced message names its origin and sequence in the
// header Nats-Stream-Source. There is no other bookkeeping, so that a crash
// loses nothing and repeats nothing.
//
// Origins are topics of the same account. One that has no replica on this node is
// read from the node that leads it (remote.go), which tells once when it has grown.
// When the target's lead moves, the flow on the new leader begins with what the
// target holds. An external origin, with another domain's or account's API, is not
// read; infos say so.
//
// What is copied from a work queue is taken out of it once it is stored: the flow
// is its one reader, and waits when a consumer takes the same messages.
//
// Difference to nats-server: an interest stream doesn't count its mirrors and
// sources among those that are interested.
package sourcing
