package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// standIn is a replica without a log: a store and its machine.
type standIn struct {
	t     fataler
	dir   string
	data  *store.Store
	m     *dataMachine
	marks map[topics.Index]replication.Mark
	heard heard
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// heard is what a machine told.
type heard struct{ lines []string }

func (h *heard) topicChanged(_ topics.GroupID, id topics.TopicID, c Change) {
	h.lines = append(h.lines, fmt.Sprint("topic ", id, " ", c))
}

func (h *heard) stepped(topics.GroupID, Step)   {}
func (h *heard) declared(topics.GroupID, Epoch) {}
func (h *heard) adopted(topics.GroupID)         {}

func (h *heard) consumerChanged(id topics.TopicID, name string, c Change) {
	h.lines = append(h.lines, fmt.Sprint("consumer ", id, " ", name, " ", c))
}

func (h *heard) grown(topics.GroupID, []topics.TopicID) {}

func newStandIn(t fataler, dir string) *standIn {
	s := &standIn{t: t, dir: dir, marks: map[topics.Index]replication.Mark{}}
	s.open()
	return s
}

func (s *standIn) open() {
	s.t.Helper()
	var err error
	s.data, err = store.Open(store.Options{Dir: s.dir, FlushInterval: time.Hour, TailBytes: 64 << 10, FlushBytes: 8 << 10})
	if err != nil {
		s.t.Fatal(err)
	}
	s.m = newDataMachine(1, s.data, func(err error) { s.t.Fatal(err) }, &s.heard)
	s.m.OnMark(func(m replication.Mark) { s.marks[m.Index] = m })
}

func (s *standIn) close() {
	if err := s.m.close(); err != nil {
		s.t.Fatal(err)
	}
}

// applyTo applies the entries up to an index.
func (s *standIn) applyTo(entries []replication.Entry, to topics.Index) {
	for i := s.data.Applied(); i < to; i++ {
		s.m.Apply(entries[i : i+1])
	}
}

// note is what raft would install of the replica.
func (s *standIn) note() []byte {
	snap, err := s.m.Snapshot()
	if err != nil {
		s.t.Fatal(err)
	}
	defer snap.Release()
	var b bytes.Buffer
	if err := snap.Persist(&b); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

// asks answers what another replica asks for.
func (s *standIn) asks(ctx context.Context, request []byte) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(s.m.SendFile(ctx, request, w)) }()
	return r, nil
}

