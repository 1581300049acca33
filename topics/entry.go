package topics

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry is what one Raft log entry of a data group carries: a header and a
// run of records, applied together.
//
//	header   magic 'H' 'E', version u8, flags u8, time i64 (ns), records u32
//	record   kind u8, body length u32, body
//
// All integers are little-endian. The body of a publish record is laid out here
// because the store keeps messages by reference into the entry; the bodies of
// the other kinds belong to broker/state.
//
//	publish  topic u64, flags u8, subject length u16, header length u32,
//	         subject, header, payload (the rest); with PublishTimed: time i64 (ns) at
//	         the very end
const (
	entryMagic0   = 'H'
	entryMagic1   = 'E'
	entryVersion  = 1
	EntryHeader   = 16 // bytes of an entry's header
	RecordHeader  = 5  // bytes of a record's header
	publishHeader = 15 // bytes of a publish body before the subject
)

// RecordKind says what a record of an entry asks for.
type RecordKind uint8

// RecordPublish is the only kind the store itself decodes; broker/state numbers
// its own from RecordState up.
const (
	RecordPublish RecordKind = 1
	RecordState   RecordKind = 16
)

// ErrBadEntry is returned for an entry that can't be read: it was written by a
// newer version or is damaged. The process must not go on past it.
var ErrBadEntry = errors.New("entry is not readable")

// AppendEntryHeader starts an entry. The count of records is set later with
// SetRecords.
func AppendEntryHeader(dst []byte, now Nanos) []byte {
	dst = append(dst, entryMagic0, entryMagic1, entryVersion, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(now))
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// SetRecords writes the number of records into an entry's header, and SetTime
// its time (a batch is stamped when it is proposed, not when it is opened).
func SetRecords(entry []byte, n uint32) { binary.LittleEndian.PutUint32(entry[12:], n) }

// SetTime writes the time into an entry's header.
func SetTime(entry []byte, now Nanos) { binary.LittleEndian.PutUint64(entry[4:], uint64(now)) }

// EntryLimited is the flag of an entry that has a RecordStorageLimits.
const EntryLimited uint8 = 1

// SetFlags writes the flags into an entry's header; Flags reads them from a
// header that ParseEntryHeader has found good.
func SetFlags(entry []byte, flags uint8) { entry[3] = flags }

// Flags reads an entry's flags.
func Flags(entry []byte) uint8 { return entry[3] }

// ParseEntryHeader reads an entry's header.
func ParseEntryHeader(entry []byte) (now Nanos, records uint32, err error) {
	if len(entry) < EntryHeader || entry[0] != entryMagic0 || entry[1] != entryMagic1 {
		return 0, 0, fmt.Errorf("%w: no entry header", ErrBadEntry)
	}
	if entry[2] != entryVersion {
		return 0, 0, fmt.Errorf("%w: version %d, this program reads %d", ErrBadEntry, entry[2], entryVersion)
	}
	return Nanos(binary.LittleEndian.Uint64(entry[4:])), binary.LittleEndian.Uint32(entry[12:]), nil
}

// AppendRecord appends a whole record.
func AppendRecord(dst []byte, kind RecordKind, body []byte) []byte {
	dst = append(dst, byte(kind))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...)
}

// NextRecord reads the record at off and returns where the next one starts.
// body aliases entry.
func NextRecord(entry []byte, off int) (kind RecordKind, body []byte, next int, err error) {
	if off < 0 || off+RecordHeader > len(entry) {
		return 0, nil, 0, fmt.Errorf("%w: record header cut at %d of %d", ErrBadEntry, off, len(entry))
	}
	n := int(binary.LittleEndian.Uint32(entry[off+1:]))
	start := off + RecordHeader
	if n > len(entry)-start {
		return 0, nil, 0, fmt.Errorf("%w: record of %d bytes cut at %d of %d", ErrBadEntry, n, off, len(entry))
	}
	return RecordKind(entry[off]), entry[start : start+n : start+n], start + n, nil
}

// Publish is the body of a publish record. The slices alias what they were
// parsed from.
type Publish struct {
	Topic   TopicID
	Flags   uint8
	Subject []byte // at most 65535 bytes
	Header  []byte
	Payload []byte
	Time    Nanos // with PublishTimed; else the entry's time counts
}

// Size returns how many bytes AppendPublish adds.
func (p *Publish) Size() int {
	n := RecordHeader + publishHeader + len(p.Subject) + len(p.Header) + len(p.Payload)
	if p.Flags&PublishTimed != 0 {
		n += 8
	}
	return n
}

// AppendPublish appends a publish record.
func AppendPublish(dst []byte, p *Publish) []byte {
	dst = append(dst, byte(RecordPublish))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.Size()-RecordHeader))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Topic))
	dst = append(dst, p.Flags)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(p.Subject)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p.Header)))
	dst = append(dst, p.Subject...)
	dst = append(dst, p.Header...)
	dst = append(dst, p.Payload...)
	if p.Flags&PublishTimed != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Time))
	}
	return dst
}

// ParsePublish reads a publish record's body.
func ParsePublish(body []byte) (p Publish, err error) {
	if len(body) < publishHeader {
		return p, fmt.Errorf("%w: publish record of %d bytes", ErrBadEntry, len(body))
	}
	p.Topic = TopicID(binary.LittleEndian.Uint64(body))
	p.Flags = body[8]
	s := int(binary.LittleEndian.Uint16(body[9:]))
	h := int(binary.LittleEndian.Uint32(body[11:]))
	rest := body[publishHeader:]
	if p.Flags&PublishTimed != 0 {
		n := len(rest) - 8
		if n < 0 {
			return p, fmt.Errorf("%w: timed publish record of %d bytes", ErrBadEntry, len(body))
		}
		p.Time = Nanos(binary.LittleEndian.Uint64(rest[n:]))
		rest = rest[:n]
	}
	if s > len(rest) || h > len(rest)-s {
		return p, fmt.Errorf("%w: publish record with lengths %d and %d in %d bytes", ErrBadEntry, s, h, len(rest))
	}
	p.Subject, p.Header, p.Payload = rest[:s:s], rest[s:s+h:s+h], rest[s+h:len(rest):len(rest)]
	return p, nil
}
