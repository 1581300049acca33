package delivery

import (
	"bytes"
	"time"
)

// parseFlat reads the requests that clients really send, flat objects of numbers,
// booleans and plain strings, without allocating: a client that asks for one
// message at a time sends one per message. It reports false for everything else,
// which encoding/json then judges.
func (w *wireRequest) parseFlat(b []byte) bool {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return false
	}
	b = bytes.TrimSpace(b[1 : len(b)-1])
	for len(b) > 0 {
		key, rest, ok := cutString(b)
		if !ok {
			return false
		}
		rest = bytes.TrimLeft(rest, " ")
		if len(rest) == 0 || rest[0] != ':' {
			return false
		}
		rest = bytes.TrimLeft(rest[1:], " ")
		if rest, ok = w.set(key, rest); !ok {
			return false
		}
		if rest = bytes.TrimLeft(rest, " "); len(rest) == 0 {
			return true
		}
		if rest[0] != ',' {
			return false
		}
		if b = bytes.TrimLeft(rest[1:], " "); len(b) == 0 {
			return false
		}
	}
	return true
}

// set reads the value of a field from the beginning of b.
func (w *wireRequest) set(key, b []byte) (rest []byte, ok bool) {
	var n int64
	switch string(key) {
	case "batch":
		n, rest, ok = cutInt(b)
		w.Batch = int(n)
	case "expires":
		n, rest, ok = cutInt(b)
		w.Expires = time.Duration(n)
	case "max_bytes":
		n, rest, ok = cutInt(b)
		w.MaxBytes = int(n)
	case "idle_heartbeat":
		n, rest, ok = cutInt(b)
		w.Heartbeat = time.Duration(n)
	case "min_pending":
		w.MinPending, rest, ok = cutInt(b)
	case "min_ack_pending":
		w.MinAckPending, rest, ok = cutInt(b)
	case "priority":
		n, rest, ok = cutInt(b)
		w.Priority = int(n)
	case "no_wait":
		if rest, ok = bytes.CutPrefix(b, []byte("true")); ok {
			w.NoWait = true
		} else if rest, ok = bytes.CutPrefix(b, []byte("false")); ok {
			w.NoWait = false
		}
	case "group":
		var s []byte
		s, rest, ok = cutString(b)
		w.Group = string(s)
	case "id":
		var s []byte
		s, rest, ok = cutString(b)
		w.ID = string(s)
	}
	return rest, ok
}

// cutString cuts a string without escapes off.
func cutString(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return b[1:i], b[i+1:], true
		case c == '\\' || c < ' ' || c >= 0x80:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// cutInt cuts a whole number of at most 18 digits off.
func cutInt(b []byte) (n int64, rest []byte, ok bool) {
	i, sign := 0, int64(1)
	if len(b) > 0 && b[0] == '-' {
		i, sign = 1, -1
	}
	start := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	digits := i - start
	if digits == 0 || digits > 18 || digits > 1 && b[start] == '0' {
		return 0, nil, false
	}
	return sign * n, b[i:], true
}
