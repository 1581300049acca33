package jsapi

import (
	"time"

	"github.com/heraldmq/herald/topics"
)

// Page sizes of the lists.
const (
	NamesLimit    = 1024
	ListLimit     = 256
	SubjectsLimit = 100_000
)

// StreamInfo describes a stream.
type StreamInfo struct {
	Config     *topics.Config    `json:"config"`
	Created    time.Time         `json:"created"`
	State      StreamState       `json:"state"`
	Domain     string            `json:"domain,omitempty"`
	Cluster    *ClusterInfo      `json:"cluster,omitempty"`
	Mirror     *SourceInfo       `json:"mirror,omitempty"`
	Sources    []*SourceInfo     `json:"sources,omitempty"`
	Alternates []StreamAlternate `json:"alternates,omitempty"`
	Time       time.Time         `json:"ts"`
}

// StreamState is a stream's counters. FirstTime and LastTime are the zero time
// when there is no message.
type StreamState struct {
	Messages    uint64            `json:"messages"`
	Bytes       uint64            `json:"bytes"`
	FirstSeq    uint64            `json:"first_seq"`
	FirstTime   time.Time         `json:"first_ts"`
	LastSeq     uint64            `json:"last_seq"`
	LastTime    time.Time         `json:"last_ts"`
	NumSubjects int               `json:"num_subjects,omitempty"`
	Subjects    map[string]uint64 `json:"subjects,omitempty"`
	NumDeleted  int               `json:"num_deleted,omitempty"`
	Deleted     []uint64          `json:"deleted,omitempty"`
	Lost        *LostMessages     `json:"lost,omitempty"`
	Consumers   int               `json:"consumer_count"`
}

// LostMessages says what a damaged store can't give back.
type LostMessages struct {
	Msgs  []uint64 `json:"msgs"`
	Bytes uint64   `json:"bytes"`
}

// ClusterInfo says which nodes hold an asset; names are server names.
type ClusterInfo struct {
	Name        string      `json:"name,omitempty"`
	RaftGroup   string      `json:"raft_group,omitempty"`
	Leader      string      `json:"leader,omitempty"`
	LeaderSince *time.Time  `json:"leader_since,omitempty"`
	SystemAcc   bool        `json:"system_account,omitempty"`
	TrafficAcc  string      `json:"traffic_account,omitempty"`
	Replicas    []*PeerInfo `json:"replicas,omitempty"`
}

