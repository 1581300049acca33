package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// history is what some clients did to a few subjects of a stream: publishes that
// expect the last sequence of their subject, and reads of the last message. At
// the end it is held against a register per subject.
type history struct {
	w      *world
	stream string
	keys   int
	stop   chan struct{}
	work   sync.WaitGroup

	mu  sync.Mutex
	ops []operation
}

// operation is one thing that one client did.
type operation struct {
	client, key int
	node        string
	write       bool
	expected    uint64 // by a write
	value       string // written
	seq         uint64 // stored at; read
	ok, refused bool   // neither: unknown
	from, to    time.Duration
}

// exercise starts two clients of each node on a new stream of some replicas.
func (w *world) exercise(stream string, replicas, keys int, every time.Duration) *history {
	w.t.Helper()
	w.create(stream, replicas, nil)
	h := &history{w: w, stream: stream, keys: keys, stop: make(chan struct{})}
	for i := range min(2*len(w.Nodes), 8) {
		n := w.Nodes[i%len(w.Nodes)]
		nc := w.connect(fmt.Sprintf("client%d", i), n)
		rng := w.random(fmt.Sprintf("client%d", i))
		h.work.Go(func() { h.client(i, n, nc, rng, every) })
	}
	return h
}

func (h *history) client(id int, n *harness.Node, nc *nats.Conn, rng *rand.Rand, every time.Duration) {
	known := make([]uint64, h.keys)
	for i := 0; ; i++ {
		select {
		case <-h.stop:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(2 * every)))):
		}
		o := operation{client: id, key: rng.IntN(h.keys), node: n.Name, write: rng.IntN(2) == 0}
		o.expected, o.value = known[o.key], fmt.Sprintf("%d-%d", id, i)
		o.from = time.Since(h.w.began)
		if o.write {
			h.write(nc, &o)
		} else {
			h.read(nc, &o)
		}
		o.to = time.Since(h.w.began)
		if o.ok || o.refused && o.seq > 0 {
			known[o.key] = o.seq
		}
		h.mu.Lock()
		h.ops = append(h.ops, o)
		h.mu.Unlock()
	}
}

func (h *history) subject(key int) string { return fmt.Sprintf("%s.%d", lower(h.stream), key) }

func (h *history) write(nc *nats.Conn, o *operation) {
	m := nats.NewMsg(h.subject(o.key))
	m.Data = []byte(o.value)
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(o.expected, 10))
	answer, err := nc.RequestMsg(m, 2*time.Second)
	if err != nil {
		return
	}
	var r struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
	}
	if json.Unmarshal(answer.Data, &r) != nil {
		return
	}
	switch {
	case r.Error == nil && r.Seq > 0:
		o.ok, o.seq = true, r.Seq
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		o.refused = true
		_, _ = fmt.Sscanf(r.Error.Description, "wrong last sequence: %d", &o.seq)
	}
}

func (h *history) read(nc *nats.Conn, o *operation) {
	m, err := nc.Request("$JS.API.STREAM.MSG.GET."+h.stream, fmt.Appendf(nil, `{"last_by_subj":%q}`, h.subject(o.key)), 2*time.Second)
	if err != nil {
		return
	}
	var f fetched
	if json.Unmarshal(m.Data, &f) != nil {
		return
	}
	switch {
	case f.Error == nil && f.Message != nil:
		o.ok, o.seq = true, f.Message.Seq
	case f.Error != nil && f.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		o.ok, o.seq = true, 0
	}
}

// count returns how many operations of a kind had an answer since a moment.
func (h *history) count(match func(operation) bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, o := range h.ops {
		if match(o) {
			n++
		}
	}
	return n
}

// served waits until clients at every node have had a write or a refusal that was
// begun after now, and returns how long that took.
func (h *history) served(patience time.Duration) (time.Duration, error) {
	began := time.Since(h.w.began)
	for {
		late := ""
		for _, n := range h.w.Nodes {
			if h.count(func(o operation) bool { return o.node == n.Name && o.write && o.from >= began && (o.ok || o.refused) }) == 0 {
				late = n.Name
			}
		}
		took := time.Since(h.w.began) - began
		switch {
		case late == "":
			return took, nil
		case took > patience:
			return took, fmt.Errorf("clients of %s are not served %s after everything was healed", late, patience)
		}
		pause(10 * time.Millisecond)
	}
}

