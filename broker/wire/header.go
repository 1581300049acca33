package wire

import (
	"bytes"
	"strconv"
)

// HeaderLine begins every header block.
const HeaderLine = "NATS/1.0"

// NewHeader returns a block with the given keys and values, in order.
func NewHeader(pairs ...string) []byte { return NewStatus(0, "", pairs...) }

// NewStatus returns a block with a status line, and keys and values in order.
// Code 0 leaves the status away.
func NewStatus(code int, description string, pairs ...string) []byte {
	b := append(make([]byte, 0, 64), HeaderLine...)
	if code != 0 {
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(code), 10)
	}
	if description != "" {
		b = append(b, ' ')
		b = append(b, description...)
	}
	b = append(b, CRLF...)
	for i := 0; i+1 < len(pairs); i += 2 {
		b = appendPair(b, pairs[i], pairs[i+1])
	}
	return append(b, CRLF...)
}

func appendPair(b []byte, key, value string) []byte {
	b = append(b, key...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, CRLF...)
}

// ValidHeader tells whether block is a header block: its first line, lines of
// "key: value", an empty line, and nothing after that.
func ValidHeader(block []byte) bool {
	if !bytes.HasPrefix(block, []byte(HeaderLine)) || !bytes.HasSuffix(block, []byte("\r\n\r\n")) {
		return false
	}
	rest := afterLine(block)
	for len(rest) > 2 {
		line := rest[:lineLen(rest)]
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return false
		}
		rest = afterLine(rest)
	}
	return string(rest) == CRLF
}

// lineLen is the length of the first line without its end.
func lineLen(b []byte) int {
	if i := bytes.Index(b, []byte(CRLF)); i >= 0 {
		return i
	}
	return len(b)
}

func afterLine(b []byte) []byte { return b[min(lineLen(b)+2, len(b)):] }

// HeaderEach calls f for each key and its value, trimmed, until f returns
// false. Malformed lines are left out.
func HeaderEach(block []byte, f func(key, value []byte) bool) {
	if len(block) == 0 {
		return
	}
	for rest := afterLine(block); len(rest) > 0; rest = afterLine(rest) {
		line := rest[:lineLen(rest)]
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			continue
		}
		if !f(line[:colon], bytes.TrimSpace(line[colon+1:])) {
			return
		}
	}
}

// HeaderGet returns the first value of key, spelled exactly so; nil when there
// is none. The result points into block.
func HeaderGet(block []byte, key string) (value []byte) {
	// Most messages don't carry the key: don't look at their lines.
	if !bytes.Contains(block, []byte(key)) {
		return nil
	}
	HeaderEach(block, func(k, v []byte) bool {
		if string(k) != key {
			return true
		}
		value = v
		if value == nil {
			value = []byte{}
		}
		return false
	})
	return value
}

// HeaderHas tells whether the key is there, with whatever value.
func HeaderHas(block []byte, key string) bool { return HeaderGet(block, key) != nil }

// HeaderRemove returns the block without the keys that drop selects; the same
// block when there are none, nil when nothing but the first line stayed and
// that carries no status.
func HeaderRemove(block []byte, drop func(key []byte) bool) []byte {
	found := false
	HeaderEach(block, func(k, _ []byte) bool { found = drop(k); return !found })
	if !found {
		return block
	}
	first := min(lineLen(block)+2, len(block))
	out := append(make([]byte, 0, len(block)), block[:first]...)
	for rest := block[first:]; len(rest) > 0; rest = afterLine(rest) {
		n := lineLen(rest)
		if colon := bytes.IndexByte(rest[:n], ':'); colon > 0 && drop(rest[:colon]) {
			continue
		}
		out = append(out, rest[:min(n+2, len(rest))]...)
	}
	if len(out) == first+2 && first == len(HeaderLine)+2 {
		return nil
	}
	return out
}

// HeaderOpen appends block to dst without its end, for more keys to follow. Keys
// that drop selects are left out: the broker's own would else come second to a
// client's.
func HeaderOpen(dst, block []byte, drop func(key []byte) bool) []byte {
	if bytes.Contains(block, []byte("Nats-")) {
		block = HeaderRemove(block, drop)
	}
	if len(block) == 0 {
		return append(append(dst, HeaderLine...), CRLF...)
	}
	return append(append(dst, bytes.TrimRight(block, CRLF)...), CRLF...)
}

// OriginKey tells whether key says where a message is stored, which only the
// broker knows.
func OriginKey(key []byte) bool {
	switch string(key) {
	case "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Last-Sequence", "Nats-Num-Pending",
		"Nats-UpTo-Sequence":
		return true
	}
	return false
}

// HeaderSet returns a new block with the key's values replaced by one. block
// may be empty.
func HeaderSet(block []byte, key, value string) []byte {
	block = HeaderRemove(block, func(k []byte) bool { return string(k) == key })
	if len(block) < 2 {
		return NewHeader(key, value)
	}
	out := make([]byte, 0, len(block)+len(key)+len(value)+4)
	out = append(out, block[:len(block)-2]...)
	out = appendPair(out, key, value)
	return append(out, CRLF...)
}

// HeaderStatus returns the status of the block's first line, 0 when it has
// none.
func HeaderStatus(block []byte) (code int, description string) {
	line := block[:lineLen(block)]
	rest, ok := bytes.CutPrefix(line, []byte(HeaderLine))
	if !ok {
		return 0, ""
	}
	rest = bytes.TrimSpace(rest)
	digits, text, _ := bytes.Cut(rest, []byte(" "))
	n, _ := size(digits)
	if n < 0 || len(digits) != 3 {
		return 0, ""
	}
	return n, string(bytes.TrimSpace(text))
}