// PeerInfo is a replica that doesn't lead.
type PeerInfo struct {
	Name    string        `json:"name"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Active  time.Duration `json:"active"`
	Lag     uint64        `json:"lag,omitempty"`
	Peer    string        `json:"peer"`
}

// SourceInfo says how far a mirror or source has come.
type SourceInfo struct {
	Name              string                    `json:"name"`
	External          *topics.ExternalStream    `json:"external,omitempty"`
	Lag               uint64                    `json:"lag"`
	Active            time.Duration             `json:"active"` // -1 if never
	Error             *Error                    `json:"error,omitempty"`
	FilterSubject     string                    `json:"filter_subject,omitempty"`
	SubjectTransforms []topics.SubjectTransform `json:"subject_transforms,omitempty"`
}

// StreamAlternate is a mirror that can be read instead of the stream.
type StreamAlternate struct {
	Name    string `json:"name"`
	Domain  string `json:"domain,omitempty"`
	Cluster string `json:"cluster"`
}

// StreamRequest creates or updates a stream.
type StreamRequest struct {
	topics.Config
	Pedantic bool `json:"pedantic,omitempty"`
}

// StreamCreateReply answers STREAM.CREATE and, with another type, STREAM.UPDATE
// and the end of a restore.
type StreamCreateReply struct {
	Reply
	*StreamInfo
	DidCreate bool `json:"did_create,omitempty"`
}

// StreamInfoRequest asks for a stream's info.
type StreamInfoRequest struct {
	PageRequest
	DeletedDetails bool   `json:"deleted_details,omitempty"`
	SubjectsFilter string `json:"subjects_filter,omitempty"`
}

// StreamInfoReply answers STREAM.INFO.
type StreamInfoReply struct {
	Reply
	Page
	*StreamInfo
}

// StreamListRequest asks for the streams that capture subjects of a pattern.
type StreamListRequest struct {
	PageRequest
	Subject string `json:"subject,omitempty"`
}

// StreamNamesReply answers STREAM.NAMES; no stream is null.
type StreamNamesReply struct {
	Reply
	Page
	Streams []string `json:"streams"`
}

// StreamListReply answers STREAM.LIST; no stream is an empty list.
type StreamListReply struct {
	Reply
	Page
	Streams []*StreamInfo     `json:"streams"`
	Missing []string          `json:"missing,omitempty"`
	Offline map[string]string `json:"offline,omitempty"`
}

// PurgeRequest says what to purge; Sequence and Keep exclude each other.
type PurgeRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
	Subject  string `json:"filter,omitempty"`
	Keep     uint64 `json:"keep,omitempty"`
}

// PurgeReply answers STREAM.PURGE.
type PurgeReply struct {
	SuccessReply
	Purged uint64 `json:"purged"`
}

// MsgGetRequest asks for one message, or for DIRECT.GET for a batch of them.
type MsgGetRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	LastFor   string     `json:"last_by_subj,omitempty"`
	NextFor   string     `json:"next_by_subj,omitempty"`
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
	MultiLast []string   `json:"multi_last,omitempty"`
	UpToSeq   uint64     `json:"up_to_seq,omitempty"`
	UpToTime  *time.Time `json:"up_to_time,omitempty"`
	NoHeaders bool       `json:"no_hdr,omitempty"`
}

// StoredMessage is a message inside a MsgGetReply.
type StoredMessage struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs,omitempty"`
	Data     []byte    `json:"data,omitempty"`
	Time     time.Time `json:"time"`
}

// MsgGetReply answers STREAM.MSG.GET.
type MsgGetReply struct {
	Reply
	Message *StoredMessage `json:"message,omitempty"`
}

// MsgDeleteRequest asks to delete one message.
type MsgDeleteRequest struct {
	Seq     uint64 `json:"seq"`
	NoErase bool   `json:"no_erase,omitempty"`
}

// PlacementRequest is the body of every step-down request.
type PlacementRequest struct {
	Placement *topics.Placement `json:"placement,omitempty"`
}

// PeerRequest names a peer, by server name or by its id.
type PeerRequest struct {
	Peer   string `json:"peer,omitempty"`
	PeerID string `json:"peer_id,omitempty"`
}

// SnapshotRequest asks for a backup to be sent to DeliverSubject.
type SnapshotRequest struct {
	DeliverSubject string `json:"deliver_subject"`
	NoConsumers    bool   `json:"no_consumers,omitempty"`
	ChunkSize      int    `json:"chunk_size,omitempty"`
	WindowSize     int    `json:"window_size,omitempty"`
	CheckMsgs      bool   `json:"jsck,omitempty"`
	// FirstSeq leaves out the messages before it: a backup that was cut short, or taken
	// earlier, goes on there. It is Herald's own.
	FirstSeq uint64 `json:"herald_first_seq,omitempty"`
}

// SnapshotReply answers STREAM.SNAPSHOT before the chunks.
type SnapshotReply struct {
	Reply
	Config *topics.Config `json:"config,omitempty"`
	State  *StreamState   `json:"state,omitempty"`
}

// RestoreRequest offers a backup.
type RestoreRequest struct {
	Config topics.Config `json:"config"`
	State  StreamState   `json:"state"`
}

// RestoreReply says where to send the backup's chunks.
type RestoreReply struct {
	Reply
	DeliverSubject string `json:"deliver_subject,omitempty"`
}
