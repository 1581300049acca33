package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stored is one message as it was read at the end.
type stored struct {
	seq     uint64
	subject string
	bytes   uint64 // what the topic counts for it
	name    string
	n       int
}

// settle waits until what comes and goes by itself has done so.
func (w *world) settle() {
	_, js := w.connect("settle")
	for deadline := time.Now().Add(time.Minute); ; {
		last := func(topic string) uint64 { return w.info(js, topic).State.LastSeq }
		if last("MIRROR") == last("LOG") && last("SOURCED") == last("CHAIN")+last("LINE") && last("DRAINED") == last("CHAIN") {
			break
		}
		if time.Now().After(deadline) {
			w.bad("wrong copy", "a minute later a mirror has %d of %d, one with two sources %d of %d and %d, a work queue got %d of %d",
				last("MIRROR"), last("LOG"), last("SOURCED"), last("CHAIN"), last("LINE"), last("DRAINED"), last("CHAIN"))
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		long := 0
		for _, m := range w.read(js, "BRIEF") {
			if w.sent(m).brief {
				long++
			}
		}
		if long == 0 {
			return
		}
		<-time.After(300 * time.Millisecond)
	}
	w.bad("outlived", "messages with a time to live of at most 2 s are there 20 s later")
}

// sent returns what the publisher of a message knows of it.
func (w *world) sent(m stored) *record {
	for _, p := range w.publishers {
		if p.name == m.name && m.n < len(p.recs) {
			return &p.recs[m.n]
		}
	}
	w.bad("phantom", "sequence %d: message %d of %q was never sent", m.seq, m.n, m.name)
	return &record{}
}

// read returns all messages of a topic.
func (w *world) read(js jetstream.JetStream, topic string) []stored {
	var out []stored
	info := w.info(js, topic)
	if info.State.Msgs == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := js.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{})
	if err != nil {
		w.bad("unreadable", "%s: %v", topic, err)
		return nil
	}
	it, err := c.Messages()
	if err != nil {
		w.bad("unreadable", "%s: %v", topic, err)
		return nil
	}
	defer it.Stop()
	for pending := info.State.Msgs; pending > 0; {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			w.bad("unreadable", "%s after %d of %d messages: %v", topic, len(out), info.State.Msgs, err)
			return out
		}
		meta, err := m.Metadata()
		if err != nil {
			w.bad("unreadable", "%s: %v", topic, err)
			return out
		}
		pending = meta.NumPending
		s := stored{seq: meta.Sequence.Stream, subject: m.Subject(), bytes: counted(m)}
		if topic != "SUM" && topic != "KV_CELLS" {
			var ok bool
			if s.name, s.n, ok = identify(m.Data()); !ok {
				w.bad("damaged", "%s: sequence %d: %.40q", topic, s.seq, m.Data())
			}
		}
		out = append(out, s)
	}
	return out
}

// counted returns how many bytes a topic counts for a message.
func counted(m jetstream.Msg) uint64 {
	n := len(m.Subject()) + len(m.Data()) + 30
	if len(m.Headers()) > 0 {
		n += len("NATS/1.0\r\n\r\n") + 4
		for k, vs := range m.Headers() {
			for _, v := range vs {
				n += len(k) + len(v) + 4
			}
		}
	}
	return uint64(n)
}

func (w *world) info(js jetstream.JetStream, topic string) *jetstream.StreamInfo {
	info := &jetstream.StreamInfo{}
	_, err := w.retry(func(ctx context.Context) error {
		s, err := js.Stream(ctx, topic)
		if err != nil {
			return err
		}
		i, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err == nil {
			info = i
		}
		return err
	})
	if err != nil {
		w.bad("no info", "%s: %v", topic, err)
	}
	return info
}

var topicNames = []string{"LOG", "CHAIN", "LINE", "QUEUE", "WANTED", "RECENT", "FULL", "EACH", "SHRINK", "SUM", "BRIEF", "KV_CELLS", "MIRROR", "SOURCED", "DRAINED"}

