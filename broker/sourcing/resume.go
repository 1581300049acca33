package sourcing

import (
	"errors"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// resume finds out where to go on in an origin not read before.
func (f *flow) resume(t *state.Topic) error {
	if f.from == t.ID() {
		return nil
	}
	if f.from != 0 {
		if f.mirror {
			return errRecreated
		}
		f.from, f.next, f.done, f.at = t.ID(), 1, 0, 0
		return nil
	}
	f.at = 0
	data := f.target.Data()
	switch _, last := data.Bounds(); {
	case f.mirror && last > 0 && t.Config().Retention == topics.RetainWorkQueue && t.Created().UnixNano() > int64(data.State().LastTime):
		return errRecreated // as long as it isn't mirrored, nothing of it may go
	case f.mirror && last > 0:
		f.next = last + 1
	case f.mirror:
		f.next = f.begin()
	default:
		seq, at, err := f.lastSourced()
		if err != nil {
			return err
		}
		if t.Config().Retention == topics.RetainWorkQueue && t.Created().UnixNano() > int64(at) {
			seq = 0 // it is another one of that name: what it holds was never stored
		}
		if f.next = seq + 1; seq == 0 {
			f.next = f.begin()
		}
	}
	if f.done = f.next - 1; t.Config().Retention == topics.RetainWorkQueue {
		f.next = f.begin() // what a crash has left there goes first
		f.done = max(f.done, f.next-1)
	}
	f.from = t.ID()
	return nil
}

// begin returns where the config says to start; by time, the origin says later.
func (f *flow) begin() topics.Sequence {
	switch s := f.source; {
	case s.OptStartSeq > 0:
		return topics.Sequence(s.OptStartSeq)
	case s.OptStartTime != nil:
		f.at = max(topics.NanosOf(*s.OptStartTime), 1)
	}
	return 1
}

// lastSourced returns the last message of this source, and when it was stored. The
// target knows; one restored from a backup is searched from its end.
func (f *flow) lastSourced() (topics.Sequence, topics.Nanos, error) {
	data := f.target.Data()
	filter, destination := f.labels()
	if seq, at, ok := data.Sourced(f.source.Name, filter, destination); ok {
		return seq, at, nil
	}
	_, seq := data.Bounds()
	for seq > 0 && f.ctx.Err() == nil {
		at, ok := data.Prev(nil, seq)
		if !ok {
			break
		}
		m, err := data.Load(at)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, 0, err
		}
		if err == nil {
			if v, ok := jsapi.HeaderValue(m.Header, headerSource); ok {
				if from, ok := f.mine(v); ok {
					return from, m.Time, nil
				}
			}
		}
		seq = at - 1
	}
	return 0, 0, f.ctx.Err()
}

// mine tells whether a source header is of this flow, and its sequence.
func (f *flow) mine(value string) (topics.Sequence, bool) {
	parts := strings.Split(value, " ")
	filter, destination := f.labels()
	if len(parts) < 2 || parts[0] != f.source.Name ||
		len(parts) >= 4 && (parts[2] != filter || parts[3] != destination) {
		return 0, false
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	return topics.Sequence(n), err == nil
}

// labels are what tells the sources of one stream apart.
func (f *flow) labels() (filter, destination string) {
	filter, destination = ">", ">"
	if f.source.FilterSubject != "" {
		filter = f.source.FilterSubject
	}
	if len(f.source.SubjectTransforms) > 0 {
		var from, to []string
		for _, m := range f.source.SubjectTransforms {
			from, to = append(from, m.Source), append(to, m.Destination)
		}
		filter, destination = strings.Join(from, ","), strings.Join(to, ",")
	}
	return filter, destination
}
