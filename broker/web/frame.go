package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// place is where a stored message stands.
type place struct {
	topic     string
	seq       uint64
	consumer  uint64 // its number among the reader's deliveries
	delivered uint64
	nanos     int64
	pending   uint64
}

// placeOf reads a message's place from its reply subject,
// $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>.
func placeOf(reply string) (p place, ok bool) {
	parts := bytes.Split([]byte(reply), []byte{'.'})
	if len(parts) < 9 || string(parts[0]) != "$JS" || string(parts[1]) != "ACK" {
		return p, false
	}
	f := parts[len(parts)-7:]
	if len(parts) >= 11 { // with domain, account hash and a random token at the end
		f = parts[4:]
	}
	p.topic = string(f[0])
	var n [5]uint64
	for i := range n {
		v, err := strconv.ParseUint(string(f[2+i]), 10, 64)
		if err != nil {
			return p, false
		}
		n[i] = v
	}
	p.delivered, p.seq, p.consumer, p.nanos, p.pending = n[0], n[1], n[2], int64(n[3]), n[4]
	return p, true
}

// appendMessage appends a message as subscribers get it. The payload is "data" when it
// is JSON, as it came; else "text" when it is text, else "base64".
func appendMessage(dst []byte, n uint64, m *message, at *place) []byte {
	dst = append(dst, `{"op":"msg","n":`...)
	dst = strconv.AppendUint(dst, n, 10)
	dst = append(dst, `,"subject":`...)
	dst = appendString(dst, m.subject)
	if at != nil {
		dst = append(dst, `,"topic":`...)
		dst = appendString(dst, at.topic)
		dst = append(dst, `,"seq":`...)
		dst = strconv.AppendUint(dst, at.seq, 10)
		dst = append(dst, `,"time":"`...)
		dst = time.Unix(0, at.nanos).UTC().AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, `","delivered":`...)
		dst = strconv.AppendUint(dst, at.delivered, 10)
		dst = append(dst, `,"pending":`...)
		dst = strconv.AppendUint(dst, at.pending, 10)
	} else if m.reply != "" {
		dst = append(dst, `,"reply":`...)
		dst = appendString(dst, m.reply)
	}
	dst = appendHeaders(dst, m.header)
	switch {
	case len(m.payload) == 0:
		dst = append(dst, `,"text":""`...)
	case !utf8.Valid(m.payload):
		dst = append(dst, `,"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, m.payload)
		dst = append(dst, '"')
	case json.Valid(m.payload):
		dst = append(dst, `,"data":`...)
		dst = append(dst, m.payload...)
	default:
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, string(m.payload))
	}
	return append(dst, '}')
}

// appendHeaders appends a header block as an object of lists.
func appendHeaders(dst, block []byte) []byte {
	_, rest, _ := bytes.Cut(block, []byte("\r\n"))
	var names []string
	values := map[string][]string{}
	for line := range bytes.SplitSeq(rest, []byte("\r\n")) {
		k, v, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		if values[string(k)] == nil {
			names = append(names, string(k))
		}
		values[string(k)] = append(values[string(k)], string(bytes.TrimSpace(v)))
	}
	for i, name := range names {
		if i == 0 {
			dst = append(dst, `,"headers":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendString(dst, name)
		dst = append(dst, ':', '[')
		for j, v := range values[name] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, v)
		}
		dst = append(dst, ']')
	}
	if len(names) > 0 {
		dst = append(dst, '}')
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string is always JSON
		return append(dst, `""`...)
	}
	return append(dst, b...)
}
