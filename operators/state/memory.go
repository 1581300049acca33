package state

import (
	"sync"
	"unsafe"

	"github.com/tidwall/btree"
)

// Memory is a Store in memory: a B-tree whose snapshots share what later steps don't
// change.
type Memory struct {
	mu    sync.RWMutex
	tree  *btree.Map[string, []byte]
	seq   uint64
	bytes int64
	sum   uint64
	steps sizes
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{tree: new(btree.Map[string, []byte])} }

// Get implements Reader.
func (m *Memory) Get(key []byte) ([]byte, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.tree.Get(keyText(key))
	return v, ok, nil
}

// First returns the first key from from to to, and its value.
func (m *Memory) First(from, to []byte) (key, v []byte, ok bool, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	scan(m.tree, from, to, func(k, b []byte) bool {
		key, v, ok = k, b, true
		return false
	})
	return key, v, ok, nil
}

// Scan implements Reader. It takes a handful at a time, so that f may read and Apply
// isn't held up: what is applied meanwhile may be seen or not. Who wants one state
// makes a Snapshot.
func (m *Memory) Scan(from, to []byte, f func(key, v []byte) bool) error {
	type pair struct{ key, v []byte }
	const handful = 64
	var pairs []pair
	for most := 4; ; most = handful { // many look at the first only
		pairs = pairs[:0]
		m.mu.RLock()
		scan(m.tree, from, to, func(key, v []byte) bool {
			pairs = append(pairs, pair{key, v})
			return len(pairs) < most
		})
		m.mu.RUnlock()
		for _, p := range pairs {
			if !f(p.key, p.v) {
				return nil
			}
		}
		if len(pairs) < most {
			return nil
		}
		from = append(pairs[len(pairs)-1].key, 0)
	}
}

func scan(t *btree.Map[string, []byte], from, to []byte, f func(key, v []byte) bool) {
	end := keyText(to)
	t.Ascend(keyText(from), func(k string, v []byte) bool {
		return (to == nil || k < end) && f(raw(k), v)
	})
}

// keyText is bytes that are only looked at as a string, raw a string's bytes, which nobody may
// change.
func keyText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func raw(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// Apply implements Store. The values are kept: delta must not be changed any more.
func (m *Memory) Apply(delta []byte, seq uint64) error {
	if err := EachChange(delta, func(_, _ []byte, _ bool) error { return nil }); err != nil {
		return err // all or nothing
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq = seq
	return EachChange(delta, func(key, v []byte, deleted bool) error {
		if deleted {
			if old, ok := m.tree.Delete(string(key)); ok {
				m.less(key, old)
			}
			return nil
		}
		if old, ok := m.tree.Set(string(key), v); ok {
			m.bytes += int64(len(v) - len(old))
			m.sum += pairSum(key, v) - pairSum(key, old)
			m.steps.other(key, len(old), len(v))
			return nil
		}
		m.more(key, v)
		return nil
	})
}

func (m *Memory) more(key, v []byte) {
	m.bytes += int64(len(key) + len(v))
	m.sum += pairSum(key, v)
	m.steps.more(key, len(v))
}

func (m *Memory) less(key, old []byte) {
	m.bytes -= int64(len(key) + len(old))
	m.sum -= pairSum(key, old)
	m.steps.less(key, len(old))
}

// Sum implements Store.
func (m *Memory) Sum() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sum
}

// Seq implements Store.
func (m *Memory) Seq() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.seq
}

// Size implements Store.
func (m *Memory) Size() (keys, bytes int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return int64(m.tree.Len()), m.bytes
}

// Steps implements Store.
func (m *Memory) Steps() []StepSize {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.steps.there()
}

// Snapshot implements Store; it takes no time, whatever the size.
func (m *Memory) Snapshot() (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memorySnapshot{tree: m.tree.Copy(), seq: m.seq}, nil
}

// Replace implements Store.
func (m *Memory) Replace(from Reader, seq uint64) error {
	fresh := NewMemory()
	err := from.Scan(nil, nil, func(key, v []byte) bool {
		fresh.tree.Set(string(key), v)
		fresh.more(key, v)
		return true
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tree, m.bytes, m.sum, m.steps, m.seq = fresh.tree, fresh.bytes, fresh.sum, fresh.steps, seq
	return nil
}

// Flush does nothing: there is nothing that lasts.
func (m *Memory) Flush() error { return nil }

// Close implements Store.
func (m *Memory) Close() error { return nil }

type memorySnapshot struct {
	tree *btree.Map[string, []byte]
	seq  uint64
}

func (s *memorySnapshot) Get(key []byte) ([]byte, bool, error) {
	v, ok := s.tree.Get(string(key))
	return v, ok, nil
}

func (s *memorySnapshot) Scan(from, to []byte, f func(key, v []byte) bool) error {
	scan(s.tree, from, to, f)
	return nil
}

func (s *memorySnapshot) Seq() uint64  { return s.seq }
func (s *memorySnapshot) Close() error { return nil }
