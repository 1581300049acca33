package sourcing

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// Peers is the way to origins that have no replica on this node; nil on a single
// node. Group 0 is not asked for.
type Peers interface {
	Name() string
	Leader(g topics.GroupID) string
	Linearize(ctx context.Context, g topics.GroupID) error
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))
	// OpenStream and HandleStream are for answers of any length.
	OpenStream(ctx context.Context, node, method string, body []byte) (io.ReadCloser, error)
	HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error)
}

const (
	streamRead = "src.read"  // some messages of an origin
	callTake   = "src.take"  // take messages out of a work queue
	callGrown  = "src.grown" // an origin that was read to its end has grown

	readPatience = 10 * time.Second
	// lookAgain is how long a flow waits for the news that a remote origin has grown
	// before it looks itself: news may be lost with the node that had to tell.
	lookAgain = 5 * time.Second
	// messageMost bounds a field of a message of an origin.
	messageMost = 256 << 20
)

// errAway is what a flow meets whose origin nobody leads just now.
var errAway = errors.New("nobody leads the origin")

// readQuery asks for messages of an origin.
type readQuery struct {
	Topic    topics.TopicID  `json:"topic"`
	Patterns []string        `json:"patterns,omitempty"`
	From     topics.Sequence `json:"from"`
	// At, when set, asks for the first message not before it instead of from From.
	At topics.Nanos `json:"at,omitempty"`
}

// page is what a read gives.
type page struct {
	From   topics.Sequence `json:"from"` // where it began
	Next   topics.Sequence `json:"next"`
	Lag    uint64          `json:"lag"`              // messages from Next on
	Shared string          `json:"shared,omitempty"` // a consumer that takes the same messages
	N      int             `json:"n"`

	messages []topics.Message
}

func (q *readQuery) filter() *topics.Filter {
	if len(q.Patterns) == 0 {
		return nil
	}
	return topics.NewFilter(q.Patterns)
}

// read reads a page of a topic that has a replica here.
func read(t *state.Topic, q *readQuery) (*page, error) {
	data, f := t.Data(), q.filter()
	if data == nil {
		return nil, errAway
	}
	p := &page{From: q.From}
	if q.At > 0 {
		p.From = data.SequenceAt(q.At)
	}
	var err error
	p.messages, p.Next, err = data.Read(f, p.From, roundMessages, roundBytes, nil)
	if err != nil {
		return nil, err
	}
	p.N, p.Next = len(p.messages), max(p.Next, p.From)
	p.Lag = data.Count(f, p.Next)
	if t.Config().Retention == topics.RetainWorkQueue {
		p.Shared = shared(data, f)
	}
	return p, nil
}

// fetch reads a page of an origin, wherever it is.
func (e *Engine) fetch(ctx context.Context, t *state.Topic, q *readQuery) (*page, error) {
	if t.Data() != nil || e.o.Peers == nil {
		return read(t, q)
	}
	leader := e.o.Peers.Leader(t.Group().ID())
	if leader == "" || leader == e.o.Peers.Name() {
		return nil, errAway
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	r, err := e.o.Peers.OpenStream(ctx, leader, streamRead, body)
	if err != nil {
		return nil, fmt.Errorf("read %s on %s: %w", t.Name(), leader, err)
	}
	defer r.Close()
	p, err := decodePage(r)
	if err != nil {
		return nil, fmt.Errorf("read %s on %s: %w", t.Name(), leader, err)
	}
	return p, nil
}

// answerPeers has the reads of other nodes answered.
func (e *Engine) answerPeers() {
	e.o.Peers.HandleStream(streamRead, func(ctx context.Context, from string, body []byte, w io.Writer) error {
		var q readQuery
		if err := json.Unmarshal(body, &q); err != nil {
			return fmt.Errorf("%s: %w", streamRead, err)
		}
		t, ok := e.o.State.TopicByID(q.Topic)
		if !ok {
			return errOrigin
		}
		if err := e.o.Peers.Linearize(ctx, t.Group().ID()); err != nil {
			return err
		}
		e.follow(q.Topic, from) // before it is read: what comes in between is told
		p, err := read(t, &q)
		if err != nil {
			return err
		}
		return p.encode(w)
	})
	e.o.Peers.Handle(callTake, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		var q takeQuery
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("%s: %w", callTake, err)
		}
		t, ok := e.o.State.TopicByID(q.Topic)
		if !ok {
			return nil, errOrigin
		}
		return nil, e.o.State.DeleteMessages(ctx, t, q.Sequences)
	})
	e.o.Peers.Handle(callGrown, func(_ context.Context, _ string, body []byte) ([]byte, error) {
		if len(body) == 8 {
			e.Grown([]topics.TopicID{topics.TopicID(binary.LittleEndian.Uint64(body))})
		}
		return nil, nil
	})
}

