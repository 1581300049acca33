package store

import (
	"bytes"
	"encoding/binary"

	"github.com/heraldmq/herald/topics"
)

// PublishRun applies publish records of the entry given to Begin, from off on and at most
// most of them, for as long as they are plain and of one topic and subject: what Publish
// does for each of them, at a fraction of its cost, since nothing has to be looked at more
// than once. It returns the first one's sequence (those of the others follow), how many it
// has applied, and where the next record is. With none applied, the record at off is for
// Publish, or not readable.
func (s *Store) PublishRun(off, most int) (first topics.Sequence, n, next int) {
	entry := s.entry
	if off < 0 || off+recordBody > len(entry) || topics.RecordKind(entry[off]) != topics.RecordPublish {
		return 0, 0, off
	}
	id := topics.TopicID(binary.LittleEndian.Uint64(entry[off+topics.RecordHeader:]))
	subjectEnd := recordBody + int(binary.LittleEndian.Uint16(entry[off+recordSubject:]))
	flags, header := entry[off+recordFlags], binary.LittleEndian.Uint32(entry[off+recordHeader:])
	if flags != 0 || header != 0 || off+subjectEnd > len(entry) {
		return 0, 0, off
	}
	t := s.find(id)
	if t == nil || !t.plain() {
		return 0, 0, off
	}
	// All records of the run have the same bytes here: topic, flags, lengths, subject.
	same := entry[off+topics.RecordHeader : off+subjectEnd]
	limit := t.room()
	var sub uint32
	next = off
	for n < most {
		length, ok := runRecord(entry, next, same)
		size := t.size(len(same), 0, length-len(same)) - publishFixed
		if !ok || !limit.takes(t, size, length-len(same)) {
			break
		}
		if n == 0 {
			first = t.last + 1
			sub = t.beginRun(alias(same[publishFixed:]))
		}
		t.last++
		t.messages++
		t.bytes += size
		t.refs.push(t.last, s.keep(next), sub)
		s.marks.stored(id, t.last, s.now, entry[next:])
		next += topics.RecordHeader + length
		n++
	}
	if n > 0 {
		t.subjects.addedRun(sub, t.last, n-1)
		t.endRun()
	}
	return first, n, next
}

// runRecord returns the length of the body of the record at off; false if it isn't one of
// a run whose records begin with same.
func runRecord(entry []byte, off int, same []byte) (length int, ok bool) {
	rest := entry[off:]
	if len(rest) < topics.RecordHeader || topics.RecordKind(rest[0]) != topics.RecordPublish {
		return 0, false
	}
	length = int(binary.LittleEndian.Uint32(rest[recordLength:]))
	body := rest[topics.RecordHeader:]
	if length > len(body) || length < len(same) {
		return 0, false
	}
	return length, bytes.Equal(body[:len(same)], same)
}

// plain tells whether a message without headers needs nothing but to be stored, as long as
// it is within room.
func (t *Topic) plain() bool {
	cfg := t.cfg
	return !cfg.Sealed && !cfg.AllowMsgCounter && cfg.Retention != topics.RetainInterest &&
		cfg.Discard != topics.DiscardNew && cfg.MaxMsgsPer <= 0 && !t.checked
}

// runRoom is what a run may add to a topic before a limit has to be enforced.
type runRoom struct {
	messages uint64 // that the topic has at most
	bytes    uint64
	payload  int // of one message
}

func (t *Topic) room() runRoom {
	r := runRoom{messages: ^uint64(0), bytes: ^uint64(0), payload: int(^uint(0) >> 1)}
	if n := t.cfg.MaxMsgs; n > 0 {
		r.messages = uint64(n)
	}
	if n := t.cfg.MaxBytes; n > 0 {
		r.bytes = uint64(n)
	}
	if n := t.cfg.MaxMsgSize; n > 0 {
		r.payload = int(n)
	}
	return r
}

func (r *runRoom) takes(t *Topic, size uint64, payload int) bool {
	return t.messages < r.messages && t.bytes+size <= r.bytes && payload <= r.payload
}

// beginRun does what has to be done once for a run of messages of a subject, the first of
// which comes next, and returns the subject's slot.
func (t *Topic) beginRun(subj string) uint32 {
	s := t.s
	if t.messages == 0 {
		t.first, t.firstTime = t.last+1, s.now
	}
	t.lastTime = s.now
	i, fresh := t.subjects.add(subj, t.last+1)
	if fresh && len(t.matchers) > 0 {
		t.forgetMatches(i)
	}
	if t.expiries != nil && t.expiries.oldTime == 0 {
		t.expiries.oldTime = s.now
	}
	return i
}

func (t *Topic) endRun() {
	t.lastMsgID = ""
	t.touch()
	if !t.grew {
		t.grew = true
		t.s.grown = append(t.s.grown, t.id)
	}
}
