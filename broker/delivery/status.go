package delivery

import (
	"bytes"
	"strconv"

	"github.com/nats-io/nuid"
)

// The statuses that carry nothing but themselves.
var (
	statusNoMessages      = []byte("NATS/1.0 404 No Messages\r\n\r\n")
	statusRequestsPending = []byte("NATS/1.0 408 Requests Pending\r\n\r\n")
	statusMaxWaiting      = []byte("NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n")
	statusPushBased       = []byte("NATS/1.0 409 Consumer is push based\r\n\r\n")
	statusDeleted         = []byte("NATS/1.0 409 Consumer Deleted\r\n\r\n")
	statusLeadership      = []byte("NATS/1.0 409 Leadership Change\r\n\r\n")
	statusShutdown        = []byte("NATS/1.0 409 Server Shutdown\r\n\r\n")
	statusAPILevel        = []byte("NATS/1.0 412 Required Api Level\r\n\r\n")
	statusFlowControl     = []byte("NATS/1.0 100 FlowControl Request\r\n\r\n")
)

// The statuses that tell what a request still had to get.
const (
	textTimeout      = "408 Request Timeout"
	textBatchDone    = "409 Batch Completed"
	textSizeExceeds  = "409 Message Size Exceeds MaxBytes"
	textWrongPin     = "423 Nats-Wrong-Pin-Id"
	textIdle         = "100 Idle Heartbeat"
	headerLine       = "NATS/1.0\r\n"
	headerMsgSize    = "Nats-Msg-Size"
	headerPin        = "Nats-Pin-Id"
	headerAPILevel   = "Nats-Required-Api-Level"
	supportedLevel   = 5
	badRequestPrefix = "Bad Request - "
)

func newID() string { return nuid.Next() }

// status returns a status with a description.
func status(code int, text string) []byte {
	return []byte("NATS/1.0 " + strconv.Itoa(code) + " " + text + "\r\n\r\n")
}

// pendingStatus returns a status that ends a request early.
func pendingStatus(text string, messages, size int) []byte {
	b := make([]byte, 0, 128)
	b = append(append(b, "NATS/1.0 "...), text...)
	b = append(b, "\r\nNats-Pending-Messages: "...)
	b = strconv.AppendInt(b, int64(messages), 10)
	b = append(b, "\r\nNats-Pending-Bytes: "...)
	b = strconv.AppendInt(b, int64(size), 10)
	return append(b, "\r\n\r\n"...)
}

// idleStatus returns a heartbeat; stalled is the flow control subject that waits
// for an answer, "" if none.
func idleStatus(number, sequence uint64, stalled string) []byte {
	b := make([]byte, 0, 160)
	b = append(b, "NATS/1.0 "+textIdle+"\r\nNats-Last-Consumer: "...)
	b = strconv.AppendUint(b, number, 10)
	b = append(b, "\r\nNats-Last-Stream: "...)
	b = strconv.AppendUint(b, sequence, 10)
	if stalled != "" {
		b = append(append(b, "\r\nNats-Consumer-Stalled: "...), stalled...)
	}
	return append(b, "\r\n\r\n"...)
}

// appendHeaderBlock appends a message's header block with one more header.
func appendHeaderBlock(dst, block []byte, key, value string) []byte {
	if len(block) < len(headerLine)+2 {
		dst = append(dst, headerLine...)
	} else {
		dst = append(dst, block[:len(block)-2]...)
	}
	dst = append(append(append(dst, key...), ": "...), value...)
	return append(dst, "\r\n\r\n"...)
}

// headerLength returns how long a block of n bytes gets by appendHeaderBlock.
func headerLength(n int, key string, value int) int {
	return max(n, len(headerLine)+2) + len(key) + 2 + value + 2
}

// headerValue returns the value of a header, nil if there is none.
func headerValue(block []byte, key string) []byte {
	for rest := block; ; {
		i := bytes.Index(rest, []byte(key))
		if i < 0 {
			return nil
		}
		end := i + len(key)
		if i >= 2 && rest[i-1] == '\n' && end < len(rest) && rest[end] == ':' {
			value, _, ok := bytes.Cut(rest[end+1:], []byte("\r\n"))
			if !ok {
				return nil
			}
			return bytes.TrimSpace(value)
		}
		rest = rest[end:]
	}
}

// levelTooHigh tells whether a request asks for a level this broker hasn't.
func levelTooHigh(header []byte) bool {
	v := headerValue(header, headerAPILevel)
	if v == nil {
		return false
	}
	n, err := strconv.Atoi(string(v))
	return err != nil || n > supportedLevel
}
