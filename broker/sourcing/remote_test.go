package sourcing

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/heraldmq/herald/topics"
)

func TestPagesSurviveTheWire(t *testing.T) {
	p := &page{From: 3, Next: 9, Lag: 17, Shared: "c", N: 3, messages: []topics.Message{
		{Sequence: 3, Time: 1, Subject: "a.b", Header: []byte("NATS/1.0\r\n\r\n"), Payload: []byte("x")},
		{Sequence: 5, Time: 1 << 60, Subject: "b", Header: []byte{}, Payload: []byte{}},
		{Sequence: 8, Time: 2, Subject: "c", Header: []byte{}, Payload: bytes.Repeat([]byte("y"), 200<<10)},
	}}
	var b bytes.Buffer
	if err := p.encode(&b); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(b.Bytes())
	got, err := decodePage(&b)
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, n := range []int{0, 1, 10, len(whole) - 1} {
		if _, err := decodePage(bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("cut after %d bytes, and taken", n)
		}
	}
}

func FuzzDecodePage(f *testing.F) {
	var b bytes.Buffer
	p := &page{N: 1, messages: []topics.Message{{Sequence: 1, Subject: "s"}}}
	if err := p.encode(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePage(bytes.NewReader(b)); err == nil && len(p.messages) != p.N {
			t.Errorf("%d messages of %d", len(p.messages), p.N)
		}
	})
}
