package front

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/topics/subject"
)

func readReason(err error) Reason {
	if errors.Is(err, io.EOF) {
		return ReasonClientClosed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ReasonStale
	}
	return ReasonReadError
}

// parseError says what the protocol says about it.
func (s *session) parseError(err error) {
	switch {
	case errors.Is(err, wire.ErrOperation):
		s.fail(wire.TextOperation, ReasonParseError)
	case errors.Is(err, wire.ErrControlLine):
		s.fail(wire.TextMaxControlLine, ReasonMaxControlLine)
	case errors.Is(err, wire.ErrPayload):
		if s.account == nil && !s.needsNoConnect() {
			s.fail(wire.TextAuthorization, ReasonAuthFailure)
			return
		}
		s.fail(wire.TextMaxPayload, ReasonMaxPayload)
	default:
		s.fail("", ReasonParseError)
	}
}

// command handles one operation. false ends the session.
func (s *session) command(c *outgoing) bool {
	if s.srv.traced.Load() {
		s.trace(&c.Command)
	}
	if s.account == nil && c.Verb != wire.Connect && !s.anonymous() {
		return s.fail(wire.TextAuthorization, ReasonAuthFailure)
	}
	switch c.Verb {
	case wire.Pub, wire.HPub:
		return s.publish(c)
	case wire.Sub:
		return s.subscribe(&c.Command)
	case wire.Unsub:
		s.unsubscribe(&c.Command)
	case wire.Ping:
		s.ping()
	case wire.Pong:
		s.pong()
	case wire.Connect:
		return s.connectAs(c.Arg)
	case wire.Err:
		return s.fail("", ReasonParseError) // a client that speaks like a server
	case wire.Info, wire.OK:
		// Tolerated, and ignored.
	}
	return true
}

func (s *session) ok() {
	if s.connect.Verbose {
		s.send(wire.OKLine)
	}
}

// publish handles PUB and HPUB.
func (s *session) publish(c *outgoing) bool {
	s.inMsgs++
	s.inBytes += int64(len(c.Header) + len(c.Payload))
	if c.Verb == wire.HPub && (!s.connect.Headers || s.srv.opts().NoHeaders) {
		return s.fail("", ReasonProtocol)
	}
	if len(c.Header) > 0 && mentions(c.Header, requestInfo) {
		c.Header = withoutKey(c.Header, requestInfo)
		c.Tail = nil // to be written anew
	}
	m := s.mt.find(c.Subject)
	if s.connect.Pedantic && !validPublish(string(c.Subject)) {
		s.sendErr(wire.TextInvalidPublish)
	}
	if (m.denied || reservedSubject(c.Subject)) && !s.mayAnswer(c.Subject, m) {
		s.denied(wire.DeniedPublish(string(c.Subject)))
		return true
	}
	if len(c.Reply) > 0 && (reservedReply(c.Reply) || asksBroker(c.Reply) && !s.mayPublish(string(c.Reply))) {
		s.denied(wire.DeniedReply(string(c.Reply)))
		return true
	}
	if m.denied {
		m = s.answerMatch(c.Subject)
	}
	if g := s.account.gate.Load(); g != nil && !s.passes(g, m, c) {
		return true
	}
	c.client, c.borrowed, c.scratch, c.bareOK = s.info, true, false, false
	if at := s.account.observer.Load(); at != nil {
		s.st.observe(at, m, c)
	}
	if len(m.captures) > 0 {
		if denial := s.scheduleDenied(c.Header); denial != "" {
			s.denied(denial)
			return true
		}
		s.st.capture(m, c)
	}
	if s.connect.Verbose {
		s.send(wire.OKLine)
	}
	n := s.st.deliver(m, c)
	if n == 0 && len(m.captures) == 0 && len(c.Reply) > 0 && s.connect.NoResponders {
		s.noResponders(&c.Command)
	}
	return true
}

// denied tells the client about a permission and, as clients rely on, keeps
// the connection.
func (s *session) denied(text string) {
	s.srv.log.Debug("permission denied", "cid", s.id, "text", text)
	s.sendErr(text)
}

// noResponders answers a request that nobody listens to, on the client's own
// subscription for the reply.
func (s *session) noResponders(c *wire.Command) {
	reply := string(c.Reply)
	s.mu.Lock()
	var own *sub
	for _, u := range s.subs {
		if subject.Match(u.subject, reply) && u.wants(reply) {
			own = u
			break
		}
	}
	s.mu.Unlock()
	if own == nil {
		return
	}
	// It isn't counted: it is no delivery of what was subscribed to.
	header := wire.NewStatus(503, "", "Nats-Subject", string(c.Subject))
	s.send(wire.AppendMsg(nil, c.Reply, []byte(own.sid), nil, header, nil))
	s.st.stageFor(s).msgs++
}

// subscribe handles SUB.
func (s *session) subscribe(c *wire.Command) bool {
	subj, queue, sid := string(c.Subject), string(c.Queue), string(c.SID)
	o := s.srv.opts()
	if !subject.Valid(subj) {
		s.sendErr(wire.TextInvalidSubject)
		return true
	}
	if o.MaxSubTokens > 0 && subject.Tokens(subj) > o.MaxSubTokens {
		s.denied(wire.DeniedSubscribe(subj, queue) + ", too many tokens")
		return true
	}
	rules := s.rules()
	if !rules.Subscribe(subj, queue) {
		s.denied(wire.DeniedSubscribe(subj, queue))
		return true
	}
	if s.subsFull(o) {
		s.sendErr(wire.TextMaxSubscriptions)
		return true
	}
	s.mu.Lock()
	if s.subs[sid] != nil {
		s.mu.Unlock()
		s.ok() // a repeated SUB with the sid in use changes nothing
		return true
	}
	u := &sub{
		id: s.srv.nextSub.Add(1), account: s.account, subject: subj, queue: queue,
		sess: s, sid: sid,
	}
	if filter := rules.Filter(subj, queue); filter != nil {
		u.filter.Store(&filter)
	}
	s.subs[sid] = u
	s.subCount.Store(int64(len(s.subs)))
	s.mu.Unlock()
	s.account.clientSubs.Add(1)
	s.account.add(u)
	if u.closed.Load() {
		u.account.remove(u) // a reload ended it before it was in the index
	}
	if now := s.rules(); now != rules {
		s.hold(u, now) // a reload that came between may not have seen it
	}
	s.ok()
	return true
}

