package datafile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// sample returns messages of three topics: a long dense one, one with gaps, many
// subjects, headers and expiries, and one with a large message.
func sample() map[topics.TopicID][]Message {
	all := make(map[topics.TopicID][]Message)
	for i := range 5000 {
		all[1] = append(all[1], Message{Sequence: topics.Sequence(i + 1), Time: topics.Nanos(i / 100), Subject: []byte("one"), Payload: []byte(fmt.Sprint(i))})
	}
	for i := range 300 {
		m := Message{Sequence: topics.Sequence(3*i + 10), Time: topics.Nanos(i), Subject: fmt.Appendf(nil, "s.%d", i%70), Payload: []byte("p")}
		if i%3 == 0 {
			m.Header = []byte("NATS/1.0\r\nA: b\r\n\r\n")
		}
		if i%5 == 0 {
			m.Expires = topics.Nanos(1000 + i)
		}
		all[2] = append(all[2], m)
	}
	all[9] = []Message{{Sequence: 4, Time: 4, Subject: []byte("big"), Payload: bytes.Repeat([]byte("x"), RunBytes+RunBytes/2)}, {Sequence: 5, Time: 5, Subject: []byte("small")}}
	return all
}

func write(t testing.TB, path string, all map[topics.TopicID][]Message) *File {
	t.Helper()
	w, err := Create(path, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []topics.TopicID{1, 2, 9} {
		for i := range all[id] {
			if err := w.Add(id, &all[id][i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// readBack compares all that a file holds with what was written; the first
// damage ends it.
func readBack(f *File, all map[topics.TopicID][]Message) error {
	at := make(map[topics.TopicID]int)
	for i := range f.Runs {
		r := &f.Runs[i]
		if _, err := f.Dictionary(r); err != nil {
			return err
		}
		block, err := f.Block(r)
		if err != nil {
			return err
		}
		chunk, err := f.Chunk(r, block)
		if err != nil {
			return err
		}
		for k := range block.Len() {
			m, err := chunk.Message(k)
			if err != nil {
				return err
			}
			single, err := f.Message(r, block, k)
			if err != nil {
				return err
			}
			if at[r.Topic] == len(all[r.Topic]) {
				return fmt.Errorf("topic %d has too many messages", r.Topic)
			}
			want := &all[r.Topic][at[r.Topic]]
			at[r.Topic]++
			size, header := block.Size(k)
			if m.Sequence != want.Sequence || m.Time != want.Time || m.Subject != string(want.Subject) ||
				!bytes.Equal(m.Header, want.Header) || !bytes.Equal(m.Payload, want.Payload) || !bytes.Equal(single.Payload, m.Payload) ||
				block.Sequence(k) != m.Sequence || block.Time(k) != m.Time || block.Expires(k) != want.Expires ||
				block.Subjects[block.Subject(k)].Name != m.Subject || block.Find(m.Sequence) != k ||
				size != want.size()-RecordHeader || header != (len(want.Header) > 0) {
				return fmt.Errorf("message %d of topic %d is not what was written", m.Sequence, r.Topic)
			}
		}
	}
	for id, msgs := range all {
		if at[id] != len(msgs) {
			return fmt.Errorf("topic %d has %d messages, want %d", id, at[id], len(msgs))
		}
	}
	return nil
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), Name(7))
	all := sample()
	f := write(t, path, all)
	if err := readBack(f, all); err != nil {
		t.Error(err)
	}
	length := f.Length()
	if err := f.Release(); err != nil {
		t.Error(err)
	}
	f, err := Open(path, 7, length)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	if err := readBack(f, all); err != nil {
		t.Error(err)
	}
	for i := range f.Runs {
		block, err := f.Rebuild(&f.Runs[i])
		if err != nil {
			t.Fatal(err)
		}
		if block.Len() != int(f.Runs[i].Messages) || block.Sequence(block.Len()-1) != f.Runs[i].Last {
			t.Errorf("rebuilt run %d has %d messages up to %d", i, block.Len(), block.Sequence(block.Len()-1))
		}
	}
	numbers, err := Numbers(filepath.Dir(path))
	if err != nil || len(numbers) != 1 || numbers[0] != 7 {
		t.Errorf("numbers %v, %v", numbers, err)
	}
}

// TestEveryByteCounts changes bytes all over a file: each change is noticed, or
// is one of the few bytes that mean nothing.
func TestEveryByteCounts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name(7))
	all := map[topics.TopicID][]Message{1: sample()[1][:6], 2: sample()[2][:16], 9: {{Sequence: 1, Subject: []byte("x")}}}
	f := write(t, path, all)
	length := f.Length()
	if err := f.Release(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	silent := 0
	for i := range whole {
		for _, bit := range []byte{1 << (i % 8)} {
			damaged := bytes.Clone(whole)
			damaged[i] ^= bit
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path, 7, length)
			if err == nil {
				err = readBack(f, all)
				_ = f.Release()
			}
			var corrupt *CorruptError
			switch {
			case err == nil:
				silent++
				if i >= headerSize {
					t.Fatalf("a change of byte %d of %d was not noticed", i, len(whole))
				}
			case !errors.As(err, &corrupt):
				t.Fatalf("a change of byte %d: %v", i, err)
			case corrupt.File != path || !strings.Contains(err.Error(), "damaged"):
				t.Fatalf("a change of byte %d: %v", i, err)
			}
		}
	}
	if silent != headerSize { // the header is for people and other programs
		t.Errorf("%d changes were not noticed", silent)
	}
	for _, n := range []int64{0, 10, length - 1, length + 1} {
		if err := os.WriteFile(path, append(bytes.Clone(whole), 0), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if _, err := Open(path, 7, length); !errors.As(err, &corrupt) {
			t.Errorf("a file of %d bytes: %v", n, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if _, err := Open(path, 7, length); !errors.As(err, &corrupt) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzDecoders feeds the decoders bytes with right checksums, which is what the
// checksums can't keep from them: a bug of the writer, or of another version.
func FuzzDecoders(f *testing.F) {
	var w blockBuilder
	for _, m := range sample()[2][:50] {
		w.add(&m)
	}
	d, c := w.appendDictionary(nil), w.appendColumns(nil)
	f.Add(d[:len(d)-4], c[:len(c)-4], uint32(50), uint64(10), uint64(157))
	f.Add([]byte{}, []byte{}, uint32(0), uint64(0), uint64(0))
	seal := func(b []byte) []byte {
		b = bytes.Clone(b)
		return binary.LittleEndian.AppendUint32(b, Checksum(0, b))
	}
	f.Fuzz(func(t *testing.T, dictionary, columns []byte, n uint32, first, last uint64) {
		n %= RunMessages + 1
		r := Run{Topic: 1, First: topics.Sequence(first), Last: topics.Sequence(last), Messages: n, Length: 1 << 30}
		var b Block
		var ok bool
		if b.Subjects, ok = decodeDictionary(seal(dictionary), int(n)); !ok {
			return
		}
		if len(columns) >= 13 {
			r.Length = lengthOf(columns, n)
		}
		if !decodeColumns(seal(columns), &r, &b) {
			return
		}
		for i := range b.Len() {
			_, _ = b.Size(i)
			_, _, _ = b.Time(i), b.Expires(i), b.Subjects[b.Subject(i)]
			if b.Find(b.Sequence(i)) != i {
				t.Fatalf("Find(%d) is not %d", b.Sequence(i), i)
			}
		}
	})
}

// lengthOf adds up the length column, so that fuzzing gets past it.
func lengthOf(columns []byte, n uint32) (sum uint32) {
	at, width := 13, 2
	if columns[0]&flagWide != 0 {
		width = 4
	}
	for range n {
		if at+width > len(columns) {
			return sum
		}
		if width == 4 {
			sum += binary.LittleEndian.Uint32(columns[at:])
		} else {
			sum += uint32(binary.LittleEndian.Uint16(columns[at:]))
		}
		at += width
	}
	return sum
}

// FuzzOpen opens files that are not data files.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), Name(7))
	d := write(f, path, map[topics.TopicID][]Message{1: sample()[1][:3]})
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := d.Release(); err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("HERALDR1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), Name(7))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(path, 7, int64(len(b)))
		if err != nil {
			return
		}
		defer d.Release()
		for i := range d.Runs {
			if block, err := d.Block(&d.Runs[i]); err == nil {
				_, _ = d.Chunk(&d.Runs[i], block)
			}
			_, _ = d.Rebuild(&d.Runs[i])
		}
	})
}
