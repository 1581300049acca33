package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// The dead letters of a consumer leave in parcels, one after the other (consumer.Parcel). A
// parcel is begun by a record of the consumer's group, is stored by its topic, and its
// messages are given up by a second record, with which the next one begins:
//
//	begin n ─► send n ─► stored ─► give up n, begin n+1
//	               └───► refused ─► close n ─► closed ─► take back n, begin n+1
//
// Each step follows from what every copy of the consumer and of the topic knows, so whoever
// leads goes on where the one before was, and what that one still asks for when it should
// not has no effect: its topic knows the number. Numbers are pinned to a topic, for a
// subject may come to be kept by another one.
//
// A parcel that is refused is divided until the letters are known that are refused alone.
// Those come last. A lone letter that nobody waits behind is sent again as it is.

const (
	parcelMost   = 128       // letters, at most consumer.ParcelMost
	parcelBytes  = 256 << 10 // unless a single letter has more
	refusalsMost = 32        // in a round
)

// burying is a round of parcels of one consumer; it belongs to its goroutine.
type burying struct {
	r       *reader
	c       *consumer.Consumer // the live copy; guarded by r.mu
	subject string
	round   uint64

	stored, closed uint64 // the number of the parcel of which that is known
	begun          uint64 // the number that was given last
	behind         uint64 // the next must be higher
	moved          int
	refusals       int
	failed         error

	// As of the last look.
	last  uint64           // number of a parcel
	under consumer.Parcel  // Number 0: none
	times []uint32         // how often its messages were delivered
	ready []consumer.Dying // may be put into a parcel, or are in it
	held  bool             // the delivery of some is not committed yet
}

// errOver ends a round silently: the engine doesn't lead, or the live copy is another one.
var errOver = errors.New("the consumer is served by another")

// run is a round.
func (b *burying) run() {
	err := b.bury()
	r, d := b.r, &b.r.dead
	r.mu.Lock()
	defer r.wake()
	defer r.mu.Unlock()
	d.under = false
	if errors.Is(err, errOver) {
		d.next = r.e.o.Now() + topics.Nanos(burialSoon) // who serves it now may not know yet
		return
	}
	if err == nil {
		err = b.failed
	}
	if err == nil {
		d.pause, d.err = 0, ""
		if b.held { // it comes with the records that are under way; this is for when they fail
			d.next = r.e.o.Now() + topics.Nanos(burialSoon)
		}
		return
	}
	d.failed++
	if d.err != err.Error() && r.leading() {
		r.e.o.Log.Warn("A dead letter can't be stored yet; its message stays pending", "stream", r.topic.name, "consumer", r.name, "subject", b.subject, "error", err)
	}
	d.err = err.Error()
	if b.moved > 0 {
		d.pause = 0
	}
	d.pause = min(max(2*d.pause, burialPause), burialPauseTo)
	d.next = r.e.o.Now() + topics.Nanos(d.pause)
}

func (r *reader) leading() bool { return r.e.leads.Load() && r.ending.Load() == nil }

// bury takes steps until nothing is left to do, or something can't be done now.
func (b *burying) bury() error {
	for {
		if err := b.look(); err != nil {
			return err
		}
		var ops consumer.LetterOps
		switch n := b.under.Number; {
		case n == 0 && b.begun > b.last: // it had no effect: nothing of it is pending any more
			b.held = true
			return nil
		case n == 0:
		case n == b.stored:
			ops.GiveUp = n
		case n == b.closed:
			ops.TakeBack = n
		default:
			if err := b.deliver(); err != nil {
				return err
			}
			continue
		}
		if err := b.begin(&ops); err != nil {
			b.failed = err // but what is under way ends
		}
		if ops == (consumer.LetterOps{}) {
			return nil
		}
		if err := b.propose(ops); err != nil {
			return err
		}
	}
}

