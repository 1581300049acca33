package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

const (
	letterSource = topics.TopicID(1) // where messages die
	letterOther  = topics.TopicID(8) // keeps letters, and stays where it is
	letterNames  = 24                // messages
)

// postman is what one leader of the consumer's group believes: what it knew of the
// consumer when it looked last, maybe long ago, and what it has heard of parcels.
type postman struct {
	view  *consumer.Consumer
	facts map[uint64]uint64 // by number: topics.LetterStored or LetterClosed
	past  uint64            // a topic is behind this number
}

// post is leaders of a consumer whose messages all die, topics for the letters (the
// first moves), and requests that are under way: they come in any order, late, several
// times.
type post struct {
	mover
	src      *feeder
	consumer topics.ConsumerID
	producer uint64
	part     uint32
	leaders  []*postman
	net      []func() // may be called any number of times
	acked    map[topics.Sequence]bool
}

func newPost(t *testing.T, seed uint64) *post {
	p := &post{acked: map[topics.Sequence]bool{}}
	p.T, p.rng = t, rand.New(rand.NewPCG(seed, 3))
	p.src, p.from, p.to = openFeeder(t, t.TempDir()), openFeeder(t, t.TempDir()), openFeeder(t, t.TempDir())
	create := func(f *feeder, id topics.TopicID, name string) {
		cfg := topics.Config{
			Name: name, Subjects: []string{name}, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: 100,
			Retention: topics.RetainLimits, Storage: topics.StoreFile, Discard: topics.DiscardOld,
		}
		f.do(func() { _ = f.s.CreateTopic(id, "A", cfg, f.now) })
	}
	create(p.src, letterSource, "s")
	create(p.from, movedTopic, "t")
	create(p.src, letterOther, "u")
	for i := range letterNames {
		p.src.publish(pub(letterSource, "s", "", fmt.Sprint(i+1)))
	}
	p.src.do(func() {
		p.consumer, _ = p.src.s.CreateConsumer(letterSource, "c", topics.ConsumerConfig{
			Name: "c", AckPolicy: topics.AckExplicit, AckWait: time.Minute, MaxAckPending: 1000, Metadata: map[string]string{consumer.KeyDeadSubject: "t"},
		})
	})
	p.producer, p.part, _ = topics.LetterProducer(letterSource, p.consumer)
	live := p.look()
	live.Lead(p.src.s.Topic(letterSource))
	for range letterNames {
		seq, _ := live.Next(p.src.now)
		live.Deliver(seq, p.src.now)
	}
	for _, r := range live.Records(nil) {
		p.src.do(func() { p.must(p.src.s.Delivered(letterSource, p.consumer, r.Body)) })
	}
	for range 3 {
		p.leaders = append(p.leaders, &postman{view: p.look(), facts: map[uint64]uint64{}})
	}
	return p
}

func (p *post) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *post) look() *consumer.Consumer { return p.src.s.Topic(letterSource).Consumer("c") }

// store returns where a topic may be; the topic that moves may be in either.
func (p *post) store(id topics.TopicID) *feeder {
	if id == letterOther {
		return p.src
	}
	return []*feeder{p.from, p.to}[p.rng.IntN(2)]
}

// letters asks for a record of the consumer.
func (p *post) letters(view *consumer.Consumer, ops consumer.LetterOps) {
	body := view.AppendLetters(nil, p.src.now, ops)
	p.net = append(p.net, func() {
		p.src.do(func() {
			if err := p.src.s.Letters(letterSource, p.consumer, body); !errors.Is(err, ErrUnknownConsumer) {
				p.must(err)
			}
		})
	})
}

// heard is what broker.fate makes of an answer.
func (l *postman) heard(number uint64, at topics.Place) {
	if at.Epoch == number && at.Seq == topics.LetterStored {
		l.facts[number] = topics.LetterStored
		return
	}
	l.facts[number], l.past = topics.LetterClosed, max(l.past, at.Epoch)
}

func (p *post) close(l *postman, under consumer.Parcel) {
	p.net = append(p.net, func() {
		f := p.store(under.To)
		f.do(func() {
			if r := f.s.CloseLetters(under.To, p.producer, p.part, under.Number); r.Fault == nil {
				l.heard(under.Number, r.At)
			}
		})
	})
}

func (p *post) send(l *postman, under consumer.Parcel) {
	g := topics.Guard{Producer: p.producer, Partition: p.part, Epoch: under.Number, Seq: topics.LetterStored}
	var all []topics.Publish
	for _, m := range under.Messages {
		all = append(all, pub(under.To, "t", "", fmt.Sprint(m.Sequence)))
	}
	if p.rng.IntN(4) == 0 { // refused
		all[p.rng.IntN(len(all))].Payload = []byte(strings.Repeat("x", 200))
	}
	p.net = append(p.net, func() {
		f := p.store(under.To)
		f.index++
		switch r := guarded(f.s, f.now, g, all); {
		case r.Verdict == topics.GuardNext, r.Verdict == topics.GuardDone:
			l.heard(under.Number, r.At)
		case r.Fault == nil || p.rng.IntN(2) == 0 && r.Fault.ErrCode != faultNoTopic.ErrCode:
			p.close(l, under)
		}
	})
}

