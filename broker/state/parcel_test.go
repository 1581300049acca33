package state

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

func TestParcelsComeBackAsTheyWere(t *testing.T) {
	c := &cluster{s: &State{}}
	in := []front.Captured{
		{Topic: 1, Subject: []byte("a.b"), Reply: []byte("r"), Header: []byte("h"), Payload: []byte("p"), Client: byClient},
		{Topic: 1 << 60, Subject: []byte{}, Reply: []byte{}, Header: []byte{}, Payload: bytes.Repeat([]byte("x"), 1<<20)},
		{Topic: 3, Subject: []byte("c"), Reply: []byte{}, Header: []byte{}, Payload: []byte{}},
	}
	var p parcel
	for i := range in {
		p.append(&in[i])
	}
	if out := c.open(p.data); !reflect.DeepEqual(in, out) {
		t.Errorf("%v", out)
	}
}

func TestPiecesArePutTogether(t *testing.T) {
	var p pieces
	k, other := pieceKey{from: "a", channel: peer.ChannelGroup0}, pieceKey{from: "b", channel: peer.ChannelGroup0}
	add := func(k pieceKey, flags byte, s string) string {
		data, _, whole := p.add(k, append([]byte{flags}, s...))
		if !whole {
			return "-"
		}
		return string(data)
	}
	got := []string{
		add(k, chunkLast, "no beginning"), add(k, chunkFirst|chunkLast, "one"),
		add(k, chunkFirst, "a"), add(other, chunkFirst, "x"), add(k, 0, "b"), add(other, chunkLast, "y"), add(k, chunkLast, "c"),
		add(k, chunkFirst, "lost"), add(k, chunkFirst, "d"), add(k, chunkLast, "e"), add(k, 0, ""),
	}
	if want := "- one - - - xy abc - - de -"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", strings.Join(got, " "), want)
	}
}

func FuzzParcel(f *testing.F) {
	var p parcel
	p.append(&front.Captured{Topic: 1, Subject: []byte("a"), Payload: []byte("x")})
	f.Add(p.data)
	f.Fuzz(func(_ *testing.T, data []byte) {
		c := &cluster{s: &State{o: Options{}.withDefaults()}}
		c.open(data)
	})
}

func TestAnswersComeBackAsTheyWere(t *testing.T) {
	fault := &topics.Fault{Status: 404, ErrCode: 10059, Text: "stream not found"}
	for _, r := range []any{
		nil, fault, (*topics.Fault)(nil), created{7, nil}, created{0, fault}, reset{9, nil}, purged{11, fault}, removed{true, nil}, removed{false, fault},
	} {
		b, err := appendResult(appendAnswer(nil, 42, nil), r)
		if err != nil {
			t.Fatal(err)
		}
		in := bodyOf(b)
		i, err := in.answer()
		if err != nil || i != 42 {
			t.Fatalf("%v: index %d, %v", r, i, err)
		}
		if got, err := in.result(); err != nil || in.bad || !reflect.DeepEqual(got, r) {
			t.Errorf("%#v came back as %#v, %v", r, got, err)
		}
	}
	for _, want := range []error{fault, ErrBusy, ErrUnknown} {
		in := bodyOf(appendAnswer(nil, 0, want))
		if _, err := in.answer(); !reflect.DeepEqual(err, want) {
			t.Errorf("%v came back as %v", want, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, r := range []any{nil, faultTopicNotFound, created{7, nil}, purged{1, faultTopicNotFound}} {
		b, _ := appendResult(appendAnswer(nil, 42, nil), r)
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		b := bodyOf(data)
		if _, err := b.answer(); err == nil {
			_, _ = b.result() // must not panic
		}
	})
}
