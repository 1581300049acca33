package wal

import (
	"errors"
)

// Verify reads entries from the disk, also those that are in memory, from an index on
// until they make up `most` bytes, and checks them. It returns where to go on, 0 at
// the end. The error is a *disk.CorruptError for damage.
func (g *Group) Verify(from uint64, most int64) (next uint64, bytes int64, err error) {
	g.log.mu.RLock()
	last := g.lastLocked()
	from = max(from, g.first)
	var places []place
	for i := from; last != 0 && i <= last && bytes < most; i++ {
		at := *g.refs.at(int(i - g.first))
		places = append(places, at)
		bytes += int64(at.size)
	}
	g.log.mu.RUnlock()
	if len(places) == 0 {
		return 0, 0, nil
	}
	var cold *segment
	for i, at := range places {
		if at.segment != cold {
			cold = at.segment
			cold.dropCache()
		}
		if _, _, err := at.segment.read(at); err != nil && !errors.Is(err, errRecycled) {
			return from + uint64(i) + 1, bytes, err
		}
	}
	return from + uint64(len(places)), bytes, nil
}

// dropCache makes the next read come from the disk.
func (s *segment) dropCache() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.gone {
		s.file.DropCache()
	}
}
