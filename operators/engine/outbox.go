package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// The outbox holds outputs for topics of other groups until those have them. It is state
// like any other, so outputs wait exactly when the step that made them is committed:
//
//	'o' 'c' topic(8)            the next number and the topic's name
//	'o' 'r' topic(8) number(8)  a Parcel: outputs of one step, sent in one piece
//
// A topic's numbers are dense from 1 and never used again, so the topic knows what it has
// already, whoever sends it and however often. A later step takes out what has been sent.

// RouteGone is the route of a sink whose topic is no more: what goes there fails.
const RouteGone = ^topics.TopicID(0)

// parcelBytes is about how many bytes of outputs go into one parcel.
const parcelBytes = 512 << 10

// Fate is what became of parcels.
type Fate uint8

// The fates.
const (
	Delivered Fate = iota // the topic has them
	Dropped               // the topic is no more, and they go the way of the output's policy
	Rerouted              // the topic is no more; another one of its name gets them
)

// Sent says what became of a topic's parcels up to and with a number.
type Sent struct {
	Topic  topics.TopicID
	Number uint64
	Fate   Fate
	To     topics.TopicID // with Rerouted
}

func (s *Sent) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.Topic))
	dst = binary.AppendUvarint(dst, s.Number)
	dst = append(dst, byte(s.Fate))
	return binary.AppendUvarint(dst, uint64(s.To))
}

func (p *stepParser) sent() Sent {
	s := Sent{Topic: topics.TopicID(p.uint()), Number: p.uint(), Fate: Fate(p.byte())}
	s.To = topics.TopicID(p.uint())
	return s
}

// Parcel is outputs of one step for one topic, on their way.
type Parcel struct {
	Epoch, Seq uint64 // of the step that made them
	Outputs    []Posted
}

// Posted is an output of a parcel. Index is its place among the step's outputs.
type Posted struct {
	Index   int
	Subject string
	Header  []byte
	Payload []byte
	ID      string // as in Output
	Again   bool
}

// Lane is what an outbox has for one topic.
type Lane struct {
	Topic topics.TopicID
	Name  string // the topic's
	Next  uint64 // the number of the next parcel
}

// IsOutbox tells whether a key of an instance's store is the outbox's.
func IsOutbox(key []byte) bool { return len(key) > 0 && key[0] == spaceOutbox }

func laneKey(t topics.TopicID) []byte {
	return binary.BigEndian.AppendUint64([]byte{spaceOutbox, 'c'}, uint64(t))
}

func parcelKey(t topics.TopicID, n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{spaceOutbox, 'r'}, uint64(t)), n)
}

// Lanes returns the lanes of an outbox, also those where nothing waits.
func Lanes(r state.Reader) (all []Lane, err error) {
	bad := error(nil)
	err = r.Scan([]byte{spaceOutbox, 'c'}, []byte{spaceOutbox, 'd'}, func(key, v []byte) bool {
		l, e := parseLane(key, v)
		bad = errors.Join(bad, e)
		all = append(all, l)
		return true
	})
	return all, errors.Join(err, bad)
}

func parseLane(key, v []byte) (Lane, error) {
	n, used := binary.Uvarint(v)
	if len(key) != 10 || used <= 0 {
		return Lane{}, fmt.Errorf("%w: a lane of the outbox", ErrState)
	}
	return Lane{Topic: topics.TopicID(binary.BigEndian.Uint64(key[2:])), Name: string(v[used:]), Next: n}, nil
}

// Parcels calls f with the numbers and bytes of what waits for a topic, in order, from a
// number on, until it returns false.
func Parcels(r state.Reader, t topics.TopicID, from uint64, f func(number uint64, parcel []byte) bool) error {
	return r.Scan(parcelKey(t, from), after(parcelKey(t, 0)[:10]), func(key, v []byte) bool {
		return len(key) != 18 || f(binary.BigEndian.Uint64(key[10:]), v)
	})
}

func (p *Parcel) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, p.Epoch)
	dst = binary.AppendUvarint(dst, p.Seq)
	dst = binary.AppendUvarint(dst, uint64(len(p.Outputs)))
	for i := range p.Outputs {
		o := &p.Outputs[i]
		dst = binary.AppendUvarint(dst, uint64(o.Index))
		for _, b := range [][]byte{[]byte(o.Subject), o.Header, o.Payload, []byte(o.ID)} {
			dst = append(binary.AppendUvarint(dst, uint64(len(b))), b...)
		}
		again := byte(0)
		if o.Again {
			again = 1
		}
		dst = append(dst, again)
	}
	return dst
}

// ParseParcel reads a parcel. Its parts are parts of b.
func ParseParcel(b []byte) (*Parcel, error) {
	p := stepParser{b: b}
	out := &Parcel{Epoch: p.uint(), Seq: p.uint()}
	for range p.count() {
		o := Posted{Index: int(p.uint())}
		o.Subject, o.Header, o.Payload = string(p.block()), p.block(), p.block()
		o.ID, o.Again = string(p.block()), p.byte() == 1
		out.Outputs = append(out.Outputs, o)
	}
	if p.bad || len(p.b) > 0 {
		return nil, fmt.Errorf("%w: a parcel of the outbox", ErrState)
	}
	return out, nil
}

