package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// cut is what a writer does with one message.
func cut(out *bytes.Buffer, kind Kind, id uint32, body []byte, size int) {
	for off := 0; ; {
		n := min(size, len(body)-off)
		h := Header{Len: n, Kind: kind, ID: id, First: off == 0, Last: off+n == len(body)}
		if h.First {
			h.Total = len(body)
		}
		var b [HeaderBytes]byte
		h.Put(b[:])
		out.Write(b[:])
		out.Write(body[off : off+n])
		if off += n; off == len(body) {
			return
		}
	}
}

func TestMessagesOfDifferentLanesMix(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 300<<10), []byte("bb")
	var one, two, mixed bytes.Buffer
	cut(&one, Append, 1, a, FrameMax)
	cut(&two, Raft, 0, b, FrameMax)
	mixed.Write(one.Next(HeaderBytes + FrameMax))
	mixed.Write(two.Bytes())
	mixed.Write(one.Bytes())
	cut(&mixed, Call, 0, nil, 1)
	r := NewReader(&mixed)
	for i, want := range []Message{{Raft, 0, b}, {Append, 1, a}, {Call, 0, nil}} {
		m, err := r.Next()
		if err != nil || m.Kind != want.Kind || m.ID != want.ID || !bytes.Equal(m.Body, want.Body) {
			t.Fatalf("message %d: kind %d id %d, %d bytes, %v", i, m.Kind, m.ID, len(m.Body), err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
}

func TestFramesThatCannotBeAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"unknown kind":     {0, 0, 0, 0, byte(Kinds), 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"long frame":       {1, 0, 2, 0, byte(Append), 3, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0},
		"long message":     {1, 0, 0, 0, byte(Raft), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
		"no beginning":     {1, 0, 0, 0, byte(Call), 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9},
		"more than a part": {2, 0, 0, 0, byte(Call), 3, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2},
	} {
		if m, err := NewReader(bytes.NewReader(b)).Next(); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	cut(&b, Append, 1, []byte("hello"), 2)
	cut(&b, Control, 0, []byte("x"), 2)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		total := 0
		for {
			m, err := r.Next()
			if err != nil {
				return
			}
			if total += HeaderBytes + len(m.Body); total > len(in) {
				t.Fatalf("%d bytes out of %d", total, len(in))
			}
		}
	})
}

func FuzzFields(f *testing.F) {
	f.Add(AppendBytes(AppendString(AppendUint(nil, 7), "a"), []byte("b")))
	f.Fuzz(func(t *testing.T, in []byte) {
		x := NewFields(in)
		n, s, b := x.Uint(), x.String(), x.Bytes()
		if x.Err() == nil && !bytes.Equal(AppendBytes(AppendString(AppendUint(nil, n), s), b), in) {
			t.Fatalf("%x is not what was written", in)
		}
	})
}
