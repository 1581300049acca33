package soak

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// reader reads a topic through a durable consumer.
type reader struct {
	w       *world
	topic   string
	name    string
	filter  string // "" is all
	workers int
	push    bool
	// strict readers acknowledge everything and wait for the answer, so that their
	// acknowledgement floor never goes back.
	strict bool

	mu    sync.Mutex
	got   map[uint64]*delivery // by sequence
	floor uint64
}

type delivery struct {
	name      string // of the publisher
	n         int
	times     int
	confirmed time.Time // when the answer to an acknowledgement came
}

// lateMost is how long a message may be on its way after another copy of it was
// acknowledged.
const lateMost = 5 * time.Second

func (w *world) reader(js jetstream.JetStream, topic, name string, with func(*reader)) {
	r := &reader{w: w, topic: topic, name: name, got: map[uint64]*delivery{}}
	with(r)
	cfg := jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, FilterSubject: r.filter,
		MaxDeliver: -1, MaxAckPending: 300,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if r.push {
		cfg.DeliverSubject = "deliver." + name
		_, err = js.CreatePushConsumer(ctx, topic, cfg)
	} else {
		_, err = js.CreateConsumer(ctx, topic, cfg)
	}
	if err != nil {
		w.t.Fatalf("consumer %s: %v", name, err)
	}
	w.readers = append(w.readers, r)
}

// run reads until nothing new is published, and then all that is left.
func (r *reader) run() {
	_, js := r.w.connect(r.name)
	if r.push {
		r.listen(js)
		return
	}
	var workers sync.WaitGroup
	for i := range r.workers {
		workers.Go(func() { r.work(js, r.w.random(r.name+string(rune('0'+i)))) })
	}
	workers.Wait()
}

func (r *reader) info(js jetstream.JetStream) (*jetstream.ConsumerInfo, error) {
	var info *jetstream.ConsumerInfo
	_, err := r.w.retry(func(ctx context.Context) (err error) {
		if r.push {
			c, err := js.PushConsumer(ctx, r.topic, r.name)
			if err == nil {
				info = c.CachedInfo()
			}
			return err
		}
		c, err := js.Consumer(ctx, r.topic, r.name)
		if err == nil {
			info = c.CachedInfo()
		}
		return err
	})
	return info, err
}

// work pulls and deals with messages.
func (r *reader) work(js jetstream.JetStream, rng *rand.Rand) {
	var c jetstream.Consumer
	_, err := r.w.retry(func(ctx context.Context) (err error) {
		c, err = js.Consumer(ctx, r.topic, r.name)
		return err
	})
	if err != nil {
		r.w.bad("consumer gone", "%s: %v", r.name, err)
		return
	}
	var drainedBy time.Time
	for {
		draining := closed(r.w.silent)
		if draining && drainedBy.IsZero() {
			drainedBy = time.Now().Add(2 * time.Minute)
		}
		batch, err := c.Fetch(1+rng.IntN(60), jetstream.FetchMaxWait(time.Duration(50+rng.IntN(500))*time.Millisecond))
		if err != nil {
			<-time.After(20 * time.Millisecond)
			continue
		}
		// All of it first: what lies in a buffer would look like it came late.
		var msgs []jetstream.Msg
		for m := range batch.Messages() {
			r.note(m)
			msgs = append(msgs, m)
		}
		r.settleAll(js, msgs, rng, draining)
		if !draining || len(msgs) > 0 {
			continue
		}
		info, err := r.info(js)
		switch {
		case err == nil && info.NumPending == 0 && info.NumAckPending == 0:
			return
		case time.Now().After(drainedBy):
			r.w.bad("never drained", "%s: %+v (%v)", r.name, info, err)
			return
		}
	}
}

