package replication

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLog sends raft's log lines to slog. What raft calls information is detail
// for whoever runs a broker.
type raftLog struct {
	hclog.Logger // answers what raft never asks
	to           *slog.Logger
	rejected     *rejections
}

func newRaftLog(to *slog.Logger) hclog.Logger {
	return raftLog{Logger: hclog.NewNullLogger(), to: to, rejected: &rejections{}}
}

// rejectedText begins what raft says when a follower doesn't have what an entry follows
// from. That is how a leader finds out where a follower is that has just joined or come
// back; only when it goes on is anything wrong.
const rejectedText = "appendEntries rejected"

const (
	rejectedLong  = 10 * time.Second // how long it may go on
	rejectedPause = 5 * time.Second  // what comes later than this after the last is something new
)

// rejections are since when followers have rejected entries.
type rejections struct {
	mu sync.Mutex
	of map[string]rejection // by peer
}

type rejection struct{ first, last, told time.Time }

// goesOn notes a rejection, and tells whether to warn of it: it has gone on for long, and
// nobody has been told for as long.
func (r *rejections) goesOn(peer string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]rejection{}
	}
	was := r.of[peer]
	if now.Sub(was.last) > rejectedPause {
		was = rejection{first: now}
	}
	was.last = now
	long := now.Sub(was.first) >= rejectedLong && now.Sub(was.told) >= rejectedLong
	if long {
		was.told = now
	}
	r.of[peer] = was
	return long
}

// levelOf returns how loud a warning of raft's is.
func (l raftLog) levelOf(msg string, args []any, now time.Time) slog.Level {
	if !strings.HasPrefix(msg, rejectedText) {
		return slog.LevelWarn
	}
	peer := ""
	if len(args) > 1 {
		peer = fmt.Sprint(args[1])
	}
	if l.rejected.goesOn(peer, now) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (l raftLog) put(level slog.Level, msg string, args []any) {
	if !l.to.Enabled(context.Background(), level) {
		return
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	l.to.Log(context.Background(), level, "raft: "+msg, args...)
}

func (l raftLog) Trace(msg string, args ...any) { l.put(slog.LevelDebug-4, msg, args) }
func (l raftLog) Debug(msg string, args ...any) { l.put(slog.LevelDebug-1, msg, args) }
func (l raftLog) Info(msg string, args ...any)  { l.put(slog.LevelDebug, msg, args) }
func (l raftLog) Warn(msg string, args ...any)  { l.put(l.levelOf(msg, args, time.Now()), msg, args) }
func (l raftLog) Error(msg string, args ...any) { l.put(slog.LevelError, msg, args) }

func (l raftLog) With(args ...any) hclog.Logger {
	return raftLog{Logger: l.Logger, to: l.to.With(args...), rejected: l.rejected}
}
func (l raftLog) Named(string) hclog.Logger { return l }
