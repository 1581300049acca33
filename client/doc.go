// Package client is the Go library for Herald's four verbs: publish, subscribe,
// advertise and discover.
//
// It sits on github.com/nats-io/nats.go and adds what that does not have: a
// publish that says in its name whether the message is kept, subscriptions that
// start anywhere in a topic, advertisements with a lease that is renewed for
// you, and errors that can be told apart with errors.Is.
//
//	c, err := client.Connect("nats://127.0.0.1:4222")
//	if err != nil { … }
//	defer c.Close()
//
//	// Live: whoever listens now gets it.
//	err = c.Publish("orders.eu.created", payload)
//
//	// Durable: on disk, on a majority of the replicas, before it returns.
//	receipt, err := c.PublishDurable(ctx, "orders.eu.created", payload)
//
//	// From the first message ever stored, then on as they come.
//	sub, err := c.Subscribe("orders.>", handle, client.From(client.First()))
//
// # Live and durable
//
// A live message ([Client.Publish], [Client.Subscribe] without options) exists
// only while it travels. A durable one is captured by a topic: a named,
// replicated log of the messages of some subjects ([Client.CreateTopic]). The
// same publish reaches live subscribers too; durability adds, it never takes.
//
// # What is durable on return
//
// [Client.PublishDurable] and [Future.Wait] return a [Receipt] only after the
// message is fsynced on a majority of the topic's replicas. An error that
// matches [ErrTimeout] leaves it open whether the message was stored: publish it
// again under the same [MessageID] and the broker stores it at most once.
//
// # Errors
//
// Every error of this package is an [*Error] and matches one of the sentinels in
// errors.go with errors.Is; the error of nats.go that caused it is matched too.
//
// # Concurrency
//
// A [Client] and everything it hands out are safe for any number of goroutines.
// The handler of a [Subscription] is called by one goroutine at a time.
package client
