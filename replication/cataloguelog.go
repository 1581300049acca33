package replication

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/heraldmq/herald/replication/boltlog"
	"github.com/heraldmq/herald/replication/wal"
	"github.com/heraldmq/herald/topics"
)

// Group 0 has a write-ahead log of its own, of small segments. In that of the data groups
// its few entries, which stay until the next snapshot of the catalogue, would keep
// gigabytes of other groups' segments from being recycled; and damage in either log
// leaves the other alone.
const (
	catalogueFirstBytes   = 256 << 10
	catalogueSegmentBytes = 8 << 20
	catalogueTailBytes    = 1 << 20 // entries kept in memory; the catalogue itself is in memory
)

// openCatalogueLog opens group 0's log. One that is still in raft-boltdb, where versions
// before kept it, is moved first.
func (g *Group) openCatalogueLog() error {
	n := g.node
	meta := filepath.Join(n.cfg.Dir, "meta") // a reset takes it away
	dir := filepath.Join(meta, "wal")
	if err := errors.Join(n.cfg.FS.MkdirAll(meta), n.cfg.FS.MkdirAll(dir), n.cfg.FS.SyncDir(meta), n.cfg.FS.SyncDir(n.cfg.Dir)); err != nil {
		return fmt.Errorf("open the catalogue's log: %w", err)
	}
	old, err := boltlog.Live(n.cfg.FS, meta)
	if err != nil {
		return err
	}
	log, err := wal.Open(wal.Options{
		Dir: dir, Node: n.cfg.NodeID, FS: n.cfg.FS,
		FirstBytes: min(catalogueFirstBytes, n.cfg.SegmentBytes), SegmentBytes: min(catalogueSegmentBytes, n.cfg.SegmentBytes),
		Pool: 1, TailBytes: min(catalogueTailBytes, n.cfg.TailBytes), ReserveBytes: n.cfg.ReserveBytes,
		Deadline: n.cfg.WriteDeadline, Slow: n.cfg.SlowWrite, Slowed: n.slowed, Fatal: n.fail, Log: n.cfg.Log,
	})
	if err != nil {
		return fmt.Errorf("open the catalogue's log: %w", err)
	}
	g.closers = append(g.closers, log)
	g.own = log
	g.wal = log.Group(uint32(topics.CatalogueGroup))
	g.logs = g.wal
	if old {
		if err := g.moveOldLog(meta); err != nil {
			return fmt.Errorf("move the catalogue's log out of raft-boltdb: %w", err)
		}
	}
	return boltlog.Retire(n.cfg.FS, meta)
}

// moveBytes is how much of an old log is stored at once.
const moveBytes = 1 << 20

// moveOldLog copies the entries of a log in raft-boltdb. The old log counts until it is
// retired: what an interrupted attempt has copied is dropped.
func (g *Group) moveOldLog(dir string) (err error) {
	old, err := boltlog.Open(g.node.cfg.FS, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	first, err := old.FirstIndex()
	if err != nil {
		return err
	}
	last, err := old.LastIndex()
	if err != nil {
		return err
	}
	if err := g.wal.Drop(); err != nil {
		return err
	}
	var batch []*raft.Log
	bytes := 0
	for i := first; last > 0 && i <= last; i++ {
		var e raft.Log
		if err := old.GetLog(i, &e); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		batch = append(batch, &e)
		if bytes += len(e.Data); bytes < moveBytes && i < last {
			continue
		}
		if err := g.wal.StoreLogs(batch); err != nil {
			return err
		}
		batch, bytes = nil, 0
	}
	g.node.cfg.Log.Info("the catalogue's log was moved out of raft-boltdb", "entries", last-first+1)
	return nil
}