// check holds what is there against what was answered.
func (w *world) check() {
	_, js := w.connect("check")
	all := map[string][]stored{}
	for _, topic := range topicNames {
		msgs := w.read(js, topic)
		all[topic] = msgs
		w.checkState(js, topic, msgs)
		w.checkOnce(topic, msgs)
	}
	for _, p := range w.publishers {
		w.checkPublisher(p, all[p.topic])
	}
	for _, r := range w.readers {
		w.checkReader(js, r, all[r.topic])
	}
	for _, topic := range []string{"QUEUE", "WANTED"} {
		if n := len(all[topic]); n > 0 {
			w.bad("not removed", "%s: %d messages are there, though all was acknowledged; the first is %d", topic, n, all[topic][0].seq)
		}
	}
	w.checkCopies(all)
	w.checkLimits(all)
	w.checkSums(js)
	w.checkCounts(js, all)
	w.cells.check(js)
}

// checkState holds the topic's counters against what was read.
func (w *world) checkState(js jetstream.JetStream, topic string, msgs []stored) {
	s := w.info(js, topic).State
	subjects := map[string]uint64{}
	var bytes uint64
	for i, m := range msgs {
		subjects[m.subject]++
		bytes += m.bytes
		if i > 0 && m.seq <= msgs[i-1].seq {
			w.bad("out of order", "%s: %d after %d", topic, m.seq, msgs[i-1].seq)
		}
	}
	first, last := s.LastSeq+1, s.LastSeq
	if len(msgs) > 0 {
		first = msgs[0].seq
		last = max(last, msgs[len(msgs)-1].seq)
	}
	deleted := int(last + 1 - first - uint64(len(msgs)))
	if s.Msgs != uint64(len(msgs)) || s.FirstSeq != first || s.LastSeq != last || s.Bytes != bytes || s.NumDeleted != deleted || s.NumSubjects != uint64(len(subjects)) {
		w.bad("wrong state", "%s: it says %d messages, %d bytes, %d to %d, %d deleted, %d subjects; read were %d, %d, %d to %d, %d, %d", topic,
			s.Msgs, s.Bytes, s.FirstSeq, s.LastSeq, s.NumDeleted, s.NumSubjects, len(msgs), bytes, first, last, deleted, len(subjects))
	}
	for subject, n := range subjects {
		if s.Subjects[subject] != n {
			w.bad("wrong state", "%s: it says %d messages of %s, read were %d", topic, s.Subjects[subject], subject, n)
		}
	}
}

// checkOnce looks for messages that are there twice, and for reordered ones.
func (w *world) checkOnce(topic string, msgs []stored) {
	type id struct {
		name string
		n    int
	}
	at := map[id]uint64{}
	last := map[string]int{}
	ids := map[string]bool{}
	for _, p := range w.publishers {
		ids[p.name] = p.ids
	}
	for _, m := range msgs {
		if m.name == "" {
			continue
		}
		k := id{m.name, m.n}
		if at[k] != 0 {
			w.bad("doubled", "%s: message %d of %s is at %d and %d", topic, m.n, m.name, at[k], m.seq)
		}
		at[k] = m.seq
		if before, any := last[m.name]; any && m.n < before && ids[m.name] {
			w.bad("reordered", "%s: message %d of %s stands after %d", topic, m.n, m.name, before)
		}
		last[m.name] = m.n
	}
}

// checkPublisher looks for what was acknowledged and is lost, and the reverse.
func (w *world) checkPublisher(p *publisher, msgs []stored) {
	there := map[uint64]stored{}
	for _, m := range msgs {
		there[m.seq] = m
	}
	for n := range p.recs {
		r := &p.recs[n]
		if r.seq == 0 {
			if p.ids && !r.refused {
				w.bad("no answer", "%s: message %d", p.name, n)
			}
			continue
		}
		m, found := there[r.seq]
		may, must := w.remover.fate(p.topic, r.subject, r.seq)
		switch {
		case found && !p.counts && (m.name != p.name || m.n != n || m.subject != r.subject):
			w.bad("moved", "%s: message %d was acknowledged as %d, which holds message %d of %s", p.name, n, r.seq, m.n, m.name)
		case found && must:
			w.bad("not removed", "%s: message %d at %d was deleted", p.name, n, r.seq)
		case found || may || r.brief:
		case p.topic == "QUEUE" || p.topic == "WANTED" || p.topic == "RECENT" || p.topic == "EACH":
			// They let go of messages; other checks are about that.
		default:
			w.bad("lost", "%s: message %d was acknowledged as %d and is gone", p.name, n, r.seq)
		}
	}
	for _, m := range msgs {
		if m.name != p.name || m.n >= len(p.recs) {
			continue
		}
		if r := &p.recs[m.n]; r.refused {
			w.bad("refused and stored", "%s: message %d at %d", p.name, m.n, m.seq)
		}
	}
}