// finish stops the clients. What is stored now decides about the writes without
// an answer; then the history is checked.
func (h *history) finish() {
	w := h.w
	w.t.Helper()
	select {
	case <-h.stop:
		return
	default:
	}
	close(h.stop)
	h.work.Wait()
	ops, writes, sum := h.explained(h.stored())
	result, _ := porcupine.CheckOperationsVerbose(register(), ops, 2*time.Minute)
	w.note("%s: %s", sum, result)
	if result == porcupine.Illegal {
		w.broken("not linearizable", "%d operations on %s: %s", len(ops), h.stream, h.explain(ops))
	}
	if writes == 0 {
		w.broken("stuck", "not one write was acknowledged")
	}
	w.growth()
	w.figure("%d operations %s", len(ops), map[porcupine.CheckResult]string{
		porcupine.Ok: "linearizable", porcupine.Illegal: "not linearizable", porcupine.Unknown: "not decided in time",
	}[result])
}

// explained returns the operations for the model, now that it is known where every
// value stands: a write without an answer that is stored may have happened at any time
// since. It reports what contradicts what is stored, without the model.
func (h *history) explained(at map[string]uint64) (ops []porcupine.Operation, writes int, sum string) {
	w := h.w
	var reads, refused, unknown int
	for _, o := range h.ops {
		seq, found := at[o.value]
		end := int64(o.to)
		switch {
		case !o.write && o.ok:
			reads++
		case !o.write:
			continue
		case o.refused && found:
			w.broken("refused and stored", "%s's client %d was refused %s, which stands at %d", o.node, o.client, o.value, seq)
			continue
		case o.refused:
			refused++
		case o.ok && (!found || seq != o.seq):
			w.broken("lost", "%s's client %d was told that %s is at %d; there at all: %v, at %d", o.node, o.client, o.value, o.seq, found, seq)
			continue
		case o.ok:
			writes++
		case !found:
			unknown++ // never happened
			continue
		default:
			unknown++
			o.seq, end = seq, math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: o, Output: o, Call: int64(o.from), Return: end})
	}
	return ops, writes, fmt.Sprintf("%d reads, %d writes, %d refused, %d unknown", reads, writes, refused, unknown)
}

// stored returns the sequence of every value in the stream.
func (h *history) stored() map[string]uint64 {
	w := h.w
	w.leader(h.stream)
	nc := w.connect("stored")
	defer nc.Close()
	i, err := w.info(nc, h.stream, 30*time.Second)
	w.must(err)
	at := map[string]uint64{}
	for seq := uint64(1); seq <= i.State.LastSeq; seq++ {
		f, notFound, err := get(nc, h.stream, seq, 20*time.Second)
		if err != nil || notFound {
			w.broken("unreadable", "%s sequence %d: not found %v, %v", h.stream, seq, notFound, err)
			continue
		}
		if was, twice := at[string(f.Message.Data)]; twice {
			w.broken("dup", "%s stands at %d and %d", f.Message.Data, was, seq)
		}
		at[string(f.Message.Data)] = seq
	}
	return at
}

// register is the model of one subject: its state is its last sequence.
func register() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := map[int][]porcupine.Operation{}
			for _, o := range history {
				key := o.Input.(operation).key
				parts[key] = append(parts[key], o)
			}
			var out [][]porcupine.Operation
			for _, p := range parts {
				out = append(out, p)
			}
			return out
		},
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			last, o := state.(uint64), input.(operation)
			switch {
			case !o.write:
				return o.seq == last, last
			case o.refused:
				return o.expected != last, last
			default:
				return o.expected == last && o.seq > last, o.seq
			}
		},
	}
}

// explain finds a read that contradicts an acknowledged write that had ended
// before, or a small part of the history that can't be explained.
func (h *history) explain(ops []porcupine.Operation) string {
	for _, r := range ops {
		read := r.Input.(operation)
		if read.write {
			continue
		}
		for _, x := range ops {
			write := x.Input.(operation)
			if write.write && write.ok && write.key == read.key && write.to < read.from && write.seq > read.seq {
				return fmt.Sprintf("stale read: subject %d was written at sequence %d through %s by %.3fs; a read begun through %s at %.3fs gave %d",
					read.key, write.seq, write.node, write.to.Seconds(), read.node, read.from.Seconds(), read.seq)
			}
		}
	}
	for _, o := range ops {
		x := o.Input.(operation)
		if x.refused && x.expected == x.seq {
			return fmt.Sprintf("refused for expecting %d, which is what it was told", x.expected)
		}
	}
	return errors.New("no single stale read explains it").Error()
}
