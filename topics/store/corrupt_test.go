package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// filled returns the folder of a closed store with two topics of 100 messages.
func filled(t *testing.T) string {
	dir := t.TempDir()
	s := benchStore(t, Options{Dir: dir, FlushInterval: time.Hour}, 2, topics.Config{Name: "T", Duplicates: time.Minute})
	f := &feeder{t: t, s: s, index: s.Applied(), now: 5}
	for i := range 100 {
		f.publish(pub(1, fmt.Sprint("a.", i%5), "NATS/1.0\r\nNats-Msg-Id: "+fmt.Sprint(i)+"\r\n\r\n", fmt.Sprintf("payload-%03d", i)), pub(2, "b", "", fmt.Sprint("other", i)))
	}
	f.do(func() {
		if _, fault := s.DeleteMessage(1, 50); fault != nil {
			t.Fatal(fault)
		}
		if _, fault := s.CreateConsumer(2, "c", topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit}); fault != nil {
			t.Fatal(fault)
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

func dataPath(t *testing.T, dir string) string {
	names, err := filepath.Glob(filepath.Join(dir, "data", "*.run"))
	if err != nil || len(names) != 1 {
		t.Fatalf("data files %v, %v", names, err)
	}
	return names[0]
}

// served returns how many messages of a topic can be read, and the damage that
// was met.
func served(t *testing.T, tp *Topic, total int) (n int, damage error) {
	t.Helper()
	for seq := topics.Sequence(1); int(seq) <= total; seq++ {
		m, err := tp.Load(seq)
		var c *CorruptError
		switch {
		case err == nil:
			n++
			if m.Sequence != seq {
				t.Fatalf("loaded %d as %d", m.Sequence, seq)
			}
		case errors.As(err, &c):
			damage = err
		case !errors.Is(err, ErrNotFound):
			t.Fatal(err)
		}
	}
	return n, damage
}

func TestDamagedMessageIsRefused(t *testing.T) {
	dir := filled(t)
	path := dataPath(t, dir)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, path, int64(bytes.Index(b, []byte("payload-042"))))
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n, damage := served(t, s.Topic(1), 100)
	var c *CorruptError
	if n != 98 || !errors.As(damage, &c) || c.File != path || c.Offset == 0 {
		t.Fatalf("%d messages served, damage %v", n, damage)
	}
	msgs, next, err := s.Topic(1).Read(nil, 1, 1000, 0, nil)
	if len(msgs) != 42 || next != 44 || !errors.As(err, &c) {
		t.Fatalf("%d messages, next %d, %v", len(msgs), next, err)
	}
	if msgs, _, err = s.Topic(1).Read(nil, next, 1000, 0, nil); len(msgs) != 56 || err != nil {
		t.Fatalf("behind the damage: %d messages, %v", len(msgs), err)
	}
	if n, damage := served(t, s.Topic(2), 100); n != 100 || damage != nil {
		t.Fatalf("the other topic serves %d, %v", n, damage)
	}
	// The message can still be removed and new ones come in.
	f := &feeder{t: t, s: s, index: s.Applied(), now: 6}
	f.do(func() {
		if ok, fault := s.DeleteMessage(1, 43); !ok || fault != nil {
			t.Fatal(ok, fault)
		}
	})
	if r := f.publish(pub(1, "a.1", "", "new")); r[0].Sequence != 101 {
		t.Fatalf("%+v", r)
	}
}

// TestDamageAnywhereInTheDataFile flips a byte in every part of a file: nothing
// wrong is ever served, and the store works on.
func TestDamageAnywhereInTheDataFile(t *testing.T) {
	dir := filled(t)
	whole, err := os.ReadFile(dataPath(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for at := 24; at < len(whole); at += 97 {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		flip(t, dataPath(t, copied), int64(at))
		s, err := Open(Options{Dir: copied})
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		for id := topics.TopicID(1); id <= 2; id++ {
			total, damage := served(t, s.Topic(id), 100)
			if whole := 101 - int(id%2)*1; total < 99 && damage == nil && whole > 0 {
				t.Errorf("byte %d: topic %d serves %d and tells of no damage", at, id, total)
			}
			if n := s.Topic(id).State().Messages; n != uint64(98+id) {
				t.Errorf("byte %d: topic %d has %d messages", at, id, n)
			}
		}
		f := &feeder{t: t, s: s, index: s.Applied(), now: 7}
		f.publish(pub(1, "a.1", "", "new"))
		f.do(func() { s.Purge(1, Purge{Subject: "a.*", Sequence: 20}); s.Purge(2, Purge{Sequence: 50}) })
		if err := s.Close(); err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}

func TestLostDataFile(t *testing.T) {
	dir := filled(t)
	if err := os.Remove(dataPath(t, dir)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, damage := served(t, s.Topic(1), 100); n != 0 || damage == nil {
		t.Fatalf("%d served, %v", n, damage)
	}
	f := &feeder{t: t, s: s, index: s.Applied(), now: 6}
	f.publish(pub(1, "a.1", "", "new"))
	if n, damage := served(t, s.Topic(1), 101); n != 1 || damage == nil {
		t.Fatalf("%d served, %v", n, damage)
	}
}

// TestDamagedState flips bytes all over state.db. The store either refuses to
// open, or keeps the damaged topic apart, or shows what it showed before.
func TestDamagedState(t *testing.T) {
	dir := filled(t)
	path := filepath.Join(dir, "state.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	digests := make(map[topics.TopicID]uint64)
	s.Topics(func(tp *Topic) bool {
		digests[tp.ID()], err = tp.Digest()
		return err == nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	refused, apart := 0, 0
	for at := 0; at < len(whole); at += 101 {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		flip(t, filepath.Join(copied, "state.db"), int64(at))
		s, err := Open(Options{Dir: copied})
		if err != nil {
			var c *CorruptError
			if !errors.As(err, &c) {
				t.Fatalf("byte %d: %v", at, err)
			}
			refused++
			continue
		}
		for id, want := range digests {
			if err := s.Damaged()[id]; err != nil {
				apart++
				continue
			}
			tp := s.Topic(id)
			if tp == nil {
				t.Errorf("byte %d: topic %d is gone and nothing says so", at, id)
				continue
			}
			if got, err := tp.Digest(); err != nil || got != want {
				t.Errorf("byte %d: topic %d has another state, %v", at, id, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	t.Logf("of %d bytes, %d made the store refuse to open and %d a topic", len(whole)/101, refused, apart)
	if refused == 0 || apart == 0 {
		t.Error("the test reaches nothing")
	}
}

func TestRolledBackStateIsNoticed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := benchStore(t, Options{Dir: dir, FlushInterval: time.Hour}, 1, topics.Config{Name: "T"})
	flushNow(t, s)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &feeder{t: t, s: s, index: s.Applied(), now: 6}
	f.publish(pub(1, "a", "", "acknowledged"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var c *CorruptError
	for name, damage := range map[string]func() error{
		"an older copy": func() error { return os.WriteFile(path, old, 0o600) },
		"no file":       func() error { return os.Remove(path) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(Options{Dir: dir}); !errors.As(err, &c) {
			_ = s.Close()
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFlushWithoutSpace has the first flushes find no space: the store says so,
// keeps everything, and goes on by itself.
func TestFlushWithoutSpace(t *testing.T) {
	stalls := make(chan error, 10)
	flushed := make(chan topics.Index, 10)
	dir := t.TempDir()
	s, err := Open(Options{
		Dir: dir, FlushInterval: time.Hour,
		Stalled: func(err error) { stalls <- err }, Flushed: func(i topics.Index) { flushed <- i },
	})
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan bool, 1)
	full <- true
	s.flusher.fault = func() error {
		select {
		case <-full:
			return fmt.Errorf("write: %w", syscall.ENOSPC)
		default:
			return nil
		}
	}
	f := &feeder{t: t, s: s, now: 6}
	f.do(func() { _ = s.CreateTopic(1, "A", topics.Config{Name: "T"}, 6) })
	f.publish(pub(1, "a", "", "kept"))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := <-stalls; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("stalled with %v", err)
	}
	if err := <-stalls; err != nil {
		t.Errorf("went on with %v", err)
	}
	if i := <-flushed; i != 2 {
		t.Errorf("flushed %d", i)
	}
	s.flusher.fault = func() error { return syscall.ENOSPC }
	f.publish(pub(1, "a", "", "in the log only"))
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("close without space: %v", err)
	}
	if s, err = Open(Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, _ := served(t, s.Topic(1), 2); n != 1 || s.Applied() != 2 {
		t.Errorf("%d served, applied %d", n, s.Applied())
	}
}

func TestFailedSyncIsFatal(t *testing.T) {
	fatal := make(chan error, 1)
	s, err := Open(Options{Dir: t.TempDir(), FlushInterval: time.Hour, Fatal: func(err error) { fatal <- err }})
	if err != nil {
		t.Fatal(err)
	}
	s.flusher.fault = func() error { return &datafile.SyncError{Err: syscall.EIO} }
	f := &feeder{t: t, s: s, now: 6}
	f.do(func() { _ = s.CreateTopic(1, "A", topics.Config{Name: "T"}, 6) })
	if err := s.Flush(); !errors.Is(err, syscall.EIO) {
		t.Errorf("flush: %v", err)
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("fatal: %v", err)
	}
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
}
