package consumer

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// Bytes as version 1 wrote them. They must stay readable: add cases for newer
// versions, never change these.
const (
	goldenDelivered = "01000203028094ebdc03020100000701008094ebdc03"
	goldenAcked     = "010080a8d6b9070001020105020180a8d6b907"
	goldenState     = "0103016380a8d6b9071401016307086578706c696369740880b09dc2df010000050580a8d6b907010180a8d6b90703020480a8d6b90782b09dc2df01020102ff93ebdc0382bcc1960b0102020082b09dc2df010100"
)

func goldenConsumer() (*Consumer, *fakeLog) {
	l := &fakeLog{}
	for range 8 {
		l.publish("a")
	}
	cfg := topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit, AckWait: 30 * time.Second}
	return New(3, "c", cfg, 1e9, l), l
}

func TestGolden(t *testing.T) {
	replica, l := goldenConsumer()
	live := replica.Clone()
	live.Lead(l)
	for _, seq := range []topics.Sequence{1, 2, 3, 5} {
		live.Deliver(seq, 5e8)
	}
	live.Deliver(2, 1e9)
	live.Ack(1, 1e9)
	live.Nak(3, time.Second, 1e9)
	records := live.Records(nil)
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	for i, want := range []string{goldenDelivered, goldenAcked} {
		if got := hex.EncodeToString(records[i].Body); got != want {
			t.Errorf("record %d is %s, want %s", i, got, want)
		}
	}
	b, err := live.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != goldenState {
		t.Errorf("state is %s, want %s", got, goldenState)
	}
	old, err := hex.DecodeString(goldenState)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Unmarshal(old); err != nil || !c.Equal(live) {
		t.Errorf("the state of version 1 reads as %v, %v", c, err)
	}
}
