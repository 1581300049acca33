package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	rooms "github.com/heraldmq/herald/broker/service"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// methodAsk is how nodes pass requests on to each other: an asked, answered with what a
// client gets.
const methodAsk = "op.ask"

const (
	requestsMax    = 16 // under way at once
	requestTimeout = 10 * time.Second
)

// service answers $HERALD.OP.> of the accounts it serves.
type service struct {
	e     *Engine
	slots chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	subs   rooms.Subscriptions
}

// asked is a request on its way between nodes.
type asked struct {
	Account string          `json:"account"`
	Verb    string          `json:"verb"`
	Body    json.RawMessage `json:"body"`
}

func (s *service) init(e *Engine) {
	s.e, s.slots = e, make(chan struct{}, requestsMax)
	s.subs.Identity = e.o.Identity
}

// Serve answers the requests of an account from now on.
func (e *Engine) Serve(a *front.Account) error {
	s := &e.service
	handlers := map[string]front.Handler{}
	for verb, h := range s.verbs() {
		handlers["$HERALD.OP."+verb] = func(m *front.Message) { s.accept(a.Name(), m, h) }
	}
	return s.subs.Serve(a, handlers)
}

func (s *service) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.subs.Close()
	s.wg.Wait()
}

// handler answers a request of a client.
type handler func(ctx context.Context, account string, body []byte, c *front.ClientInfo) (any, error)

// accept answers on a goroutine of its own. It doesn't block.
func (s *service) accept(account string, m *front.Message, h handler) {
	if m.Client == nil || len(m.Reply) == 0 {
		return
	}
	c := m.Clone()
	select {
	case s.slots <- struct{}{}:
	default:
		c.Respond(nil, answer(nil, &topics.Fault{Status: 503, Text: "too many requests are under way; try again"}))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		<-s.slots
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.slots }()
		ctx, cancel := context.WithTimeout(s.e.ctx, requestTimeout)
		defer cancel()
		v, err := h(ctx, account, c.Payload, c.Client)
		if err != nil {
			s.subs.Failed(c.Account, string(c.Subject), err.Error())
		}
		c.Respond(nil, answer(v, err))
	})
}

// answer is the body of an answer: v, or {"error": …}.
func answer(v any, err error) []byte {
	if err != nil {
		var f *topics.Fault
		if !errors.As(err, &f) {
			f = &topics.Fault{Status: 500, Text: err.Error()}
			if errors.Is(err, context.DeadlineExceeded) {
				f = &topics.Fault{Status: 504, Text: "not done in time; it may still be done: " + err.Error()}
			}
		}
		v = map[string]any{"error": map[string]any{"code": f.Status, "err_code": f.ErrCode, "description": f.Text}}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"code":500,"description":"the answer can't be encoded"}}`)
	}
	return b
}

func refuse(status int, format string, args ...any) error {
	return &topics.Fault{Status: status, ErrCode: 20053, Text: fmt.Sprintf(format, args...)}
}

// nodes asks all other nodes the same and calls f with each answer.
func (s *service) nodes(ctx context.Context, names []string, q asked, f func(node string, b []byte)) {
	p := s.e.o.Peers
	if p == nil {
		return
	}
	body, err := json.Marshal(q)
	if err != nil {
		return // it has been read from JSON
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, node := range names {
		if node == p.Name() || node == "" {
			continue
		}
		wg.Go(func() {
			b, err := p.Call(ctx, node, methodAsk, body)
			if err != nil {
				return // it is shown as missing
			}
			mu.Lock()
			defer mu.Unlock()
			f(node, b)
		})
	}
	wg.Wait()
}

// answerAsk answers another node about what this one has.
func (s *service) answerAsk(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var q asked
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	switch q.Verb {
	case "REPORT":
		r, err := s.report(q.Account, q.Body)
		return answer(r, err), nil
	case "STANDS":
		var r Request
		if err := json.Unmarshal(q.Body, &r); err != nil {
			return nil, err
		}
		o := s.e.state.Operator(q.Account, r.Name)
		if o == nil {
			return answer(nil, catalogue.FaultNoOperator), nil
		}
		return answer(s.e.stands(o), nil), nil
	case "STATE":
		v, err := s.stateHere(q.Account, q.Body)
		return answer(v, err), nil
	}
	return nil, fmt.Errorf("%s is not known to this version", q.Verb)
}
