package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/heraldmq/herald/replication/disk"
)

const (
	markerSlot  = 64
	markerSpace = 4096 // from slot to slot: never in one sector
	markerMagic = "HWMK"
)

// position is a place in the log: just behind the last record of a batch.
type position struct {
	segment uint64
	offset  uint64
	chain   uint32 // crc of the last record, or of the segment header
	batch   uint64 // the last batch before it
}

func (p position) before(o position) bool {
	return p.segment < o.segment || p.segment == o.segment && p.offset < o.offset
}

// marker is the file with the last acknowledged position. Writes are made by one
// goroutine at a time.
type marker struct {
	file disk.File
	name string
	node uint64
	gen  uint64
	buf  [markerSlot]byte
}

func encodeMarker(b *[markerSlot]byte, gen, node uint64, p position) {
	le := binary.LittleEndian
	*b = [markerSlot]byte{}
	copy(b[:], markerMagic)
	le.PutUint64(b[8:], gen)
	le.PutUint64(b[16:], p.segment)
	le.PutUint64(b[24:], p.offset)
	le.PutUint64(b[32:], node)
	le.PutUint64(b[40:], p.batch)
	le.PutUint32(b[48:], p.chain)
	le.PutUint32(b[4:], crc32.Checksum(b[:], castagnoli))
}

func parseMarker(b []byte) (gen, node uint64, p position, ok bool) {
	if len(b) < markerSlot || string(b[:4]) != markerMagic {
		return
	}
	le := binary.LittleEndian
	c := append([]byte(nil), b[:markerSlot]...)
	le.PutUint32(c[4:], 0)
	if crc32.Checksum(c, castagnoli) != le.Uint32(b[4:]) {
		return
	}
	gen, node = le.Uint64(b[8:]), le.Uint64(b[32:])
	p = position{segment: le.Uint64(b[16:]), offset: le.Uint64(b[24:]), batch: le.Uint64(b[40:]), chain: le.Uint32(b[48:])}
	return gen, node, p, true
}

// openMarker opens the marker, or makes one if the directory holds no segment.
func openMarker(fsys disk.FS, dir string, node uint64, fresh bool) (*marker, position, error) {
	name := filepath.Join(dir, "marker")
	f, err := fsys.Open(name)
	if disk.IsMissing(err) && fresh {
		return newMarker(fsys, dir, node)
	}
	if disk.IsMissing(err) {
		return nil, position{}, &disk.CorruptError{File: name, Offset: -1, Reason: "the file is missing, though there are segments"}
	}
	if err != nil {
		return nil, position{}, fmt.Errorf("open the log's marker: %w", err)
	}
	m := &marker{file: f, name: name, node: node}
	f.DropCache()
	var best position
	found := false
	for slot := range int64(2) {
		b := make([]byte, markerSlot)
		if n, err := f.ReadAt(b, slot*markerSpace); n < markerSlot && err != nil {
			continue
		}
		gen, of, p, ok := parseMarker(b)
		if !ok {
			continue
		}
		if of != node {
			f.Close()
			return nil, position{}, fmt.Errorf("open %s: it belongs to another node", name)
		}
		if !found || gen > m.gen {
			m.gen, best, found = gen, p, true
		}
	}
	switch {
	case found:
		return m, best, nil
	case fresh: // a crash while it was made
		f.Close()
		return newMarker(fsys, dir, node)
	}
	f.Close()
	return nil, position{}, &disk.CorruptError{File: name, Offset: -1, Reason: "neither generation is readable"}
}

func newMarker(fsys disk.FS, dir string, node uint64) (*marker, position, error) {
	name := filepath.Join(dir, "marker")
	f, err := fsys.Create(name)
	if err != nil {
		return nil, position{}, fmt.Errorf("make the log's marker: %w", err)
	}
	m := &marker{file: f, name: name, node: node}
	for range 2 { // both slots, so that later writes never lengthen the file
		if err := m.write(position{}); err != nil {
			f.Close()
			return nil, position{}, err
		}
	}
	if err := m.sync(); err != nil {
		f.Close()
		return nil, position{}, err
	}
	return m, position{}, nil
}

// write records a position; it is durable after the next sync.
func (m *marker) write(p position) error {
	m.gen++
	encodeMarker(&m.buf, m.gen, m.node, p)
	if _, err := m.file.WriteAt(m.buf[:], int64(m.gen%2)*markerSpace); err != nil {
		return fmt.Errorf("write the log's marker: %w", err)
	}
	return nil
}

func (m *marker) sync() error {
	if err := m.file.Datasync(); err != nil {
		return fmt.Errorf("sync the log's marker: %w", err)
	}
	return nil
}
