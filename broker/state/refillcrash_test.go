package state

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
	"github.com/heraldmq/herald/replication/snapshot"
	"github.com/heraldmq/herald/topics"
)

// TestRestoreIsAllOrNothing kills a replica at every step of taking over another's
// files: at the next start it has what it had, or what the other has, and goes on to
// the same end.
func TestRestoreIsAllOrNothing(t *testing.T) {
	entries := aLog(t)
	last := topics.Index(len(entries))
	source := newStandIn(t, t.TempDir())
	defer source.close()
	source.applyTo(entries, last)
	late := newStandIn(t, t.TempDir())
	defer late.close()
	late.applyTo(entries, 80)
	if err := late.data.Flush(); err != nil {
		t.Fatal(err)
	}
	before, after := late.digest(), source.digest()

	note := source.note()
	if err := late.m.Prefetch(t.Context(), note, source.asks); err != nil {
		t.Fatal(err)
	}
	disturbed := fault.NewInject(disk.OS{})
	in, err := snapshot.OpenIncoming(disturbed, late.dir)
	if err != nil {
		t.Fatal(err)
	}
	late.m.refill.incoming = in
	was, is := 0, 0
	disturbed.On(func(op fault.Op, name string) error {
		killed := fmt.Sprint(t.TempDir(), "/k")
		if err := os.CopyFS(killed, os.DirFS(late.dir)); err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Finish(disk.OS{}, killed); err != nil {
			t.Fatalf("%v %s: %v", op, name, err)
		}
		s := newStandIn(t, killed)
		switch s.digest() {
		case before:
			was++
		case after:
			is++
		default:
			t.Errorf("%v %s: neither what it had nor what the other has", op, name)
		}
		s.applyTo(entries, last)
		if s.digest() != after {
			t.Errorf("%v %s: it doesn't come to the same end", op, name)
		}
		s.close()
		return nil
	})
	if err := late.m.Restore(bytes.NewReader(note)); err != nil {
		t.Fatal(err)
	}
	if late.digest() != after || was == 0 || is < 5 {
		t.Errorf("%d times as before, %d times as after", was, is)
	}
}