// look compares what dies here with what every copy knows.
func (b *burying) look() (err error) {
	r := b.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading() || r.c != b.c || r.failed || !r.c.Buries() {
		return errOver
	}
	b.subject = r.dead.subject
	var dealt []topics.Sequence
	before := b.under
	b.under, b.ready, b.held = consumer.Parcel{}, b.ready[:0], false
	r.topic.data.LookAt(r.name, func(c *consumer.Consumer) {
		if c == nil || c.ID() != b.c.ID() || c.Epoch() != b.c.Epoch() {
			err = errOver
			return
		}
		if p, under := c.Under(); under {
			b.under = p
		}
		b.last, b.times = c.LastParcel(), b.times[:0]
		for _, l := range b.under.Messages {
			_, attempts, _ := c.PendingAt(l.Sequence)
			b.times = append(b.times, attempts)
		}
		b.c.Adopt(b.under.Messages)
		b.c.EachDying(func(d consumer.Dying) bool {
			_, attempts, pending := c.PendingAt(d.Sequence)
			switch {
			case pending && attempts > 0:
				b.ready = append(b.ready, d)
			case !pending && d.Sequence <= c.Delivered().Stream:
				dealt = append(dealt, d.Sequence)
			default:
				b.held = true
			}
			return true
		})
	})
	if err != nil {
		return err
	}
	for _, d := range b.ready { // the latest deliveries may not be committed yet
		for i, l := range b.under.Messages {
			if l.Sequence == d.Sequence {
				b.times[i] = max(b.times[i], d.Attempts)
			}
		}
	}
	if n := before.Number; n != 0 && n == b.stored && n != b.under.Number {
		// Those that went from their topic with that the live copy doesn't know any more.
		for _, l := range before.Messages {
			if !slices.Contains(dealt, l.Sequence) {
				dealt = append(dealt, l.Sequence)
			}
		}
	}
	for _, seq := range dealt {
		b.c.Buried(seq, r.e.o.Now())
		b.moved++
		r.dead.moved++
		delete(r.dead.refused, seq)
		r.answer(r.dead.answers[seq])
		delete(r.dead.answers, seq)
	}
	if b.held {
		r.e.recorder.add(r, r.e.o.Now())
	}
	if len(dealt) > 0 {
		r.wake() // there is room, and there may be answers
	}
	return nil
}

// deliver sends the parcel under way, or closes it.
func (b *burying) deliver() error {
	select {
	case b.r.e.burials <- struct{}{}:
		defer func() { <-b.r.e.burials }()
	case <-b.r.e.ctx.Done():
		return errOver
	}
	ctx, cancel := context.WithTimeout(b.r.e.ctx, burialTimeout)
	defer cancel()
	letters, to := b.r.e.o.Letters, b.under.To
	if now, ok := letters.Keeper(b.r.topic.account, b.subject); !ok {
		return b.homeless()
	} else if now != to {
		return b.close(ctx)
	}
	p := b.parcel()
	fate, err := Refused, b.fill(p)
	switch {
	case err == nil && len(p.Letters) > 0:
		fate, err = letters.Send(ctx, p)
	case err == nil:
		fate = Stored // all of its messages are gone
	}
	if fate != Refused {
		return b.note(p, fate, err)
	}
	b.failed = err
	if len(b.under.Messages) == 1 && len(b.ready) <= 1 {
		return err // nobody waits behind it
	}
	b.refuse()
	return b.close(ctx)
}

func (b *burying) homeless() error { return fmt.Errorf("no topic keeps %s", b.subject) }

func (b *burying) close(ctx context.Context) error {
	p := b.parcel()
	fate, err := b.r.e.o.Letters.Close(ctx, p)
	return b.note(p, fate, err)
}

// note takes note of the fate of a parcel.
func (b *burying) note(p *Parcel, fate Fate, err error) error {
	switch n := p.Number; fate {
	case Stored:
		b.stored = n
		b.r.mu.Lock()
		if m := &b.r.dead.most; *m > 0 {
			*m = min(*m*2, parcelMost)
		}
		b.r.mu.Unlock()
	case Closed:
		b.closed, b.behind = n, max(b.behind, p.Behind)
	default:
		if err == nil {
			err = errors.New("it is not known what became of them")
		}
		return err
	}
	return nil
}

// refuse notes that the parcel under way was refused.
func (b *burying) refuse() {
	d := &b.r.dead
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	if n := len(b.under.Messages); n > 1 {
		d.most = n / 2
		return
	}
	b.refusals++
	if d.refused == nil {
		d.refused = map[topics.Sequence]uint64{}
	}
	d.refused[b.under.Messages[0].Sequence] = b.round
}

