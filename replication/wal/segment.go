package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/heraldmq/herald/replication/disk"
)

const (
	segmentHeader  = 64
	segmentMagic   = "HERALWAL"
	segmentVersion = 2 // 1 had nothing carried forward, and is read as well
)

// header is a segment's header.
type header struct {
	number    uint64
	salt      uint64
	node      uint64
	prevEnd   uint64 // where the segment before ends; 0 for the first ever
	prevChain uint32 // crc of the last record there
	batch     uint64 // number of the first batch written here
	crc       uint32
}

// segment is one open file of the log.
type segment struct {
	// Set at construction.
	file disk.File
	name string // path
	size int64  // allocated bytes
	head header
	seed uint32 // of every checksum

	live  int   // guarded by Log.mu: entries of the index that are in here
	bytes int64 // their records, likewise

	// mu is held for reading during a read from the file, for writing when the
	// file is taken away for another use.
	mu   sync.RWMutex
	gone bool
}

func (h *header) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, segmentHeader)
	b = append(b, segmentMagic...)
	b = le.AppendUint32(b, segmentVersion)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, h.number)
	b = le.AppendUint64(b, h.salt)
	b = le.AppendUint64(b, h.node)
	b = le.AppendUint64(b, h.prevEnd)
	b = le.AppendUint32(b, h.prevChain)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, h.batch)
	h.crc = crc32.Checksum(b, castagnoli)
	le.PutUint32(b[12:], h.crc)
	return b
}

// parseSegmentHeader reads a segment's header. A *disk.NewerError, without a name, is met
// only where its checksum is right.
func parseSegmentHeader(b []byte) (h header, err error) {
	le := binary.LittleEndian
	if len(b) < segmentHeader || string(b[:8]) != segmentMagic {
		return h, fmt.Errorf("no segment header")
	}
	h.crc = le.Uint32(b[12:])
	c := append([]byte(nil), b[:segmentHeader]...)
	le.PutUint32(c[12:], 0)
	if crc32.Checksum(c, castagnoli) != h.crc {
		return h, fmt.Errorf("the segment header's checksum is wrong")
	}
	switch v := le.Uint32(b[8:]); {
	case v == 0:
		return h, fmt.Errorf("segment version 0, which there never was")
	case v > segmentVersion:
		return h, &disk.NewerError{Version: v, Reads: segmentVersion}
	}
	h.number, h.salt, h.node = le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])
	h.prevEnd, h.prevChain, h.batch = le.Uint64(b[40:]), le.Uint32(b[48:]), le.Uint64(b[56:])
	return h, nil
}

// seed returns what the checksums of the segment's records start with.
func (h *header) seed() uint32 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], h.salt)
	binary.LittleEndian.PutUint64(b[8:], h.number)
	return crc32.Checksum(b[:], castagnoli)
}

func segmentName(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x.seg", number))
}

func freeName(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x.free", number))
}

// parseName tells what a file in the directory is.
func parseName(name string) (number uint64, free, ok bool) {
	stem, isSegment := strings.CutSuffix(name, ".seg")
	if !isSegment {
		if stem, free = strings.CutSuffix(name, ".free"); !free {
			return 0, false, false
		}
	}
	if len(stem) != 16 {
		return 0, false, false
	}
	n, err := strconv.ParseUint(stem, 16, 64)
	return n, free, err == nil
}

// read returns the record at off, checked. It allocates the body.
func (s *segment) read(at place) (record, []byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.gone {
		return record{}, nil, errRecycled
	}
	b := make([]byte, at.size)
	if _, err := s.file.ReadAt(b, int64(at.offset)); err != nil {
		return record{}, nil, fmt.Errorf("read %d bytes at %d of %s: %w", at.size, at.offset, s.name, err)
	}
	r, body, err := decodeRecord(b, s.seed)
	if err != nil || r.crc != at.crc {
		return record{}, nil, &disk.CorruptError{File: s.name, Offset: int64(at.offset), Reason: "the record's checksum is wrong"}
	}
	return r, body, nil
}

// take makes the file unreachable for readers and waits for those inside.
func (s *segment) take() {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
}
