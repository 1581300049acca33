package front

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A client of a node that stops may have published something, or asked for something, that
// has not been answered yet. In a cluster it hears of it all the same: its connection ends
// in steps.
//
//  1. Nothing is written to it any more, while reading goes on: a client that waits for
//     answers sends no more. That ends when all are quiet.
//  2. What is for its inboxes is kept, the rest is written, and our half of the connection is
//     closed. What the client sent before it noticed is still read.
//  3. What is kept, and what still comes for its inboxes, goes to the node where the client
//     listens to them again, for a second at most.
//
// An inbox is a subject that begins with inboxPrefix, as all clients have it that aren't told
// otherwise.
type parting struct {
	sess     *session
	patterns map[string]string // of its inboxes, by sid
	active   bool              // it has sent something not long ago
	most     int               // bytes that may be kept
	over     chan struct{}     // closed when the session may end

	mu    sync.Mutex
	kept  []kept
	bytes int
	found time.Time // when it was seen to listen elsewhere
}

// kept is a message for an inbox.
type kept struct {
	subject, pattern, reply string
	header, payload         []byte
}

const (
	inboxPrefix    = "_INBOX."
	partingQuiet   = 30 * time.Millisecond  // without anything from a client
	partingWait    = 300 * time.Millisecond // for that
	partingRead    = 250 * time.Millisecond // for a client to close its half
	partingMax     = time.Second            // for a client to listen elsewhere
	partingIdle    = 100 * time.Millisecond // the same for one that has been silent
	partingRecent  = 2 * time.Second        // how long ago it was silent then
	partingOverlap = 25 * time.Millisecond  // until all nodes know where it is now
	partingLook    = 5 * time.Millisecond
)

// part ends connections as described above; those that have no inboxes, or nowhere to go,
// end at once. It returns when their sessions may end.
func (s *Server) part(all []*session, why Reason) {
	var leaving []*parting
	for _, c := range all {
		p := s.newParting(c)
		if p == nil {
			c.kick("", why)
			continue
		}
		if !c.parting.CompareAndSwap(nil, p) {
			continue // somebody else is at it
		}
		c.setReason(why)
		c.out.pause(p)
		leaving = append(leaving, p)
	}
	if len(leaving) == 0 {
		return
	}
	awaitQuiet(leaving)
	for _, p := range leaving {
		p.learn()
		p.sess.out.part()
	}
	s.passKept(leaving)
}

// newParting returns nil for a session that ends at once.
func (s *Server) newParting(c *session) *parting {
	if s.joined() == nil || c.info.Kind != kindClient || c.guest || c.acct.Load() == nil {
		return nil
	}
	p := &parting{sess: c, most: int(c.out.max), over: make(chan struct{})}
	p.active = time.Since(time.Unix(0, c.lastSeen.Load())) < partingRecent
	if p.learn(); len(p.patterns) == 0 && !p.active {
		return nil
	}
	return p
}

// learn finds out what the client's inboxes are.
func (p *parting) learn() {
	patterns := map[string]string{}
	p.sess.mu.Lock()
	for sid, u := range p.sess.subs {
		if u.queue == "" && strings.HasPrefix(u.subject, inboxPrefix) {
			patterns[sid] = u.subject
		}
	}
	p.sess.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patterns = patterns
}

// awaitQuiet waits until no client sends anything, but not long.
func awaitQuiet(leaving []*parting) {
	last := time.Now()
	for end := last.Add(partingWait); time.Since(last) < partingQuiet && time.Now().Before(end); {
		<-time.After(partingLook)
		for _, p := range leaving {
			if seen := time.Unix(0, p.sess.lastSeen.Load()); seen.After(last) {
				last = seen
			}
		}
	}
}

// passKept gives what is kept to the nodes where the clients are now, until each is there or
// it has taken too long.
func (s *Server) passKept(leaving []*parting) {
	began := time.Now()
	publishers := map[*Account]*Publisher{}
	for len(leaving) > 0 {
		still := leaving[:0]
		for _, p := range leaving {
			a := p.sess.acct.Load()
			if a == nil {
				close(p.over)
				continue
			}
			pub := publishers[a]
			if pub == nil {
				pub = a.NewPublisher()
				publishers[a] = pub
			}
			if p.passOn(a, pub, time.Since(began)) {
				close(p.over)
			} else {
				still = append(still, p)
			}
		}
		leaving = still
		for _, pub := range publishers {
			pub.Flush()
		}
		if len(leaving) > 0 {
			<-time.After(partingLook)
		}
	}
}

