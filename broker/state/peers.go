package state

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// statusKey is under which nodes tell each other which groups they lead.
const statusKey = "state"

// status is what a node tells its peers.
type status struct {
	Lame   bool     `json:"lame,omitempty"` // it takes no lead
	Full   bool     `json:"full,omitempty"` // its disk has no space
	Tags   []string `json:"tags,omitempty"`
	Groups []ledNow `json:"groups,omitempty"`
}

// ledNow is a group that a node leads, and has all of.
type ledNow struct {
	Group   topics.GroupID `json:"group"`
	Term    uint64         `json:"term"`
	Voters  []string       `json:"voters"`
	Others  []string       `json:"others,omitempty"` // hold it without a vote
	Current []string       `json:"current"`          // those that are connected and close behind
}

// peers is what this node knows of the others that are connected.
type peers struct {
	mu    sync.RWMutex
	of    map[string]*peerState
	mine  status
	known map[topics.GroupID]string

	untimed chan struct{} // holds one: there is a peer whose clock is not known
}

type peerState struct {
	addr   string
	status status
	clock  peerClock
}

// listen registers what this node answers its peers, and that it hears of them.
func (c *cluster) listen() {
	c.net.OnChange(func(e peer.Event) {
		switch {
		case e.Kind == peer.Up:
			p := &peerState{addr: e.Peer.Addr}
			_ = json.Unmarshal(e.Peer.Status[statusKey], &p.status) // nothing: it leads nothing
			c.peers.mu.Lock()
			c.peers.of[e.Peer.Name] = p
			c.peers.mu.Unlock()
			select {
			case c.peers.untimed <- struct{}{}:
			default:
			}
		case e.Kind == peer.Down:
			c.peers.mu.Lock()
			delete(c.peers.of, e.Peer.Name)
			c.peers.mu.Unlock()
		case e.Kind == peer.Status && e.Key == statusKey:
			var st status
			_ = json.Unmarshal(e.Peer.Status[statusKey], &st) // likewise
			c.peers.mu.Lock()
			if p := c.peers.of[e.Peer.Name]; p != nil {
				p.status = st
			}
			c.peers.mu.Unlock()
		case e.Kind == peer.Unwelcome:
		default:
			return
		}
		c.standing(e.Kind)
		c.changed()
	})
	c.net.Handle(methodAsk, c.answerAsk)
	c.net.Handle(methodAsks, c.answerAsks)
	c.net.Handle(methodDecide, c.answerDecide)
	c.net.Handle(methodCommitted, c.answerCommitted)
	c.net.Handle(methodTransfer, c.answerTransfer)
	c.net.Handle(methodMove, c.answerMove)
	c.net.HandleStream(methodDepart, c.answerDepart)
	c.net.Handle(methodUsage, c.answerUsage)
	c.net.Handle(methodClock, c.answerClock)
	c.net.HandleChannel(peer.ChannelGroup0, peer.ChannelGroup0+forwardGroupsMax, c.answerForward)
}

// online tells whether a node is connected, or this one.
func (c *cluster) online(node string) bool {
	if node == c.me {
		return true
	}
	c.peers.mu.RLock()
	defer c.peers.mu.RUnlock()
	return c.peers.of[node] != nil
}

// led returns what the leader of a group says of it; who is "" when none is known.
func (c *cluster) led(id topics.GroupID) (who string, l ledNow) {
	c.peers.mu.RLock()
	defer c.peers.mu.RUnlock()
	look := func(name string, st *status) {
		for _, g := range st.Groups {
			if g.Group == id && (who == "" || g.Term > l.Term) {
				who, l = name, g
			}
		}
	}
	look(c.me, &c.peers.mine)
	for name, p := range c.peers.of {
		look(name, &p.status)
	}
	return who, l
}

// leader returns who leads a group and can be asked, "" when nobody is known to.
func (c *cluster) leader(id topics.GroupID) string {
	who, _ := c.led(id)
	if who == c.me && !c.leadsNow(id) {
		return ""
	}
	return who
}

// leaderTerm is leader, with the term in which that node leads.
func (c *cluster) leaderTerm(id topics.GroupID) (string, uint64) {
	who, led := c.led(id)
	if who == c.me && !c.leadsNow(id) {
		return "", 0
	}
	return who, led.Term
}

func (c *cluster) leadsNow(id topics.GroupID) bool {
	if id == topics.CatalogueGroup {
		return c.s.IsCatalogueLeader()
	}
	g := c.s.groups.find(id)
	return g != nil && g.IsLeader()
}

// unfit tells whether a node shouldn't be given leads.
func (c *cluster) unfit(node string) bool {
	if node == c.me {
		return c.lame.Load() || c.s.node.NoSpace()
	}
	c.peers.mu.RLock()
	defer c.peers.mu.RUnlock()
	p := c.peers.of[node]
	return p == nil || p.status.Lame || p.status.Full
}

// tellStatus tells the peers what this node leads, if that has changed.
func (c *cluster) tellStatus() {
	st := status{Lame: c.lame.Load(), Full: c.s.node.NoSpace(), Tags: catalogue.PlacementTags(c.s.o.Tags)}
	if meta := c.s.meta.Load(); meta != nil && c.leading.Load() {
		if _, leads := meta.Leader(); leads {
			st.Groups = append(st.Groups, c.describe(topics.CatalogueGroup, meta))
		}
	}
	for _, r := range c.s.replicas() {
		if r.isLeader() {
			st.Groups = append(st.Groups, c.describe(r.id, r.repl.Load()))
		}
	}
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	before, _ := json.Marshal(c.peers.mine) // plain data always encodes
	now, _ := json.Marshal(st)
	c.peers.mine = st
	if string(before) != string(now) || c.peers.known == nil {
		c.net.SetStatus(statusKey, now)
		c.news.ring()
	}
}

// closeBehind is how many entries a replica may lack to be given the lead.
const closeBehind = 1000

func (c *cluster) describe(id topics.GroupID, log *replication.Group) ledNow {
	l := ledNow{Group: id, Term: log.Term()}
	committed := log.Committed()
	for _, m := range log.Members() {
		if m.Voter {
			l.Voters = append(l.Voters, m.Node)
		} else {
			l.Others = append(l.Others, m.Node)
		}
		if m.Node == c.me || m.Online && m.Match+closeBehind >= committed {
			l.Current = append(l.Current, m.Node)
		}
	}
	slices.Sort(l.Voters)
	slices.Sort(l.Others)
	slices.Sort(l.Current)
	return l
}

// tellLeaders tells of leaders that have changed, as far as this node knows them.
func (c *cluster) tellLeaders() {
	c.tellStatus()
	known := map[topics.GroupID]string{}
	for _, g := range c.s.groups.list() {
		known[g.id] = g.Leader()
	}
	c.peers.mu.Lock()
	before := c.peers.known
	c.peers.known = known
	c.peers.mu.Unlock()
	for _, g := range c.s.groups.list() {
		if before[g.id] != known[g.id] && c.s.hooks.OnLeaderKnown != nil {
			c.s.hooks.OnLeaderKnown(g, known[g.id])
		}
	}
}

func (p *peers) names() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := make([]string, 0, len(p.of))
	for name := range p.of {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// node returns the catalogue's entry of a node.
func (c *cluster) node(name string) (n catalogue.Node, ok bool) {
	c.s.catalogue.read(func(k *catalogue.Catalogue) { n, ok = k.Node(name) })
	return n, ok
}
