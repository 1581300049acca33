package store

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
)

// world is a store under test, a second one that never writes anything, and one
// model per topic; all are given the same.
type world struct {
	t        *rapid.T
	dir      string
	s        *Store // flushes, compacts, is closed or killed and opened again
	mirror   *Store
	models   map[topics.TopicID]*model
	now      topics.Nanos
	entries  []func(s *Store) any // by index, from 1
	consumer int
}

var testSubjects = []string{"a", "a.b", "a.c", "b.c", "b.d.e"}

func (w *world) options(dir string) Options {
	// The tail keeps nothing, a little or all of what was flushed.
	kept := rapid.SampledFrom([]int64{0, 3 << 10, 12 << 10, 1 << 20}).Draw(w.t, "kept")
	return Options{
		Dir: dir, TailBytes: 1<<20 + kept, FlushBytes: 1 << 20, FlushInterval: time.Hour, CacheBytes: 16 << 10,
		Fatal: func(err error) { panic(err) },
	}
}

func (w *world) open() {
	s, err := Open(w.options(w.dir))
	if err != nil {
		w.t.Fatal(err)
	}
	w.s = s
}

// entry applies one entry to both stores and compares what they say.
func (w *world) entry(apply func(s *Store) any) any {
	now := w.now
	w.entries = append(w.entries, func(s *Store) any {
		index := s.Applied() + 1
		s.Begin(index, now, nil)
		defer s.End()
		return apply(s)
	})
	f := w.entries[len(w.entries)-1]
	a, b := f(w.s), f(w.mirror)
	if !reflect.DeepEqual(a, b) {
		w.t.Fatalf("the stores answer %+v and %+v", a, b)
	}
	return a
}

func (w *world) replay() {
	for i := int(w.s.Applied()); i < len(w.entries); i++ {
		w.entries[i](w.s)
	}
}

func (w *world) pickTopic() topics.TopicID {
	ids := slices.Sorted(maps.Keys(w.models))
	if len(ids) == 0 {
		w.t.Skip("no topic")
	}
	return rapid.SampledFrom(ids).Draw(w.t, "topic")
}

func drawConfig(t *rapid.T, retention topics.Retention) topics.Config {
	cfg := topics.Config{
		Name: "T", Subjects: []string{">"}, Retention: retention, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1,
		Discard:    rapid.SampledFrom([]topics.Discard{topics.DiscardOld, topics.DiscardOld, topics.DiscardNew}).Draw(t, "discard"),
		Storage:    rapid.SampledFrom([]topics.Storage{topics.StoreFile, topics.StoreMemory}).Draw(t, "storage"),
		Duplicates: 5 * time.Second, AllowRollup: true, AllowMsgTTL: true,
	}
	if rapid.Bool().Draw(t, "limitMsgs") {
		cfg.MaxMsgs = rapid.Int64Range(1, 60).Draw(t, "maxMsgs")
	}
	if rapid.Bool().Draw(t, "limitBytes") {
		cfg.MaxBytes = rapid.Int64Range(50, 3000).Draw(t, "maxBytes")
	}
	if rapid.Bool().Draw(t, "limitPer") {
		cfg.MaxMsgsPer = rapid.Int64Range(1, 6).Draw(t, "maxPer")
		cfg.DiscardNewPer = cfg.Discard == topics.DiscardNew && rapid.Bool().Draw(t, "newPer")
	}
	if rapid.Bool().Draw(t, "limitAge") {
		cfg.MaxAge = time.Duration(rapid.IntRange(1, 20).Draw(t, "maxAge")) * time.Second
	}
	return cfg
}

func (w *world) publish() {
	id := w.pickTopic()
	m := w.models[id]
	n := rapid.IntRange(1, 30).Draw(w.t, "n")
	ps := make([]modelPublish, n)
	entry := topics.AppendEntryHeader(nil, w.now)
	for i := range ps {
		if i > 0 && rapid.Bool().Draw(w.t, "again") { // messages of a subject often come in runs
			ps[i] = modelPublish{subject: ps[i-1].subject, payload: ps[i-1].payload, expectedLast: -1, expectedLastSubject: -1}
			entry = topics.AppendPublish(entry, &topics.Publish{Topic: id, Subject: []byte(ps[i].subject), Payload: []byte(ps[i].payload)})
			continue
		}
		p := modelPublish{
			subject:      rapid.SampledFrom(testSubjects).Draw(w.t, "subject"),
			payload:      strings.Repeat("x", rapid.IntRange(0, 60).Draw(w.t, "size")),
			expectedLast: -1, expectedLastSubject: -1,
		}
		if rapid.IntRange(0, 3).Draw(w.t, "headers") == 0 {
			w.drawHeaders(m, &p)
		}
		ps[i] = p
		entry = topics.AppendPublish(entry, &topics.Publish{Topic: id, Subject: []byte(p.subject), Header: []byte(p.header), Payload: []byte(p.payload)})
	}
	topics.SetRecords(entry, uint32(n))
	got := w.entryOf(entry).([]topics.PublishResult)
	for i, p := range ps {
		if want := m.publish(p, w.now); !reflect.DeepEqual(got[i], want) {
			w.t.Fatalf("publish %+v: %+v (%v), the model says %+v (%v)", p, got[i], got[i].Fault, want, want.Fault)
		}
	}
}