// takeQuery asks for messages to be taken out of a work queue.
type takeQuery struct {
	Topic     topics.TopicID    `json:"topic"`
	Sequences []topics.Sequence `json:"sequences"`
}

// take takes messages out of a work queue, where that is led.
func (e *Engine) take(ctx context.Context, t *state.Topic, seqs []topics.Sequence) error {
	if e.o.Peers == nil || t.Group().IsLeader() {
		return e.o.State.DeleteMessages(ctx, t, seqs)
	}
	leader := e.o.Peers.Leader(t.Group().ID())
	if leader == "" || leader == e.o.Peers.Name() {
		return errAway
	}
	body, err := json.Marshal(takeQuery{t.ID(), seqs})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	if _, err := e.o.Peers.Call(ctx, leader, callTake, body); err != nil {
		return fmt.Errorf("take messages out of %s on %s: %w", t.Name(), leader, err)
	}
	return nil
}

// follow has a node told, once, when a topic grows.
func (e *Engine) follow(id topics.TopicID, node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.followers[id] == nil {
		e.followers[id] = map[string]struct{}{}
	}
	e.followers[id][node] = struct{}{}
}

// tellFollowers tells the nodes that read a topic that it has grown.
func (e *Engine) tellFollowers(id topics.TopicID) {
	nodes := e.followers[id]
	if len(nodes) == 0 || e.closed {
		return
	}
	delete(e.followers, id)
	body := binary.LittleEndian.AppendUint64(nil, uint64(id))
	for node := range nodes {
		e.wg.Go(func() {
			ctx, cancel := context.WithTimeout(e.ctx, readPatience)
			defer cancel()
			_, _ = e.o.Peers.Call(ctx, node, callGrown, body) // the reader looks by itself after a while
		})
	}
}

// encode writes the page: its head as JSON, then the messages, each length before
// its field.
func (p *page) encode(w io.Writer) error {
	head, err := json.Marshal(p)
	if err != nil {
		return err
	}
	b := append(binary.AppendUvarint(nil, uint64(len(head))), head...)
	for i := range p.messages {
		m := &p.messages[i]
		b = binary.AppendUvarint(b, uint64(m.Sequence))
		b = binary.AppendUvarint(b, uint64(m.Time))
		for _, f := range [][]byte{[]byte(m.Subject), m.Header, m.Payload} {
			b = append(binary.AppendUvarint(b, uint64(len(f))), f...)
		}
		if len(b) >= 128<<10 {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	_, err = w.Write(b)
	return err
}

func decodePage(r io.Reader) (*page, error) {
	b, err := io.ReadAll(io.LimitReader(r, messageMost))
	if err != nil {
		return nil, err
	}
	in := bytes.NewReader(b)
	next := func() []byte {
		n, e := binary.ReadUvarint(in)
		if e != nil || n > uint64(in.Len()) {
			err = errors.New("the answer is cut short")
			return nil
		}
		at := len(b) - in.Len()
		_, _ = in.Seek(int64(n), io.SeekCurrent)
		return b[at : at+int(n) : at+int(n)]
	}
	number := func() uint64 {
		n, e := binary.ReadUvarint(in)
		if e != nil {
			err = errors.New("the answer is cut short")
		}
		return n
	}
	p := &page{}
	if head := next(); err == nil {
		err = json.Unmarshal(head, p)
	}
	if err == nil && (p.N < 0 || p.N > roundMessages) {
		err = errors.New("the answer has more messages than were asked for")
	}
	for range p.N {
		if err != nil {
			break
		}
		m := topics.Message{Sequence: topics.Sequence(number()), Time: topics.Nanos(number())}
		m.Subject = string(next())
		m.Header, m.Payload = next(), next()
		p.messages = append(p.messages, m)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}
