package store

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// cpuTime is the processor time of the process: what to compare on a machine that
// does other things too.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchEntry makes an entry of n messages of 128 bytes over some topics.
func benchEntry(n, nTopics int, subjects func(i int) string) []byte {
	entry := topics.AppendEntryHeader(nil, 1_000_000_000)
	payload := make([]byte, 128)
	for i := range n {
		entry = topics.AppendPublish(entry, &topics.Publish{Topic: topics.TopicID(1 + i%nTopics), Subject: []byte(subjects(i)), Payload: payload})
	}
	topics.SetRecords(entry, uint32(n))
	return entry
}

// applyAll applies an entry of publishes as broker/state does.
func applyAll(s *Store, index topics.Index, now topics.Nanos, entry []byte) {
	s.Begin(index, now, entry)
	for off := topics.EntryHeader; off < len(entry); {
		if _, n, next := s.PublishRun(off, 1<<30); n > 0 {
			off = next
			continue
		}
		_, body, next, _ := topics.NextRecord(entry, off)
		p, _ := topics.ParsePublish(body)
		if r := s.Publish(off, p); r.Fault != nil {
			panic(r.Fault)
		}
		off = next
	}
	s.End()
}

func benchStore(b testing.TB, o Options, nTopics int, cfg topics.Config) *Store {
	if o.Dir == "" {
		o.Dir = b.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	s.Begin(s.Applied()+1, 1, nil)
	for i := range nTopics {
		if err := s.CreateTopic(topics.TopicID(i+1), "A", cfg, 1); err != nil {
			b.Fatal(err)
		}
	}
	s.End()
	return s
}

func one(int) string { return "orders.new" }

func BenchmarkPublishApply(b *testing.B) {
	for _, c := range []struct {
		name    string
		nTopics int
		subject func(int) string
		cfg     topics.Config
	}{
		{"1-topic", 1, one, topics.Config{Name: "T"}},
		{"100-topics", 100, one, topics.Config{Name: "T"}},
		{"10000-topics", 10000, one, topics.Config{Name: "T"}},
		{"kv-100000-keys", 1, func(i int) string { return fmt.Sprint("$KV.b.key", i*7919%100000) }, topics.Config{Name: "T", MaxMsgsPer: 1}},
		{"max-msgs", 1, one, topics.Config{Name: "T", MaxMsgs: 10000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, Options{TailBytes: 1 << 40, FlushInterval: time.Hour}, c.nTopics, c.cfg)
			defer s.Close()
			const n = 1872
			var entries [][]byte
			for k := range 54 {
				entries = append(entries, benchEntry(n, c.nTopics, func(i int) string { return c.subject(i + k*n) }))
			}
			b.ReportAllocs()
			cpu := cpuTime()
			i := topics.Index(10)
			for b.Loop() {
				i++
				applyAll(s, i, topics.Nanos(i), entries[int(i)%len(entries)])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/msg")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/n, "cpu-ns/msg")
		})
	}
}

func readAll(b *testing.B, s *Store, total int) {
	tp := s.Topic(1)
	msgs := make([]topics.Message, 0, 256)
	n := 0
	cpu := cpuTime()
	for b.Loop() {
		next := topics.Sequence(1)
		for {
			var err error
			msgs, next, err = tp.Read(nil, next, 256, 0, msgs[:0])
			if err != nil {
				b.Fatal(err)
			}
			if len(msgs) == 0 {
				break
			}
			n += len(msgs)
		}
	}
	if n != b.N*total {
		b.Fatalf("read %d of %d", n, b.N*total)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
	b.ReportMetric(float64(n)/(cpuTime()-cpu).Seconds()/1e6, "Mmsg/cpu-s")
}

func BenchmarkReadTail(b *testing.B) {
	s := benchStore(b, Options{TailBytes: 1 << 30, FlushInterval: time.Hour}, 1, topics.Config{Name: "T"})
	defer s.Close()
	for i := range 200 {
		applyAll(s, topics.Index(10+i), 1, benchEntry(1872, 1, one))
	}
	readAll(b, s, 200*1872)
}

func BenchmarkReadFiles(b *testing.B) {
	s := benchStore(b, Options{TailBytes: 1 << 20, FlushBytes: 1 << 30, FlushInterval: time.Hour}, 1, topics.Config{Name: "T"})
	defer s.Close()
	for i := range 1000 {
		applyAll(s, topics.Index(10+i), 1, benchEntry(1872, 1, one))
		if i%200 == 199 {
			flushNow(b, s)
		}
	}
	readAll(b, s, 1000*1872)
}

func flushNow(t testing.TB, s *Store) {
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkManyTopics(b *testing.B) {
	for b.Loop() {
		before := heapBytes()
		s := benchStore(b, Options{}, 100_000, topics.Config{Name: "T", Subjects: []string{"x.y.>"}})
		empty := heapBytes() - before
		applyAll(s, s.Applied()+1, 2, benchEntry(100_000, 100_000, one))
		flushNow(b, s)
		b.ReportMetric(float64(empty)/100_000, "B/topic")
		b.ReportMetric(float64(heapBytes()-before)/100_000, "B/topic+msg")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen10M(b *testing.B) {
	for _, c := range []struct {
		name    string
		subject func(int) string
		cfg     topics.Config
	}{
		{"1-subject", one, topics.Config{Name: "T"}},
		{"kv-1M-keys", func(i int) string { return fmt.Sprint("$KV.b.key", i%1_000_000) }, topics.Config{Name: "T", MaxMsgsPer: 10}},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			s := benchStore(b, Options{Dir: dir, FlushInterval: time.Hour}, 1, c.cfg)
			const per = 10_000
			for i := range 1000 {
				applyAll(s, topics.Index(10+i), topics.Nanos(i), benchEntry(per, 1, func(k int) string { return c.subject(i*per + k) }))
				if i%20 == 19 {
					flushNow(b, s)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				start, cpu := time.Now(), cpuTime()
				s, err := Open(Options{Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(start).Seconds(), "s/open")
				b.ReportMetric((cpuTime() - cpu).Seconds(), "cpu-s/open")
				if n := s.Topic(1).State().Messages; n != 1000*per {
					b.Fatalf("%d messages", n)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			files, _ := os.ReadDir(dir + "/data")
			b.ReportMetric(float64(len(files)), "files")
		})
	}
}

// BenchmarkFlush reports what one flush of 32 MiB takes, and for how long it
// keeps the apply side out: while it copies what changed and while it installs.
func BenchmarkFlush(b *testing.B) {
	s := benchStore(b, Options{TailBytes: 64 << 20, FlushBytes: 1 << 40, FlushInterval: time.Hour}, 1, topics.Config{Name: "T"})
	defer s.Close()
	flushNow(b, s)
	f := &flusher{s: s, db: s.flusher.db, next: s.flusher.next}
	var copied, installed time.Duration
	index := topics.Index(100)
	var msgs []cutMessage
	for b.Loop() {
		for range 107 {
			index++
			applyAll(s, index, topics.Nanos(index), benchEntry(1872, 1, one))
		}
		start := time.Now()
		c, err := s.takeCut(msgs, false)
		if err != nil {
			b.Fatal(err)
		}
		copied += time.Since(start)
		msgs = c.msgs
		if c.file, err = f.writeMessages(c); err != nil {
			b.Fatal(err)
		}
		if err := f.db.commit(c.applied, c.save); err != nil {
			b.Fatal(err)
		}
		start = time.Now()
		s.install(c)
		installed += time.Since(start)
	}
	b.SetBytes(107 * 1872 * 160)
	b.ReportMetric(float64(copied.Microseconds())/float64(b.N), "µs-copy")
	b.ReportMetric(float64(installed.Microseconds())/float64(b.N), "µs-install")
}
