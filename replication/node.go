package replication

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/wal"
	"github.com/heraldmq/herald/topics"
)

// Node is an open directory with the groups that run in it. Its methods may be
// called by any number of goroutines.
type Node struct {
	// Set at construction.
	cfg  Config
	lock *os.File
	wal  *wal.Log
	meters
	links    links // nil: alone
	ctx      context.Context
	cancel   context.CancelFunc
	stop     chan struct{}
	starting sync.WaitGroup // groups that are being started
	asking   sync.WaitGroup // the survey
	reports  reports
	forming  forming
	pace     pacer // of files that are sent

	fatal sync.Once
	slow  atomic.Int32 // writes that have taken too long, and go on

	mu     sync.Mutex
	groups map[topics.GroupID]*Group // nil while one starts
	closed bool
}

const nodeIDMax = 64

// Open takes the directory's lock and opens what the groups share. It starts no
// group. The error is a *LockedError when another process has the directory, and
// a *CorruptError when the write-ahead log is damaged.
func Open(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	for _, dir := range []string{
		cfg.Dir, filepath.Join(cfg.Dir, "meta"), filepath.Join(cfg.Dir, "wal"),
		filepath.Join(cfg.Dir, "stable"), filepath.Join(cfg.Dir, "groups"),
	} {
		if err := cfg.FS.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("open node: %w", err)
		}
	}
	f, err := lock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, lock: f, meters: newMeters(), groups: map[topics.GroupID]*Group{}, links: cfg.links, stop: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.identify(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := n.openLog(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if n.links != nil {
		n.forming.name, n.forming.kicks = n.links.Name(), make(chan struct{}, 1)
		n.listen()
		n.asking.Go(n.survey)
	}
	return n, nil
}

// openLog opens the write-ahead log. In a cluster damage in it is the business of the
// groups that are hit (StartGroup); a log of which nothing can be said is moved out of
// the way, which each of them notices.
func (n *Node) openLog() (err error) {
	cfg, dir := n.cfg, filepath.Join(n.cfg.Dir, "wal")
	opt := wal.Options{
		Dir: dir, Node: cfg.NodeID, FS: cfg.FS, Salvage: n.links != nil,
		FirstBytes: min(1<<20, cfg.SegmentBytes), SegmentBytes: cfg.SegmentBytes, Pool: cfg.PoolSegments, TailBytes: cfg.TailBytes,
		ReserveBytes: cfg.ReserveBytes, Deadline: cfg.WriteDeadline, Slow: cfg.SlowWrite, Slowed: n.slowed, Fatal: n.fail, Log: cfg.Log,
		Synced: func(entries int, bytes int64, took time.Duration) {
			n.sync.Observe(took.Seconds())
			n.pace.synced(took, time.Now())
			n.written.Observe(float64(bytes))
			n.records.Observe(float64(entries))
		},
	}
	n.wal, err = wal.Open(opt)
	var damage *CorruptError
	if !errors.As(err, &damage) || n.links == nil {
		return err
	}
	to := filepath.Join(cfg.Dir, "damaged", time.Now().UTC().Format(damagedTime)+"-wal")
	cfg.Log.Error("the write-ahead log can't be read: it is moved away, and the data groups join anew where other nodes hold them", "error", err, "moved", to)
	moved := errors.Join(cfg.FS.MkdirAll(filepath.Dir(to)), cfg.FS.Rename(dir, to), cfg.FS.MkdirAll(dir), cfg.FS.SyncDir(cfg.Dir))
	if moved != nil {
		return errors.Join(err, moved)
	}
	n.wal, err = wal.Open(opt)
	return err
}

// identify settles the node's name: it is written down once, before anything else,
// because logs and votes are bound to it.
func (n *Node) identify() error {
	fsys, name := n.cfg.FS, filepath.Join(n.cfg.Dir, "NODE")
	b, err := disk.ReadFile(fsys, name)
	if err == nil {
		id, err := parseIdentity(name, b)
		if err != nil {
			return fmt.Errorf("open node: %w", err)
		}
		if n.cfg.NodeID != "" && n.cfg.NodeID != id {
			return fmt.Errorf("open node %s: the directory belongs to node %q, not %q", n.cfg.Dir, id, n.cfg.NodeID)
		}
		n.cfg.NodeID = id
		return nil
	}
	if !disk.IsMissing(err) {
		return fmt.Errorf("open node: %w", err)
	}
	for _, dir := range []string{"meta", "wal", "stable"} {
		files, err := fsys.List(filepath.Join(n.cfg.Dir, dir))
		if err != nil {
			return fmt.Errorf("open node: %w", err)
		}
		if len(files) > 0 {
			return fmt.Errorf("open node: %w", &CorruptError{File: name, Offset: -1, Reason: "the file is missing, though the node has a log or votes; restore it from a backup"})
		}
	}
	if n.cfg.NodeID == "" && n.links != nil {
		n.cfg.NodeID = n.links.Name()
	}
	if n.cfg.NodeID == "" {
		n.cfg.NodeID = rand.Text()
	}
	if len(n.cfg.NodeID) > nodeIDMax || strings.ContainsAny(n.cfg.NodeID, "\r\n") {
		return fmt.Errorf("open node: the name %q must be one line of at most %d bytes", n.cfg.NodeID, nodeIDMax)
	}
	f, err := fsys.Create(name + ".new")
	if err != nil {
		return fmt.Errorf("open node: %w", err)
	}
	if _, err = f.WriteAt(appendIdentity(nil, n.cfg.NodeID), 0); err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = errors.Join(fsys.Rename(name+".new", name), fsys.SyncDir(n.cfg.Dir), fsys.SyncDir(filepath.Dir(n.cfg.Dir)))
	}
	if err != nil {
		return fmt.Errorf("write the node's name: %w", err)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendIdentity appends what the NODE file says: the node's name in a line, and in
// a second line the CRC-32C of the first, with its end, in hexadecimal digits.
func appendIdentity(dst []byte, id string) []byte {
	line := id + "\n"
	return fmt.Appendf(dst, "%s%08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

func parseIdentity(name string, b []byte) (string, error) {
	id, _, _ := strings.Cut(string(b), "\n")
	if !bytes.Equal(b, appendIdentity(nil, id)) {
		return "", &CorruptError{File: name, Offset: -1, Reason: "the node's name and its checksum don't fit; restore the file from a backup"}
	}
	return id, nil
}

// ID returns the node's identity.
func (n *Node) ID() string { return n.cfg.NodeID }

// name returns what its peers call the node.
func (n *Node) name() string {
	if n.links == nil {
		return n.cfg.NodeID
	}
	return n.links.Name()
}

// GroupDir returns the directory for the own files of a group's state machine;
// it exists. "snapshots" in it is taken.
func (n *Node) GroupDir(id topics.GroupID) (string, error) {
	dir := filepath.Join(n.cfg.Dir, "groups", strconv.FormatUint(uint64(id), 10))
	if err := n.cfg.FS.MkdirAll(dir); err != nil {
		return "", fmt.Errorf("make the directory of group %d: %w", id, err)
	}
	if err := n.cfg.FS.SyncDir(filepath.Dir(dir)); err != nil {
		return "", fmt.Errorf("make the directory of group %d: %w", id, err)
	}
	return dir, nil
}

// fail reports the first failure the node can't survive.
func (n *Node) fail(err error) {
	n.fatal.Do(func() {
		if errors.Is(err, disk.ErrHung) {
			n.hangUp()
		}
		if n.cfg.Fatal != nil {
			n.cfg.Fatal(err)
			return
		}
		n.cfg.Log.Error("the node can't go on", "error", err)
		os.Exit(70) // EX_SOFTWARE: whoever supervises the process restarts it
	})
}

// hangUp closes the links to the peers, before anything else is done: a process
// can't end while one of its threads hangs in the kernel, its connections stay, and
// the others would wait for it until their patience is over.
func (n *Node) hangUp() {
	if n.cfg.Network == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.cfg.Network.Close()
	}()
	select {
	case <-done:
	case <-time.After(500 * time.Millisecond): // something in it waits for the disk
	}
}

// Start starts a group and hands it to sm. A new group is bootstrapped with
// Config.Voters. When Start returns the group leads, and everything that was
// committed before has been applied (one voter); or it knows its leader.
//
// Apply, and thus whatever the machine calls in it, runs before Start returns.
// The error is a *GapError, *LostLogError, *CorruptError or *stable.MayNotVoteError
// when the files don't fit together.
func (n *Node) Start(id topics.GroupID, sm StateMachine) (*Group, error) {
	if int(id) > n.cfg.Groups {
		return nil, fmt.Errorf("start group %d: this node has only groups 0 to %d", id, n.cfg.Groups)
	}
	return n.StartGroup(id, sm, StartOptions{Found: true})
}

// StartOptions say how a group is started.
type StartOptions struct {
	// Found begins the group, with this node as its only voter, if there is nothing of
	// it in the directory. Otherwise a new replica waits until the leader lets it join.
	Found bool
}

// StartGroup starts a group, of any number, and hands it to sm. Without a network it
// is Start. In a cluster it returns without waiting for a leader: what has been
// committed is applied as the leader, once there is one, says so, and a replica that
// isn't in the group's configuration asks the leader to let it in until it does.
//
// The error is a *GapError, *LostLogError, *CorruptError or *stable.MayNotVoteError
// when the files don't fit together; see ResetGroup.
func (n *Node) StartGroup(id topics.GroupID, sm StateMachine, o StartOptions) (*Group, error) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil, fmt.Errorf("start group %d: %w", id, ErrClosed)
	}
	if _, ok := n.groups[id]; ok {
		n.mu.Unlock()
		return nil, fmt.Errorf("start group %d: it runs already", id)
	}
	n.groups[id] = nil
	n.starting.Add(1)
	n.mu.Unlock()
	defer n.starting.Done()

	g, err := n.start(id, sm, o)

	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		delete(n.groups, id)
		return nil, fmt.Errorf("start group %d: %w", id, err)
	}
	if n.closed {
		return nil, errors.Join(fmt.Errorf("start group %d: %w", id, ErrClosed), g.close())
	}
	n.groups[id] = g
	return g, nil
}

// Close stops the groups and releases the directory. Proposals on their way end
// with ErrOutcomeUnknown at the latest. It waits for all goroutines.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	var groups []*Group
	for _, g := range n.groups {
		if g != nil {
			groups = append(groups, g)
		}
	}
	n.mu.Unlock()
	n.cancel()
	close(n.stop)
	n.asking.Wait()

	errs := make([]error, len(groups))
	var closing sync.WaitGroup
	for i, g := range groups {
		closing.Go(func() { errs[i] = g.close() })
	}
	closing.Wait()
	n.starting.Wait() // raft panics when its log is closed while it reads it
	return errors.Join(errors.Join(errs...), n.wal.Close(), n.lock.Close())
}
