package jetstream

import (
	"bytes"
	"strings"
	"sync/atomic"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
)

const (
	apiPrefix = "$JS.API."
	ackPrefix = "$JS.ACK."
	fcPrefix  = "$JS.FC."
)

// noResponders is the header block a client takes for "nobody is there".
var noResponders = []byte("NATS/1.0 503\r\n\r\n")

// accountAPI is the API of one account.
type accountAPI struct {
	s       *Service
	account *front.Account
	name    string
	domain  string // prefix "$JS.<domain>.API.", "" without a domain
	subs    []*front.Internal

	limits atomic.Pointer[jsapi.AccountLimits] // nil: not enabled

	total, failed, inflight, dropped atomic.Uint64

	dropAdvised atomic.Int64  // ns; when API.LIMIT_REACHED was last told
	lane        atomic.Uint64 // of the next direct get that waits
}

func (a *accountAPI) prefixes() []string {
	p := []string{strings.TrimSuffix(apiPrefix, ".")}
	if a.domain != "" {
		p = append(p, strings.TrimSuffix(a.domain, "."))
	}
	return p
}

func (a *accountAPI) subscribe() error {
	families := map[string]front.Handler{
		apiPrefix + ">": func(m *front.Message) { a.onAPI(m, len(apiPrefix)) },
		ackPrefix + ">": a.onAck,
		fcPrefix + ">":  a.onFlowControl,
	}
	if d := a.s.o.Domain; d != "" {
		a.domain = "$JS." + d + ".API."
		families[a.domain+">"] = func(m *front.Message) { a.onAPI(m, len(a.domain)) }
	}
	for subj, h := range families {
		sub, err := a.account.Subscribe(subj, "", clientsOnly(h), front.Local)
		if err != nil {
			a.unsubscribe()
			return err
		}
		a.subs = append(a.subs, sub)
	}
	return nil
}

// clientsOnly leaves out what the broker itself publishes. It asks itself for
// nothing this way, so such a message is what a client made it say: an answer sent
// to a reply subject, a republished or a delivered message. A client asks under its
// own permissions or not at all.
func clientsOnly(h front.Handler) front.Handler {
	return func(m *front.Message) {
		if m.Client != nil {
			h(m)
		}
	}
}

func (a *accountAPI) unsubscribe() {
	for _, s := range a.subs {
		s.Close()
	}
	a.subs = nil
}

func (a *accountAPI) stats() jsapi.APIStats {
	return jsapi.APIStats{
		Level: jsapi.Level, Total: a.total.Load(), Errors: a.failed.Load(), Inflight: a.inflight.Load(),
	}
}

// onAPI gets every API request, on the publisher's goroutine.
func (a *accountAPI) onAPI(m *front.Message, prefix int) {
	rest := m.Subject[prefix:]
	if op, found := bytes.CutPrefix(rest, []byte("CONSUMER.MSG.NEXT.")); found {
		a.onNext(m, op)
		return
	}
	if op, found := bytes.CutPrefix(rest, []byte("DIRECT.GET.")); found {
		a.onDirect(m, op)
		return
	}
	r, ok := parseRequest(string(rest))
	if !ok {
		return // as if nobody listened, but without an answer: so does nats-server
	}
	if r.route.system && !a.account.System() {
		return
	}
	r.api = a
	if len(m.Reply) == 0 && !r.route.mutates {
		return
	}
	m.FlushCaptured() // what the client published before its request comes before it
	r.msg = m.Clone()
	unmarked(r.msg)
	a.inflight.Add(1)
	if !a.s.queue.add(r.key(), func() { r.serve() }) {
		a.inflight.Add(^uint64(0))
		a.limitReached()
	}
}

// onNext hands a pull request to the consumer's engine.
func (a *accountAPI) onNext(m *front.Message, rest []byte) {
	stream, name, ok := bytes.Cut(rest, []byte("."))
	if !ok || bytes.IndexByte(name, '.') >= 0 {
		return
	}
	consumer := string(name)
	t, found := a.topic(string(stream))
	switch {
	case found && a.s.leads(t.Group().ID()) && a.pull(m, t, consumer):
	case !a.s.clustered():
		unheard(m)
	default:
		message{a: a, m: m, lost: unheard, here: func(m *front.Message, t *state.Topic) bool {
			return a.pull(m, t, consumer)
		}}.route(string(stream))
	}
}

// pull answers a pull request of a consumer whose group this node leads; false
// when it isn't ready to.
func (a *accountAPI) pull(m *front.Message, t *state.Topic, consumer string) bool {
	e := a.s.engine(t)
	if e == nil {
		return false
	}
	if !e.Pull(t.ID(), consumer, string(m.Reply), m.Header, m.Payload) {
		if !e.Leads() || t.Moving() {
			return false
		}
		unheard(m)
	}
	return true
}

// unheard answers as if nobody listened.
func unheard(m *front.Message) { m.Respond(noResponders, nil) }

// unanswered gives up what wants no answer.
func unanswered(*front.Message) {}

// onAck hands an acknowledgement to its engine. Which group's it is only the
// stream's name tells; that of a stream that is gone is dropped.
func (a *accountAPI) onAck(m *front.Message) {
	stream := ackStream(m.Subject[len(ackPrefix):])
	t, ok := a.topic(stream)
	if !ok || a.s.leads(t.Group().ID()) && a.ack(m, t) {
		return
	}
	message{a: a, m: m, lost: unanswered, here: a.ack}.route(stream)
}

func (a *accountAPI) ack(m *front.Message, t *state.Topic) bool {
	e := a.s.engine(t)
	return e != nil && (e.Ack(a.name, m.Subject, m.Reply, m.Payload) || e.Leads() && !t.Moving())
}

func (a *accountAPI) onFlowControl(m *front.Message) {
	stream, _, _ := bytes.Cut(m.Subject[len(fcPrefix):], []byte("."))
	t, ok := a.topic(string(stream))
	if !ok || a.s.leads(t.Group().ID()) && a.flow(m, t) {
		return
	}
	message{a: a, m: m, lost: unanswered, here: a.flow}.route(string(stream))
}

func (a *accountAPI) flow(m *front.Message, t *state.Topic) bool {
	if e := a.s.engine(t); e != nil {
		e.FlowControl(a.name, m.Subject)
	}
	return true // another leader asks anew
}

// ackStream returns the stream's name in an ack subject behind "$JS.ACK.":
// first of the seven tokens of v1, third of the nine and more of v2.
func ackStream(rest []byte) string {
	first, tail, _ := bytes.Cut(rest, []byte("."))
	if bytes.Count(tail, []byte(".")) < 7 {
		return string(first)
	}
	_, tail, _ = bytes.Cut(tail, []byte("."))
	third, _, _ := bytes.Cut(tail, []byte("."))
	return string(third)
}

// topic finds a stream of the account.
func (a *accountAPI) topic(name string) (*state.Topic, bool) {
	return a.s.o.State.Topic(a.name, name)
}
