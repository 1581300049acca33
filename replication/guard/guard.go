// Package guard wraps what hashicorp/raft 1.8.0 is given, so that its open bugs
// can't do harm. Each wrapper names the issue.
//
//   - Logs, Stable: #612 and #503. raft goes on after a failed or hung write with a
//     wrong idea of its log; here that ends the process.
//   - Anchor: #697. A follower that installed a snapshot over a diverging log
//     refuses every append for ever.
//   - Transport: #695. Heartbeats on the transport's goroutine raise the term in
//     the middle of a leader's write.
//
// #661 (a vote in two writes) is cured by package stable; #696 (a leadership
// transfer that leaves the leader refusing everything) by replication.Group.Transfer,
// which does it without raft's help.
package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

// Logs ends the process when a write to the log fails or takes longer than
// Deadline (0: for ever). Reads pass through.
type Logs struct {
	raft.LogStore
	What     string // for error texts
	Deadline time.Duration
	Slow     time.Duration // what takes longer is told to Slowed
	Slowed   func(by int)  // see disk.Slow; may be nil
	Fatal    func(error)
	Appended func(took time.Duration) // called after each append; may be nil
	Storing  func(logs []*raft.Log)   // called before each append; may be nil
	Stored   func(logs []*raft.Log)   // called after each append that succeeded; may be nil
}

func (g *Logs) run(what string, f func() error) error {
	late := func() { g.Fatal(fmt.Errorf("%s of %s: %w (deadline %s)", what, g.What, disk.ErrHung, g.Deadline)) }
	err := disk.Slow(g.Slow, g.Slowed, func() error { return disk.Deadline(g.Deadline, late, f) })
	if err != nil {
		err = fmt.Errorf("%s of %s: %w", what, g.What, err)
		g.Fatal(err)
	}
	return err
}

// StoreLog implements raft.LogStore.
func (g *Logs) StoreLog(log *raft.Log) error {
	err := g.run("append to the log", func() error { return g.LogStore.StoreLog(log) })
	if err == nil && g.Stored != nil {
		g.Stored([]*raft.Log{log})
	}
	return err
}

// StoreLogs implements raft.LogStore.
func (g *Logs) StoreLogs(logs []*raft.Log) error {
	began := time.Now()
	if g.Storing != nil {
		g.Storing(logs)
	}
	err := g.run("append to the log", func() error { return g.LogStore.StoreLogs(logs) })
	if g.Appended != nil {
		g.Appended(time.Since(began))
	}
	if err == nil && g.Stored != nil {
		g.Stored(logs)
	}
	return err
}

// DeleteRange implements raft.LogStore.
func (g *Logs) DeleteRange(from, to uint64) error {
	return g.run("delete from the log", func() error { return g.LogStore.DeleteRange(from, to) })
}

// GetLog implements raft.LogStore. raft panics or skips when an entry can't be
// read; an entry that is missing is its ordinary business, damage is not.
func (g *Logs) GetLog(index uint64, log *raft.Log) error {
	err := g.LogStore.GetLog(index, log)
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		err = fmt.Errorf("read entry %d of %s: %w", index, g.What, err)
		g.Fatal(err)
	}
	return err
}

// Stable ends the process when a write to the term and vote fails or hangs.
type Stable struct {
	raft.StableStore
	What     string
	Deadline time.Duration
	Slow     time.Duration
	Slowed   func(by int)
	Fatal    func(error)
}

func (g *Stable) run(f func() error) error {
	l := Logs{What: g.What, Deadline: g.Deadline, Slow: g.Slow, Slowed: g.Slowed, Fatal: g.Fatal}
	return l.run("write term and vote", f)
}

// Set implements raft.StableStore.
func (g *Stable) Set(key, val []byte) error {
	return g.run(func() error { return g.StableStore.Set(key, val) })
}

// SetUint64 implements raft.StableStore.
func (g *Stable) SetUint64(key []byte, val uint64) error {
	return g.run(func() error { return g.StableStore.SetUint64(key, val) })
}
