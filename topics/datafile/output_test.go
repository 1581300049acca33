package datafile

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// large returns messages for a file of many steps, some of them larger than a step.
func large() map[topics.TopicID][]Message {
	r := rand.New(rand.NewPCG(1, 2))
	all := make(map[topics.TopicID][]Message)
	add := func(id topics.TopicID, size int) {
		payload := make([]byte, size)
		for i := range payload {
			payload[i] = byte(r.Uint32())
		}
		n := topics.Sequence(len(all[id]) + 1)
		all[id] = append(all[id], Message{Sequence: n, Time: topics.Nanos(n), Subject: []byte("s"), Payload: payload})
	}
	for range 20000 {
		add(1, r.IntN(200))
	}
	for _, size := range []int{1, writeStep, 3*writeStep + 5, 7, 200 << 10, 300 << 10, blockSize, 2*writeStep - RecordHeader - 1, 9} {
		add(2, size)
	}
	for range 3000 {
		add(9, r.IntN(2000))
	}
	return all
}

func TestAFileIsTheSamePastThePageCacheAndThroughIt(t *testing.T) {
	dir := t.TempDir()
	all := large()
	var written [2][]byte
	for i, plain := range []bool{false, true} {
		path := filepath.Join(dir, Name(uint64(i)))
		w, err := Create(path, 7)
		if err != nil {
			t.Fatal(err)
		}
		w.plain = plain
		past := false
		for _, id := range []topics.TopicID{1, 2, 9} {
			for k := range all[id] {
				if err := w.Add(id, &all[id][k]); err != nil {
					t.Fatal(err)
				}
				past = past || w.direct
			}
		}
		f, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if past == plain && !plain {
			t.Logf("%s can't be written past the page cache", dir)
		} else if past == plain {
			t.Error("the file went past the page cache")
		}
		if err := readBack(f, all); err != nil {
			t.Fatal(err)
		}
		want, known := f.Sum()
		if got, err := f.Measure(func(int64) error { return nil }); err != nil || !known || got != want {
			t.Fatalf("the file's checksum is %08x, %v; the writer says %08x, %v", got, err, want, known)
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
		if written[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(written[0], written[1]) {
		t.Error("the two files differ")
	}
}

func TestAFileSystemThatTurnsOutToBeUnableIsWrittenThroughThePageCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var w output
	w.init(f, path)
	defer w.release()
	if err := setDirect(f, true); err != nil {
		t.Skipf("not past the page cache here: %v", err)
	}
	w.direct = true
	odd := append(w.base, make([]byte, 700)...) // no disk takes that: EINVAL
	for i := range odd {
		odd[i] = byte(i)
	}
	if err := w.writeDirect(odd, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, odd) {
		t.Fatalf("%d bytes were written, %v", len(got), err)
	}
	if w.direct {
		t.Skip("this file system takes any length")
	}
	if !w.plain {
		t.Error("it would be tried again")
	}
}
