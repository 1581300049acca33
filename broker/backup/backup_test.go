package backup

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"
)

func archive(t testing.TB, entries []Entry, finish bool) []byte {
	var b bytes.Buffer
	w := NewWriter(&b)
	for i := range entries {
		if err := w.Write(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	if finish {
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte, most int) (out []Entry, err error) {
	r := NewReader(bytes.NewReader(b), most)
	for {
		e, err := r.Next()
		if err != nil {
			return out, err
		}
		out = append(out, *e)
	}
}

func TestWhatIsWrittenComesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		entries := rapid.SliceOf(rapid.Custom(func(rt *rapid.T) Entry {
			return Entry{
				Name: rapid.StringN(1, 20, 100).Draw(rt, "name"), Time: rapid.Int64().Draw(rt, "time"),
				Sequence: rapid.Uint64().Draw(rt, "seq"),
				Header:   append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(rt, "header")...),
				Payload:  append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(rt, "payload")...),
			}
		})).Draw(rt, "entries")
		b := archive(t, entries, true)
		got, err := read(b, 100)
		if !errors.Is(err, io.EOF) || len(got) != len(entries) || len(got) > 0 && !reflect.DeepEqual(got, entries) {
			rt.Fatalf("%v came back as %v, %v", entries, got, err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(rt, "cut")
		if got, err := read(b[:cut], 100); err == nil || len(got) > len(entries) {
			rt.Fatalf("cut at %d of %d it gives %d entries, %v", cut, len(b), len(got), err)
		}
	})
}

func TestAnArchiveWithoutAnEndIsIncomplete(t *testing.T) {
	e := []Entry{{Name: "a", Sequence: 1, Payload: []byte("x")}}
	if got, err := read(archive(t, e, false), 100); !errors.Is(err, ErrArchive) || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := read(archive(t, e, true), 0); !errors.Is(err, ErrArchive) {
		t.Errorf("an entry larger than allowed: %v", err)
	}
	if _, err := read(s2.Encode(nil, []byte("a tar")), 100); !errors.Is(err, ErrArchive) {
		t.Errorf("no archive: %v", err)
	}
}

func TestLargeEntriesComeBackWhole(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 700_000)
	e := []Entry{{Name: "a", Sequence: 1, Header: []byte{}, Payload: big}}
	if got, err := read(archive(t, e, true), 8<<20); !errors.Is(err, io.EOF) || !reflect.DeepEqual(got, e) {
		t.Errorf("%d entries, %v", len(got), err)
	}
	// One that only says it is large takes no room for it.
	allocs := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		cut := archive(t, e, true)[:100]
		for range b.N {
			_, _ = read(cut, 64<<20)
		}
	}).AllocedBytesPerOp()
	if allocs > 8<<20 {
		t.Errorf("%d bytes for a claim", allocs)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(archive(f, []Entry{{Name: "state.json", Time: 1, Payload: []byte("{}")}, {Name: "a", Sequence: 1}}, true))
	f.Add([]byte("NATSARC1"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = read(b, 1<<10) })
}
