package mesh

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/heraldmq/herald/replication/peer"
)

// statusKey is under which a node tells its peers where clients reach it.
const statusKey = "mesh"

// status is what a node tells its peers.
type status struct {
	ServerID  string   `json:"id"`
	Client    []string `json:"client,omitempty"`
	Websocket []string `json:"ws,omitempty"`
}

// recent is what a peer told, and since when it is gone; zero while it is connected.
type recent struct {
	status
	lost time.Time
}

// recentFor is how long the address of a peer that is gone is still good for clients that
// are sent away.
const recentFor = time.Minute

// tellStatus tells the peers, and this node's clients.
func (m *Mesh) tellStatus() {
	b, err := json.Marshal(m.own())
	if err != nil {
		panic("mesh: encode the status: " + err.Error()) // strings only
	}
	m.net.SetStatus(statusKey, b)
	m.gossip()
}

// own is what this node tells: no addresses while it is about to stop.
func (m *Mesh) own() status {
	s := status{ServerID: m.srv.Options().ServerID}
	if !m.o.NoAdvertise && !m.srv.IsLameDuck() {
		s.Client, s.Websocket = m.srv.ConnectURLs()
	}
	return s
}

// gossip tells this node's clients where they can go.
func (m *Mesh) gossip() {
	if m.o.NoAdvertise {
		return
	}
	m.gossiping.Lock()
	defer m.gossiping.Unlock()
	all := m.own()
	peers, now := m.net.Peers(), time.Now()
	there := map[string]bool{}
	for _, p := range peers {
		theirs := statusOf(p)
		all.add(theirs)
		there[p.Name], m.recent[p.Name] = true, recent{status: theirs}
	}
	for _, name := range slices.Sorted(maps.Keys(m.recent)) {
		r := m.recent[name]
		if !there[name] && r.lost.IsZero() {
			r.lost = now
			m.recent[name] = r
		}
		switch {
		case there[name]:
		case now.Sub(r.lost) > recentFor:
			delete(m.recent, name)
		case len(peers) == 0 && m.srv.IsLameDuck():
			// A node that is removed loses its peers before it sends its clients away, and
			// they would be left with the addresses that they began with.
			all.add(r.status)
		}
	}
	if slices.Equal(all.Client, m.gossiped.Client) && slices.Equal(all.Websocket, m.gossiped.Websocket) {
		return
	}
	m.gossiped = all
	m.srv.SetConnectURLs(all.Client, all.Websocket)
}

// add appends the addresses of another node.
func (s *status) add(o status) {
	s.Client = appendNew(s.Client, o.Client)
	s.Websocket = appendNew(s.Websocket, o.Websocket)
}

func appendNew(dst, more []string) []string {
	for _, s := range more {
		if !slices.Contains(dst, s) {
			dst = append(dst, s)
		}
	}
	return dst
}

func statusOf(p peer.Peer) (s status) {
	if b := p.Status[statusKey]; b != nil {
		_ = json.Unmarshal(b, &s) // without one it has no addresses
	}
	return s
}

// Routes describes the connections to the peers, by name.
func (m *Mesh) Routes() []Route {
	var all []Route
	for _, p := range m.net.Peers() {
		r := Route{
			Name: p.Name, Addr: p.Addr, Since: p.Since, RTT: p.RTT, Version: p.Version,
			ServerID: statusOf(p).ServerID,
		}
		l := m.link(p.Name)
		r.InMsgs, r.InBytes = l.in.msgs.Load(), l.in.bytes.Load()
		r.OutMsgs, r.OutBytes = l.out.msgs.Load(), l.out.bytes.Load()
		r.Pending, r.Dropped = l.queued(), l.dropped.Load()
		r.Subscriptions = l.remote.Load().Subscriptions()
		all = append(all, r)
	}
	return all
}
