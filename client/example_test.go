package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/heraldmq/herald/client"
)

// Live publish and subscribe: whoever listens gets it.
func Example() {
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	done := make(chan struct{})
	sub, err := c.Subscribe("greetings.*", func(m *client.Message) error {
		fmt.Printf("%s: %s\n", m.Subject, m.Payload)
		close(done)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()

	if err := c.Publish("greetings.world", []byte("hello")); err != nil {
		log.Fatal(err)
	}
	<-done
	// Output: greetings.world: hello
}

// A durable publish returns once the message is on disk. Under a message id it
// can be repeated safely.
func ExampleClient_PublishDurable() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, client.TopicConfig{Name: "payments", Subjects: []string{"payments.>"}}); err != nil {
		log.Fatal(err)
	}

	for range 2 { // as after a time-out
		receipt, err := c.PublishDurable(ctx, "payments.eu", []byte("42 EUR"), client.MessageID("payment-1"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("topic %s, sequence %d, duplicate %t\n", receipt.Topic, receipt.Sequence, receipt.Duplicate)
	}
	// Output:
	// topic payments, sequence 1, duplicate false
	// topic payments, sequence 1, duplicate true
}

// Many durable messages: send without waiting, then wait for the receipts.
func ExampleClient_PublishAsync() {
	ctx := context.Background()
	c, err := client.Connect(url, client.PublishWindow(256))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, client.TopicConfig{Name: "readings", Subjects: []string{"readings.>"}}); err != nil {
		log.Fatal(err)
	}

	var futures []*client.Future
	for i := range 1000 {
		f, err := c.PublishAsync(ctx, "readings.temperature", fmt.Append(nil, i))
		if err != nil {
			log.Fatal(err)
		}
		futures = append(futures, f)
	}
	var last client.Receipt
	for _, f := range futures {
		if last, err = f.Wait(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("stored up to", last.Sequence)
	// Output: stored up to 1000
}

// Several messages, with the receipts in order.
func ExampleClient_PublishBatch() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, client.TopicConfig{Name: "audit", Subjects: []string{"audit.>"}}); err != nil {
		log.Fatal(err)
	}

	receipts, err := c.PublishBatch(ctx, []client.Item{
		{Subject: "audit.login", Payload: []byte("ada")},
		{Subject: "audit.logout", Payload: []byte("ada")},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range receipts {
		fmt.Println(r.Topic, r.Sequence)
	}
	// Output:
	// audit 1
	// audit 2
}

// Read a topic from its first message, and go on with what comes.
func ExampleFrom() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, client.TopicConfig{Name: "letters", Subjects: []string{"letters.>"}}); err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"alpha", "beta", "gamma"} {
		if _, err := c.PublishDurable(ctx, "letters.greek", []byte(text)); err != nil {
			log.Fatal(err)
		}
	}

	done := make(chan struct{})
	sub, err := c.Subscribe("letters.>", func(m *client.Message) error {
		fmt.Println(m.Stored.Sequence, string(m.Payload))
		if m.Stored.Pending == 0 {
			close(done)
		}
		return nil
	}, client.From(client.First()))
	if err != nil {
		log.Fatal(err)
	}
	<-done
	if err := sub.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 alpha
	// 2 beta
	// 3 gamma
}

// A named reader: the broker keeps its place. Returning nil acknowledges the
// message, an error brings it again.
func ExampleDurable() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(ctx, client.TopicConfig{Name: "jobs", Subjects: []string{"jobs.>"}}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.PublishDurable(ctx, "jobs.resize", []byte("cat.png")); err != nil {
		log.Fatal(err)
	}

	done := make(chan struct{})
	sub, err := c.Subscribe("jobs.>", func(m *client.Message) error {
		if m.Stored.Delivered == 1 {
			return errors.New("not this time")
		}
		fmt.Printf("%s on delivery %d\n", m.Payload, m.Stored.Delivered)
		close(done)
		return nil
	}, client.Durable("workers"), client.AckWait(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	<-done
	if err := sub.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: cat.png on delivery 2
}

// Request and reply, and what it is when nobody answers.
func ExampleClient_Request() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Subscribe("double", func(m *client.Message) error {
		return m.Respond(append(m.Payload, m.Payload...))
	}); err != nil {
		log.Fatal(err)
	}

	reply, err := c.Request(ctx, "double", []byte("ha"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(reply.Payload))
	if _, err := c.Request(ctx, "triple", []byte("ha")); errors.Is(err, client.ErrNoResponders) {
		fmt.Println("nobody triples")
	}
	// Output:
	// haha
	// nobody triples
}

// Declare what you publish: the broker makes the topic, others find it, and the
// handle publishes.
func ExampleClient_Advertise() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	publisher, err := c.Advertise(ctx, client.Advertisement{
		Name:    "weather",
		Subject: "weather.{city}.{reading}",
		Summary: "Readings of the weather stations",
		Owner:   client.Owner{Team: "stations"},
		Keep:    &client.Keep{MaxAge: client.Duration(7 * 24 * time.Hour)},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer publisher.Close()

	receipt, err := publisher.Send(ctx, client.Tokens{"city": "oslo", "reading": "wind"}, []byte("12 m/s"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored in", receipt.Topic)

	found, err := c.Discover(ctx, client.Query{Subject: "weather.oslo.>"})
	if err != nil {
		log.Fatal(err)
	}
	for _, ad := range found {
		fmt.Printf("%s by %s on %s\n", ad.Name, ad.Owner.Team, ad.Pattern())
	}
	// Output:
	// stored in weather
	// weather by stations on weather.*.*
}

// Be told what is advertised, and what changes.
func ExampleClient_Watch() {
	ctx := context.Background()
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	events := make(chan client.Event, 10)
	watch, err := c.Watch(ctx, client.Query{Tag: "tides"}, func(e client.Event) { events <- e })
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	fmt.Println((<-events).Kind) // nobody advertises tides yet

	publisher, err := c.Advertise(ctx, client.Advertisement{Name: "tides", Subject: "tides.{port}", Tags: []string{"tides"}})
	if err != nil {
		log.Fatal(err)
	}
	e := <-events
	fmt.Println(e.Kind, e.Advertisement.Name)
	if err := publisher.Close(); err != nil {
		log.Fatal(err)
	}
	e = <-events
	fmt.Println(e.Kind, e.Advertisement.Name)
	// Output:
	// caught-up
	// added tides
	// withdrawn tides
}

// Errors can be told apart by kind; the details are in *Error.
func ExampleError() {
	c, err := client.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Topic(context.Background(), "nowhere")
	var e *client.Error
	if errors.Is(err, client.ErrNotFound) && errors.As(err, &e) {
		fmt.Println(e.Op, e.Target, e.Code)
	}
	// Output: read topic nowhere 10059
}
