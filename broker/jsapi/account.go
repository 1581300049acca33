package jsapi

// AccountInfo is what an account uses and may use.
type AccountInfo struct {
	Usage
	Limits AccountLimits   `json:"limits"`
	Domain string          `json:"domain,omitempty"`
	API    APIStats        `json:"api"`
	Tiers  map[string]Tier `json:"tiers,omitempty"`
}

// Usage is what is in use; bytes.
type Usage struct {
	Memory          uint64 `json:"memory"`
	Storage         uint64 `json:"storage"`
	ReservedMemory  uint64 `json:"reserved_memory"`
	ReservedStorage uint64 `json:"reserved_storage"`
	Streams         int    `json:"streams"`
	Consumers       int    `json:"consumers"`
}

// Tier is an account's use and limits for one replication factor.
type Tier struct {
	Usage
	Limits AccountLimits `json:"limits"`
}

// AccountLimits bounds an account; -1 is unlimited, sizes in bytes. For the
// two per-stream sizes 0 is unlimited too.
type AccountLimits struct {
	MaxMemory            int64 `json:"max_memory"`
	MaxStorage           int64 `json:"max_storage"`
	MaxStreams           int   `json:"max_streams"`
	MaxConsumers         int   `json:"max_consumers"`
	MaxAckPending        int   `json:"max_ack_pending"`
	MemoryMaxStreamBytes int64 `json:"memory_max_stream_bytes"`
	StoreMaxStreamBytes  int64 `json:"storage_max_stream_bytes"`
	MaxBytesRequired     bool  `json:"max_bytes_required"`
}

// Unlimited returns the limits of an account without any.
func Unlimited() AccountLimits {
	return AccountLimits{
		MaxMemory: -1, MaxStorage: -1, MaxStreams: -1, MaxConsumers: -1,
		MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
}

// APIStats counts an account's API requests.
type APIStats struct {
	Level    int    `json:"level"`
	Total    uint64 `json:"total"`
	Errors   uint64 `json:"errors"`
	Inflight uint64 `json:"inflight,omitempty"`
}

// AccountInfoReply answers $JS.API.INFO.
type AccountInfoReply struct {
	Reply
	*AccountInfo
}

// AccountPurgeReply answers ACCOUNT.PURGE.
type AccountPurgeReply struct {
	Reply
	Initiated bool `json:"initiated,omitempty"`
}
