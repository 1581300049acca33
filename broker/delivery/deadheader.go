package delivery

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// The headers of a dead letter.
const (
	deadPrefix   = "Herald-Dead-"
	deadWas      = deadPrefix + "Was-" // in front of headers that would act on the letter itself
	DeadReason   = deadPrefix + "Reason"
	DeadDetail   = deadPrefix + "Detail"
	DeadAttempts = deadPrefix + "Attempts"
	DeadStream   = deadPrefix + "Stream"
	DeadSequence = deadPrefix + "Sequence"
	DeadConsumer = deadPrefix + "Consumer"
	DeadSubject  = deadPrefix + "Subject"
	DeadTime     = deadPrefix + "Time" // when the message was stored
	DeadAt       = deadPrefix + "At"   // when it was given up
)

// The values of DeadReason.
const (
	ReasonMaxDeliver = "max_deliver"
	ReasonTerminated = "terminated"
)

const detailMost = 512

// deadHeader returns the header block of a dead letter.
func (r *reader) deadHeader(m *topics.Message, d *consumer.Dying, now topics.Nanos) []byte {
	b := append(make([]byte, 0, len(m.Header)+512), headerLine...)
	_, rest, _ := bytes.Cut(m.Header, []byte("\r\n"))
	for len(rest) > 2 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		switch {
		case len(line) == 0 || bytes.HasPrefix(line, []byte(deadPrefix)):
			continue
		case acts(line):
			b = append(b, deadWas...)
		}
		b = append(append(b, line...), "\r\n"...)
	}
	put := func(key, value string) {
		b = append(append(append(append(b, key...), ": "...), value...), "\r\n"...)
	}
	reason := ReasonMaxDeliver
	if d.Terminated {
		reason = ReasonTerminated
	}
	put(DeadReason, reason)
	if text := oneLine(d.Reason); text != "" {
		put(DeadDetail, text)
	}
	put(DeadAttempts, strconv.FormatUint(uint64(d.Attempts), 10))
	put(DeadStream, r.topic.name)
	put(DeadSequence, strconv.FormatUint(uint64(m.Sequence), 10))
	put(DeadConsumer, r.name)
	put(DeadSubject, m.Subject)
	put(DeadTime, time.Unix(0, int64(m.Time)).UTC().Format(time.RFC3339Nano))
	put(DeadAt, time.Unix(0, int64(now)).UTC().Format(time.RFC3339Nano))
	return append(b, "\r\n"...)
}

// acts tells whether a header line changes how a message is stored.
func acts(line []byte) bool {
	for _, prefix := range []string{
		"Nats-Schedule", "Nats-Expected-", "Nats-Msg-Id:", "Nats-Rollup:", "Nats-TTL:", "Nats-Incr:", "Nats-Batch-",
	} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			return true
		}
	}
	return false
}

func oneLine(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > detailMost {
		s = strings.ToValidUTF8(s[:detailMost], "")
	}
	return strings.TrimSpace(s)
}
