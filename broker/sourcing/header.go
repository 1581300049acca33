package sourcing

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/heraldmq/herald/topics"
)

// checks are how the header fields begin that the origin has checked. They say
// nothing about the copy.
var checks = [][]byte{[]byte("Nats-Expected-"), []byte("Nats-Batch-")}

// withoutChecks returns a header without those fields.
func withoutChecks(header []byte) []byte {
	if !slices.ContainsFunc(checks, func(c []byte) bool { return bytes.Contains(header, c) }) {
		return header
	}
	b := appendFields(nil, header, "")
	if len(b) == 0 {
		return nil
	}
	return append(append([]byte("NATS/1.0\r\n"), b...), "\r\n"...)
}

// appendFields appends the lines of a header's fields, but for the checks and one
// more field.
func appendFields(dst, header []byte, without string) []byte {
	_, rest, _ := bytes.Cut(header, []byte("\r\n"))
	for len(rest) > 2 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		switch {
		case len(line) == 0 || without != "" && bytes.HasPrefix(line, []byte(without+":")):
		case slices.ContainsFunc(checks, func(c []byte) bool { return bytes.HasPrefix(line, c) }):
		default:
			dst = append(append(dst, line...), "\r\n"...)
		}
	}
	return dst
}

// header returns a message's header with where it is from. A source header it
// already has is of a source of the origin: it is replaced.
func (f *flow) header(m *topics.Message) []byte {
	filter, destination := f.labels()
	b := append(make([]byte, 0, len(m.Header)+128), "NATS/1.0\r\n"...)
	b = appendFields(b, m.Header, headerSource)
	b = append(append(b, headerSource+": "+f.source.Name+" "...), strconv.FormatUint(uint64(m.Sequence), 10)...)
	return append(b, " "+filter+" "+destination+" "+m.Subject+"\r\n\r\n"...)
}
