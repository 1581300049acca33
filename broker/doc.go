// Package broker joins Herald's rooms into one broker: the front where clients
// connect, the replicated state with its topics, the delivery to consumers, the
// JetStream API, monitoring.
//
// It is also how a Go program embeds a broker:
//
//	b, err := broker.New(broker.Config{})
//	if err != nil { … }
//	defer b.Close()
//	go b.Run(ctx)
//	<-b.Ready()
//	nc, err := nats.Connect(b.ClientURL())
//
// The zero Config is a broker with durable topics on a free loopback port, its
// files in a temporary directory that Close removes. New starts nothing: no
// goroutine, no file, no port. Run starts the broker and serves until its
// context ends or a replicated log can't go on; it stops in stages: listeners,
// sessions, proposals, apply, log.
//
// How to read it: config.go is what a broker is told, broker.go its life, wire.go
// how the rooms are joined, reload.go what can change while it runs.
package broker
