package front

// Deliver stages the message once more, for those who listen to the subject to, shown
// as it was published: what a content filter does. It leaves with the caller's read
// batch. Only within the handler of a message that was published; topics never
// capture it. It reports whether anybody listened.
func (m *Message) Deliver(to string) bool {
	st := m.via
	if st == nil {
		return false
	}
	if st.respond.account != m.Account {
		st.respond.init(m.Account, st, nil)
	}
	o := newOutgoing(m.Subject, m.Reply, m.Header, m.Payload)
	o.route = bytesOf(to)
	return st.deliver(st.respond.find(o.route), &o) > 0
}
