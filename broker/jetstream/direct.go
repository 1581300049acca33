package jetstream

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

const (
	directSubjectsMax = 1024    // most subjects of one multi_last
	directBytesMax    = 8 << 20 // of payload in one batch, where the request names no bound
	directBatchMax    = 1000    // messages of one batch, likewise
)

// direct is one direct get. What it hands to respond is its own again afterwards.
type direct struct {
	respond func(header, payload []byte)
	data    *store.Topic
	stream  string
	req     jsapi.MsgGetRequest
	buf     []byte
}

func (d *direct) serve(key string, keyed bool, body []byte) {
	switch {
	case keyed && len(body) > 0:
		d.status(408, "Bad Request")
		return
	case keyed:
		d.req.LastFor = key
	case len(body) == 0:
		d.status(408, "Empty Request")
		return
	default:
		if jsapi.Decode(body, &d.req, false) != nil {
			d.status(408, "Malformed Request")
			return
		}
	}
	q := &d.req
	multi := len(q.MultiLast) > 0
	switch {
	case multi && (q.LastFor != "" || q.NextFor != "") || q.UpToSeq > 0 && q.UpToTime != nil,
		q.Batch > 0 && q.LastFor != "", q.Batch < 0, q.MaxBytes < 0:
		d.status(408, "Bad Request")
	case !multi && q.Seq == 0 && q.LastFor == "" && q.NextFor == "" && q.StartTime == nil:
		d.status(408, "Empty Request")
	case !multi && !oneStart(q):
		d.status(408, "Bad Request")
	case multi:
		d.multi()
	case q.Batch > 0:
		d.batch()
	default:
		d.single()
	}
}

// oneStart tells whether a request for one message says in one way which.
func oneStart(q *jsapi.MsgGetRequest) bool {
	switch {
	case q.LastFor != "":
		return q.Seq == 0 && q.NextFor == "" && q.StartTime == nil
	case q.StartTime != nil:
		return q.Seq == 0
	}
	return q.Seq > 0 || q.NextFor != ""
}

// find loads the one message a request is about.
func find(data *store.Topic, q *jsapi.MsgGetRequest) (topics.Message, error) {
	seq := topics.Sequence(q.Seq)
	if q.LastFor != "" {
		if seq = data.LastFor(q.LastFor); seq == 0 {
			return topics.Message{}, store.ErrNotFound
		}
		return data.Load(seq)
	}
	if q.StartTime == nil && q.NextFor == "" {
		return data.Load(seq)
	}
	if q.StartTime != nil {
		seq = data.SequenceAt(topics.NanosOf(*q.StartTime))
	}
	seq, ok := data.Next(filterOf(q.NextFor), seq)
	if !ok {
		return topics.Message{}, store.ErrNotFound
	}
	return data.Load(seq)
}

func filterOf(pattern string) *topics.Filter {
	if pattern == "" {
		return nil
	}
	return topics.NewFilter([]string{pattern})
}

func (d *direct) single() {
	m, err := find(d.data, &d.req)
	if err != nil {
		d.failed(err)
		return
	}
	if d.req.NoHeaders {
		d.respond(nil, m.Payload)
		return
	}
	d.respond(d.header(&m, -1, 0), m.Payload)
}

// batch sends the messages from a start on, then the end of the batch.
func (d *direct) batch() {
	from := topics.Sequence(max(d.req.Seq, 1))
	if d.req.StartTime != nil {
		from = d.data.SequenceAt(topics.NanosOf(*d.req.StartTime))
	}
	filter := filterOf(d.req.NextFor)
	pending := int64(d.data.Count(filter, from))
	if pending == 0 {
		d.status(404, "Message Not Found")
		return
	}
	left, bytes := min(d.req.Batch, directBatchMax), d.bytesMax()
	var last topics.Sequence
	var msgs []topics.Message
	for left > 0 && bytes > 0 && pending > 0 {
		var err error
		msgs, from, err = d.data.Read(filter, from, min(left, 64), bytes, msgs[:0])
		if err != nil {
			d.failed(err)
			return
		}
		if len(msgs) == 0 {
			pending = int64(d.data.Count(filter, from))
			if pending == 0 {
				break
			}
			continue
		}
		for i := range msgs {
			pending--
			d.send(&msgs[i], max(pending, 0), last)
			last = msgs[i].Sequence
			left--
			bytes -= len(msgs[i].Header) + len(msgs[i].Payload)
			if bytes <= 0 {
				break
			}
		}
	}
	d.end(pending, last, 0)
}

