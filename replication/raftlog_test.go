package replication

import (
	"log/slog"
	"testing"
	"time"
)

func TestRejectedEntriesAreOnlyWorthAWarningWhenTheyGoOn(t *testing.T) {
	l := raftLog{rejected: &rejections{}}
	start := time.Now()
	text := rejectedText + ", sending older logs"
	warned := func(msg, peer string, after time.Duration) bool {
		level := l.levelOf(msg, []any{"peer", peer, "next", 7}, start.Add(after))
		return level >= slog.LevelWarn
	}
	for _, c := range []struct {
		msg, peer string
		after     time.Duration
		want      bool
	}{
		{"heartbeat timeout reached, starting election", "b", 0, true},
		{text, "b", 0, false},
		{text, "b", 3 * time.Second, false},
		{text, "c", 4 * time.Second, false},
		{text, "b", 7 * time.Second, false},
		{text, "b", 11 * time.Second, true}, // since the start
		{text, "c", 11 * time.Second, false},
		{text, "b", 12 * time.Second, false}, // it has just been said
		{text, "b", 16 * time.Second, false},
		{text, "b", 20 * time.Second, false},
		{text, "b", 21 * time.Second, true},
		{text, "b", 60 * time.Second, false}, // something new
	} {
		if got := warned(c.msg, c.peer, c.after); got != c.want {
			t.Errorf("%s of %s after %s: warned %t, want %t", c.msg, c.peer, c.after, got, c.want)
		}
	}
}
