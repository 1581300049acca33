package observe

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/wire"
)

// The bounds of one counter.
const (
	publishersMax = 1024            // clients told apart; more are counted as so many
	publisherAge  = 5 * time.Minute // a client that published no later is live
	offerPause    = 100 * time.Millisecond
)

// Key says where the key of a message is; the zero value: it has none.
type Key struct {
	Header  string
	Token   int    // of the subject, from 1
	Pointer string // JSON pointer: seen in samples only
}

// Sample is a copy of a message, for what is too much work to be done while publishing.
type Sample struct {
	Subject, Header, Payload []byte
}

// Tally counts the messages of one advertisement, or of one undeclared pattern. It
// implements front.Tally.
type Tally struct {
	// Set at construction.

	Pattern  string
	declares bool // an advertisement of one who publishes
	key      Key
	now      func() time.Time
	offer    func(*Tally, Sample) // nil: samples are of no use

	busy    atomic.Pointer[busy]   // nil until something is published
	keys    atomic.Pointer[sketch] // nil until one is seen
	offered atomic.Int64           // when, unix ns
	rank    atomic.Int64           // of undeclared ones
	evicted atomic.Pointer[Tally]

	checked, failed atomic.Int64 // since the last Add or Stats
}

// busy is what a tally needs once there is something to count.
type busy struct {
	mu         sync.Mutex
	total      counts
	minute     window
	hour       window
	last       time.Time
	publishers map[uint64]time.Time
	crowded    bool
}

func (t *Tally) awake() *busy {
	if b := t.busy.Load(); b != nil {
		return b
	}
	b := &busy{minute: newWindow(5*time.Second, 12), hour: newWindow(time.Minute, 60), publishers: map[uint64]time.Time{}}
	if t.busy.CompareAndSwap(nil, b) {
		return b
	}
	return t.busy.Load()
}

// distinct is what estimates how many keys there are, or subjects.
func (t *Tally) distinct() *sketch {
	if k := t.keys.Load(); k != nil {
		return k
	}
	k := &sketch{}
	if t.keys.CompareAndSwap(nil, k) {
		return k
	}
	return t.keys.Load()
}

// Add implements front.Tally.
func (t *Tally) Add(msgs, size int64, client uint64) {
	if in := t.evicted.Load(); in != nil {
		in.Add(msgs, size, client)
		return
	}
	t.rank.Add(msgs)
	b, now := t.awake(), t.now()
	c := counts{msgs: msgs, bytes: size, checked: t.checked.Swap(0), failed: t.failed.Swap(0)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total.add(c)
	b.minute.add(now, c)
	b.hour.add(now, c)
	b.last = now
	if client == 0 {
		return
	}
	if _, known := b.publishers[client]; !known && len(b.publishers) >= publishersMax {
		if b.forget(now); len(b.publishers) >= publishersMax {
			b.crowded = true
			return
		}
	}
	b.publishers[client] = now
}

// forget drops clients that have not published for long. b.mu is held.
func (b *busy) forget(now time.Time) {
	for c, at := range b.publishers {
		if now.Sub(at) > publisherAge {
			delete(b.publishers, c)
			b.crowded = false
		}
	}
}

// Offer implements front.Tally.
func (t *Tally) Offer(m *front.Message) {
	if t.key == (Key{}) {
		t.distinct().add(m.Subject)
	}
	if t.offer == nil {
		return
	}
	now, last := t.now().UnixNano(), t.offered.Load()
	if now-last < int64(offerPause) || !t.offered.CompareAndSwap(last, now) {
		return
	}
	t.offer(t, Sample{bytes.Clone(m.Subject), bytes.Clone(m.Header), bytes.Clone(m.Payload)})
}

// Keyed implements front.Tally.
func (t *Tally) Keyed() bool { return t.key.Header != "" || t.key.Token > 0 }

// Key implements front.Tally.
func (t *Tally) Key(m *front.Message) {
	if t.key.Token > 0 {
		rest := m.Subject
		for range t.key.Token - 1 {
			if _, rest, _ = bytes.Cut(rest, []byte{'.'}); rest == nil {
				return
			}
		}
		token, _, _ := bytes.Cut(rest, []byte{'.'})
		t.distinct().add(token)
		return
	}
	if v := wire.HeaderGet(m.Header, t.key.Header); v != nil {
		t.distinct().add(v)
	}
}

// SawKey counts a key that was found in a sample.
func (t *Tally) SawKey(key []byte) { t.distinct().add(key) }

// Checked counts one message that was held against the schema. Any goroutine; no lock.
func (t *Tally) Checked(ok bool) {
	t.checked.Add(1)
	if !ok {
		t.failed.Add(1)
	}
}

// KeyPointer is where the key is in the payload, "" when it isn't there.
func (t *Tally) KeyPointer() string { return t.key.Pointer }

// Stats returns what was counted so far.
func (t *Tally) Stats() Stats {
	s := Stats{Pattern: t.Pattern}
	b := t.busy.Load()
	if b == nil && t.checked.Load() == 0 {
		return s
	}
	b = t.awake()
	now := t.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := (counts{checked: t.checked.Swap(0), failed: t.failed.Swap(0)}); c != (counts{}) {
		b.total.add(c)
		b.minute.add(now, c)
		b.hour.add(now, c)
	}
	m, h := b.minute.sum(now), b.hour.sum(now)
	b.forget(now)
	s.Msgs, s.Bytes = b.total.msgs, b.total.bytes
	s.Msgs1m, s.Bytes1m, s.Msgs1h, s.Bytes1h = m.msgs, m.bytes, h.msgs, h.bytes
	s.Checked1h, s.Failed1h = h.checked, h.failed
	s.Last, s.Publishers, s.ManyPublishers = b.last, len(b.publishers), b.crowded
	s.Registers = t.distinct().registers()
	s.ByKey = t.key != (Key{})
	return s
}

// generalise returns the pattern that a subject nobody advertises is counted under:
// tokens that look made up for one message or thing become "*".
func generalise(subject string) string {
	tokens := strings.Split(subject, ".")
	const most = 12
	if len(tokens) > most {
		tokens = append(tokens[:most-1], ">")
	}
	for i, t := range tokens {
		if looksMadeUp(t) {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// looksMadeUp: numbers, UUIDs, hashes, NUIDs and the like.
func looksMadeUp(t string) bool {
	digits, hex := 0, true
	for i := range len(t) {
		switch c := t[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'f', c >= 'A' && c <= 'F', c == '-':
		default:
			hex = false
		}
	}
	return digits > 0 && (digits == len(t) || hex && len(t) >= 8 || len(t) >= 20) || len(t) > 64
}
