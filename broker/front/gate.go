package front

import (
	"time"

	"github.com/heraldmq/herald/broker/wire"
)

// Gate decides about what clients publish in an account, before it is stored or
// delivered. Its methods are called by many sessions at once and must not block.
type Gate interface {
	// Rule returns what messages of a literal subject must pass; nil: nothing. The
	// answer is kept for the subject until another gate takes this one's place.
	Rule(subject string) Rule
}

// Rule is what messages of one subject must pass.
type Rule interface {
	// Check decides about one message, on its connection's goroutine. It must not keep m
	// or its bytes.
	Check(m *Message) Verdict
}

// Verdict is what becomes of a message. The zero value lets it pass.
type Verdict struct {
	Refuse bool
	Reason string // why, in a few words
	Answer []byte // for a publisher that waits for an acknowledgement
	// Divert, when set, is the subject the message is published on instead, by the broker,
	// with Header (a whole block) in place of its own. The publisher gets the
	// acknowledgement of whoever keeps it there; nobody does: it is refused.
	Divert string
	Header []byte
}

// refusalPause is how often a publisher that wants no acknowledgement is told of
// refused messages.
const refusalPause = time.Second

// gateAt is the gate in force, told apart from others by its address.
type gateAt struct{ Gate }

// SetGate makes g decide about what clients publish from now on; nil lets everything
// pass. Subjects that are in use ask the new gate with their next message.
func (a *Account) SetGate(g Gate) {
	if g == nil {
		a.gate.Store(nil)
		return
	}
	a.gate.Store(&gateAt{g})
}

// passes has the gate decide about a message, and does what it says when it may not
// pass.
func (s *session) passes(g *gateAt, m *match, c *outgoing) bool {
	rule := m.rule
	if m.gate != g || !m.exact {
		rule = g.Rule(string(c.Subject))
		if m.exact {
			m.gate, m.rule = g, rule
		}
	}
	if rule == nil {
		return true
	}
	s.judged = Message{
		Subject: c.Subject, Reply: c.Reply, Header: c.Header, Payload: c.Payload, Account: s.account, Client: s.info,
	}
	v := rule.Check(&s.judged)
	s.judged = Message{}
	if !v.Refuse && v.Divert == "" {
		return true
	}
	st := &s.st
	if st.respond.account != s.account {
		st.respond.init(s.account, st, nil)
	}
	waits := len(c.Reply) > 0 && len(m.captures) > 0
	if v.Divert != "" {
		o := newOutgoing(bytesOf(v.Divert), nil, v.Header, c.Payload)
		if waits {
			o.Reply = c.Reply
		}
		o.client = s.info
		if to := st.respond.find(o.Subject); len(to.captures) > 0 {
			st.publishTo(to, &o)
			if s.connect.Verbose {
				s.send(wire.OKLine)
			}
			return false
		}
		v.Reason += "; nobody keeps what is quarantined"
	}
	if waits && len(v.Answer) > 0 {
		o := newOutgoing(c.Reply, nil, nil, v.Answer)
		st.publish(&st.respond, &o)
		if s.connect.Verbose {
			s.send(wire.OKLine)
		}
		return false
	}
	if now := time.Now(); s.connect.Verbose || now.Sub(s.refusedAt) >= refusalPause {
		s.refusedAt = now
		s.denied(wire.DeniedPublish(string(c.Subject)) + ": " + v.Reason)
	}
	return false
}
