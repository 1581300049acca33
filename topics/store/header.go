package store

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/heraldmq/herald/topics"
)

// headerMax is the largest header block a topic takes.
const headerMax = math.MaxUint16

// headers are the header fields the store acts on. The strings alias the entry.
type headers struct {
	msgID           string
	expectedTopic   string
	expectedMsgID   string
	expectedSubject string
	rollup          string
	ttl             string
	incr            string
	counterSources  string
	source          string
	schedule        string
	scheduler       string
	scheduleNext    string
	batchID         string

	expectedLast        topics.Sequence
	expectedLastSubject topics.Sequence
	hasLast             bool
	hasLastSubject      bool
}

// parseHeaders reads a header block once. Malformed lines are skipped: they are
// the publisher's business.
func parseHeaders(block []byte) (h headers) {
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) < 6 || string(line[:5]) != "Nats-" {
			continue
		}
		key, value, ok := bytes.Cut(line, []byte(":"))
		if ok {
			h.set(alias(key), alias(bytes.TrimSpace(value)))
		}
	}
	return h
}

// alias returns a string on immutable bytes.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// set takes the first value of each field, as nats-server does.
func (h *headers) set(key, value string) {
	var field *string
	switch key {
	case "Nats-Msg-Id":
		field = &h.msgID
	case "Nats-Expected-Stream":
		field = &h.expectedTopic
	case "Nats-Expected-Last-Msg-Id":
		field = &h.expectedMsgID
	case "Nats-Expected-Last-Subject-Sequence-Subject":
		field = &h.expectedSubject
	case "Nats-Rollup":
		field = &h.rollup
	case "Nats-TTL":
		field = &h.ttl
	case "Nats-Incr":
		field = &h.incr
	case "Nats-Counter-Sources":
		field = &h.counterSources
	case "Nats-Stream-Source":
		field = &h.source
	case "Nats-Batch-Id":
		field = &h.batchID
	case "Nats-Schedule":
		field = &h.schedule
	case "Nats-Scheduler":
		field = &h.scheduler
	case "Nats-Schedule-Next":
		field = &h.scheduleNext
	case "Nats-Expected-Last-Sequence":
		if !h.hasLast {
			h.expectedLast, h.hasLast = parseSequence(value), true
		}
		return
	case "Nats-Expected-Last-Subject-Sequence":
		if !h.hasLastSubject {
			h.expectedLastSubject, h.hasLastSubject = parseSequence(value), true
		}
		return
	default:
		return
	}
	if *field == "" {
		*field = value
	}
}

// parseSequence reads a sequence; what is not a number can't be any topic's
// last.
func parseSequence(s string) topics.Sequence {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return topics.Sequence(n)
}

// never is the time to live of a message that outlives its topic's max_age.
const never = topics.Nanos(math.MaxInt64)

// parseTTL reads Nats-TTL: seconds, a duration of at least one, or "never". 0 is
// no time to live.
func parseTTL(s string) (ttl topics.Nanos, ok bool) {
	if strings.EqualFold(s, "never") {
		return never, true
	}
	if d, err := time.ParseDuration(s); err == nil && s != "0" {
		return topics.Nanos(d.Truncate(time.Second)), d >= time.Second
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return topics.Nanos(n) * topics.Nanos(time.Second), err == nil
}

// withHeader returns a header block with one field set.
func withHeader(block []byte, key, value string) []byte {
	out := append(make([]byte, 0, len(block)+len(key)+len(value)+4), "NATS/1.0\r\n"...)
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	for len(rest) > 2 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if k, _, ok := bytes.Cut(line, []byte(":")); len(line) > 0 && (!ok || string(k) != key) {
			out = append(append(out, line...), "\r\n"...)
		}
	}
	out = append(append(append(out, key...), ": "...), value...)
	return append(out, "\r\n\r\n"...)
}

// fieldOf returns one field of a header block.
func fieldOf(block []byte, key string) string {
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && alias(k) == key {
			return alias(bytes.TrimSpace(v))
		}
	}
	return ""
}