func (s *session) subsFull(o *Options) bool {
	if o.MaxSubscriptions > 0 && s.subCount.Load() >= int64(o.MaxSubscriptions) {
		return true
	}
	most := s.account.Limits().MaxSubscriptions
	return most > 0 && s.account.clientSubs.Load() >= int64(most)
}

// unsubscribe handles UNSUB.
func (s *session) unsubscribe(c *wire.Command) {
	s.mu.Lock()
	u := s.subs[string(c.SID)]
	s.mu.Unlock()
	if u != nil {
		if c.Max > 0 {
			u.max.Store(int64(c.Max))
		}
		if c.Max <= 0 || u.delivered.Load() >= int64(c.Max) {
			s.removeSub(u)
		} else {
			// From now on deliveries are counted one by one.
			s.account.index.Touch(u.subject)
		}
	}
	s.ok()
}

// removeSub ends a subscription. Any goroutine.
func (s *session) removeSub(u *sub) {
	if u.closed.Swap(true) {
		return
	}
	s.mu.Lock()
	if s.subs[u.sid] == u {
		delete(s.subs, u.sid)
	}
	s.subCount.Store(int64(len(s.subs)))
	s.mu.Unlock()
	u.account.clientSubs.Add(-1)
	u.account.remove(u)
}

// dropSubs ends all subscriptions.
func (s *session) dropSubs() {
	s.mu.Lock()
	all := make([]*sub, 0, len(s.subs))
	for _, u := range s.subs {
		all = append(all, u)
	}
	s.mu.Unlock()
	for _, u := range all {
		s.removeSub(u)
	}
}

// ping handles PING: the answer is staged behind everything before it.
func (s *session) ping() {
	s.send(wire.PongLine)
	if s.owesInfo {
		s.owesInfo = false
		s.send(s.infoLine(true))
	}
}

// pong handles PONG.
func (s *session) pong() {
	s.mu.Lock()
	s.pingsOut = 0
	if !s.pingSent.IsZero() {
		s.roundTrip.Store(int64(max(time.Since(s.pingSent), 1)))
		s.pingSent = time.Time{}
	}
	s.mu.Unlock()
}

// expectedReply is a reply subject the client was sent and may answer to.
type expectedReply struct {
	left    int // negative: any number
	expires time.Time
}

// repliesMax is how many expected replies are kept before old ones are swept.
const repliesMax = 4096

// expectReply lets the client publish to a reply subject it is being sent.
func (s *session) expectReply(reply string) {
	rules := s.rules()
	if rules == nil || rules.ResponsesMax == 0 {
		return
	}
	now := time.Now()
	e := &expectedReply{left: rules.ResponsesMax}
	if rules.ResponsesExpires > 0 {
		e.expires = now.Add(rules.ResponsesExpires)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replies == nil {
		s.replies = map[string]*expectedReply{}
	}
	if len(s.replies) >= repliesMax {
		for k, v := range s.replies {
			if !v.expires.IsZero() && now.After(v.expires) {
				delete(s.replies, k)
			}
		}
		for k := range s.replies {
			if len(s.replies) < repliesMax {
				break
			}
			delete(s.replies, k) // any: they are bounded, whatever the user asked
		}
	}
	s.replies[reply] = e
}

// mayAnswer tells whether a denied subject is one the client was asked to
// answer to, and counts the answer.
func (s *session) mayAnswer(subj []byte, m *match) bool {
	if !m.denied {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.replies[string(subj)]
	if e == nil {
		return false
	}
	if !e.expires.IsZero() && time.Now().After(e.expires) {
		delete(s.replies, string(subj))
		return false
	}
	if e.left > 0 {
		if e.left--; e.left == 0 {
			delete(s.replies, string(subj))
		}
	}
	return true
}

// answerMatch is the match of a subject that is only allowed as an answer.
func (s *session) answerMatch(subj []byte) *match {
	if s.st.respond.account != s.account {
		s.st.respond.init(s.account, &s.st, nil)
	}
	return s.st.respond.find(subj)
}

// trace logs one operation.
func (s *session) trace(c *wire.Command) {
	o := s.srv.opts()
	args := []any{"cid", s.id, "op", c.Verb.String()}
	switch c.Verb {
	case wire.Pub, wire.HPub:
		payload := c.Payload
		if o.MaxTracedMsgLen > 0 && len(payload) > o.MaxTracedMsgLen {
			payload = payload[:o.MaxTracedMsgLen]
		}
		args = append(args, "subject", string(c.Subject), "reply", string(c.Reply), "payload", string(payload))
	case wire.Sub:
		args = append(args, "subject", string(c.Subject), "queue", string(c.Queue), "sid", string(c.SID))
	case wire.Unsub:
		args = append(args, "sid", string(c.SID), "max", c.Max)
	}
	// CONNECT's argument holds secrets: never logged.
	s.srv.log.Log(context.Background(), LevelTrace, "trace", args...)
}
