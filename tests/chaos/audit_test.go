package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// stored is a message as it was read: whose it is.
type stored struct {
	name string
	n    int
	bad  bool // not what was sent
}

// reading is a whole stream as one leader serves it.
type reading struct {
	from       string
	first      uint64
	last       uint64
	msgs       map[uint64]stored
	unreadable map[uint64]error
}

// fetched is the answer of MSG.GET.
type fetched struct {
	Message *struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Data    []byte `json:"data"`
	} `json:"message"`
	Error *jetstream.APIError `json:"error"`
}

// get reads one message through the leader. notFound says that the leader has no
// such message; any other failure is tried again until patience ends.
func get(nc *nats.Conn, stream string, seq uint64, patience time.Duration) (f fetched, notFound bool, err error) {
	body := fmt.Appendf(nil, `{"seq":%d}`, seq)
	for deadline := time.Now().Add(patience); ; pause(50 * time.Millisecond) {
		m, err := nc.Request("$JS.API.STREAM.MSG.GET."+stream, body, 3*time.Second)
		f = fetched{}
		if err == nil {
			err = json.Unmarshal(m.Data, &f)
		}
		switch {
		case err != nil:
		case f.Error == nil && f.Message != nil:
			return f, false, nil
		case f.Error == nil:
			err = fmt.Errorf("answer without a message: %s", m.Data)
		case f.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
			return f, true, nil
		default:
			err = f.Error
		}
		if time.Now().After(deadline) {
			return f, false, err
		}
	}
}