// note enters a delivery.
func (r *reader) note(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		r.w.bad("strange delivery", "%s: %v", r.name, err)
		return
	}
	name, n, ok := identify(m.Data())
	if !ok {
		r.w.bad("damaged delivery", "%s: sequence %d", r.name, meta.Sequence.Stream)
		return
	}
	r.w.delivered.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.got[meta.Sequence.Stream]
	if d == nil {
		r.got[meta.Sequence.Stream] = &delivery{name: name, n: n, times: 1}
		return
	}
	r.w.redelivered.Add(1)
	d.times++
	if d.name != name || d.n != n {
		r.w.bad("two messages", "%s: sequence %d was message %d of %s and is %d of %s", r.name, meta.Sequence.Stream, d.n, d.name, n, name)
	}
	if !d.confirmed.IsZero() && time.Since(d.confirmed) > lateMost {
		r.w.bad("delivered after its acknowledgement", "%s: sequence %d, acknowledged %s ago, delivery %d",
			r.name, meta.Sequence.Stream, time.Since(d.confirmed).Round(time.Millisecond), meta.NumDelivered)
	}
}

// settleAll deals with a batch. Where everything is acknowledged only the last
// answer is waited for: acknowledgements are taken in order.
func (r *reader) settleAll(js jetstream.JetStream, msgs []jetstream.Msg, rng *rand.Rand, draining bool) {
	for i, m := range msgs {
		switch {
		case !draining && !r.strict:
			r.settle(m, rng)
		case i < len(msgs)-1:
			_ = m.Ack()
		case r.acknowledge(m) && r.strict:
			r.checkFloor(js)
		}
	}
}

// settle does with a message what readers do.
func (r *reader) settle(m jetstream.Msg, rng *rand.Rand) {
	switch k := rng.IntN(20); {
	case k < 4:
		r.acknowledge(m)
	case k < 15:
		_ = m.Ack()
	case k == 15:
		_ = m.NakWithDelay(time.Duration(rng.IntN(300)) * time.Millisecond)
	case k == 16:
		_ = m.InProgress()
	}
}

// acknowledge waits for the answer, and tells whether there was one.
func (r *reader) acknowledge(m jetstream.Msg) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	if m.DoubleAck(ctx) != nil {
		return false
	}
	r.confirm(m)
	return true
}

func (r *reader) confirm(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	r.w.confirmed.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.got[meta.Sequence.Stream]; d != nil && d.confirmed.IsZero() {
		d.confirmed = time.Now()
	}
}

// checkFloor is called when all that was delivered so far is acknowledged for
// certain.
func (r *reader) checkFloor(js jetstream.JetStream) {
	info, err := r.info(js)
	if err != nil {
		return
	}
	if f := info.AckFloor.Stream; f < r.floor {
		r.w.bad("floor went back", "%s: from %d to %d", r.name, r.floor, f)
	} else {
		r.floor = f
	}
}

// listen takes what is pushed.
func (r *reader) listen(js jetstream.JetStream) {
	var c jetstream.PushConsumer
	_, err := r.w.retry(func(ctx context.Context) (err error) {
		c, err = js.PushConsumer(ctx, r.topic, r.name)
		return err
	})
	if err != nil {
		r.w.bad("consumer gone", "%s: %v", r.name, err)
		return
	}
	rng := r.w.random(r.name)
	cc, err := c.Consume(func(m jetstream.Msg) {
		r.note(m)
		if closed(r.w.silent) || rng.IntN(5) > 0 {
			_ = m.Ack()
		}
	})
	if err != nil {
		r.w.bad("consumer gone", "%s: %v", r.name, err)
		return
	}
	defer cc.Stop()
	<-r.w.silent
	for deadline := time.Now().Add(2 * time.Minute); ; {
		<-time.After(200 * time.Millisecond)
		info, err := r.info(js)
		switch {
		case err == nil && info.NumPending == 0 && info.NumAckPending == 0:
			return
		case time.Now().After(deadline):
			r.w.bad("never drained", "%s: %+v (%v)", r.name, info, err)
			return
		}
	}
}
