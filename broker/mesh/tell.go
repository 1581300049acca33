package mesh

import (
	"encoding/binary"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// First bytes of chunks, beside those of package front.
const (
	chunkInterest = 'I' // flags, then changes
	chunkPart     = 'P' // length of a batch that follows in chunks of its own:
	chunkMore     = 'p' // a part of it
	chunkSlow     = 'S' // a client there publishes faster than somebody here reads
	chunkRoom     = 's' // no more
	chunkAsk      = 'A' // tell me everything
)

// Flags of chunkInterest. All that is told at once begins with one and ends with
// the other: what isn't in it has ended.
const (
	interestFirst = 1 << iota
	interestLast
)

// interestChunkMax is how long a chunk of interest gets.
const interestChunkMax = 64 << 10

func partHead(n int) []byte { return binary.AppendUvarint([]byte{chunkPart}, uint64(n)) }

// writer collects changes of interest in chunks:
//
//	chunkInterest, flags, {0, account | 1+length of the subject, subject, queue, weight}
type writer struct {
	chunks  [][]byte
	cur     []byte
	account string
}

func (w *writer) add(i front.Interest) {
	if len(w.cur) >= interestChunkMax {
		w.end()
	}
	if w.cur == nil {
		w.cur = append(make([]byte, 0, 256), chunkInterest, 0)
		w.account = ""
	}
	if i.Account != w.account {
		w.account = i.Account
		w.cur = appendString(append(w.cur, 0), i.Account)
	}
	w.cur = binary.AppendUvarint(w.cur, 1+uint64(len(i.Subject)))
	w.cur = append(w.cur, i.Subject...)
	w.cur = appendString(w.cur, i.Queue)
	w.cur = binary.AppendUvarint(w.cur, uint64(i.Weight))
}

func (w *writer) end() {
	if w.cur != nil {
		w.chunks = append(w.chunks, w.cur)
		w.cur = nil
	}
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// tell sends the changes of interest since the last time to all peers. When it
// returns, everything that changed before has been queued.
func (m *Mesh) tell() {
	if m.told.Load() == m.srv.InterestChanges() {
		return
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	m.tellLocked()
}

func (m *Mesh) tellLocked() {
	now := m.srv.InterestChanges()
	if m.told.Load() == now {
		return
	}
	var w writer
	m.srv.TakeInterest(w.add)
	w.end()
	for _, l := range m.links() {
		l.tellChanges(w.chunks)
	}
	m.told.Store(now)
}

func (m *Mesh) links() []*link {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*link, 0, len(m.peers))
	for _, l := range m.peers {
		all = append(all, l)
	}
	return all
}

func (l *link) tellChanges(chunks [][]byte) {
	if !l.up.Load() {
		return
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	for _, c := range chunks {
		if l.chunkLocked(c) != nil {
			l.untold.Store(true) // everything, once there is room
			return
		}
	}
}

// tellAll sends a peer all interest, after which it may be sent messages.
func (m *Mesh) tellAll(l *link) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.tellLocked() // the others; what is left of it is in what follows
	var w writer
	m.srv.AllInterest(w.add)
	w.end()
	if len(w.chunks) == 0 {
		w.chunks = [][]byte{{chunkInterest, 0}}
	}
	w.chunks[0][1] |= interestFirst
	w.chunks[len(w.chunks)-1][1] |= interestLast
	l.sending.Lock()
	defer l.sending.Unlock()
	l.untold.Store(false)
	for _, c := range w.chunks {
		if l.chunkLocked(c) != nil {
			l.untold.Store(true)
			break
		}
	}
	l.up.Store(true)
}

// run tells what changed without a message that would take it along, and looks
// after the peers.
func (m *Mesh) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	watches := map[*link]*watch{}
	for {
		select {
		case <-m.stop:
			return
		case <-m.wake:
			m.tell()
		case now := <-tick.C:
			for _, l := range m.links() {
				if watches[l] == nil {
					watches[l] = &watch{}
				}
				l.look(watches[l], now)
				if l.up.Load() && l.untold.Load() && l.queued() < behindAt {
					m.tellAll(l)
				}
			}
		}
	}
}

// changed follows the connections.
func (m *Mesh) changed(e peer.Event) {
	if e.Kind == peer.Refused || e.Kind == peer.Unwelcome {
		return
	}
	l := m.link(e.Peer.Name)
	switch e.Kind {
	case peer.Up:
		m.tellAll(l)
		// What it told before this node noticed that it is up may be forgotten.
		l.sending.Lock()
		_ = l.chunkLocked([]byte{chunkAsk}) // else it is down again
		l.sending.Unlock()
	case peer.Down:
		l.down()
	}
	m.gossip()
}

// down forgets what the peer listens to.
func (l *link) down() {
	l.up.Store(false)
	l.stuck.Store(false)
	l.receiving.Lock()
	defer l.receiving.Unlock()
	l.partial, l.missing = nil, 0
	l.m.srv.Gone(l.remote.Swap(front.NewRemote(l.name, l)))
	for _, h := range l.heard {
		h.end()
	}
	clear(l.heard)
}

func (m *Mesh) link(name string) *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.peers[name]
	if l == nil {
		l = newLink(m, name)
		m.peers[name] = l
	}
	return l
}
