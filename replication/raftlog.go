package replication

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLog sends raft's log lines to slog. What raft calls information is detail
// for whoever runs a broker.
type raftLog struct {
	hclog.Logger // answers what raft never asks
	to           *slog.Logger
}

func newRaftLog(to *slog.Logger) hclog.Logger {
	return raftLog{Logger: hclog.NewNullLogger(), to: to}
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
func (l raftLog) Warn(msg string, args ...any)  { l.put(slog.LevelWarn, msg, args) }
func (l raftLog) Error(msg string, args ...any) { l.put(slog.LevelError, msg, args) }

func (l raftLog) With(args ...any) hclog.Logger {
	return raftLog{Logger: l.Logger, to: l.to.With(args...)}
}
func (l raftLog) Named(string) hclog.Logger { return l }