// entryOf applies an entry of publishes.
func (w *world) entryOf(entry []byte) any {
	now := w.now
	_, records, err := topics.ParseEntryHeader(entry)
	if err != nil {
		w.t.Fatal(err)
	}
	w.entries = append(w.entries, func(s *Store) any {
		s.Begin(s.Applied()+1, now, entry)
		defer s.End()
		if s == w.mirror { // in runs or one by one must be the same
			var results []topics.PublishResult
			for off := topics.EntryHeader; off < len(entry); {
				var r topics.PublishResult
				r, off = publishOne(w.t, s, entry, off)
				results = append(results, r)
			}
			return results
		}
		return publishAll(w.t, s, entry, int(records))
	})
	f := w.entries[len(w.entries)-1]
	a, b := f(w.s), f(w.mirror)
	if !reflect.DeepEqual(a, b) {
		w.t.Fatalf("the stores answer %+v and %+v", a, b)
	}
	return a
}

func (w *world) drawHeaders(m *model, p *modelPublish) {
	h := "NATS/1.0\r\nX-Own: y\r\n"
	field := func(key string, value any) { h += fmt.Sprintf("%s: %v\r\n", key, value) }
	near := func(seq topics.Sequence, label string) int64 {
		return max(0, int64(seq)+rapid.Int64Range(0, 1).Draw(w.t, label))
	}
	if rapid.Bool().Draw(w.t, "id") {
		p.msgID = fmt.Sprint("id", rapid.IntRange(0, 20).Draw(w.t, "msgID"))
		field("Nats-Msg-Id", p.msgID)
	}
	switch rapid.IntRange(0, 9).Draw(w.t, "kind") {
	case 0:
		p.expectedLast = near(m.last, "expectedLast")
		field("Nats-Expected-Last-Sequence", p.expectedLast)
	case 1, 2:
		p.expectedLastSubject = near(m.lastOf(p.subject), "expectedLastSubject")
		field("Nats-Expected-Last-Subject-Sequence", p.expectedLastSubject)
	case 3:
		p.check = "a.*"
		p.expectedLastSubject = near(m.lastOf(p.check), "expectedLastOther")
		field("Nats-Expected-Last-Subject-Sequence", p.expectedLastSubject)
		field("Nats-Expected-Last-Subject-Sequence-Subject", p.check)
	case 4:
		p.rollup = rapid.SampledFrom([]string{"sub", "sub", "sub", "all"}).Draw(w.t, "rollup")
		field("Nats-Rollup", p.rollup)
	case 5, 6:
		p.ttl = rapid.SampledFrom([]string{"3", "10s", "never"}).Draw(w.t, "ttl")
		field("Nats-TTL", p.ttl)
	}
	p.header = h + "\r\n"
}

// check compares everything that can be read with the models.
func (w *world) check() {
	a, err := w.s.Digest()
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := w.mirror.Digest()
	if err != nil {
		w.t.Fatal(err)
	}
	if a != b {
		diff := ""
		for id := range w.models {
			if x, y := dump(w.s.Topic(id)), dump(w.mirror.Topic(id)); x != y {
				diff += fmt.Sprintf("\ntopic %d:\n%s\n%s", id, x, y)
			}
		}
		w.t.Fatalf("digests %x and %x%s", a, b, diff)
	}
	for _, id := range slices.Sorted(maps.Keys(w.models)) {
		w.checkTopic(w.s.Topic(id), w.models[id])
	}
}