// refillFrom does what raft does when it installs another's snapshot.
func (s *standIn) refillFrom(from *standIn) {
	s.t.Helper()
	note := from.note()
	if err := s.m.Prefetch(context.Background(), note, from.asks); err != nil {
		s.t.Fatal(err)
	}
	if err := s.m.Restore(bytes.NewReader(note)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *standIn) digest() uint64 {
	s.t.Helper()
	d, err := s.data.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// logOf returns the entries that a node has applied, numbered from 1, with markers
// among them.
func logOf(n *node, every int) (entries []replication.Entry) {
	add := func(data []byte) {
		entries = append(entries, replication.Entry{Index: topics.Index(len(entries) + 1), Term: 1, Data: data})
	}
	log := n.replicas()[0].repl.Load()
	for i := topics.Index(1); i <= log.LastIndex(); i++ {
		data, ok := log.Entry(i)
		if !ok {
			continue
		}
		add(data)
		if len(entries)%every == 0 {
			marker := topics.AppendEntryHeader(nil, 0)
			marker = topics.AppendRecord(marker, topics.RecordMarker, []byte{byte(len(entries) / every % 2)})
			topics.SetRecords(marker, 1)
			add(marker)
		}
	}
	return entries
}

// TestReplicasAgreeAtEveryMarker does random things on a node, and gives its log to
// three replicas that flush, restart, die, and are refilled from each other at
// different places: at every marker they say the same.
func TestReplicasAgreeAtEveryMarker(t *testing.T) {
	t.Parallel()
	left := 40
	if testing.Short() {
		left = 4
	}
	rapid.Check(t, func(rt *rapid.T) {
		if left--; left < 0 {
			return
		}
		dir, err := os.MkdirTemp("", "herald-marks-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		n := open(t, dir+"/node", func(o *Options) { o.FlushInterval = time.Hour })
		for i, op := range rapid.SliceOfN(rapid.IntRange(0, 13), 5, 30).Draw(rt, "ops") {
			n.random(rt, i, op)
		}
		entries := logOf(n, 7)
		n.close()
		var all []*standIn
		for i := range 3 {
			all = append(all, newStandIn(rt, fmt.Sprint(dir, "/", i)))
		}
		for done := false; !done; {
			s := rapid.SampledFrom(all).Draw(rt, "replica")
			s.step(rt, all, entries)
			done = true
			for _, s := range all {
				done = done && s.data.Applied() == topics.Index(len(entries))
			}
		}
		for _, s := range all[1:] {
			for i, m := range s.marks {
				if first, ok := all[0].marks[i]; ok && m != first {
					rt.Fatalf("at entry %d of %d: %+v and %+v", i, len(entries), m, first)
				}
				if !m.Known {
					rt.Fatalf("at entry %d of %d: not known", i, len(entries))
				}
			}
		}
		for _, s := range all {
			if s.digest() != all[0].digest() {
				rt.Fatal("they differ at the end")
			}
			s.close()
		}
	})
}

// step does one thing with a replica.
func (s *standIn) step(rt *rapid.T, all []*standIn, entries []replication.Entry) {
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0:
		if err := s.data.Flush(); err != nil {
			rt.Fatal(err)
		}
	case 1:
		s.close()
		s.open()
	case 2: // killed
		to := s.dir + "k"
		if err := os.CopyFS(to, os.DirFS(s.dir)); err != nil {
			rt.Fatal(err)
		}
		s.close()
		s.dir = to
		s.open()
	case 3: // refilled, with what it has or from nothing
		from := rapid.SampledFrom(all).Draw(rt, "from")
		if from == s {
			return
		}
		if rapid.Bool().Draw(rt, "empty") {
			s.close()
			s.dir += "e"
			s.open()
		}
		s.refillFrom(from)
	default:
		n := rapid.IntRange(1, 20).Draw(rt, "entries")
		s.applyTo(entries, min(s.data.Applied()+topics.Index(n), topics.Index(len(entries))))
	}
}

// aLog is a log that makes two topics, one in memory, with a consumer and messages.
func aLog(t *testing.T) []replication.Entry {
	n := open(t, t.TempDir(), func(o *Options) { o.FlushInterval = time.Hour })
	memory := conf("mem", "mem.>")
	memory.Storage = topics.StoreMemory
	n.create(conf("file", "file.>"))
	n.create(memory)
	n.create(conf("gone", "gone.>"))
	for i := range 300 {
		for _, name := range []string{"file", "mem"} {
			top, _ := n.Topic("A", name)
			n.publish(top, fmt.Sprint(name, ".", i%5), "", strings.Repeat(fmt.Sprint(i), 100))
			n.ack()
		}
		if i == 100 {
			top, _ := n.Topic("A", "file")
			if _, err := n.CreateConsumer(n.Context(), top, "c", topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit}); err != nil {
				t.Fatal(err)
			}
			if err := n.DeleteTopic(n.Context(), "A", "gone"); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries := logOf(n, 50)
	n.close()
	return entries
}

func TestRefill(t *testing.T) {
	entries := aLog(t)
	source := newStandIn(t, t.TempDir())
	defer source.close()
	source.applyTo(entries, topics.Index(len(entries)))
	// One that lags behind, with readers on its topics.
	late := newStandIn(t, t.TempDir())
	defer late.close()
	late.applyTo(entries, 60)
	if err := late.data.Flush(); err != nil {
		t.Fatal(err)
	}
	topic := late.data.Topic(1)
	late.heard.lines = nil
	late.refillFrom(source)
	if late.digest() != source.digest() || late.data.Applied() != source.data.Applied() {
		t.Fatal("the replicas differ")
	}
	if topic != late.data.Topic(1) || topic.State() != source.data.Topic(1).State() {
		t.Error("whoever had the topic open doesn't see what it has now")
	}
	slices.Sort(late.heard.lines)
	if want := []string{"consumer 1 c created", "topic 3 deleted"}; !slices.Equal(late.heard.lines, want) {
		t.Errorf("told %q, want %q", late.heard.lines, want)
	}
	late.close()
	late.open()
	if late.digest() != source.digest() {
		t.Fatal("the replicas differ after a restart")
	}
	// One that has more than the snapshot keeps what it has.
	old := newStandIn(t, t.TempDir())
	defer old.close()
	old.applyTo(entries, 100)
	late.refillFrom(old)
	if late.digest() != source.digest() {
		t.Fatal("it went back")
	}
	// From nothing, by a note of format 1.
	fresh := newStandIn(t, t.TempDir())
	defer fresh.close()
	note := fmt.Appendf(nil, `{"format":1,"group":1,"applied":%d}`, source.data.Applied())
	if err := fresh.m.Restore(bytes.NewReader(note)); err == nil {
		t.Fatal("restored from nothing")
	}
	if err := fresh.m.Prefetch(t.Context(), note, source.asks); err != nil {
		t.Fatal(err)
	}
	if err := fresh.m.Restore(bytes.NewReader(note)); err != nil {
		t.Fatal(err)
	}
	if fresh.digest() != source.digest() {
		t.Fatal("the replicas differ")
	}
	if left, err := filepath.Glob(source.dir + "/exports/*"); err != nil || len(left) > 0 {
		t.Errorf("exports stay: %v %v", left, err)
	}
}

// TestRefillGoesOn after the connection broke, after a restart of the one that is
// filled, and with another source.
func TestRefillGoesOn(t *testing.T) {
	entries := aLog(t)
	source := newStandIn(t, t.TempDir())
	defer source.close()
	source.applyTo(entries, topics.Index(len(entries)))
	fresh := newStandIn(t, t.TempDir())
	defer fresh.close()
	note := source.note()
	var files atomic.Int64 // two are fetched at once
	tries := int64(0)
	broken := errors.New("broken")
	var names sync.Map
	breaks := func(ctx context.Context, request []byte) (io.ReadCloser, error) {
		var q fileRequest
		if err := json.Unmarshal(request, &q); err != nil {
			return nil, err
		}
		if q.Op == opFile {
			names.Store(q.Name, nil)
			if files.Add(1)%2 == 0 {
				return nil, broken
			}
		}
		return source.asks(ctx, request)
	}
	for {
		err := fresh.m.Prefetch(t.Context(), note, breaks)
		if err == nil {
			break
		}
		if !errors.Is(err, broken) || tries > 100 {
			t.Fatal(err)
		}
		tries++
		fresh.close()
		fresh.open()
	}
	// A file is asked for once, and once more where its try ended: the one that broke it and the
	// one that was fetched beside that.
	different := int64(0)
	names.Range(func(any, any) bool { different++; return true })
	if n := files.Load(); tries < 2 || n > different+2*tries {
		t.Errorf("%d tries, %d files were asked for, of %d", tries, n, different)
	}
	if err := fresh.m.Restore(bytes.NewReader(note)); err != nil {
		t.Fatal(err)
	}
	if fresh.digest() != source.digest() {
		t.Fatal("the replicas differ")
	}
}

// TestRefillNeverSpreadsDamage: what is damaged at the source is noticed, there as
// well, and not taken over.
func TestRefillNeverSpreadsDamage(t *testing.T) {
	entries := aLog(t)
	source := newStandIn(t, t.TempDir())
	source.applyTo(entries, topics.Index(len(entries)))
	source.close()
	source.open()
	defer source.close()
	names, err := filepath.Glob(source.dir + "/data/*.run")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, 300); err == nil {
		b[0] ^= 4
		_, err = f.WriteAt(b, 300)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var found error
	source.data.OnDamage(func(err error) { found = err })
	fresh := newStandIn(t, t.TempDir())
	defer fresh.close()
	note := source.note()
	for range 2 {
		if err := fresh.m.Prefetch(t.Context(), note, source.asks); err == nil {
			t.Fatal("it was taken over")
		}
	}
	if found == nil {
		t.Error("the source doesn't know of its damage")
	}
	if fresh.data.Applied() != 0 {
		t.Error("something was taken over")
	}
}

// TestMarkersTellWhoDiffers: one bit of a message, an entry that was not applied, or
// something that is not stored as it was said.
func TestMarkersTellWhoDiffers(t *testing.T) {
	entries := aLog(t)
	right := newStandIn(t, t.TempDir())
	defer right.close()
	right.applyTo(entries, topics.Index(len(entries)))
	for name, harm := range map[string]func(s *standIn, e *replication.Entry){
		"a bit of a message": func(_ *standIn, e *replication.Entry) {
			e.Data = slices.Clone(e.Data)
			e.Data[len(e.Data)-1] ^= 1
		},
		"an entry without effect": func(_ *standIn, e *replication.Entry) {
			e.Data = topics.AppendEntryHeader(nil, 1)
		},
		"a message that went": func(s *standIn, e *replication.Entry) {
			s.m.Apply([]replication.Entry{*e})
			s.data.Begin(e.Index, 1, e.Data)
			if ok, fault := s.data.DeleteMessage(1, 5); !ok {
				t.Fatal(fault)
			}
			s.data.End()
			e.Data = topics.AppendEntryHeader(nil, 1)
		},
	} {
		s := newStandIn(t, t.TempDir())
		s.applyTo(entries, 260)
		e := entries[260]
		if kind, _, _, err := topics.NextRecord(e.Data, topics.EntryHeader); err != nil || kind != topics.RecordPublish {
			t.Fatalf("entry %d is of kind %d, %v", e.Index, kind, err)
		}
		harm(s, &e)
		s.m.Apply([]replication.Entry{e})
		s.applyTo(entries, topics.Index(len(entries)))
		before, after := 0, 0
		for i, m := range s.marks {
			differs := m.Digest != right.marks[i].Digest
			switch {
			case i <= 260 && differs:
				before++
			case i > 260 && !differs:
				after++
			}
		}
		if before > 0 || after > 0 || len(s.marks) < 5 {
			t.Errorf("%s: %d markers differ before, %d of %d agree afterwards", name, before, after, len(s.marks))
		}
		s.close()
	}
}
