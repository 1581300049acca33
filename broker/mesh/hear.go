package mesh

import (
	"encoding/binary"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

const (
	// batchBytesMax bounds a batch that comes in parts.
	batchBytesMax = 80 << 20
	// holdRenew is how often a peer is asked again to hold a publisher back.
	holdRenew = time.Second
)

type heardKey struct{ account, subject, queue string }

// heard is one thing the peer listens to.
type heard struct {
	weight   int
	round    uint64
	interest *front.RemoteInterest // nil while this node doesn't know the account
}

func (h *heard) end() {
	if h.interest != nil {
		h.interest.Remove()
		h.interest = nil
	}
}

// receive handles one chunk of a peer.
func (m *Mesh) receive(from string, _ peer.Channel, chunk []byte) {
	l := m.link(from)
	l.receiving.Lock()
	defer l.receiving.Unlock()
	if len(chunk) > 0 && chunk[0] == chunkMore {
		chunk = l.more(chunk[1:])
	} else {
		l.partial, l.missing = nil, 0 // the connection broke in between
	}
	if len(chunk) == 0 {
		return
	}
	switch chunk[0] {
	case front.BatchMessages, front.BatchForwarded, front.BatchReturned:
		l.deliver(chunk)
	case chunkInterest:
		l.hear(chunk[1:])
	case chunkPart:
		if n, w := binary.Uvarint(chunk[1:]); w > 0 && n <= batchBytesMax {
			l.partial, l.missing = make([]byte, 0, n), int(n)
		}
	case chunkSlow:
		if cid, w := binary.Uvarint(chunk[1:]); w > 0 {
			m.srv.Hold(cid)
		}
	case chunkRoom:
		if cid, w := binary.Uvarint(chunk[1:]); w > 0 {
			m.srv.Release(cid)
		}
	case chunkAsk:
		if l.up.Load() {
			m.tellAll(l)
		}
	default:
		m.log.Warn("a peer sent a chunk that isn't known", "peer", from, "kind", chunk[0])
	}
}

// more takes a part of a long batch, and returns the batch once it is whole.
func (l *link) more(part []byte) (whole []byte) {
	if len(part) > l.missing {
		l.partial, l.missing = nil, 0
		return nil
	}
	l.partial = append(l.partial, part...)
	if l.missing -= len(part); l.missing > 0 {
		return nil
	}
	whole, l.partial = l.partial, nil
	return whole
}

func (l *link) deliver(batch []byte) {
	n := len(batch)
	d, err := l.inbound.Deliver(batch)
	if err != nil {
		l.m.log.Warn("a peer sent messages that can't be read", "peer", l.name, "err", err)
	}
	l.in.add(d.Msgs, n)
	if d.Back != nil {
		_ = l.send(d.Back) // else they are lost, as what was on its way is
	}
	if d.SlowFor != 0 {
		l.slow(d.SlowFor, d.Wait)
	}
}

// slow has a publisher held back until its receivers here have room.
func (l *link) slow(cid uint64, wait func() (again bool)) {
	if l.holds[cid] {
		return
	}
	l.holds[cid] = true
	l.m.spawn(func() {
		for asked := (time.Time{}); ; {
			if now := time.Now(); now.Sub(asked) >= holdRenew {
				asked = now
				l.about(chunkSlow, cid)
			}
			if !wait() || l.m.stopping() {
				break
			}
		}
		l.about(chunkRoom, cid)
		l.receiving.Lock()
		delete(l.holds, cid)
		l.receiving.Unlock()
	})
}

// about says something about a publisher there.
func (l *link) about(kind byte, cid uint64) {
	l.sending.Lock()
	defer l.sending.Unlock()
	// When there is no room for it, it isn't said: a hold expires.
	_ = l.chunkLocked(binary.AppendUvarint([]byte{kind}, cid))
}

// hear takes in what the peer listens to.
func (l *link) hear(b []byte) {
	if len(b) == 0 {
		return
	}
	flags := b[0]
	if flags&interestFirst != 0 {
		l.round++
	}
	account := ""
	for b = b[1:]; len(b) > 0; {
		n, w := binary.Uvarint(b)
		if w <= 0 {
			break
		}
		b = b[w:]
		if n == 0 {
			account, b = cutString(b)
			continue
		}
		if n--; n > uint64(len(b)) {
			break
		}
		key := heardKey{account: account, subject: string(b[:n])}
		key.queue, b = cutString(b[n:])
		weight, w := binary.Uvarint(b)
		if w <= 0 {
			break
		}
		b = b[w:]
		l.listens(key, int(weight))
	}
	if flags&interestLast != 0 {
		for key, h := range l.heard {
			if h.round != l.round {
				h.end()
				delete(l.heard, key)
			}
		}
	}
}

func cutString(b []byte) (s string, rest []byte) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return "", nil
	}
	return string(b[w : w+int(n)]), b[w+int(n):]
}

// listens sets how many listen there.
func (l *link) listens(key heardKey, weight int) {
	h := l.heard[key]
	switch {
	case weight == 0:
		if h != nil {
			h.end()
			delete(l.heard, key)
		}
	case h == nil:
		h = &heard{weight: weight, round: l.round}
		l.heard[key] = h
		l.enter(key, h)
	default:
		h.round = l.round
		if h.weight != weight {
			h.weight = weight
			if h.interest != nil {
				h.interest.SetWeight(weight)
			}
		}
	}
}

// enter puts what was heard into the account.
func (l *link) enter(key heardKey, h *heard) {
	a := l.m.srv.Account(key.account)
	if a == nil {
		l.m.unknownAccount(key.account)
		return
	}
	h.interest = a.AddRemote(l.remote.Load(), key.subject, key.queue, h.weight)
}

// unknownAccount warns, once for each.
func (m *Mesh) unknownAccount(name string) {
	m.mu.Lock()
	known := m.warned[name]
	m.warned[name] = true
	m.mu.Unlock()
	if !known {
		m.log.Warn("another node speaks of an account that this one doesn't have: is the configuration the same?", "account", name)
	}
}

// hooks is the mesh as the server sees it.
type hooks Mesh

// InterestChanged implements front.Cluster.
func (h *hooks) InterestChanged() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Tell implements front.Cluster.
func (h *hooks) Tell() { (*Mesh)(h).tell() }

// Peer implements front.Cluster.
func (h *hooks) Peer(name string) *front.Remote {
	m := (*Mesh)(h)
	m.mu.Lock()
	l := m.peers[name]
	m.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.remote.Load()
}

// AccountAdded implements front.Cluster.
func (h *hooks) AccountAdded(a *front.Account) {
	m := (*Mesh)(h)
	m.mu.Lock()
	delete(m.warned, a.Name())
	m.mu.Unlock()
	for _, l := range m.links() {
		l.receiving.Lock()
		for key, known := range l.heard {
			if key.account == a.Name() {
				known.end() // that of an account of the same name before
				l.enter(key, known)
			}
		}
		l.receiving.Unlock()
	}
}

// AddressChanged implements front.Cluster.
func (h *hooks) AddressChanged() { (*Mesh)(h).tellStatus() }
