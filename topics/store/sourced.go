package store

import (
	"strconv"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// sourced is how far a topic has come in copying one of its sources. It is state
// of its own: the messages that say it may be consumed, purged or pushed out.
type sourced struct {
	seq topics.Sequence // in the origin
	at  topics.Nanos    // when it was stored here
}

// noteSource takes note of a message of a source, by its Nats-Stream-Source header:
//
//	<stream> <sequence> <filter> <destination> <subject>
func (t *Topic) noteSource(value string) {
	parts := strings.SplitN(value, " ", 5)
	if len(parts) < 4 {
		return // of a version that didn't tell the sources of one stream apart
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return
	}
	key := sourceKey(parts[0], parts[2], parts[3])
	if t.sources == nil {
		t.sources = make(map[string]sourced)
	}
	t.sources[key] = sourced{topics.Sequence(n), t.s.now}
	t.touch()
}

func sourceKey(stream, filter, destination string) string {
	return stream + " " + filter + " " + destination
}

// forgetSources drops what is known of streams that are no sources any more.
func (t *Topic) forgetSources() {
	for key := range t.sources {
		stream, _, _ := strings.Cut(key, " ")
		kept := strings.HasPrefix(key, outboxPrefix)
		for _, s := range t.cfg.Sources {
			kept = kept || s.Name == stream
		}
		if !kept {
			delete(t.sources, key)
		}
	}
}

// Sourced returns the sequence of the last message that the topic has stored of a
// source, and when it was stored; false when it is not known to have any.
func (t *Topic) Sourced(stream, filter, destination string) (topics.Sequence, topics.Nanos, bool) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	s, ok := t.sources[sourceKey(stream, filter, destination)]
	return s.seq, s.at, ok
}
