package datafile

import (
	"encoding/binary"
	"unsafe"

	"github.com/heraldmq/herald/topics"
)

// RecordHeader is what a record adds to the subject, header and payload.
const RecordHeader = 30

// seed starts the checksums of a topic's records.
func seed(topic topics.TopicID) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(topic))
	return Checksum(0, b[:])
}

// Message is one message to write. Expires is when it goes by a time of its own,
// 0 if it has none.
type Message struct {
	Sequence topics.Sequence
	Time     topics.Nanos
	Expires  topics.Nanos
	Subject  []byte
	Header   []byte
	Payload  []byte
}

func (m *Message) size() int { return RecordHeader + len(m.Subject) + len(m.Header) + len(m.Payload) }

func appendRecord(dst []byte, seed uint32, m *Message) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(m.Subject)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Header)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Payload)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.Sequence))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.Time))
	dst = append(dst, m.Subject...)
	dst = append(dst, m.Header...)
	dst = append(dst, m.Payload...)
	binary.LittleEndian.PutUint32(dst[start:], Checksum(seed, dst[start+4:]))
	return dst
}

// recordSize returns the size of the record at the start of b, 0 if b is too
// short for its header.
func recordSize(b []byte) int64 {
	if len(b) < RecordHeader {
		return 0
	}
	return RecordHeader + int64(binary.LittleEndian.Uint16(b[4:])) +
		int64(binary.LittleEndian.Uint32(b[6:])) + int64(binary.LittleEndian.Uint32(b[10:]))
}

// decodeRecord reads a record that fills b, and tells whether it is what was
// written for the topic. The message aliases b.
func decodeRecord(b []byte, seed uint32) (m topics.Message, ok bool) {
	if len(b) < RecordHeader || recordSize(b) != int64(len(b)) ||
		binary.LittleEndian.Uint32(b) != Checksum(seed, b[4:]) {
		return m, false
	}
	return sliceRecord(b), true
}

// sliceRecord is decodeRecord for bytes verified before.
func sliceRecord(b []byte) topics.Message {
	s := RecordHeader + int(binary.LittleEndian.Uint16(b[4:]))
	h := s + int(binary.LittleEndian.Uint32(b[6:]))
	return topics.Message{
		Sequence: topics.Sequence(binary.LittleEndian.Uint64(b[14:])),
		Time:     topics.Nanos(binary.LittleEndian.Uint64(b[22:])),
		Subject:  text(b[RecordHeader:s]),
		Header:   b[s:h:h],
		Payload:  b[h:len(b):len(b)],
	}
}

// text returns a string on bytes that never change.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