func (b *burying) parcel() *Parcel {
	r := b.r
	given := topics.AppendConsumerRecord(nil, r.topic.id, b.c.ID())
	return &Parcel{
		Account: r.topic.account, Subject: b.subject, From: r.topic.id, Consumer: b.c.ID(), Number: b.under.Number, To: b.under.To,
		Given: b.c.AppendLetters(given, r.e.o.Now(), consumer.LetterOps{GiveUp: b.under.Number}),
	}
}

// fill loads the letters. It goes by what every copy knows of the parcel: what is left out
// would be given up without a letter, and only what the topic no longer has may be.
func (b *burying) fill(p *Parcel) error {
	r := b.r
	for i, l := range b.under.Messages {
		m, err := r.topic.data.Load(l.Sequence)
		if err != nil {
			if r.gone(l.Sequence) {
				continue
			}
			return err // it is there, but can't be read
		}
		d := consumer.Dying{Sequence: l.Sequence, Attempts: b.times[i], Terminated: l.Terminated, Reason: l.Reason}
		p.Letters = append(p.Letters, Letter{r.deadHeader(&m, &d, r.e.o.Now()), m.Payload})
	}
	return nil
}

// gone tells whether the topic no longer has a message.
func (r *reader) gone(seq topics.Sequence) bool {
	at, ok := r.topic.data.Next(nil, seq)
	return !ok || at != seq
}

// begin adds the begin of the next parcel to what is proposed, if there is one.
func (b *burying) begin(ops *consumer.LetterOps) error {
	next, err := b.choose(ops.GiveUp != 0)
	if len(next) == 0 {
		return err
	}
	to, ok := b.r.e.o.Letters.Keeper(b.r.topic.account, b.subject)
	if !ok {
		return b.homeless()
	}
	number := max(b.last+1, b.behind+1, uint64(max(b.r.e.o.Now(), 0)))
	b.begun = number
	ops.Begin = &consumer.Parcel{Number: number, To: to, Messages: next}
	return err
}

// choose returns the messages of the next parcel: those that were never refused, or one
// that was, in another round. The error is of one that can't be read.
func (b *burying) choose(given bool) (next []consumer.Letter, err error) {
	if b.refusals >= refusalsMost {
		return nil, nil
	}
	b.r.mu.Lock()
	most := cmp.Or(b.r.dead.most, parcelMost)
	oldest, round := consumer.Dying{}, uint64(math.MaxUint64)
	var list []consumer.Dying
	for _, d := range b.ready {
		if given && slices.ContainsFunc(b.under.Messages, func(l consumer.Letter) bool { return l.Sequence == d.Sequence }) {
			continue
		}
		refused, was := b.r.dead.refused[d.Sequence]
		switch {
		case !was && len(list) < most:
			list = append(list, d)
		case was && refused < min(round, b.round):
			oldest, round = d, refused
		}
	}
	b.r.mu.Unlock()
	if len(list) == 0 && round < b.round {
		list = append(list, oldest)
	}
	slices.SortFunc(list, func(a, b consumer.Dying) int { return cmp.Compare(a.Sequence, b.Sequence) })
	bytes := 0
	for _, d := range list {
		m, failed := b.r.topic.data.Load(d.Sequence)
		switch {
		case failed != nil && b.r.gone(d.Sequence):
			b.drop(d.Sequence)
			continue
		case failed != nil:
			err = failed
			continue
		}
		if bytes += len(m.Header) + len(m.Payload) + 512; len(next) > 0 && bytes > parcelBytes {
			break
		}
		next = append(next, consumer.Letter{Sequence: d.Sequence, Terminated: d.Terminated, Reason: oneLine(d.Reason)})
	}
	return next, err
}

// drop gives up a message that the topic no longer has.
func (b *burying) drop(seq topics.Sequence) {
	r := b.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == b.c {
		r.c.Drop(seq, r.e.o.Now())
		r.recordAcks(r.e.o.Now(), false)
	}
}

// propose has every copy do what is said, and waits for that.
func (b *burying) propose(ops consumer.LetterOps) error {
	ctx, cancel := context.WithTimeout(b.r.e.ctx, burialTimeout)
	defer cancel()
	body := topics.AppendConsumerRecord(nil, b.r.topic.id, b.c.ID())
	body = b.c.AppendLetters(body, b.r.e.o.Now(), ops)
	done := make(chan error, 1)
	b.r.e.o.Proposer.Submit(topics.RecordLetters, body, func(result any, err error) {
		if f, ok := result.(*topics.Fault); ok && f != nil && err == nil {
			err = f
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
