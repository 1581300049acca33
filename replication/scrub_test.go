package replication

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestScrubReadsTheLogOnTheDisk changes a byte of an entry that is still in memory:
// reading doesn't notice, scrubbing does.
func TestScrubReadsTheLogOnTheDisk(t *testing.T) {
	for _, id := range []uint32{0, 1} {
		t.Run(fmt.Sprint("group ", id), func(t *testing.T) {
			dir := t.TempDir()
			n, err := Open(Config{Dir: dir, Fatal: func(err error) { t.Log("fatal:", err) }})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			g, err := n.Start(topics.GroupID(id), &list{})
			if err != nil {
				t.Fatal(err)
			}
			needle := strings.Repeat("needle", 20)
			for range 20 {
				if _, _, err := g.Propose([]byte(needle)).Result(); err != nil {
					t.Fatal(err)
				}
			}
			r, err := g.ScrubNow(t.Context())
			if err != nil || r.Found != 0 || r.Bytes < 20*int64(len(needle)) {
				t.Fatalf("before: %+v, %v", r, err)
			}
			pattern := "wal/*.seg"
			if id == 0 {
				pattern = "meta/wal/*.seg"
			}
			hurt(t, filepath.Join(dir, pattern), needle)
			r, err = g.ScrubNow(t.Context())
			var damage *CorruptError
			if err != nil || r.Found == 0 || !errors.As(r.Damage[0], &damage) {
				t.Fatalf("afterwards: %+v, %v", r, err)
			}
			if s := g.Scrubs(); s.Damage == 0 || s.Last.Found != r.Found || s.Running {
				t.Errorf("%+v", s)
			}
			select {
			case why := <-g.Damage():
				if !errors.As(why, &damage) {
					t.Error(why)
				}
			default:
				t.Error("nobody was told")
			}
		})
	}
}

// hurt changes a byte in the middle of a text in a file.
func hurt(t *testing.T, pattern, text string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		at := bytes.LastIndex(b, []byte(text))
		if err == nil && at >= 0 {
			_, err = f.WriteAt([]byte{'X'}, int64(at+len(text)/2))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if at >= 0 {
			return
		}
	}
	t.Fatalf("no file has it: %v", names)
}