// read reads all of a stream through whoever leads it.
func (w *world) read(stream, from string) *reading {
	w.t.Helper()
	nc := w.connect("read")
	defer nc.Close()
	i, err := w.info(nc, stream, 30*time.Second)
	if err != nil {
		w.t.Fatalf("read %s as %s leads: %v", stream, from, err)
	}
	r := &reading{from: from, first: i.State.FirstSeq, last: i.State.LastSeq, msgs: map[uint64]stored{}, unreadable: map[uint64]error{}}
	byName := map[string]*publisher{}
	for _, p := range w.publishers {
		if p.stream == stream {
			byName[p.name] = p
		}
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	next := make(chan uint64)
	for range 48 {
		readers.Go(func() {
			for seq := range next {
				f, notFound, err := get(nc, stream, seq, 30*time.Second)
				mu.Lock()
				switch {
				case notFound:
				case err != nil:
					r.unreadable[seq] = err
				default:
					name, n, ok := parse(f.Message.Data)
					p := byName[name]
					bad := !ok || p == nil || !bytes.Equal(f.Message.Data, p.payload(n)) || f.Message.Subject != p.subject(n)
					r.msgs[seq] = stored{name, n, bad}
				}
				mu.Unlock()
			}
		})
	}
	for seq := max(r.first, 1); seq <= r.last; seq++ {
		next <- seq
		mu.Lock()
		hopeless := len(r.unreadable) > 200
		mu.Unlock()
		if hopeless {
			break
		}
	}
	close(next)
	readers.Wait()
	return r
}

// verdict is what a reading says about the promises.
type verdict struct{ acked, stored, lost, dup, reorder, phantom, damaged, unreadable int }

func (v verdict) String() string {
	s := fmt.Sprintf("acked %d, lost %d", v.acked, v.lost)
	for _, x := range []struct {
		n    int
		what string
	}{{v.dup, "duplicate"}, {v.reorder, "reordered"}, {v.phantom, "phantom"}, {v.damaged, "damaged"}, {v.unreadable, "unreadable"}} {
		if x.n > 0 {
			s += fmt.Sprintf(", %s %d", x.what, x.n)
		}
	}
	return s
}

func (v verdict) worse(o verdict) verdict {
	return verdict{
		max(v.acked, o.acked), max(v.stored, o.stored), max(v.lost, o.lost), max(v.dup, o.dup), max(v.reorder, o.reorder),
		max(v.phantom, o.phantom), max(v.damaged, o.damaged), max(v.unreadable, o.unreadable),
	}
}

// judge holds a reading against what the publishers were told.
func (w *world) judge(stream string, r *reading) verdict {
	v := verdict{stored: len(r.msgs), unreadable: len(r.unreadable)}
	where := map[string]map[int]uint64{}
	last := map[string]map[uint64]int{} // publisher, connection → highest number so far
	for _, p := range w.publishers {
		where[p.name], last[p.name] = map[int]uint64{}, map[uint64]int{}
	}
	for seq := max(r.first, 1); seq <= r.last; seq++ {
		m, ok := r.msgs[seq]
		if !ok {
			continue
		}
		p := w.publisher(stream, m.name)
		switch {
		case w.own[stream][seq]:
			continue
		case p == nil || m.n >= len(p.msgs):
			v.phantom++
			w.broken("phantom", "as %s leads: sequence %d was never sent (%s %d)", r.from, seq, m.name, m.n)
			continue
		case m.bad:
			v.damaged++
			w.broken("damaged", "as %s leads: sequence %d, %s %d, is not as it was sent", r.from, seq, m.name, m.n)
		}
		if was, twice := where[m.name][m.n]; twice {
			v.dup++
			w.broken("dup", "as %s leads: %s %d stands at %d and at %d", r.from, m.name, m.n, was, seq)
		}
		where[m.name][m.n] = seq
		if conn := p.msgs[m.n].conn; conn != 0 && !p.retry {
			if before, ok := last[m.name][conn]; ok && before > m.n {
				v.reorder++
				w.broken("reorder", "as %s leads: %s %d stands after %d at %d", r.from, m.name, m.n, before, seq)
			}
			last[m.name][conn] = m.n
		}
	}
	for _, p := range w.publishers {
		if p.stream == stream {
			w.judgeAcks(p, r, where[p.name], &v)
		}
	}
	return v
}

// judgeAcks looks for what a publisher was told is stored.
func (w *world) judgeAcks(p *publisher, r *reading, where map[int]uint64, v *verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, s := range p.msgs {
		if s.seq == 0 {
			continue
		}
		v.acked++
		got, ok := where[n]
		switch err := r.unreadable[s.seq]; {
		case ok && got == s.seq:
		case ok:
			v.lost++
			w.broken("moved", "as %s leads: %s %d was acknowledged at %d and stands at %d", r.from, p.name, n, s.seq, got)
		case err != nil:
			v.lost++
			w.broken("unreadable", "as %s leads: %s %d, acknowledged at %d: %v", r.from, p.name, n, s.seq, err)
		case s.duplicate:
			v.lost++
			w.broken("false duplicate", "as %s leads: %s %d was called a duplicate of %d and isn't there", r.from, p.name, n, s.seq)
		default:
			v.lost++
			w.broken("lost", "as %s leads: %s %d was acknowledged at %d and is gone", r.from, p.name, n, s.seq)
		}
	}
}

func (w *world) publisher(stream, name string) *publisher {
	for _, p := range w.publishers {
		if p.stream == stream && p.name == name {
			return p
		}
	}
	return nil
}

// audit stops the load, makes each replica of a stream the leader in turn, reads
// it in full and holds it against the publishers and the other replicas. All
// nodes run and reach each other. It returns the worst of what it found.
func (w *world) audit(stream string, first ...*harness.Node) verdict {
	w.t.Helper()
	w.halt()
	leader := w.leader(stream)
	nc := w.connect("audit")
	defer nc.Close()
	i, err := w.info(nc, stream, 30*time.Second)
	w.must(err)
	order := append(append([]*harness.Node{}, first...), leader)
	for _, r := range i.Cluster.Replicas {
		if n := w.Node(r.Name); n != nil {
			order = append(order, n)
		}
	}
	var worst verdict
	var readings []*reading
	seen := map[*harness.Node]bool{}
	for _, n := range order {
		if seen[n] {
			continue
		}
		seen[n] = true
		r, err := w.readAs(stream, n)
		if err != nil {
			w.broken("no lead", "%v", err)
			continue
		}
		v := w.judge(stream, r)
		worst = worst.worse(v)
		w.note("%s as %s leads: %s, stored %d, sequences %d to %d", stream, n.Name, v, v.stored, r.first, r.last)
		readings = append(readings, r)
	}
	if len(readings) < i.Config.Replicas {
		w.broken("replicas", "%s shall have %d replicas and %d could be read", stream, i.Config.Replicas, len(readings))
	}
	for _, r := range readings[min(1, len(readings)):] {
		w.compare(readings[0], r)
	}
	w.consume(stream, worst)
	w.digests()
	w.growth()
	w.figure("%s: %s", stream, worst)
	return worst
}

// readAs makes a node lead and reads all of a stream through it. Should the lead
// go elsewhere meanwhile, it begins again.
func (w *world) readAs(stream string, n *harness.Node) (*reading, error) {
	w.t.Helper()
	for range 6 {
		if err := w.lead(stream, n, time.Minute); err != nil {
			return nil, err
		}
		r := w.read(stream, n.Name)
		if w.leader(stream) == n {
			return r, nil
		}
		w.note("%s lost the lead while it was read", n.Name)
	}
	return nil, fmt.Errorf("%s never keeps the lead of %s for long enough to be read", n.Name, stream)
}

// compare reports where two replicas differ.
func (w *world) compare(a, b *reading) {
	if a.first != b.first || a.last != b.last {
		w.broken("divergence", "%s has sequences %d to %d, %s has %d to %d", a.from, a.first, a.last, b.from, b.first, b.last)
	}
	for seq := max(a.first, b.first, 1); seq <= min(a.last, b.last); seq++ {
		if a.unreadable[seq] != nil || b.unreadable[seq] != nil {
			continue // that is reported, and says nothing of the others
		}
		x, inA := a.msgs[seq]
		y, inB := b.msgs[seq]
		if inA != inB || x != y {
			w.broken("divergence", "sequence %d: %s has %v %d, %s has %v %d", seq, a.from, x.name, x.n, b.from, y.name, y.n)
		}
	}
}

// consume reads the stream as a client does, through an ordered consumer, and
// counts.
func (w *world) consume(stream string, v verdict) {
	w.t.Helper()
	nc := w.connect("consume")
	defer nc.Close()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	w.must(err)
	w.must(sub.SetPendingLimits(-1, -1))
	name := fmt.Sprintf("audit%d", time.Now().UnixNano())
	cfg := map[string]any{"stream_name": stream, "config": map[string]any{
		"name": name, "deliver_subject": sub.Subject, "ack_policy": "none", "deliver_policy": "all", "max_deliver": 1, "inactive_threshold": time.Minute, "num_replicas": 1,
	}}
	if err := w.ask(nc, 30*time.Second, "CONSUMER.CREATE."+stream+"."+name, cfg, nil); err != nil {
		w.broken("consumer", "create: %v", err)
		return
	}
	got := 0
	var last uint64
	for got < v.stored {
		m, err := sub.NextMsg(20 * time.Second)
		if err != nil {
			if errors.Is(err, nats.ErrTimeout) {
				err = errors.New("nothing more comes")
			}
			w.broken("consumer", "read %d of %d messages of %s: %v", got, v.stored, stream, err)
			return
		}
		meta, err := m.Metadata()
		if err != nil || meta.Sequence.Stream <= last {
			w.broken("consumer", "after sequence %d: %v %v", last, meta, err)
			return
		}
		last = meta.Sequence.Stream
		got++
	}
}