func (w *world) checkTopic(tp *Topic, m *model) {
	st := tp.State()
	subjects := make(map[string]uint64)
	for _, msg := range m.msgs {
		subjects[msg.Subject]++
	}
	want := topics.State{
		Messages: uint64(len(m.msgs)), Bytes: m.bytes(), First: m.first(), Last: m.last,
		Subjects: len(subjects), FirstTime: st.FirstTime, LastTime: st.LastTime, Consumers: st.Consumers,
	}
	want.Deleted = uint64(m.last+1-m.first()) - want.Messages
	if len(m.msgs) > 0 {
		want.FirstTime = m.msgs[0].Time
	}
	if st != want {
		w.t.Fatalf("state %+v, the model's is %+v", st, want)
	}
	got := make(map[string]uint64)
	tp.SubjectCounts(nil, func(s string, n uint64) bool { got[s] = n; return true })
	if !reflect.DeepEqual(got, subjects) {
		w.t.Fatalf("subjects %v, the model's are %v", got, subjects)
	}
	from := topics.Sequence(rapid.Uint64Range(0, uint64(m.last)+2).Draw(w.t, "from"))
	for _, patterns := range [][]string{nil, {"a.*"}, {"a.c", "b.>"}, {"b.c"}, {"nothing"}} {
		w.checkReads(tp, m, topics.NewFilter(patterns), from)
	}
	for _, msg := range m.msgs {
		loaded, err := tp.Load(msg.Sequence)
		if err != nil || !sameMessage(loaded, msg.Message) {
			w.t.Fatalf("load %d: %+v, %v; the model has %+v", msg.Sequence, loaded, err, msg.Message)
		}
	}
}

func sameMessage(a, b topics.Message) bool {
	return a.Sequence == b.Sequence && a.Time == b.Time && a.Subject == b.Subject &&
		bytes.Equal(a.Header, b.Header) && bytes.Equal(a.Payload, b.Payload)
}

