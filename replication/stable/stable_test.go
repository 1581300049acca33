package stable

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/fault"
)

const (
	testDir  = "/stable"
	testFile = "/stable/1"
)

func mustOpen(t *testing.T, d *fault.Disk) *Store {
	t.Helper()
	s, err := Open(d, testDir, "a", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func vote(t *testing.T, s raft.StableStore, term uint64, candidate string) {
	t.Helper()
	for _, err := range []error{
		s.SetUint64([]byte(keyTerm), term), s.SetUint64([]byte(keyVoteTerm), term), s.Set([]byte(keyCandidate), []byte(candidate)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, s raft.StableStore) (term, voteTerm uint64, candidate string) {
	t.Helper()
	term, err1 := s.GetUint64([]byte(keyTerm))
	voteTerm, err2 := s.GetUint64([]byte(keyVoteTerm))
	c, err3 := s.Get([]byte(keyCandidate))
	for _, err := range []error{err1, err2, err3} {
		if err != nil && err.Error() != "not found" {
			t.Fatal(err)
		}
	}
	return term, voteTerm, string(c)
}

// TestVoteIsOneWrite661 crashes between the two writes of a vote. The bare store
// then pairs the new term with the old candidate.
func TestVoteIsOneWrite661(t *testing.T) {
	torn := func(s raft.StableStore) {
		vote(t, s, 1, "x")
		if err := errors.Join(s.SetUint64([]byte(keyTerm), 5), s.SetUint64([]byte(keyVoteTerm), 5)); err != nil {
			t.Fatal(err)
		}
	}
	bare := raft.NewInmemStore()
	torn(bare)
	if _, term, who := read(t, bare); term != 5 || who != "x" {
		t.Errorf("the bare store says vote %d for %q", term, who)
	}
	d := fault.NewDisk()
	torn(mustOpen(t, d))
	if term, voted, who := read(t, mustOpen(t, d.Kill())); term != 5 || voted != 1 || who != "x" {
		t.Errorf("after the crash: term %d, vote in %d for %q; want 5, 1, x", term, voted, who)
	}
}

// TestPowerCuts cuts the power at every write and sync of some votes.
func TestPowerCuts(t *testing.T) {
	d := fault.NewDisk()
	in := fault.NewInject(d)
	rnd := rand.New(rand.NewPCG(3, 4))
	acked, asked := uint64(0), uint64(0)
	in.On(func(op fault.Op, _ string) error {
		for range 5 {
			s, err := Open(d.Crash(rnd), testDir, "a", 1, "")
			if err != nil {
				t.Fatalf("at term %d: %v", asked, err)
			}
			term, voted, who := read(t, s)
			if term < acked || term > asked || voted > term || voted > 0 && who != string(rune('a'+voted%20)) {
				t.Fatalf("acknowledged %d, asked %d: found term %d, vote in %d for %q", acked, asked, term, voted, who)
			}
		}
		return nil
	})
	s, err := Open(in, testDir, "a", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	for term := uint64(1); term < 30; term++ {
		asked = term
		vote(t, s, term, string(rune('a'+term%20)))
		acked = term
	}
}

// TestDamage flips every byte: one slot's damage is repaired, both slots' means
// that the node may not vote. Never is an older vote found.
func TestDamage(t *testing.T) {
	base := fault.NewDisk()
	s := mustOpen(t, base)
	vote(t, s, 4, "b")
	vote(t, s, 7, "c")
	size := len(base.Bytes(testFile))
	for off := range size {
		if off >= slotSize && off < slotSpace {
			continue
		}
		d := base.Kill()
		d.Bytes(testFile)[off] ^= 4
		if term, voted, who := read(t, mustOpen(t, d)); term != 7 || voted != 7 || who != "c" {
			t.Fatalf("byte %d: term %d, vote in %d for %q", off, term, voted, who)
		}
		d.Bytes(testFile)[(off+slotSpace)%(2*slotSpace)] ^= 4 // the other: it was repaired
		if term, _, _ := read(t, mustOpen(t, d)); term != 7 {
			t.Fatalf("byte %d: not repaired", off)
		}
		d = base.Kill()
		d.Bytes(testFile)[off] ^= 4
		d.Bytes(testFile)[(off+slotSpace)%(2*slotSpace)] ^= 4
		var mayNot *MayNotVoteError
		if _, err := Open(d, testDir, "a", 1, ""); !errors.As(err, &mayNot) {
			t.Fatalf("byte %d of both slots: %v", off, err)
		}
	}
}

func TestRolledBackFileIsNoticed(t *testing.T) {
	d := fault.NewDisk()
	vote(t, mustOpen(t, d), 4, "b")
	var mayNot *MayNotVoteError
	if err := mustOpen(t, d).CheckLog(5); !errors.As(err, &mayNot) {
		t.Errorf("a log with entries of term 5: %v", err)
	}
	if err := mustOpen(t, d).CheckLog(4); err != nil {
		t.Errorf("a log with entries of term 4: %v", err)
	}
	if _, err := Open(d, testDir, "b", 1, ""); !errors.As(err, &mayNot) {
		t.Errorf("another node's file: %v", err)
	}
}
