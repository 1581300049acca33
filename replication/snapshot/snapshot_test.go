package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

const testDir = "/snapshots"

func mustOpen(t *testing.T, fsys disk.FS) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, Dir: testDir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var conf = raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}}

func take(t *testing.T, s *Store, index uint64, body string) {
	t.Helper()
	w, err := s.Create(raft.SnapshotVersionMax, index, 3, conf, 1, nil)
	if err == nil {
		_, err = io.WriteString(w, body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, s *Store, id string) string {
	t.Helper()
	_, r, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTwoGenerationsAreKept(t *testing.T) {
	d := fault.NewDisk()
	s := mustOpen(t, d)
	for i := uint64(10); i <= 50; i += 10 {
		take(t, s, i, strings.Repeat("x", int(i)))
	}
	w, err := s.Create(raft.SnapshotVersionMax, 60, 3, conf, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Cancel(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, d.Kill())
	metas, err := s.List()
	if err != nil || len(metas) != 2 || metas[0].Index != 50 || metas[1].Index != 40 {
		t.Fatalf("%+v %v", metas, err)
	}
	if m := metas[0]; m.Term != 3 || m.Size != 50 || m.ConfigurationIndex != 1 || len(m.Configuration.Servers) != 1 {
		t.Errorf("%+v", m)
	}
	if got := content(t, s, metas[0].ID); got != strings.Repeat("x", 50) {
		t.Errorf("body %q", got)
	}
}

// TestDamage flips every byte of the newest snapshot: the one before counts. With
// both damaged there is an error, not an empty store.
func TestDamage(t *testing.T) {
	base := fault.NewDisk()
	s := mustOpen(t, base)
	take(t, s, 10, "older")
	take(t, s, 20, "newer")
	metas, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	newest, older := filepath.Join(testDir, metas[0].ID), filepath.Join(testDir, metas[1].ID)
	for off := range base.Bytes(newest) {
		d := base.Kill()
		d.Bytes(newest)[off] ^= 1
		s := mustOpen(t, d)
		got, err := s.List()
		if err != nil || len(got) != 1 || got[0].Index != 10 {
			t.Fatalf("byte %d: %+v %v", off, got, err)
		}
		var damage *disk.CorruptError
		if _, _, err := s.Open(metas[0].ID); !errors.As(err, &damage) || damage.File != newest {
			t.Fatalf("byte %d: %v", off, err)
		}
	}
	base.Bytes(newest)[30] ^= 1
	base.Truncate(older, 20)
	var damage *disk.CorruptError
	if got, err := s.List(); !errors.As(err, &damage) {
		t.Errorf("both damaged: %+v %v", got, err)
	}
}

func TestPowerCuts(t *testing.T) {
	d := fault.NewDisk()
	in := fault.NewInject(d)
	rnd := rand.New(rand.NewPCG(5, 6))
	acked, asked := uint64(0), uint64(0)
	in.On(func(fault.Op, string) error {
		for range 5 {
			metas, err := mustOpen(t, d.Crash(rnd)).List()
			if err != nil {
				t.Fatal(err)
			}
			found := uint64(0)
			if len(metas) > 0 {
				found = metas[0].Index
			}
			if found < acked || found > asked {
				t.Fatalf("snapshot %d, acknowledged %d, asked %d", found, acked, asked)
			}
		}
		return nil
	})
	s := mustOpen(t, in)
	for asked < 20 {
		asked++
		take(t, s, asked, strings.Repeat("body", 400))
		acked = asked
	}
}

// A snapshot of a later version is neither read nor taken for damage, and is not gone back
// behind; a flipped bit of the version is damage.
func TestASnapshotOfANewerVersionIsLeftAlone(t *testing.T) {
	d := fault.NewDisk()
	s := mustOpen(t, d)
	for i := range uint64(2) {
		take(t, s, 10+i, "state")
	}
	names, err := d.List(testDir)
	if err != nil || len(names) != 2 {
		t.Fatalf("%v, %v", names, err)
	}
	name := filepath.Join(testDir, names[1])
	asOf := func(b []byte, sum bool) {
		n := binary.LittleEndian.Uint32(b[8:])
		binary.LittleEndian.PutUint32(b[4:], version+1)
		if sum {
			binary.LittleEndian.PutUint32(b[12:], crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[headerSize:headerSize+n]))
		}
	}
	later := d.Kill()
	asOf(later.Bytes(name), true)
	before := bytes.Clone(later.Bytes(name))
	_, err = mustOpen(t, later).List()
	var newer *disk.NewerError
	var damage *disk.CorruptError
	if !errors.As(err, &newer) || errors.As(err, &damage) || newer.File != name || newer.Version != version+1 {
		t.Errorf("listed with %v", err)
	}
	if !bytes.Equal(later.Bytes(name), before) {
		t.Error("it was changed")
	}
	flipped := d.Kill()
	asOf(flipped.Bytes(name), false)
	metas, err := mustOpen(t, flipped).List()
	if err != nil || len(metas) != 1 || metas[0].Index != 10 {
		t.Errorf("with a damaged version %d snapshots can be read, %v", len(metas), err)
	}
}
