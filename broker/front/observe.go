package front

// Observer counts what is published in an account. Its methods are called by many
// publishers at once and must not block.
type Observer interface {
	// Tallies returns where messages of a literal subject are counted; with prefix those of
	// all subjects that have one token more than it, and ok is false when that makes a
	// difference. The answer is kept until another observer takes this one's place.
	Tallies(subject string, prefix bool) (tallies []Tally, ok bool)
}

// Tally counts messages. It is told once for all of a read batch on one subject.
type Tally interface {
	// Add counts messages and their bytes (header and payload) by a client, 0 for the
	// broker itself.
	Add(msgs, bytes int64, client uint64)
	// Offer shows one message of the batch, which it may copy.
	Offer(m *Message)
	// Keyed tells whether it wants to see each message, by Key.
	Keyed() bool
	Key(m *Message)
}

// observerAt is the observer in force, told apart from others by its address.
type observerAt struct{ Observer }

// SetObserver makes o count what is published on this node from now on; nil ends it.
func (a *Account) SetObserver(o Observer) {
	if o == nil {
		a.observer.Store(nil)
		return
	}
	a.observer.Store(&observerAt{o})
}

// counting is what a match knows of who counts its messages.
type counting struct {
	under   *observerAt
	tallies []Tally
	keyed   bool
	msgs    int64 // since the last hand-over
	bytes   int64
}

// observe counts a message. What is counted is handed over with the batch, but for a
// subject that is met once: its match is made anew with the next message.
func (st *stager) observe(at *observerAt, m *match, o *outgoing) {
	c := &m.counting
	if c.under != at || m.once {
		st.beginCounting(at, m, o)
	}
	if len(c.tallies) == 0 {
		return
	}
	if c.msgs == 0 {
		for _, t := range c.tallies {
			t.Offer(st.shown(o))
		}
		if !m.once {
			st.tallied = append(st.tallied, m)
		}
	}
	c.msgs++
	c.bytes += int64(len(o.Header) + len(o.Payload))
	if c.keyed {
		for _, t := range c.tallies {
			if t.Keyed() {
				t.Key(st.shown(o))
			}
		}
	}
	st.seen = Message{}
	if m.once {
		c.handOver(st.client())
	}
}

// handOver tells the tallies what was counted.
func (c *counting) handOver(client uint64) {
	if c.msgs == 0 {
		return
	}
	for _, t := range c.tallies {
		t.Add(c.msgs, c.bytes, client)
	}
	c.msgs, c.bytes = 0, 0
}

// client is who publishes, 0 for the broker.
func (st *stager) client() uint64 {
	if st.self == nil {
		return 0
	}
	return st.self.id
}

func (st *stager) beginCounting(at *observerAt, m *match, o *outgoing) {
	if m.counting.msgs > 0 { // what was counted under another observer
		m.counting.handOver(st.client())
	}
	ok := false
	var tallies []Tally
	if !m.exact && !m.once {
		if dot := lastDot(o.Subject); dot > 0 {
			tallies, ok = at.Tallies(string(o.Subject[:dot]), true)
		}
	}
	under := at
	if !ok {
		tallies, _ = at.Tallies(string(o.Subject), false)
		if !m.exact {
			under = nil // of this subject only: asked again with the next
		}
	}
	m.counting = counting{under: under, tallies: tallies}
	for _, t := range tallies {
		m.counting.keyed = m.counting.keyed || t.Keyed()
	}
}

// shown is o as a Message, until the next call.
func (st *stager) shown(o *outgoing) *Message {
	st.seen = Message{Subject: o.Subject, Reply: o.Reply, Header: o.Header, Payload: o.Payload, Account: st.account, Client: o.client}
	return &st.seen
}

// handOverTallies tells the tallies what was counted in the batch.
func (st *stager) handOverTallies() {
	client := st.client()
	for i, m := range st.tallied {
		m.counting.handOver(client)
		st.tallied[i] = nil
	}
	st.tallied = st.tallied[:0]
}