// passOn sends what is kept to where the client listens now, and tells whether the session
// may end.
func (p *parting) passOn(a *Account, pub *Publisher, took time.Duration) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.kept[:0]
	for i := range p.kept {
		k := &p.kept[i]
		r := a.remoteOf(k.subject, k.pattern)
		if r == nil {
			left = append(left, *k)
			continue
		}
		p.bytes -= len(k.payload)
		o := newOutgoing(bytesOf(k.subject), bytesOf(k.reply), k.header, k.payload)
		pub.st.toRemotes([]*remoteStage{pub.st.remoteStageFor(r)}, &o, nil)
	}
	clear(p.kept[len(left):])
	p.kept = left
	if p.found.IsZero() {
		for _, pattern := range p.patterns {
			if a.remoteOf(strings.ReplaceAll(strings.ReplaceAll(pattern, "*", "x"), ">", "x"), pattern) != nil {
				p.found = time.Now()
				break
			}
		}
	}
	switch {
	case took > partingMax:
		return true
	case len(p.kept) > 0:
		return false
	case p.found.IsZero():
		return (!p.active || len(p.patterns) == 0) && took > partingIdle
	}
	return time.Since(p.found) > partingOverlap
}

// remoteOf returns a peer that listens to exactly that pattern, which matches the subject.
func (a *Account) remoteOf(subject, pattern string) *Remote {
	for _, u := range a.index.Match(subject, nil) {
		if u.remote != nil && u.subject == pattern && u.queue == "" && !u.closed.Load() && !u.remote.gone.Load() {
			return u.remote
		}
	}
	return nil
}

// keep takes what is for the client's inboxes out of what was to be written, and returns the
// rest.
func (p *parting) keep(b []byte) (rest []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		n, sid, k := delivery(b)
		if n == 0 {
			return append(rest, b...)
		}
		op := b[:n]
		b = b[n:]
		if !strings.HasPrefix(k.subject, inboxPrefix) {
			rest = append(rest, op...)
			continue
		}
		if k.pattern = p.patterns[sid]; k.pattern == "" {
			k.pattern = k.subject // an inbox for one answer
		}
		if p.bytes += len(k.payload); p.most > 0 && p.bytes > p.most {
			p.bytes -= len(k.payload)
			continue
		}
		p.kept = append(p.kept, k)
	}
	return rest
}

// delivery reads the next operation that was to be written to a client: how long it is, and
// the message if it is one. 0 when it isn't whole.
func delivery(b []byte) (n int, sid string, k kept) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 0 {
		return 0, "", k
	}
	head := end + 2
	f := bytes.Fields(b[:end])
	size, header := 0, 0
	var err error
	switch {
	case len(f) >= 4 && string(f[0]) == "MSG":
		size, err = strconv.Atoi(string(f[len(f)-1]))
	case len(f) >= 5 && string(f[0]) == "HMSG":
		if size, err = strconv.Atoi(string(f[len(f)-1])); err == nil {
			header, err = strconv.Atoi(string(f[len(f)-2]))
		}
		f = f[:len(f)-1]
	default:
		return head, "", k
	}
	if err != nil || header > size || header < 0 || head+size+2 > len(b) {
		return 0, "", k
	}
	k.subject = string(f[1])
	if len(f) == 5 {
		k.reply = string(f[3])
	}
	k.header = bytes.Clone(b[head : head+header])
	k.payload = bytes.Clone(b[head+header : head+size])
	return head + size + 2, string(f[2]), k
}

// pause keeps back all that is to be written from now on.
func (o *outbox) pause(p *parting) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parting = p
}

// part has what waits written but for what is kept, and then closes the outbox.
func (o *outbox) part() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if !o.partial { // else its head is the end of a message, and all of it is written
		var all []byte
		for _, p := range o.queue {
			all = append(all, p.b...)
		}
		o.dropLocked()
		if rest := o.parting.keep(all); len(rest) > 0 {
			var sp spool
			sp.append2(&o.sess.srv.chunks, rest, nil)
			o.queue = sp.take(nil)
			o.pending.Add(int64(len(rest)))
		}
	}
	o.closed, o.draining = true, true
	o.releaseRoomLocked()
	o.signalLocked()
}

// halfClose tells the client that nothing more comes, and reads what it sends until it has
// heard of it.
func (s *session) halfClose() {
	until := time.Unix(1, 0)
	if cw, ok := s.conn.(interface{ CloseWrite() error }); ok && s.ws == nil && cw.CloseWrite() == nil {
		until = time.Now().Add(partingRead)
	}
	_ = s.sock.SetReadDeadline(until)
}
