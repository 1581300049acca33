package store

import (
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
)

// guarded applies publishes behind a guard, as the machine does.
func guarded(s *Store, now topics.Nanos, g topics.Guard, ps []topics.Publish) topics.GuardResult {
	entry := topics.AppendEntryHeader(nil, now)
	batch := make([]Batched, len(ps))
	for i := range ps {
		batch[i] = Batched{Offset: len(entry), Publish: ps[i]}
		entry = topics.AppendPublish(entry, &ps[i])
	}
	s.Begin(s.Applied()+1, now, entry)
	defer s.End()
	r := s.Judge(&g, batch)
	if r.Verdict != topics.GuardNext {
		return r
	}
	_, r = s.PublishGuarded(&g, batch)
	return r
}

// TestGuardedRecordsAreStoredOnce sends numbers in random order, again and again, with
// declarations and restarts in between, to two stores: what is stored is each number of
// an epoch once, in order, whole; the stores agree, and so does one that takes over the
// other's files.
func TestGuardedRecordsAreStoredOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "herald-guard-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var stores [2]*Store
		open := func(i int) {
			if stores[i], err = Open(Options{Dir: fmt.Sprint(dir, "/", i), FlushInterval: time.Hour}); err != nil {
				rt.Fatal(err)
			}
		}
		open(0)
		open(1)
		defer func() { stores[0].Close(); stores[1].Close() }()
		now := topics.Nanos(1e18)
		for _, s := range stores {
			s.Begin(s.Applied()+1, now, topics.AppendEntryHeader(nil, now))
			for id := topics.TopicID(1); id <= 2; id++ {
				cfg := topics.Config{Name: fmt.Sprint("T", id), Subjects: []string{fmt.Sprintf("t%d.>", id)}, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: 8}
				if id == 2 {
					cfg.MaxMsgs, cfg.Discard = 12, topics.DiscardNew
				}
				if err := s.CreateTopic(id, "A", cfg, now); err != nil {
					rt.Fatal(err)
				}
			}
			s.End()
		}
		type key struct {
			id        uint64
			partition uint32
		}
		epochs, seqs := map[uint64]uint64{}, map[key]uint64{}
		stored := [3]int{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now++
			id := uint64(rapid.IntRange(1, 2).Draw(rt, "producer"))
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				e := uint64(rapid.IntRange(0, 3).Draw(rt, "epoch"))
				for _, s := range stores {
					s.Begin(s.Applied()+1, now, topics.AppendEntryHeader(nil, now))
					s.Declare(id, e)
					s.End()
				}
				if e == 0 || e > epochs[id] {
					epochs[id] = e
					seqs[key{id, 0}], seqs[key{id, 1}] = 0, 0
				}
			case 1:
				if err := stores[1].Close(); err != nil {
					rt.Fatal(err)
				}
				open(1)
			default:
				k := key{id, uint32(rapid.IntRange(0, 1).Draw(rt, "partition"))}
				g := topics.Guard{Producer: id, Partition: k.partition}
				g.Epoch = uint64(rapid.IntRange(0, 3).Draw(rt, "epoch"))
				g.Seq = max(seqs[k]+uint64(rapid.IntRange(0, 3).Draw(rt, "seq")), 1) - 1
				var ps []topics.Publish
				counts, tooBig := [3]int{}, false
				for range rapid.IntRange(0, 4).Draw(rt, "n") {
					to := rapid.IntRange(1, 2).Draw(rt, "topic")
					body := rapid.SampledFrom([]string{"ok", "much too big"}).Draw(rt, "body")
					tooBig = tooBig || body != "ok"
					counts[to]++
					ps = append(ps, pub(topics.TopicID(to), fmt.Sprintf("t%d.x", to), "", body))
				}
				want := topics.GuardRefused
				switch {
				case epochs[id] == 0 || g.Epoch != epochs[id] || g.Seq == 0 || g.Seq > seqs[k]+1:
				case g.Seq <= seqs[k]:
					want = topics.GuardDone
				case !tooBig && (counts[2] == 0 || stored[2]+counts[2] <= 12):
					want = topics.GuardNext
					seqs[k]++
					stored[1] += counts[1]
					stored[2] += counts[2]
				}
				a, b := guarded(stores[0], now, g, ps), guarded(stores[1], now, g, ps)
				if !reflect.DeepEqual(a, b) || a.Verdict != want || a.At != (topics.Place{Epoch: epochs[id], Seq: seqs[k]}) {
					rt.Fatalf("the stores answer %+v and %+v to %+v, wanted %d at %d/%d", a, b, g, want, epochs[id], seqs[k])
				}
			}
			for id := topics.TopicID(1); id <= 2; id++ {
				if st := stores[0].Topic(id).State(); st.Messages != uint64(stored[id]) {
					rt.Fatalf("topic %d has %d messages, wanted %d", id, st.Messages, stored[id])
				}
			}
			a, err := stores[0].Digest()
			b, errB := stores[1].Digest()
			if a != b || err != nil || errB != nil {
				rt.Fatalf("digests %x and %x, %v, %v", a, b, err, errB)
			}
		}
		// A third takes over what the first exports.
		if _, err := stores[0].Export(dir + "/out"); err != nil {
			rt.Fatal(err)
		}
		third, err := Open(Options{Dir: dir + "/2"})
		if err != nil {
			rt.Fatal(err)
		}
		defer third.Close()
		if err := third.Adopt(dir+"/out", func() error { return moveAll(dir+"/out", dir+"/2") }); err != nil {
			rt.Fatal(err)
		}
		for k, seq := range seqs {
			if got := third.Place(k.id, k.partition); got != (topics.Place{Epoch: epochs[k.id], Seq: seq}) {
				rt.Fatalf("the third has %+v of %v", got, k)
			}
		}
	})
}