func (w *world) checkReads(tp *Topic, m *model, f *topics.Filter, from topics.Sequence) {
	var want []topics.Message
	lasts := make(map[string]topics.Sequence)
	prev := topics.Sequence(0)
	for _, msg := range m.msgs {
		if !f.Match(msg.Subject) {
			continue
		}
		lasts[msg.Subject] = msg.Sequence
		if msg.Sequence >= from {
			want = append(want, msg.Message)
		}
		if msg.Sequence <= from {
			prev = msg.Sequence
		}
	}
	if n := tp.Count(f, from); n != uint64(len(want)) {
		w.t.Fatalf("Count(%v, %d) = %d, want %d", f.Patterns(), from, n, len(want))
	}
	if seq, ok := tp.Next(f, from); ok != (len(want) > 0) || ok && seq != want[0].Sequence {
		w.t.Fatalf("Next(%v, %d) = %d, %t", f.Patterns(), from, seq, ok)
	}
	if seq, ok := tp.Prev(f, from); ok != (prev > 0) || ok && seq != prev {
		w.t.Fatalf("Prev(%v, %d) = %d, %t, want %d", f.Patterns(), from, seq, ok, prev)
	}
	var seqs []topics.Sequence
	for _, seq := range lasts {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	if got := tp.LastPerSubject(f); !slices.Equal(got, seqs) {
		w.t.Fatalf("LastPerSubject(%v) = %v, want %v", f.Patterns(), got, seqs)
	}
	var got []topics.Message
	next := from
	for {
		n := len(got)
		var err error
		if got, next, err = tp.Read(f, next, 7, 0, got); err != nil {
			w.t.Fatal(err)
		}
		if len(got) == n {
			break
		}
	}
	if !slices.EqualFunc(got, want, sameMessage) {
		w.t.Fatalf("Read(%v, %d) gave %d messages, want %d", f.Patterns(), from, len(got), len(want))
	}
	at := w.now - topics.Nanos(rapid.IntRange(0, 30).Draw(w.t, "ago"))*second
	first := m.last + 1
	for _, msg := range m.msgs {
		if msg.Time >= at {
			first = msg.Sequence
			break
		}
	}
	if seq := tp.SequenceAt(at); seq != first {
		w.t.Fatalf("SequenceAt(%d) = %d, want %d", at, seq, first)
	}
}

// kill leaves the store as a crash would: what is on disk now is all there is.
func (w *world) kill(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.s.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.dir = dir
	w.open()
	w.replay()
}

func TestStoreAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, dir: t.TempDir(), models: make(map[topics.TopicID]*model), now: 1000 * second}
		w.open()
		mirror, err := Open(Options{Dir: filepath.Join(t.TempDir(), "mirror"), FlushInterval: time.Hour, FlushBytes: 1 << 30, TailBytes: 1 << 31})
		if err != nil {
			rt.Fatal(err)
		}
		w.mirror = mirror
		defer func() { _ = w.mirror.Close(); _ = w.s.Close() }()
		next := topics.TopicID(1)
		rt.Repeat(map[string]func(*rapid.T){
			"create": func(rt *rapid.T) {
				if len(w.models) == 3 {
					rt.Skip("enough")
				}
				id := next
				next++
				cfg := drawConfig(rt, topics.RetainLimits)
				cfg.FirstSeq = rapid.SampledFrom([]uint64{0, 0, 4090}).Draw(rt, "firstSeq")
				created := w.now
				w.entry(func(s *Store) any { return s.CreateTopic(id, "A", cfg, created) })
				m := &model{cfg: cfg, ids: make(map[string]modelID)}
				if cfg.FirstSeq > 0 {
					m.last = topics.Sequence(cfg.FirstSeq) - 1
				}
				w.models[id] = m
			},
			"publish":  func(*rapid.T) { w.publish() },
			"publish2": func(*rapid.T) { w.publish() },
			"publish3": func(*rapid.T) { w.publish() },
			"time":     func(rt *rapid.T) { w.now += topics.Nanos(rapid.IntRange(0, 4).Draw(rt, "seconds")) * second },
			"update": func(rt *rapid.T) {
				id := w.pickTopic()
				cfg := drawConfig(rt, topics.RetainLimits)
				cfg.Storage = w.models[id].cfg.Storage
				w.entry(func(s *Store) any { return s.UpdateTopic(id, cfg) })
				w.models[id].update(cfg, w.now)
			},
			"delete": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
					rt.Skip("rarely")
				}
				id := w.pickTopic()
				w.entry(func(s *Store) any { return s.DeleteTopic(id) })
				delete(w.models, id)
			},
			"deleteMessage": func(rt *rapid.T) {
				id := w.pickTopic()
				m := w.models[id]
				seq := m.first() + topics.Sequence(rapid.Uint64Range(0, uint64(m.last+1-m.first())).Draw(rt, "seq"))
				w.entry(func(s *Store) any { ok, _ := s.DeleteMessage(id, seq); return ok })
				m.drop(func(_ int, msg modelMessage) bool { return msg.Sequence == seq })
			},
			"purge": func(rt *rapid.T) {
				id := w.pickTopic()
				m := w.models[id]
				p := Purge{Subject: rapid.SampledFrom([]string{"", "a", "a.*", "b.c"}).Draw(rt, "purged")}
				switch rapid.IntRange(0, 2).Draw(rt, "how") {
				case 0:
					p.Keep = rapid.Uint64Range(0, 5).Draw(rt, "keep")
				case 1:
					p.Sequence = m.first() + topics.Sequence(rapid.Uint64Range(0, 20).Draw(rt, "below"))
				}
				w.entry(func(s *Store) any { n, _ := s.Purge(id, p); return n })
				m.purge(p)
			},
			"expire": func(*rapid.T) {
				id := w.pickTopic()
				w.entry(func(s *Store) any { s.Expire(id); return nil })
				w.models[id].expire(w.now)
			},
			"flush": func(*rapid.T) {
				if err := w.s.Flush(); err != nil {
					rt.Fatal(err)
				}
			},
			"flush2": func(*rapid.T) {
				if err := w.s.Flush(); err != nil {
					rt.Fatal(err)
				}
			},
			"reopen": func(rt *rapid.T) {
				if err := w.s.Close(); err != nil {
					rt.Fatal(err)
				}
				w.open()
				if int(w.s.Applied()) != len(w.entries) {
					rt.Fatalf("applied %d of %d", w.s.Applied(), len(w.entries))
				}
			},
			"kill":     func(*rapid.T) { w.kill(t) },
			"mark":     func(*rapid.T) { w.entry(mark) },
			"markFull": func(*rapid.T) { w.entry(markFull) },
			"refill": func(rt *rapid.T) { // a new replica takes its place
				from := w.s
				w.dir = t.TempDir()
				w.open()
				adoptFrom(rt, w.s, w.dir, from)
				if err := from.Close(); err != nil {
					rt.Fatal(err)
				}
			},
			"adopt": func(rt *rapid.T) { // one that has something takes over what another has
				if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
					rt.Skip("rarely")
				}
				adoptFrom(rt, w.s, w.dir, w.mirror)
			},
			"": func(*rapid.T) { w.check() },
		})
	})
}

// dump describes what a topic's digest is made of.
func dump(t *Topic) string {
	counts := make(map[string]uint64)
	t.SubjectCounts(nil, func(s string, n uint64) bool { counts[s] = n; return true })
	var dead []topics.Sequence
	t.DeletedSequences(func(seq topics.Sequence) bool { dead = append(dead, seq); return true })
	out := fmt.Sprintf("%+v subjects %v dead %v id %q", t.State(), counts, dead, t.lastMsgID)
	for i := range t.dead.blocks {
		if b := &t.dead.blocks[i]; b.n > 0 {
			out += fmt.Sprintf(" block %d n %d", int(t.dead.base)+i, b.n)
		}
	}
	if t.expiries != nil {
		out += fmt.Sprintf(" expiries %v", t.expiries.at)
	}
	if t.dedupe != nil {
		out += fmt.Sprintf(" ids gone %d %v", t.dedupe.gone, t.dedupe.queue[t.dedupe.head:])
	}
	return out
}
