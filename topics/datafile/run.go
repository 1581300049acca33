package datafile

import (
	"encoding/binary"

	"github.com/heraldmq/herald/topics"
)

// The bounds of a run. A single message may be larger than RunBytes.
const (
	RunMessages = 4096
	RunBytes    = 1 << 20
)

// Run describes messages of one topic that lie next to each other.
type Run struct {
	Topic     topics.TopicID
	First     topics.Sequence
	Last      topics.Sequence
	FirstTime topics.Nanos
	LastTime  topics.Nanos
	Offset    int64  // of the first record
	Length    uint32 // of the records
	Messages  uint32
	Headers   uint32 // messages that have a header
	Expiring  bool   // some have a time of their own

	block      int64 // offset of the block
	dictionary uint32
	columns    uint32
}

const runSize = 96

func (r *Run) append(dst []byte) []byte {
	start := len(dst)
	for _, v := range []uint64{
		uint64(r.Topic), uint64(r.First), uint64(r.Last), uint64(r.FirstTime), uint64(r.LastTime),
		uint64(r.Offset), uint64(r.block),
	} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	for _, v := range []uint32{r.Length, r.Messages, r.Headers, r.dictionary, r.columns} {
		dst = binary.LittleEndian.AppendUint32(dst, v)
	}
	if r.Expiring {
		dst = append(dst, 1)
	}
	return append(dst, make([]byte, runSize-(len(dst)-start))...)
}

func decodeRun(b []byte) Run {
	u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	u32 := func(i int) uint32 { return binary.LittleEndian.Uint32(b[56+4*i:]) }
	return Run{
		Topic: topics.TopicID(u64(0)), First: topics.Sequence(u64(1)), Last: topics.Sequence(u64(2)),
		FirstTime: topics.Nanos(u64(3)), LastTime: topics.Nanos(u64(4)),
		Offset: int64(u64(5)), block: int64(u64(6)),
		Length: u32(0), Messages: u32(1), Headers: u32(2), dictionary: u32(3), columns: u32(4),
		Expiring: b[76] == 1,
	}
}

// plausible tells whether a run can be one of a file whose directory starts at
// end.
func (r *Run) plausible(end int64) bool {
	return r.Messages > 0 && r.First > 0 && r.First <= r.Last && r.Offset >= headerSize &&
		uint64(r.Last-r.First) >= uint64(r.Messages-1) &&
		r.Offset+int64(r.Length) <= end && r.block >= headerSize &&
		r.block+int64(r.dictionary)+int64(r.columns) <= end &&
		int64(r.Messages)*RecordHeader <= int64(r.Length)
}
