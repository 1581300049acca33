package state

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"
)

// Changed knows which keys have changed since when, so that a replica that has an older
// state can be given what differs. For any number of goroutines.
type Changed struct {
	mu    sync.Mutex
	keys  map[string]uint64 // the step that changed it last
	bytes int
	max   int
	floor uint64 // what changed up to it isn't known
}

// NewChanged returns one that knows nothing of what changed up to a step, and keeps at
// most as many bytes of keys: with more it forgets them all.
func NewChanged(seq uint64, bytesMax int) *Changed {
	return &Changed{keys: map[string]uint64{}, max: bytesMax, floor: seq}
}

// Note takes in what a step changes, before others can see that it has.
func (c *Changed) Note(delta []byte, seq uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := EachChange(delta, func(key, _ []byte, _ bool) error {
		if _, ok := c.keys[string(key)]; !ok {
			c.bytes += len(key) + changedCost
		}
		c.keys[string(key)] = seq
		return nil
	})
	if c.bytes > c.max {
		c.clear(seq)
	}
	return err
}

// changedCost is about what a key costs beside its bytes.
const changedCost = 48

func (c *Changed) clear(seq uint64) {
	c.keys, c.bytes, c.floor = map[string]uint64{}, 0, seq
}

func (c *Changed) forget(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear(seq)
}

// since returns the keys that have changed behind a step, and forgets those that haven't
// behind oldest.
func (c *Changed) since(seq, oldest uint64) (keys []string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known = seq >= c.floor; known {
		for k, at := range c.keys {
			if at > seq {
				keys = append(keys, k)
			}
		}
	}
	c.trimLocked(oldest)
	slices.Sort(keys)
	return keys, known
}

func (c *Changed) trim(oldest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimLocked(oldest)
}

func (c *Changed) trimLocked(oldest uint64) {
	for k, at := range c.keys {
		if at <= oldest {
			delete(c.keys, k)
			c.bytes -= len(k) + changedCost
		}
	}
	c.floor = max(c.floor, oldest)
}

// WriteChanges writes what a snapshot holds of some keys: for ReadChanges.
//
//	seq u64, then deltas: length u32, CRC-32C u32, bytes; the last is empty
func WriteChanges(w io.Writer, s Snapshot, keys []string) error {
	b := bufio.NewWriterSize(w, chunkBytes)
	sum := crc32.New(castagnoli)
	_, _ = b.Write(binary.LittleEndian.AppendUint64(nil, s.Seq())) // told by Flush, as below
	var chunk []byte
	put := func() {
		sum.Reset()
		_, _ = sum.Write(chunk) // never fails
		_, _ = b.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(len(chunk))), sum.Sum32()))
		_, _ = b.Write(chunk)
		chunk = chunk[:0]
	}
	for _, k := range keys {
		v, ok, err := s.Get([]byte(k))
		if err != nil {
			return err
		}
		if chunk = appendChange(chunk, k, v, !ok); len(chunk) >= chunkBytes {
			put()
		}
	}
	if len(chunk) > 0 {
		put()
	}
	put()
	return b.Flush()
}

// errChanges means that what came of another replica's changes isn't whole.
var errChanges = errors.New("the changes of an operator's state are cut short")

// ReadChanges reads what WriteChanges wrote: one delta, and the step that it leads to. It
// takes at most as many bytes.
func ReadChanges(r io.Reader, bytesMax int64) (delta []byte, seq uint64, err error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errChanges, err)
	}
	seq = binary.LittleEndian.Uint64(head)
	var all bytes.Buffer
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errChanges, err)
		}
		n := int64(binary.LittleEndian.Uint32(head))
		if n == 0 {
			return all.Bytes(), seq, nil
		}
		if int64(all.Len())+n > bytesMax {
			return nil, 0, fmt.Errorf("changes of more than %d bytes of an operator's state", bytesMax)
		}
		at := all.Len()
		if _, err := io.CopyN(&all, r, n); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errChanges, err)
		}
		if crc32.Checksum(all.Bytes()[at:], castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return nil, 0, fmt.Errorf("%w: a checksum is wrong", errChanges)
		}
	}
}
