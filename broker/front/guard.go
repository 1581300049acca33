package front

import (
	"bytes"

	"github.com/heraldmq/herald/broker/wire"
)

// What a client could have the broker do in its stead, by the reply subject or
// by headers of a message, it must have the right to do itself. The decisions
// are in docs/security.md.

// reservedSubject tells whether a subject is the servers' own.
func reservedSubject(b []byte) bool {
	return len(b) > 4 && b[0] == '$' && string(b[:5]) == "$NRG."
}

// reservedReply tells whether a reply subject is one that only the broker may
// set: it would be taken for its own.
func reservedReply(b []byte) bool {
	return hasPrefix(b, "$JS.ACK.") || hasPrefix(b, "_R_.") || hasPrefix(b, "_GR_.")
}

// asksBroker tells whether an answer to the reply subject would be a request to
// the broker: whoever answers would make it with their own rights.
func asksBroker(b []byte) bool {
	return b[0] == '$' && (hasPrefix(b, "$JS.") || hasPrefix(b, "$SYS.") || hasPrefix(b, "$HERALD."))
}

func hasPrefix(b []byte, p string) bool { return len(b) >= len(p) && string(b[:len(p)]) == p }

// requestInfo is the header by which servers tell a service who asks. From a
// client it would be a forgery.
var requestInfo = []byte("Nats-Request-Info")

// mentions tells whether a header block has key anywhere, in whatever case. The
// key must hold a '-': by it most blocks are told apart at once.
func mentions(block, key []byte) bool {
	at := bytes.IndexByte(key, '-')
	for from := 0; ; {
		i := bytes.IndexByte(block[from:], '-')
		if i < 0 {
			return false
		}
		i += from
		from = i + 1
		if i >= at && len(block)-(i-at) >= len(key) && bytes.EqualFold(block[i-at:i-at+len(key)], key) {
			return true
		}
	}
}

// withoutKey returns a copy of the block without the lines of key. Clients take
// the key in any case, with blanks around it, and lines that end with CR or LF
// alone: so does this.
func withoutKey(block, key []byte) []byte {
	out := make([]byte, 0, len(block))
	for first := true; len(block) > 0; first = false {
		end := bytes.IndexAny(block, "\r\n")
		if end < 0 {
			end = len(block)
		}
		name, _, _ := bytes.Cut(block[:end], []byte(":"))
		drop := !first && bytes.EqualFold(bytes.TrimSpace(name), key)
		switch { // the whole end of the line
		case end+1 < len(block) && block[end] == '\r' && block[end+1] == '\n':
			end += 2
		case end < len(block):
			end++
		}
		if !drop {
			out = append(out, block[:end]...)
		}
		block = block[end:]
	}
	if string(out) == wire.HeaderLine+wire.CRLF+wire.CRLF {
		return nil
	}
	return out
}

// scheduled begins the headers about scheduled messages.
var scheduled = []byte("Nats-Schedule")

// scheduleDenied tells why a message with headers about schedules isn't taken:
// the broker would publish to the target, read the source and end the schedule
// named, so the client must have the right to.
func (s *session) scheduleDenied(header []byte) (denial string) {
	if s.rules() == nil || len(header) == 0 || !bytes.Contains(header, scheduled) {
		return ""
	}
	wire.HeaderEach(header, func(k, v []byte) bool {
		subj := string(v)
		switch string(k) {
		case "Nats-Schedule-Target", "Nats-Scheduler":
			if !s.mayPublish(subj) {
				denial = wire.DeniedPublish(subj)
			}
		case "Nats-Schedule-Source":
			if !s.maySubscribe(subj, "") {
				denial = wire.DeniedSubscribe(subj, "")
			}
		}
		return denial == ""
	})
	return denial
}
