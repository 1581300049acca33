package front

import (
	"bytes"
	"time"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/topics"
)

// Message is one published message on its way. The bytes are borrowed: they are
// valid until the handler returns.
type Message struct {
	Subject []byte
	Reply   []byte // empty when no answer is wanted
	Header  []byte // the whole block "NATS/1.0\r\n…\r\n\r\n", or empty
	Payload []byte
	Account *Account
	// Client is who published; nil when the broker itself did.
	Client *ClientInfo
	// Forwarded names the node the message came from, "" when it entered the
	// cluster here.
	Forwarded string
	// Routed is the subject it was sent to where that isn't Subject: what consumers
	// and filters deliver. nil for what was published.
	Routed []byte

	via *stager // of the publishing goroutine, for Respond
}

// Respond publishes to m.Reply on behalf of the broker, staged with the
// caller's read batch: it leaves when the batch ends. Only within the handler;
// nothing happens when there is no reply subject.
func (m *Message) Respond(header, payload []byte) {
	if len(m.Reply) == 0 {
		return
	}
	if m.via == nil {
		m.Account.Publish(string(m.Reply), "", header, payload)
		return
	}
	st := m.via
	if st.respond.account != m.Account {
		st.respond.init(m.Account, st, nil)
	}
	o := newOutgoing(m.Reply, nil, header, payload)
	st.publish(&st.respond, &o)
}

// FlushCaptured hands over what the publisher has staged for topics so far, so
// that what a client published before a request is proposed before it. Only
// within the handler; it waits as Sink.Capture does.
func (m *Message) FlushCaptured() {
	if m.via != nil {
		m.via.flushSinks()
	}
}

// Clone returns a copy that owns its bytes, for work that goes on after the
// handler. Its Respond may be called from any goroutine.
func (m *Message) Clone() *Message {
	return &Message{
		Subject: bytes.Clone(m.Subject), Reply: bytes.Clone(m.Reply),
		Header: bytes.Clone(m.Header), Payload: bytes.Clone(m.Payload),
		Account: m.Account, Client: m.Client, Forwarded: m.Forwarded, Routed: bytes.Clone(m.Routed),
	}
}

// Handler gets messages on the publisher's goroutine. It must not block, and
// must not keep m or its bytes.
type Handler func(m *Message)

// Captured is one message for one topic. The bytes are borrowed: they are valid
// during Capture only.
type Captured struct {
	Topic   topics.TopicID
	Subject []byte
	Reply   []byte
	Header  []byte
	Payload []byte
	Account *Account
	Client  *ClientInfo // nil when the broker itself published
	Mapped  bool        // the topic's subject transform has been applied already
}

// Sink takes what topics capture: one call per read batch of a session, in
// publishing order. Called by many sessions at once. It may block, which stops
// the session from reading: that is the back-pressure.
type Sink interface {
	Capture(batch []Captured)
}

// ClientInfo is who a connection is. Immutable, except through its methods.
type ClientInfo struct {
	ID      uint64 // cid
	Kind    string // "Client"
	Type    string // "nats" or "websocket"
	Name    string
	User    string // "" when anonymous
	Account string
	Lang    string
	Version string
	Host    string
	Port    int
	Start   time.Time
	NameTag string

	sess   *session     // nil of a client of another node
	remote *remoteRules // of a client of another node
}

// MayPublish tells whether the client's permissions let it publish to subject.
// Without a client (nil) everything is allowed: the broker itself asks.
func (c *ClientInfo) MayPublish(subject string) bool {
	return c == nil || c.rules().Publish(subject)
}

// MaySubscribe tells whether the client may subscribe to the pattern, queue ""
// for a plain subscription. A pattern that merely overlaps a denied one is
// allowed here and filtered at delivery; see MayReceive.
func (c *ClientInfo) MaySubscribe(pattern, queue string) bool {
	return c == nil || c.rules().Subscribe(pattern, queue)
}

// MayAdvertise, MayDiscover, MaySample and MayEnforce tell what the client may do with
// advertisements of the pattern; see auth.Rules.
func (c *ClientInfo) MayAdvertise(pattern string, publishes bool) bool {
	return c == nil || c.rules().Advertise(pattern, publishes)
}

// MayDiscover tells whether the pattern is shown to the client.
func (c *ClientInfo) MayDiscover(pattern string) bool {
	return c == nil || c.rules().Discover(pattern)
}

// MaySample tells whether the client may look at messages of the pattern.
func (c *ClientInfo) MaySample(pattern string) bool { return c == nil || c.rules().Sample(pattern) }

// MayEnforce tells whether the client may decide what others publish on the pattern.
func (c *ClientInfo) MayEnforce(pattern string) bool { return c == nil || c.rules().Enforce(pattern) }

// Restricted tells whether the client has permissions at all, rather than all.
func (c *ClientInfo) Restricted() bool { return c != nil && c.rules() != nil }

// AppendIdent appends who the client is, for a service of another node; ReadIdent of
// the server there reads it, and looks its permissions up in its own configuration.
func (c *ClientInfo) AppendIdent(dst []byte) []byte { return appendIdent(dst, c) }

// ReadIdent reads what AppendIdent wrote on another node.
func (s *Server) ReadIdent(b []byte) (*ClientInfo, error) { return s.readIdent(b) }

// Permissions are those in force for the client, nil where it may do all.
func (c *ClientInfo) Permissions() *auth.Permissions {
	if c == nil {
		return nil
	}
	return c.rules().Source()
}

func (c *ClientInfo) rules() *auth.Rules {
	switch {
	case c.sess != nil:
		return c.sess.rules()
	case c.remote != nil:
		return c.remote.rules()
	}
	return nil
}

// RTT is the last round trip measured by PING, 0 before the first.
func (c *ClientInfo) RTT() time.Duration {
	if c == nil || c.sess == nil {
		return 0
	}
	return c.sess.rtt()
}