// multi sends the last message of each subject of some patterns, as of a
// sequence or time.
func (d *direct) multi() {
	_, upTo := d.data.Bounds()
	first := topics.Sequence(d.req.Seq)
	switch {
	case d.req.UpToSeq > 0:
		upTo = min(upTo, topics.Sequence(d.req.UpToSeq))
	case d.req.UpToTime != nil:
		upTo = d.data.SequenceAt(topics.NanosOf(*d.req.UpToTime)) - 1
	}
	if d.req.StartTime != nil {
		first = d.data.SequenceAt(topics.NanosOf(*d.req.StartTime))
	}
	seqs := d.lastOfEach(topics.NewFilter(d.req.MultiLast), first, upTo)
	if seqs == nil {
		return
	}
	left, bytes := len(seqs), d.bytesMax()
	if d.req.Batch > 0 {
		left = min(left, d.req.Batch)
	}
	pending := int64(len(seqs))
	var last topics.Sequence
	for _, seq := range seqs {
		if left == 0 || bytes <= 0 {
			break
		}
		pending--
		m, err := d.data.Load(seq)
		if errors.Is(err, store.ErrNotFound) {
			continue // gone in the meantime
		}
		if err != nil {
			d.failed(err)
			return
		}
		d.send(&m, pending, last)
		last, left, bytes = seq, left-1, bytes-len(m.Header)-len(m.Payload)
	}
	d.end(pending, last, upTo)
}

// lastOfEach returns the sequences multi has to send, in order; nil when it has
// answered with a status.
func (d *direct) lastOfEach(f *topics.Filter, first, upTo topics.Sequence) []topics.Sequence {
	seqs := d.data.LastPerSubject(f)
	if len(seqs) > directSubjectsMax {
		d.status(413, "Too Many Results")
		return nil
	}
	out := make([]topics.Sequence, 0, len(seqs))
	for _, seq := range seqs {
		if seq > upTo {
			if seq = d.lastBefore(seq, upTo); seq == 0 {
				continue
			}
		}
		if seq >= first {
			out = append(out, seq)
		}
	}
	if len(out) == 0 {
		d.status(404, "No Results")
		return nil
	}
	slices.Sort(out)
	return out
}

// lastBefore returns the last message at or before upTo with the subject of
// the message at seq, 0 if there is none.
func (d *direct) lastBefore(seq, upTo topics.Sequence) topics.Sequence {
	m, err := d.data.Load(seq)
	if err != nil {
		return 0
	}
	p, ok := d.data.Prev(topics.NewFilter([]string{m.Subject}), upTo)
	if !ok {
		return 0
	}
	return p
}

func (d *direct) bytesMax() int {
	if d.req.MaxBytes > 0 {
		return d.req.MaxBytes
	}
	return directBytesMax
}

func (d *direct) send(m *topics.Message, pending int64, last topics.Sequence) {
	d.respond(d.header(m, pending, last), m.Payload)
}

// header appends to a message's own header where it is from. pending < 0 leaves
// out what only batches say.
func (d *direct) header(m *topics.Message, pending int64, last topics.Sequence) []byte {
	own := m.Header
	if d.req.NoHeaders {
		own = nil
	}
	b := wire.HeaderOpen(d.buf[:0], own, wire.OriginKey)
	b = append(append(b, "Nats-Stream: "...), d.stream...)
	b = append(append(b, "\r\nNats-Subject: "...), m.Subject...)
	b = strconv.AppendUint(append(b, "\r\nNats-Sequence: "...), uint64(m.Sequence), 10)
	b = wireTime(m.Time).AppendFormat(append(b, "\r\nNats-Time-Stamp: "...), time.RFC3339Nano)
	if pending >= 0 {
		b = strconv.AppendInt(append(b, "\r\nNats-Num-Pending: "...), pending, 10)
		b = strconv.AppendUint(append(b, "\r\nNats-Last-Sequence: "...), uint64(last), 10)
	}
	d.buf = append(b, "\r\n\r\n"...)
	return d.buf
}

// end sends the end of a batch.
func (d *direct) end(pending int64, last, upTo topics.Sequence) {
	b := append(d.buf[:0], "NATS/1.0 204 EOB\r\nNats-Num-Pending: "...)
	b = strconv.AppendInt(b, max(pending, 0), 10)
	b = strconv.AppendUint(append(b, "\r\nNats-Last-Sequence: "...), uint64(last), 10)
	if upTo > 0 {
		b = strconv.AppendUint(append(b, "\r\nNats-UpTo-Sequence: "...), uint64(upTo), 10)
	}
	d.respond(append(b, "\r\n\r\n"...), nil)
}

func (d *direct) status(code int, text string) { d.respond(directStatus(code, text), nil) }

// failed answers a message that can't be read: not there, or damaged.
func (d *direct) failed(err error) {
	if errors.Is(err, store.ErrNotFound) {
		d.status(404, "Message Not Found")
		return
	}
	d.status(500, "Message Not Readable")
}

// directStatus returns a header block that is a status.
func directStatus(code int, text string) []byte {
	b := strconv.AppendInt([]byte("NATS/1.0 "), int64(code), 10)
	b = append(append(b, ' '), text...)
	return append(b, "\r\n\r\n"...)
}