// checkReader looks for acknowledged messages that a reader never got, and holds
// the consumer's counters against what was read.
func (w *world) checkReader(js jetstream.JetStream, r *reader, msgs []stored) {
	for _, p := range w.publishers {
		if p.topic != r.topic {
			continue
		}
		for n := range p.recs {
			rec := &p.recs[n]
			if rec.seq == 0 || !matches(r.filter, rec.subject) {
				continue
			}
			d := r.got[rec.seq]
			switch {
			case d == nil:
				w.bad("never delivered", "%s: message %d of %s at %d", r.name, n, p.name, rec.seq)
			case d.name != p.name || d.n != n:
				w.bad("moved", "%s: got message %d of %s at %d, which was acknowledged to message %d of %s", r.name, d.n, d.name, rec.seq, n, p.name)
			}
		}
	}
	info, err := r.info(js)
	if err != nil {
		w.bad("consumer gone", "%s: %v", r.name, err)
		return
	}
	var ahead uint64
	for _, m := range msgs {
		if m.seq > info.Delivered.Stream && matches(r.filter, m.subject) {
			ahead++
		}
	}
	if info.NumPending != ahead || info.NumAckPending != 0 || info.AckFloor.Stream != info.Delivered.Stream {
		w.bad("wrong state", "consumer %s: %d pending (read: %d), %d unacknowledged, delivered %d, floor %d", r.name,
			info.NumPending, ahead, info.NumAckPending, info.Delivered.Stream, info.AckFloor.Stream)
	}
}

// matches tells whether a filter of literal tokens and "*" lets a subject through.
func matches(filter, subject string) bool {
	if filter == "" {
		return true
	}
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	return slices.EqualFunc(f, s, func(f, s string) bool { return f == "*" || f == s })
}

// checkCopies holds a mirror against its origin, and a topic with sources against
// those.
func (w *world) checkCopies(all map[string][]stored) {
	if !slices.Equal(all["MIRROR"], all["LOG"]) {
		w.bad("wrong copy", "the mirror holds %d messages, its origin %d", len(all["MIRROR"]), len(all["LOG"]))
	}
	type id struct {
		name string
		n    int
	}
	copies := map[id]bool{}
	for _, m := range all["SOURCED"] {
		copies[id{m.name, m.n}] = true
	}
	for _, m := range append(slices.Clone(all["CHAIN"]), all["LINE"]...) {
		if !copies[id{m.name, m.n}] {
			w.bad("wrong copy", "message %d of %s is not in the topic with sources", m.n, m.name)
		}
	}
}

// checkLimits is about the topics that let the oldest go.
func (w *world) checkLimits(all map[string][]stored) {
	for _, p := range w.publishers {
		var acked []uint64
		bySubject := map[string][]uint64{}
		for i := range p.recs {
			if r := &p.recs[i]; r.seq != 0 {
				acked = append(acked, r.seq)
				bySubject[r.subject] = append(bySubject[r.subject], r.seq)
			}
		}
		there := map[uint64]bool{}
		for _, m := range all[p.topic] {
			there[m.seq] = true
		}
		switch p.topic {
		case "RECENT":
			slices.Sort(acked)
			want := acked[max(0, len(acked)-500):]
			if len(there) != len(want) || len(want) > 0 && !there[want[0]] {
				w.bad("wrong limit", "%s holds %d messages, not the last %d", p.topic, len(there), len(want))
			}
		case "FULL":
			if len(there) > 400 {
				w.bad("wrong limit", "%s holds %d messages, 400 are allowed", p.topic, len(there))
			}
		case "EACH":
			for subject, seqs := range bySubject {
				slices.Sort(seqs)
				for i, seq := range seqs {
					may, _ := w.remover.fate(p.topic, subject, seq)
					if i >= len(seqs)-3 && !there[seq] && !may {
						w.bad("lost", "%s: sequence %d is one of the last three of %s", p.topic, seq, subject)
					}
				}
			}
			count := map[string]int{}
			for _, m := range all[p.topic] {
				if count[m.subject]++; count[m.subject] > 3 {
					w.bad("wrong limit", "%s holds more than three of %s", p.topic, m.subject)
				}
			}
		}
	}
}

