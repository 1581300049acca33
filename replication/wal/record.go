package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

const (
	recordHeader = 56
	recordMagic  = 0xA7

	kindEntry    = 1 // one raft entry
	kindTruncate = 2 // the group's entries from index on are gone

	flagEnd     = 1 // last record of its batch
	flagRestart = 2 // the group's earlier entries are gone: its log begins here anew

	// See carry.go.
	flagMoved    = 4 // an entry again, carried forward; the first has flagRestart, which then means no more
	flagMovedEnd = 8 // the last of them
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var zeros [8]byte

// errNoRecord says that there is no record at a place. What that means is for
// recovery to find out.
var errNoRecord = errors.New("no valid record")

// record is the decoded header of a record.
type record struct {
	crc, prev  uint32
	data, ext  uint32 // lengths
	group      uint32
	kind       uint8
	logType    uint8
	flags      uint8
	index      uint64
	term       uint64
	appendedAt int64
	batch      uint64
}

// size returns how many bytes the record takes in the file.
func (r *record) size() int64 { return recordSize(int64(r.data), int64(r.ext)) }

func recordSize(data, ext int64) int64 { return (recordHeader + data + ext + 7) &^ 7 }

// appendHeader appends the header with a zero crc.
func (r *record) appendHeader(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint32(dst, r.prev)
	dst = le.AppendUint32(dst, r.data)
	dst = le.AppendUint32(dst, r.ext)
	dst = le.AppendUint32(dst, r.group)
	dst = append(dst, recordMagic, r.kind, r.logType, r.flags)
	dst = le.AppendUint64(dst, r.index)
	dst = le.AppendUint64(dst, r.term)
	dst = le.AppendUint64(dst, uint64(r.appendedAt))
	return le.AppendUint64(dst, r.batch)
}

// encode sets the record's checksum and returns what is to be written, in order: the header
// in b, data, ext, and zeros up to the next record.
func (r *record) encode(b *[recordHeader]byte, data, ext []byte, seed uint32) [4][]byte {
	head := r.appendHeader(b[:0])
	pad := zeros[:r.size()-recordHeader-int64(len(data))-int64(len(ext))]
	r.crc = seed
	for _, part := range [...][]byte{head[4:], data, ext, pad} {
		r.crc = crc32.Update(r.crc, castagnoli, part)
	}
	binary.LittleEndian.PutUint32(head, r.crc)
	return [4][]byte{head, data, ext, pad}
}

// parseHeader reads a record header; it does not check the checksum. It refuses
// what can't be a record of a segment with room bytes left from here.
func parseHeader(b []byte, room int64) (r record, err error) {
	if len(b) < recordHeader || b[20] != recordMagic {
		return r, errNoRecord
	}
	le := binary.LittleEndian
	r.crc, r.prev = le.Uint32(b), le.Uint32(b[4:])
	r.data, r.ext = le.Uint32(b[8:]), le.Uint32(b[12:])
	r.group = le.Uint32(b[16:])
	r.kind, r.logType, r.flags = b[21], b[22], b[23]
	r.index, r.term = le.Uint64(b[24:]), le.Uint64(b[32:])
	r.appendedAt, r.batch = int64(le.Uint64(b[40:])), le.Uint64(b[48:])
	if r.size() > room || r.index == 0 || r.kind != kindEntry && r.kind != kindTruncate {
		return r, errNoRecord
	}
	return r, nil
}

// decodeRecord reads and checks the whole record at the start of b. body aliases
// b: the data, then the extensions.
func decodeRecord(b []byte, seed uint32) (r record, body []byte, err error) {
	r, err = parseHeader(b, int64(len(b)))
	if err != nil {
		return r, nil, err
	}
	if crc32.Update(seed, castagnoli, b[4:r.size()]) != r.crc {
		return r, nil, errNoRecord
	}
	end := recordHeader + int(r.data) + int(r.ext)
	return r, b[recordHeader:end:end], nil
}

// log makes a raft entry of a record; the entry aliases body.
func (r *record) log(body []byte, into *raft.Log) {
	*into = raft.Log{
		Index: r.index,
		Term:  r.term,
		Type:  raft.LogType(r.logType),
		Data:  body[:r.data:r.data],
	}
	if r.ext > 0 {
		into.Extensions = body[r.data:]
	}
	if r.appendedAt != 0 {
		into.AppendedAt = time.Unix(0, r.appendedAt)
	}
}

// entryRecord returns the header for a raft entry.
func entryRecord(group uint32, l *raft.Log) record {
	r := record{
		kind: kindEntry, group: group, index: l.Index, term: l.Term, logType: uint8(l.Type),
		data: uint32(len(l.Data)), ext: uint32(len(l.Extensions)),
	}
	if !l.AppendedAt.IsZero() {
		r.appendedAt = l.AppendedAt.UnixNano()
	}
	return r
}
