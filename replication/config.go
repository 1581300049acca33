package replication

import (
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// Config is what a node is opened with. Only Dir is required.
type Config struct {
	Dir    string // the node's own directory; made if it is missing
	NodeID string // at most 64 bytes; default: the one the directory was made with, or a random one
	Groups int    // data groups 1..Groups; default 1

	// Fatal is called (once) when the node can't go on: a failed or hung write,
	// damage, a stuck raft. It should end the process; the node answers nothing
	// but errors afterwards. Default: log and os.Exit(70).
	Fatal func(error)
	Log   *slog.Logger // default: discard

	// Network connects the node to the others of its cluster; nil: it is alone. It must
	// not be started before the node is open, and is closed after the node.
	Network *peer.Network
	links   links // the same, for tests

	// Transport returns the transport of a group. Default: a loopback that
	// reaches nobody, for a group with one voter.
	Transport func(id topics.GroupID, node string) (raft.Transport, error)

	// Voters are the members a new group begins with. Default: this node alone. A
	// node that is not among them waits to be added by the leader.
	Voters []raft.Server

	SegmentBytes  int64         // size of a full write-ahead log segment; default 64 MiB
	PoolSegments  int           // spare segments kept; default 4
	TailBytes     int64         // entries of the data groups kept in memory; default 64 MiB
	SnapshotBytes int64         // log written between two snapshots of a data group; default 64 MiB
	CatalogBytes  int64         // the same for group 0; default 1 MiB
	TrailingBytes int64         // log kept below a snapshot for followers; default 32 MiB
	QueueMax      int           // proposals of a group that may wait; default 4096
	QueueBytesMax int64         // and their bytes; default 256 MiB
	WriteDeadline time.Duration // a write that takes longer is fatal; default 30 s with one voter, 3 s otherwise
	SlowWrite     time.Duration // a leader whose write takes longer gives up its leads; default 1 s, 0 stays 0 without a network
	StuckDeadline time.Duration // a proposal without outcome for longer is fatal; default 60 s
	ReserveBytes  int64         // free disk space below which proposals are refused; default 16 MiB

	DigestInterval   time.Duration // how often replicas compare what they hold, when something changed; default 10 s
	HeartbeatTimeout time.Duration // default 1 s; also the election timeout

	// WriteFirst has a leader write entries before it sends them, instead of both at
	// the same time (ahead.go).
	WriteFirst bool

	// FS is where the node's files are, except group 0's bbolt file. Default: the
	// operating system.
	FS disk.FS
}

// callerMax is how many proposals of a group raft holds at once. It is also the
// most entries of one AppendEntries RPC.
const callerMax = 64

func (c Config) withDefaults() Config {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Groups == 0 {
		c.Groups = 1
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.FS == nil {
		c.FS = disk.OS{}
	}
	if c.Network != nil {
		c.links = network{c.Network}
	}
	def(&c.SegmentBytes, 64<<20)
	def(&c.TailBytes, 64<<20)
	def(&c.SnapshotBytes, 64<<20)
	def(&c.CatalogBytes, 1<<20)
	def(&c.TrailingBytes, 32<<20)
	def(&c.QueueBytesMax, 256<<20)
	def(&c.ReserveBytes, 16<<20)
	if c.PoolSegments == 0 {
		c.PoolSegments = 4
	}
	if c.QueueMax == 0 {
		c.QueueMax = 4096
	}
	if c.WriteDeadline == 0 {
		// With one voter nobody could take over: waiting is better than exiting.
		c.WriteDeadline = 30 * time.Second
		if c.Transport != nil || c.links != nil {
			c.WriteDeadline = 3 * time.Second
		}
	}
	if c.SlowWrite == 0 && c.links != nil {
		c.SlowWrite = min(time.Second, c.WriteDeadline/3)
	}
	if c.StuckDeadline == 0 {
		c.StuckDeadline = time.Minute
	}
	if c.HeartbeatTimeout == 0 {
		c.HeartbeatTimeout = time.Second
	}
	return c
}
