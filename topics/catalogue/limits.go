package catalogue

import (
	"github.com/heraldmq/herald/topics"
)

// Limits is what an account may hold. 0 or less means no limit.
type Limits struct {
	Topics         int   `json:"topics,omitempty"`
	Consumers      int   `json:"consumers,omitempty"`        // in all topics together
	FileBytes      int64 `json:"file_bytes,omitempty"`       // of topics with file storage
	MemoryBytes    int64 `json:"memory_bytes,omitempty"`     // of topics with memory storage
	FileTopicMax   int64 `json:"file_topic_max,omitempty"`   // most max_bytes of one topic with file storage
	MemoryTopicMax int64 `json:"memory_topic_max,omitempty"` // most max_bytes of one topic with memory storage
	BytesRequired  bool  `json:"bytes_required,omitempty"`   // every topic must say its max_bytes
}

// Bytes returns the limit of a storage kind.
func (l *Limits) Bytes(s topics.Storage) int64 {
	if s == topics.StoreMemory {
		return l.MemoryBytes
	}
	return l.FileBytes
}

// The refusals of the catalogue, by nats-server's codes and words. Herald's own
// codes are from 20000 up.
var (
	FaultNameInUse      = &topics.Fault{Status: 400, ErrCode: 10058, Text: "stream name already in use with a different configuration"}
	FaultTopicNotFound  = &topics.Fault{Status: 404, ErrCode: 10059, Text: "stream not found"}
	FaultOverlap        = &topics.Fault{Status: 400, ErrCode: 10065, Text: "subjects overlap with an existing stream"}
	FaultTooManyTopics  = &topics.Fault{Status: 400, ErrCode: 10027, Text: "maximum number of streams reached"}
	FaultFileStorage    = &topics.Fault{Status: 500, ErrCode: 10047, Text: "insufficient storage resources available"}
	FaultMemoryStorage  = &topics.Fault{Status: 500, ErrCode: 10028, Text: "insufficient memory resources available"}
	FaultBytesRequired  = &topics.Fault{Status: 400, ErrCode: 10113, Text: "account requires a stream config to have max bytes set"}
	FaultTopicBytes     = &topics.Fault{Status: 400, ErrCode: 10122, Text: "stream max bytes exceeds account limit max stream bytes"}
	FaultNoAdvertised   = &topics.Fault{Status: 404, ErrCode: 20002, Text: "advertisement not found"}
	FaultAdvertChanged  = &topics.Fault{Status: 409, ErrCode: 20017, Text: "the advertisement has changed meanwhile"}
	FaultTooManyAdverts = &topics.Fault{Status: 400, ErrCode: 20004, Text: "maximum number of advertisements reached"}
)

// allow checks a topic's config against the limits of its account, given what
// the account's other topics have reserved.
func (l *Limits) allow(cfg *topics.Config, count int, reserved int64) *topics.Fault {
	if l.Topics > 0 && count >= l.Topics {
		return FaultTooManyTopics
	}
	most, full := l.FileTopicMax, FaultFileStorage
	if cfg.Storage == topics.StoreMemory {
		most, full = l.MemoryTopicMax, FaultMemoryStorage
	}
	if l.BytesRequired && cfg.MaxBytes <= 0 {
		return FaultBytesRequired
	}
	if most > 0 && cfg.MaxBytes > most {
		return FaultTopicBytes
	}
	if total := l.Bytes(cfg.Storage); total > 0 && cfg.MaxBytes > 0 && (reserved >= total || cfg.MaxBytes > total-reserved) {
		return full
	}
	return nil
}
