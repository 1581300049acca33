package operate

import (
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics/subject"
)

// Late records and dead letters go to a subject. Where a topic keeps all of it they are
// outputs to that topic like others: with the step that they are of, or by way of the outbox,
// each once. Else they are live, and lost with a primary that is killed before it has sent
// them.

// asideEvery is how often it is looked which topic keeps such a subject.
const asideEvery = 2 * time.Second

// keeper is the topic that keeps a subject, nil: none does.
type keeper struct {
	topic *state.Topic
	at    time.Time // it was looked for
}

// keeperOf returns the topic that keeps what a sink for late records or dead letters gives,
// nil where none does, or another sink is asked for.
func (u *unit) keeperOf(sink int) *state.Topic {
	aside := u.g.Sinks[sink].Aside
	if aside == "" {
		return nil
	}
	for len(u.asides) <= sink {
		u.asides = append(u.asides, keeper{})
	}
	k := &u.asides[sink]
	if time.Since(k.at) < asideEvery && (k.topic == nil || !k.topic.Gone()) {
		return k.topic
	}
	k.topic, k.at = nil, time.Now()
	u.e.state.Topics(u.op.Load().Account, func(t *state.Topic) bool {
		if !t.Gone() && slices.ContainsFunc(t.Config().Subjects, func(s string) bool { return subject.Covers(s, aside) }) {
			k.topic = t
		}
		return k.topic == nil
	})
	return k.topic
}

// storable returns a header block without what would tell a topic how to store the message:
// that was meant for the topic that the record came from.
func storable(header []byte) []byte {
	if !strings.Contains(string(header), "\r\nNats-") {
		return header
	}
	var b strings.Builder
	for line := range strings.SplitAfterSeq(string(header), "\r\n") {
		if !strings.HasPrefix(line, "Nats-") {
			b.WriteString(line)
		}
	}
	return []byte(b.String())
}
