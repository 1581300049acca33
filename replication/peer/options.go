package peer

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"
)

// Options is what a Network is opened with. Name and Cluster are required.
type Options struct {
	Name    string // of this node, unique in the cluster; at most 128 bytes, without a slash
	Cluster string // nodes of another cluster are refused

	Host      string   // where to listen; "" is 127.0.0.1
	Port      int      // 0: any
	Advertise string   // host:port told to others; default: what is listened on
	Routes    []string // host:port to dial; more are learned from peers

	Secret string      // shared by the cluster, "user:password" or the like; "" none
	TLS    *tls.Config // certificates of the cluster, verified on both ends; nil none

	Version string // of the program, told to peers
	Format  uint32 // of what is sent and stored; peers with another one are refused

	Log *slog.Logger // default: discard

	// Wrap is for tests that disturb the network: it is given each connection as
	// soon as the name of the peer is known, before the peer is believed.
	Wrap func(peer string, conn net.Conn) net.Conn
}

// Errors that callers tell apart.
var (
	ErrNoPeer       = errors.New("peer: not connected")
	ErrFull         = errors.New("peer: too much is waiting to be sent")
	ErrTooLarge     = errors.New("peer: larger than a message may be")
	ErrClosed       = errors.New("peer: the network is closed")
	ErrBusy         = errors.New("peer: the other side has too much to do")
	ErrNoHandler    = errors.New("peer: the other side doesn't know this request")
	ErrLinkLost     = errors.New("peer: the connection broke before the answer came")
	ErrWrongReplica = errors.New("peer: meant for another replica")
)

// RemoteError is an error that the handler of the other side returned.
type RemoteError struct{ Peer, Text string }

func (e *RemoteError) Error() string { return e.Peer + ": " + e.Text }

// Peer is a connected node.
type Peer struct {
	Name    string
	Addr    string            // where it says that it listens
	Status  map[string][]byte // what it told with SetStatus; not to be changed
	Since   time.Time
	RTT     time.Duration
	Version string
	Silent  bool // nothing has been heard of it for half a second or more
}

// Route is a configured address.
type Route struct {
	Addr      string
	Name      string // of the node that answered there, "" before one has
	Self      bool   // it is this node's own address
	Connected bool
	Err       string // why the last attempt failed, "" if it didn't
}

// EventKind says what happened to a peer.
type EventKind int

const (
	// Up: connected, and its status is known.
	Up EventKind = iota + 1
	// Down: the connection ended. What was on its way is lost, each call and stream
	// got an error.
	Down
	// Status: it changed the value of Event.Key.
	Status
	// Refused: nobody listens any more where the peer was. Comes after Down, at most
	// once for each.
	Refused
	// Unwelcome: it refuses this node, which has been removed from the cluster, says
	// Err. It has ended the connection, after Down, or took none.
	Unwelcome
)

func (k EventKind) String() string {
	switch k {
	case Up:
		return "up"
	case Down:
		return "down"
	case Status:
		return "status"
	case Refused:
		return "refused"
	case Unwelcome:
		return "unwelcome"
	}
	return "unknown"
}

// Event is a change of one peer.
type Event struct {
	Kind EventKind
	Peer Peer
	Key  string // of Status
	// Reset is set on Down when the other side, or its kernel, ended the connection,
	// and not set when it was silent for too long or we ended it.
	Reset bool
	Err   error // of Down and Unwelcome: why
}

// Channel numbers a flow of ordered chunks.
type Channel uint16

const (
	// ChannelMesh carries live messages.
	ChannelMesh Channel = 16
	// ChannelGroup0 plus the number of a group carries what is forwarded to its leader.
	ChannelGroup0 Channel = 1024
)

// Bounds of what is sent.
const (
	CallBytesMax   = 1 << 20   // a call, its answer
	ChunkBytesMax  = 256 << 10 // a chunk of a channel
	QueueBytesMax  = 64 << 20  // chunks of one channel that wait for one peer
	StatusBytesMax = 64 << 10  // one value of the status
	CreditBytes    = 4 << 20   // of one channel, sent and not handled yet
)