// checkSums holds counters against what was added to them.
func (w *world) checkSums(js jetstream.JetStream) {
	for _, p := range w.publishers {
		if !p.counts {
			continue
		}
		for subject, sum := range p.sums {
			var m *jetstream.RawStreamMsg
			_, err := w.retry(func(ctx context.Context) error {
				s, err := js.Stream(ctx, p.topic)
				if err == nil {
					m, err = s.GetLastMsgForSubject(ctx, subject)
				}
				return err
			})
			var body struct {
				Value string `json:"val"`
			}
			if err == nil {
				err = json.Unmarshal(m.Data, &body)
			}
			if want := strconv.FormatInt(sum, 10); err != nil || body.Value != want {
				w.bad("wrong sum", "%s is %s, want %s (%v)", subject, body.Value, want, err)
			}
		}
	}
}

// checkCounts makes consumers that start anywhere with any filter: what they say
// is to come must be what there is.
func (w *world) checkCounts(js jetstream.JetStream, all map[string][]stored) {
	rng := w.random("counts")
	times := 5
	if long() {
		times = 50
	}
	for _, topic := range []string{"LOG", "RECENT", "FULL", "EACH", "SHRINK", "BRIEF"} {
		msgs := all[topic]
		if len(msgs) == 0 {
			continue
		}
		for range times {
			w.checkCount(js, rng, topic, msgs)
		}
	}
}

func (w *world) checkCount(js jetstream.JetStream, rng *rand.Rand, topic string, msgs []stored) {
	at := msgs[rng.IntN(len(msgs))]
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(1, at.seq-uint64(rng.IntN(3))),
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, InactiveThreshold: time.Minute,
	}
	if rng.IntN(2) == 0 {
		cfg.FilterSubject = at.subject
	}
	var want uint64
	for _, m := range msgs {
		if m.seq >= cfg.OptStartSeq && matches(cfg.FilterSubject, m.subject) {
			want++
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := js.CreateConsumer(ctx, topic, cfg)
	if err != nil {
		w.bad("consumer", "%s: %v", topic, err)
		return
	}
	info := c.CachedInfo()
	if info.NumPending != want {
		w.bad("wrong count", "%s: %q from %d has %d to come, want %d", topic, cfg.FilterSubject, cfg.OptStartSeq, info.NumPending, want)
	}
	if err := js.DeleteConsumer(ctx, topic, info.Name); err != nil {
		w.bad("consumer", "%s: %v", topic, err)
	}
}

// picture is all that can be asked about the topics and consumers.
func (w *world) picture(nc *nats.Conn, js jetstream.JetStream) map[string]any {
	all := map[string]any{}
	for _, topic := range topicNames {
		s := w.info(js, topic).State
		s.Consumers = 0
		all[topic] = s
	}
	for _, r := range w.readers {
		i, err := r.info(js)
		if err != nil {
			w.bad("consumer gone", "%s: %v", r.name, err)
			continue
		}
		all["consumer "+r.name] = fmt.Sprint(i.Delivered.Stream, i.Delivered.Consumer, i.AckFloor.Stream, i.AckFloor.Consumer, i.NumAckPending, i.NumRedelivered, i.NumPending)
	}
	return all
}

func (w *world) same(what string, before, after map[string]any) {
	for k, v := range before {
		if !reflect.DeepEqual(v, after[k]) {
			w.bad("changed by "+what, "%s: %+v, before %+v", k, after[k], v)
		}
	}
}

// counts sums up what was done.
func (w *world) counts() string {
	sent, acked, refused := 0, 0, 0
	for _, p := range w.publishers {
		for i := range p.recs {
			sent++
			switch r := &p.recs[i]; {
			case r.seq != 0:
				acked++
			case r.refused:
				refused++
			}
		}
	}
	return fmt.Sprintf("%d messages sent, %d acknowledged, %d refused; %d deliveries (%d again), %d acknowledgements confirmed; %d removals",
		sent, acked, refused, w.delivered.Load(), w.redelivered.Load(), w.confirmed.Load(), len(w.remover.is))
}
