package state

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// An atomic batch (ADR-50) is a run of messages of one publisher that are stored
// together or not at all. Its messages name the batch and their place in it; the
// last one commits. Until then they are staged in memory, on the leader alone:
// a batch that its publisher doesn't finish, or whose leader goes, was never
// there. A commit puts all of them into one entry, behind a record that says that
// they stand or fall together; what is checked is checked when it is applied.

// The headers of an atomic batch.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// stagedBytesMax bounds one atomic batch, and stagedBytesTotal those of a group
// together.
const (
	stagedBytesMax   = 32 << 20
	stagedBytesTotal = 128 << 20
)

// batchIDMax is the longest name of a batch.
const batchIDMax = 64

// BatchLimits bounds the batches that publishers have begun and not finished. Zero
// values mean nats-server's defaults.
type BatchLimits struct {
	AtomicPerTopic int           // 50
	AtomicTotal    int           // 1,000 on this node
	AtomicMessages int           // 1,000 in one batch
	FastPerTopic   int           // 1,000
	FastTotal      int           // 50,000 on this node
	Idle           time.Duration // after which a batch is given up; 10 s
}

func (l BatchLimits) withDefaults() BatchLimits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.AtomicPerTopic, 50)
	def(&l.AtomicTotal, 1000)
	def(&l.AtomicMessages, 1000)
	def(&l.FastPerTopic, 1000)
	def(&l.FastTotal, 50_000)
	if l.Idle <= 0 {
		l.Idle = 10 * time.Second
	}
	return l
}

// batchCounts are the batches under way in all groups of a node.
type batchCounts struct{ atomic, fast atomic.Int64 }

// Why a batch is abandoned, in nats-server's words.
const (
	abandonedTimeout    = "timeout"
	abandonedLarge      = "large"
	abandonedIncomplete = "incomplete"
	abandonedLevel      = "unsupported"
)

type batchKey struct {
	topic topics.TopicID
	id    string
}

// staged is an atomic batch under way.
type staged struct {
	topic   *Topic
	records []byte // its publish records
	starts  []int  // where each of them begins
	last    uint64 // place of the last message
	until   topics.Nanos
}

// staging is the atomic batches under way. The queue's mu guards it.
type staging struct {
	limits BatchLimits
	counts *batchCounts
	open   map[batchKey]*staged
	per    map[topics.TopicID]int
	bytes  int
}

// batchAck is what the PubAck of a batch has beside that of a message.
type batchAck struct {
	id    string
	count uint64
}

// isBatched tells whether a message belongs to an atomic batch, and to which.
func isBatched(header []byte) (id string, ok bool) {
	if len(header) == 0 || !bytes.Contains(header, []byte("\r\n"+headerBatchID+":")) {
		return "", false
	}
	id = headerField(header, headerBatchID)
	return id, id != ""
}

// headerField returns the first value of a field of a header block, "" if it isn't
// there.
func headerField(block []byte, key string) string {
	v, _ := jsapi.HeaderValue(block, key)
	return v
}

// withField returns a header block with one more field.
func withField(block []byte, key, value string) []byte {
	out := make([]byte, 0, len(block)+len(key)+len(value)+4)
	out = append(out, block[:max(len(block)-2, 0)]...)
	return append(append(append(append(out, key...), ": "...), value...), "\r\n\r\n"...)
}