func (p *stepParser) block() []byte {
	n := p.count()
	if p.bad {
		return nil
	}
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

// Waits tells whether something waits for a topic, uncommitted steps included.
func (i *Instance) Waits(t topics.TopicID) (bool, error) {
	_, _, ok, err := state.First(i.top(), parcelKey(t, 0), after(parcelKey(t, 0)[:10]))
	return ok, err
}

// Outbox returns how many bytes wait in the outbox, uncommitted steps included.
func (i *Instance) Outbox() (int64, error) {
	if i.now.outbox >= 0 {
		return i.now.outbox, nil
	}
	n := int64(0)
	err := i.top().Scan([]byte{spaceOutbox, 'r'}, []byte{spaceOutbox, 's'}, func(_, v []byte) bool {
		n += int64(len(v))
		return true
	})
	if err == nil {
		i.now.outbox = n
	}
	return n, err
}

// top is the state after the last step that was run.
func (i *Instance) top() state.Reader {
	if n := len(i.open); n > 0 {
		return i.open[n-1].overlay
	}
	return i.store
}

// post puts the step's outputs that are for other groups into the outbox.
func (x *executor) post() error {
	var order []topics.TopicID
	parcels := map[topics.TopicID]*Parcel{}
	sizes := map[topics.TopicID]int{}
	for n := range x.outputs {
		o := &x.outputs[n]
		if o.To == 0 {
			continue
		}
		p := parcels[o.To]
		if p == nil {
			p = &Parcel{Epoch: x.i.o.Epoch, Seq: x.now.seq + 1}
			parcels[o.To], order = p, append(order, o.To)
		}
		p.Outputs = append(p.Outputs, Posted{n, o.Subject, o.Header, o.Payload, o.ID, o.Again})
		if sizes[o.To] += len(o.Payload) + len(o.Header); sizes[o.To] >= parcelBytes {
			if err := x.enqueue(o.To, x.i.graph.Sinks[o.Sink].Topic, p.append(nil)); err != nil {
				return err
			}
			p.Outputs, sizes[o.To] = nil, 0
		}
	}
	for _, to := range order {
		if p := parcels[to]; len(p.Outputs) > 0 {
			if err := x.enqueue(to, x.topicOf(to), p.append(nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// topicOf is the name of a topic that a sink is routed to.
func (x *executor) topicOf(id topics.TopicID) string {
	for sink, to := range x.routes {
		if to == id {
			return x.i.graph.Sinks[sink].Topic
		}
	}
	return ""
}

// enqueue puts a parcel behind those of its topic.
func (x *executor) enqueue(to topics.TopicID, name string, parcel []byte) error {
	l := Lane{Topic: to, Name: name, Next: 1}
	v, ok, err := x.overlay.Get(laneKey(to))
	if err != nil {
		return err
	}
	if ok {
		if l, err = parseLane(laneKey(to), v); err != nil {
			return err
		}
	}
	x.overlay.Put(parcelKey(to, l.Next), parcel)
	x.overlay.Put(laneKey(to), append(binary.AppendUvarint(nil, l.Next+1), name...))
	if x.now.outbox >= 0 {
		x.now.outbox += int64(len(parcel))
	}
	return nil
}

// sent takes what was sent out of the outbox, and sees to what could not be.
func (x *executor) sent(all []Sent) error {
	for _, s := range all {
		v, ok, err := x.overlay.Get(laneKey(s.Topic))
		if err != nil || !ok {
			if err == nil {
				err = fmt.Errorf("%w: the outbox has no topic %d", ErrState, s.Topic)
			}
			return err
		}
		lane, err := parseLane(laneKey(s.Topic), v)
		if err != nil {
			return err
		}
		type one struct{ key, parcel []byte }
		var gone []one
		err = x.overlay.Scan(parcelKey(s.Topic, 0), parcelKey(s.Topic, s.Number+1), func(key, v []byte) bool {
			gone = append(gone, one{bytes.Clone(key), v})
			return true
		})
		if err != nil {
			return err
		}
		for _, g := range gone {
			x.overlay.Delete(g.key)
			x.trimmed = true
			if x.now.outbox >= 0 {
				x.now.outbox -= int64(len(g.parcel))
			}
			switch s.Fate {
			case Rerouted:
				err = x.enqueue(s.To, lane.Name, g.parcel)
			case Dropped:
				err = x.undeliverable(lane.Name, g.parcel)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// undeliverable does with a parcel whose topic is gone what the policy of its output says;
// without such an output, or where it is to stop, it is counted: whoever asks for it has
// decided that.
func (x *executor) undeliverable(topic string, b []byte) error {
	p, err := ParseParcel(b)
	if err != nil {
		return err
	}
	policy := graph.Skip
	for i := range x.i.graph.Sinks {
		if s := &x.i.graph.Sinks[i]; s.Topic == topic && s.Policy == graph.DeadLetter {
			policy = graph.DeadLetter
		}
	}
	for i := range p.Outputs {
		o := &p.Outputs[i]
		x.count(0xffff, stream.SideError, 1)
		if policy == graph.Skip {
			continue
		}
		r := &stream.Record{Subject: o.Subject, Header: o.Header, Time: x.now.clock, Value: value.OfBytes(o.Payload)}
		if utf8.Valid(o.Payload) {
			r.Value = value.OfString(string(o.Payload))
		}
		if err := x.errorRecord("output "+topic, r, nil, "there is no topic "+topic+" any more"); err != nil {
			return err
		}
	}
	return nil
}
