package consumer

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// Bytes as they were written first; add cases for newer versions, never change these.
const (
	goldenLetters      = "010080a8d6b9070107020703b2f4010902020000010103626164"
	goldenLettersState = "0203016380a8d6b9072d01016307086578706c696369740880a8d6b9071f0112686572616c642e646c712e7375626a656374046465616400000505020000040401020282a8d6b9070101020082a8d6b9070101020082a8d6b9070101020082a8d6b9070100b2f4010902020000010103626164"
)

// buries returns a consumer with four of five messages pending, as every copy has it.
func buries(t *testing.T) *Consumer {
	t.Helper()
	l := &fakeLog{subjects: []string{"a", "b", "c", "d", "e"}}
	c := New(3, "c", topics.ConsumerConfig{
		Durable: "c", AckPolicy: topics.AckExplicit, AckWait: time.Second, Metadata: map[string]string{KeyDeadSubject: "dead"},
	}, 1e9, l)
	live := c.Clone()
	live.Lead(l)
	for range 5 {
		seq, _ := live.Next(1)
		live.Deliver(seq, 1)
	}
	live.Ack(5, 2)
	for _, r := range live.Records(nil) {
		apply := c.ApplyAcks
		if r.Kind == topics.RecordDelivered {
			apply = c.ApplyDelivered
		}
		if err := apply(r.Body, nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func begin(number uint64, seqs ...topics.Sequence) LetterOps {
	p := &Parcel{Number: number, To: 9}
	for _, s := range seqs {
		p.Messages = append(p.Messages, Letter{Sequence: s})
	}
	return LetterOps{Begin: p}
}

// apply applies ops as a record, and returns what was acknowledged.
func apply(t *testing.T, c *Consumer, ops LetterOps) (acked []topics.Sequence) {
	t.Helper()
	if err := c.ApplyLetters(c.AppendLetters(nil, 5, ops), func(s topics.Sequence) { acked = append(acked, s) }); err != nil {
		t.Fatal(err)
	}
	return acked
}

func under(c *Consumer) (number uint64, seqs []topics.Sequence) {
	p, ok := c.Under()
	if !ok {
		return 0, nil
	}
	for _, m := range p.Messages {
		seqs = append(seqs, m.Sequence)
	}
	return p.Number, seqs
}

func TestAParcelIsEndedByItsNumberAndTheNextHasAHigherOne(t *testing.T) {
	c := buries(t)
	want := func(what string, number uint64, seqs ...topics.Sequence) {
		t.Helper()
		n, got := under(c)
		if len(seqs) > 0 && n != number || !slices.Equal(got, seqs) || c.LastParcel() != number {
			t.Fatalf("%s: parcel %d of %v, the last is %d; wanted %d of %v", what, n, got, c.LastParcel(), number, seqs)
		}
	}
	apply(t, c, LetterOps{GiveUp: 3, TakeBack: 3})
	apply(t, c, begin(7, 5, 6)) // acknowledged, and never delivered
	want("with none pending nothing begins", 0)
	apply(t, c, begin(7, 1, 2, 5))
	want("only what is pending is in it", 7, 1, 2)
	apply(t, c, begin(8, 3))
	want("there is one at a time", 7, 1, 2)
	apply(t, c, LetterOps{GiveUp: 6, TakeBack: 8})
	want("others have ended", 7, 1, 2)
	if acked := apply(t, c, LetterOps{GiveUp: 7, Begin: begin(9, 3).Begin}); !slices.Equal(acked, []topics.Sequence{1, 2}) {
		t.Errorf("given up are %v", acked)
	}
	want("the next begins with the end of the one before", 9, 3)
	apply(t, c, LetterOps{GiveUp: 7, TakeBack: 7})
	apply(t, c, begin(7, 1, 2))
	want("late", 9, 3)
	apply(t, c, LetterOps{TakeBack: 9})
	want("taken back", 9)
	if c.NumAckPending() != 2 {
		t.Errorf("%d are pending, wanted the two that have no letter", c.NumAckPending())
	}
	apply(t, c, begin(9, 3))
	want("a number is given once", 9)
	apply(t, c, begin(10, 3, 4))
	c.settle(3)
	want("what is acknowledged is no longer in it", 10, 4)
	c.settle(4)
	apply(t, c, LetterOps{})
	want("nor is there a parcel without any", 10)
}

func TestAResetEndsTheParcelAndKeepsItsNumber(t *testing.T) {
	c := buries(t)
	apply(t, c, begin(7, 1))
	late := c.AppendLetters(nil, 5, LetterOps{GiveUp: 7, Begin: begin(8, 2).Begin})
	c.Reset(1)
	if err := c.ApplyLetters(late, nil); err != nil {
		t.Fatal(err)
	}
	if n, seqs := under(c); n != 0 || c.LastParcel() != 7 {
		t.Errorf("parcel %d of %v is under way, the last is %d", n, seqs, c.LastParcel())
	}
	if other := c.Clone().WithID(4, 2); other.LastParcel() != 0 {
		t.Error("a consumer that is restored has the letters of the one it was")
	}
}

func TestWhoDoesNotBuryBeginsNoParcel(t *testing.T) {
	c := buries(t)
	cfg := c.Config()
	cfg.Metadata = nil
	c.Update(cfg)
	apply(t, c, begin(7, 1))
	if c.LastParcel() != 0 {
		t.Error("a parcel has begun")
	}
}

// TestTheNextLeaderFindsTheParcel: in each state of a parcel a copy that is read from its
// flushed state and leads goes on with it.
func TestTheNextLeaderFindsTheParcel(t *testing.T) {
	c := buries(t)
	lead := func() *Consumer {
		t.Helper()
		b, err := c.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unmarshal(b)
		if err != nil || !back.Equal(c) {
			t.Fatalf("read as %s, %v, wanted %s", show(back), err, show(c))
		}
		c = back
		next := c.Clone()
		next.Lead(&fakeLog{subjects: []string{"a", "b", "c", "d", "e"}})
		next.Due(1 << 40) // everything that is not dying is delivered again
		return next
	}
	if l := lead(); l.NumDying() != 0 {
		t.Error("something is dying")
	}
	ops := begin(7, 1, 3)
	ops.Begin.Messages[1] = Letter{3, true, "bad"}
	apply(t, c, ops)
	l := lead()
	if !l.Dies(1) || !l.Dies(3) || l.NumDying() != 2 || l.Redelivers(1) || !l.Redelivers(2) {
		t.Errorf("%d are dying", l.NumDying())
	}
	l.EachDying(func(d Dying) bool {
		if want := (Dying{3, 1, true, "bad"}); d.Sequence == 3 && d != want {
			t.Errorf("dying is %+v", d)
		}
		return true
	})
	c.settle(1)
	if l := lead(); l.NumDying() != 1 {
		t.Errorf("%d are dying after one was acknowledged", l.NumDying())
	}
	apply(t, c, LetterOps{TakeBack: 7})
	if l := lead(); l.NumDying() != 0 || !l.Redelivers(3) {
		t.Error("what was taken back is not delivered again")
	}
	apply(t, c, begin(8, 3))
	apply(t, c, LetterOps{GiveUp: 8})
	if l := lead(); l.NumDying() != 0 || l.NumAckPending() != 2 || l.LastParcel() != 8 {
		t.Errorf("after the letter %s", show(l))
	}
}

func TestGoldenLetters(t *testing.T) {
	c := buries(t)
	ops := LetterOps{GiveUp: 7, TakeBack: 7, Begin: &Parcel{Number: 31282, To: 9, Messages: []Letter{{Sequence: 2}, {3, true, "bad"}}}}
	body := c.AppendLetters(nil, 1e9, ops)
	if got := hex.EncodeToString(body); got != goldenLetters {
		t.Errorf("record is %s, want %s", got, goldenLetters)
	}
	if err := c.ApplyLetters(body, nil); err != nil {
		t.Fatal(err)
	}
	b, err := c.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != goldenLettersState {
		t.Errorf("state is %s, want %s", got, goldenLettersState)
	}
}

func TestALettersRecordThatCannotBeReadIsRefused(t *testing.T) {
	c := buries(t)
	good := c.AppendLetters(nil, 5, begin(7, 1, 2))
	many := &Parcel{Number: 7}
	for i := range ParcelMost + 1 {
		many.Messages = append(many.Messages, Letter{Sequence: topics.Sequence(i + 1)})
	}
	for what, body := range map[string][]byte{
		"cut":           good[:len(good)-1],
		"longer":        append(slices.Clone(good), 1),
		"unknown op":    append(c.AppendLetters(nil, 5, LetterOps{}), 9, 1),
		"other version": append([]byte{2}, good[1:]...),
		"out of order":  c.AppendLetters(nil, 5, begin(7, 1, 1)),
		"too many":      c.AppendLetters(nil, 5, LetterOps{Begin: many}),
		"long reason":   c.AppendLetters(nil, 5, LetterOps{Begin: &Parcel{Number: 7, Messages: []Letter{{1, true, strings.Repeat("x", LetterReasonMax+1)}}}}),
	} {
		if err := c.Clone().ApplyLetters(body, nil); !errors.Is(err, ErrBadRecord) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzApplyLetters(f *testing.F) {
	for _, s := range []string{goldenLetters, "010080a8d6b9070107", "01008000030109010100"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := buries(t)
		if c.ApplyLetters(body, nil) != nil {
			return
		}
		b, err := c.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Unmarshal(b); err != nil || !back.Equal(c) {
			t.Fatalf("read as %v, %v", back, err)
		}
	})
}