// act has a leader ask for what follows from what it believes.
func (p *post) act(l *postman) {
	if p.rng.IntN(2) == 0 {
		l.view = p.look()
	}
	under, ok := l.view.Under()
	var ops consumer.LetterOps
	left := map[topics.Sequence]bool{}
	for _, m := range l.view.Snapshot(letterNames).Pending {
		left[m.Sequence] = true
	}
	switch {
	case !ok:
	case l.facts[under.Number] == topics.LetterStored:
		ops.GiveUp = under.Number
		for _, m := range under.Messages {
			delete(left, m.Sequence)
		}
	case l.facts[under.Number] == topics.LetterClosed:
		ops.TakeBack = under.Number
	case p.rng.IntN(8) == 0: // the subject is kept by another topic now, say
		p.close(l, under)
		return
	default:
		p.send(l, under)
		return
	}
	if len(left) > 0 && p.rng.IntN(4) > 0 {
		ops.Begin = &consumer.Parcel{Number: max(l.view.LastParcel(), l.past) + 1 + uint64(p.rng.IntN(2)), To: movedTopic}
		if p.rng.IntN(4) == 0 {
			ops.Begin.To = letterOther
		}
		for seq := range left {
			if len(ops.Begin.Messages) < 1+p.rng.IntN(5) {
				ops.Begin.Messages = append(ops.Begin.Messages, consumer.Letter{Sequence: seq, Terminated: seq%2 == 0, Reason: fmt.Sprint("r", seq)})
			}
		}
		slices.SortFunc(ops.Begin.Messages, func(a, b consumer.Letter) int { return int(a.Sequence) - int(b.Sequence) })
	}
	if ops != (consumer.LetterOps{}) {
		p.letters(l.view, ops)
	}
}

// step lets something happen.
func (p *post) step() {
	switch n := p.rng.IntN(40); {
	case n == 0:
		p.moveWithout(p.rng.IntN(2) == 0)
	case n == 1:
		p.src = p.reopen(p.src)
	case n == 3: // whatever is changed of the topic
		cfg := p.from.s.Topic(movedTopic).Config()
		cfg.Description += "."
		p.from.do(func() { p.must(p.from.s.UpdateTopic(movedTopic, cfg)) })
	case n == 2:
		seq := topics.Sequence(1 + p.rng.IntN(letterNames))
		if c := p.look(); c.Needs(seq) && p.rng.IntN(3) == 0 { // a client is late, but not too late
			p.acked[seq] = true
			c.Lead(p.src.s.Topic(letterSource))
			c.Ack(seq, p.src.now)
			for _, r := range c.Records(nil) {
				p.src.do(func() { p.must(p.src.s.Acked(letterSource, p.consumer, r.Body)) })
			}
		}
	case n < 16 || len(p.net) == 0:
		p.act(p.leaders[p.rng.IntN(len(p.leaders))])
	default:
		i := p.rng.IntN(len(p.net))
		p.net[i]()
		if p.rng.IntN(3) > 0 && len(p.net) > 0 { // or it comes once more
			p.net = slices.Delete(p.net, i, i+1)
		}
	}
}

// stored counts the letters of each message.
func (p *post) stored() map[string]int {
	times := map[string]int{}
	for f, id := range map[*feeder]topics.TopicID{p.from: movedTopic, p.src: letterOther} {
		all, _, err := f.s.Topic(id).Read(nil, 1, 1<<20, 0, nil)
		p.must(err)
		for _, m := range all {
			times[string(m.Payload)]++
		}
	}
	return times
}

// TestDeadLettersAreStoredOnceWhateverComesWhen: however late and often something comes
// of whatever leader, each message that nobody acknowledged has one letter when it has been
// given up, and none has two; also when the consumer is gone and its counts with it.
func TestDeadLettersAreStoredOnceWhateverComesWhen(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPost(t, seed)
			gone := seed%5 == 4 // in the midst of it
			for n := 0; p.look().NumAckPending() > 0; n++ {
				if n > 50_000 {
					t.Fatalf("%d are still pending", p.look().NumAckPending())
				}
				if p.step(); gone && n > 300 {
					break
				}
			}
			times := p.stored()
			for seq := topics.Sequence(1); seq <= letterNames && !gone; seq++ {
				if n := times[fmt.Sprint(seq)]; n != 1 && !(p.acked[seq] && n == 0) {
					t.Errorf("message %d has %d letters", seq, n)
				}
			}
			p.forget()
			for range 3 * len(p.net) { // what is under way still
				p.net[p.rng.IntN(len(p.net))]()
			}
			for body, n := range p.stored() {
				if n > 1 {
					t.Errorf("message %s has %d letters", body, n)
				}
			}
		})
	}
}

// forget deletes the consumer and has the topics forget it.
func (p *post) forget() {
	p.src.do(func() { p.src.s.DeleteConsumer(letterSource, "c") })
	for _, f := range []*feeder{p.from, p.src} {
		for _, b := range f.s.Letterboxes() {
			if b.From != letterSource || b.Consumer != p.consumer || b.Producer != p.producer || b.Partition != p.part {
				p.Errorf("a letterbox %+v", b)
			}
			for range 2 {
				f.do(func() {
					if f := f.s.ForgetLetters(b.Topic, b.Producer, b.Partition); f != nil {
						p.Error(f)
					}
				})
			}
		}
		if left := f.s.Letterboxes(); len(left) > 0 {
			p.Errorf("%v are left", left)
		}
	}
	p.moveWithout(true)
}