// stage takes a message of an atomic batch, or says why not. The queue's mu is
// held.
func (q *queue) stage(t *Topic, m *front.Captured, node, id string) *topics.Fault {
	cfg := t.Config()
	size := len(m.Header) + len(m.Payload)
	switch {
	case cfg.Sealed:
		return faultSealed
	case cfg.MaxMsgSize > 0 && size > int(cfg.MaxMsgSize):
		return faultTooBig
	case !cfg.AllowAtomic:
		return faultAtomicDisabled
	case len(id) > batchIDMax:
		return faultAtomicID
	}
	place, err := strconv.ParseUint(headerField(m.Header, headerBatchSequence), 10, 64)
	if err != nil {
		return faultAtomicSequence
	}
	commit := headerField(m.Header, headerBatchCommit)
	marker := commit == "eob" // only ends the batch, is not of it
	count := place
	if marker {
		count--
	}
	s, k := &q.staging, batchKey{t.id, id}
	b := s.open[k]
	if b == nil {
		if place != 1 {
			if count > uint64(s.limits.AtomicMessages) {
				return faultAtomicTooLarge(s.limits.AtomicMessages)
			}
			return faultAtomicIncomplete
		}
		if s.bytes+size > stagedBytesTotal || !s.room(t.id) {
			return faultAtomicInFlight
		}
		b = &staged{topic: t}
		s.add(k, b)
		q.nudge()
	}
	b.until = q.now() + topics.Nanos(s.limits.Idle)
	b.last++
	switch {
	case commit != "" && commit != "1" && !marker:
		s.remove(k, b)
		return faultAtomicCommit
	case !jsapi.LevelMet(m.Header):
		s.remove(k, b)
		q.abandoned(t, id, abandonedLevel)
		return jsapi.ErrRequiredAPILevel
	case b.last != place, place == 1 && marker, s.bytes+size > stagedBytesTotal:
		s.remove(k, b)
		q.abandoned(t, id, abandonedIncomplete)
		return faultAtomicIncomplete
	case count > uint64(s.limits.AtomicMessages), len(b.records)+size > stagedBytesMax:
		s.remove(k, b)
		q.abandoned(t, id, abandonedLarge)
		return faultAtomicTooLarge(s.limits.AtomicMessages)
	}
	if !marker {
		s.bytes -= len(b.records)
		b.starts = append(b.starts, len(b.records))
		b.records = topics.AppendPublish(b.records, &topics.Publish{
			Topic: t.id, Subject: t.mapped(m.Subject), Header: m.Header, Payload: m.Payload,
		})
		s.bytes += len(b.records)
	}
	if commit == "" {
		q.tell(t, m.Account, node, string(m.Reply), nil) // it is staged
		return nil
	}
	s.remove(k, b)
	if marker {
		b.end()
	}
	q.commit(b, m, node, &batchAck{id, count})
	return nil
}

// end makes the last message the one that commits.
func (b *staged) end() {
	at := b.starts[len(b.starts)-1]
	_, body, _, err := topics.NextRecord(b.records, at)
	if err != nil {
		return // it was written by stage
	}
	p, err := topics.ParsePublish(body)
	if err != nil {
		return
	}
	p.Header = withField(p.Header, headerBatchCommit, "1")
	b.records = topics.AppendPublish(b.records[:at:at], &p)
}

// commit moves a batch into the entry that is being gathered.
func (q *queue) commit(s *staged, m *front.Captured, node string, ack *batchAck) {
	b := q.open
	b.buf = topics.AppendRecord(b.buf, topics.RecordAtomic, binary.LittleEndian.AppendUint32(nil, uint32(len(s.starts))))
	b.submits = append(b.submits, nil)
	b.records++
	for i, at := range s.starts {
		if s.topic.echo.Load() != nil {
			b.echoes = append(b.echoes, echo{topic: s.topic, account: m.Account, publish: b.publishes + uint32(i), record: len(b.buf) + at})
		}
	}
	b.buf = append(b.buf, s.records...)
	b.publishes += uint32(len(s.starts))
	b.records += uint32(len(s.starts))
	if len(m.Reply) > 0 && !s.topic.noAck.Load() {
		b.wait(wait{topic: s.topic, account: m.Account, node: node, publish: b.publishes - 1, batch: ack}, m.Reply)
	}
}

// room tells whether another batch may be begun, and counts it.
func (s *staging) room(id topics.TopicID) bool {
	if s.per[id] >= s.limits.AtomicPerTopic {
		return false
	}
	if s.counts.atomic.Add(1) > int64(s.limits.AtomicTotal) {
		s.counts.atomic.Add(-1)
		return false
	}
	return true
}

func (s *staging) add(k batchKey, b *staged) {
	if s.open == nil {
		s.open, s.per = map[batchKey]*staged{}, map[topics.TopicID]int{}
	}
	s.open[k] = b
	s.per[k.topic]++
}

func (s *staging) remove(k batchKey, b *staged) {
	delete(s.open, k)
	if s.per[k.topic]--; s.per[k.topic] == 0 {
		delete(s.per, k.topic)
	}
	s.bytes -= len(b.records)
	s.counts.atomic.Add(-1)
}

// sweep gives up the batches nothing came for and those of topics that are gone,
// and returns when to look again; 0 when there are none.
func (s *staging) sweep(now topics.Nanos, abandoned func(t *Topic, id, why string)) (next topics.Nanos) {
	for k, b := range s.open {
		if b.until <= now || b.topic.Gone() {
			s.remove(k, b)
			abandoned(b.topic, k.id, abandonedTimeout)
			continue
		}
		if next == 0 || b.until < next {
			next = b.until
		}
	}
	return next
}

// drop gives up all.
func (s *staging) drop() {
	for k, b := range s.open {
		s.remove(k, b)
	}
}
