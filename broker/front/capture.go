package front

// sinkStage is what one publisher holds for one sink.
type sinkStage struct {
	sink  Sink
	batch []Captured
}

// capture stages o for the topics in m.
func (st *stager) capture(m *match, o *outgoing) {
	c := Captured{
		Subject: o.Subject, Reply: o.Reply, Header: o.Header, Payload: o.Payload,
		Account: st.account, Client: o.client,
	}
	if !o.borrowed {
		c.Subject, c.Reply = st.keep(c.Subject), st.keep(c.Reply)
		c.Header, c.Payload = st.keep(c.Header), st.keep(c.Payload)
	}
	st.staged += len(c.Payload)
	for _, t := range m.captures {
		c.Topic = t.id
		i := 0
		for i < len(st.sinks) && st.sinks[i].sink != t.sink {
			i++
		}
		if i == len(st.sinks) {
			st.sinks = append(st.sinks, sinkStage{sink: t.sink})
		}
		st.sinks[i].batch = append(st.sinks[i].batch, c)
	}
}

// keep copies b to where it lives until the batch ends.
func (st *stager) keep(b []byte) []byte {
	at := len(st.arena)
	st.arena = append(st.arena, b...)
	return st.arena[at:len(st.arena):len(st.arena)]
}

func (st *stager) flushSinks() {
	if c := st.srv.joined(); c != nil {
		c.Tell() // the topic may be led elsewhere, and acknowledge from there
	}
	for i := range st.sinks {
		s := &st.sinks[i]
		if len(s.batch) == 0 {
			continue
		}
		s.sink.Capture(s.batch)
		clear(s.batch)
		s.batch = s.batch[:0]
	}
	if len(st.sinks) > 16 {
		// Sinks of groups that are gone would stay for ever.
		st.sinks = nil
	}
	if cap(st.arena) > stagedMax {
		st.arena = nil
	}
	st.arena = st.arena[:0]
}
