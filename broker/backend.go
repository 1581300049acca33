package broker

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/cluster"
	"github.com/heraldmq/herald/broker/monitor"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// errNoDurable: what is asked for needs durable topics.
var errNoDurable = &cluster.Fault{Code: 503, Text: "durable topics are off, or not open yet, on this node"}

// backend is the links as broker/cluster asks them.
type backend struct{ *links }

// Report describes this node as it sees itself.
func (l backend) Report() cluster.Report {
	b := l.b
	o := b.options.Load()
	ready := b.mon.Readyz()
	r := cluster.Report{
		Node: cluster.Node{
			Name: b.name(o), ID: b.id, Ready: ready.Ready, Reasons: ready.Reasons, Address: l.net.Addr().String(),
			Client: b.ClientURL(), Version: Version, Started: b.start.UTC(),
		},
	}
	if o.Cluster.Advertise != "" {
		r.Node.Address = o.Cluster.Advertise
	}
	d := b.durable.Load()
	if d == nil {
		if !o.JetStream.Enabled {
			r.Node.State = cluster.Live
		}
		return r
	}
	for _, n := range d.state.Nodes() {
		r.Table = append(r.Table, cluster.Node{Name: n.Name, State: string(n.State), Address: n.Addr})
	}
	count := map[topics.GroupID]int{}
	d.state.Topics("", func(t *state.Topic) bool {
		count[t.Group().ID()]++
		return true
	})
	members := d.state.CatalogueMembers()
	r.Groups = append(r.Groups, reportGroup(0, votersWanted(members), d.state.CatalogueStats(), d.state.CatalogueLeader(), r.Node.Name, members))
	for _, g := range d.state.AllGroups() {
		var st replication.Stats
		if g.Local() {
			st = g.Stats()
		}
		v := reportGroup(g.ID(), g.Replicas(), st, g.Leader(), r.Node.Name, g.Members())
		if len(v.Members) == 0 {
			for _, n := range g.Nodes() {
				v.Members = append(v.Members, cluster.Member{Node: n, Voter: true})
			}
		}
		v.Topics = count[g.ID()]
		r.Groups = append(r.Groups, v)
	}
	r.Damage = d.damage(r.Node.Name)
	return r
}

// votersWanted: the catalogue is on every node, and up to five vote.
func votersWanted(members []replication.Member) int { return min(len(members), 5) }

func reportGroup(id topics.GroupID, replicas int, st replication.Stats, leader, self string, members []replication.Member) cluster.Group {
	g := cluster.Group{ID: id, Replicas: replicas, Leader: leader, Term: st.Term, Last: st.Last, Committed: st.Committed}
	for _, m := range members {
		v := cluster.Member{Node: m.Node, Replica: m.Replica, Voter: m.Voter, Online: m.Online, Applied: m.Applied}
		if m.Node == self {
			v.Applied = max(v.Applied, st.Applied)
		} else if leader == self {
			v.Lag = m.Lag
		}
		if !m.LastContact.IsZero() {
			v.Contact = time.Since(m.LastContact)
		}
		g.Members = append(g.Members, v)
	}
	return g
}

func lag(last, match topics.Index) uint64 { return uint64(last - min(last, match)) }

// Peers are the connected nodes with the round trip to each.
func (l backend) Peers() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, p := range l.net.Peers() {
		out[p.Name] = p.RTT
	}
	return out
}

func (l backend) Call(ctx context.Context, to, method string, body []byte) ([]byte, error) {
	return l.net.Call(ctx, to, method, body)
}

// with runs f with the replicated state, and turns what a client did wrong into
// the service's own kind of error.
func (l backend) with(f func(d *durable) error) error {
	d := l.b.durable.Load()
	if d == nil {
		return errNoDurable
	}
	err := f(d)
	var fault *topics.Fault
	switch {
	case errors.As(err, &fault):
		return &cluster.Fault{Code: fault.Status, Text: fault.Text}
	case errors.Is(err, replication.ErrNotLeader):
		return &cluster.Fault{Code: 503, Text: "the leader is changing; try again"}
	}
	return err
}

func (l backend) AddNode(ctx context.Context, name string) error {
	return l.with(func(d *durable) error { return d.state.AddNode(ctx, name) })
}

func (l backend) DrainNode(ctx context.Context, name string) error {
	return l.with(func(d *durable) error { return d.state.DrainNode(ctx, name) })
}

func (l backend) RemoveNode(ctx context.Context, name string) error {
	return l.with(func(d *durable) error { return d.state.RemoveNode(ctx, name) })
}

func (l backend) Transfer(ctx context.Context, id topics.GroupID, to string) error {
	return l.with(func(d *durable) error { return d.transfer(ctx, id, to) })
}

func (d *durable) transfer(ctx context.Context, id topics.GroupID, to string) error {
	if id == 0 {
		return d.state.TransferCatalogue(ctx, to)
	}
	g := d.state.Group(id)
	if g == nil {
		return topics.NewFault(404, 20043, "there is no group %d", id)
	}
	return g.Transfer(ctx, to)
}

// Scrub reads what this node has of a group on disk, of all groups without one.
func (l backend) Scrub(ctx context.Context, only *topics.GroupID) ([]cluster.Scrubbed, error) {
	var out []cluster.Scrubbed
	err := l.with(func(d *durable) error {
		ids := []topics.GroupID{topics.CatalogueGroup}
		for _, g := range d.state.Groups() {
			ids = append(ids, g.ID())
		}
		for _, g := range ids {
			if only != nil && *only != g {
				continue
			}
			s, err := d.scrub(ctx, g)
			if err != nil {
				return err
			}
			s.Node = l.net.Name()
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

// monitored is the links as broker/monitor asks them.
type monitored struct{ *links }

func (l monitored) Addr() net.Addr { return l.net.Addr() }

func (l monitored) URLs() []string {
	o := l.b.options.Load()
	urls := slices.Clone(o.Cluster.Routes)
	for _, p := range l.net.Peers() {
		if p.Addr != "" && !slices.Contains(urls, p.Addr) {
			urls = append(urls, p.Addr)
		}
	}
	slices.Sort(urls)
	return urls
}

func (l monitored) Links() []monitor.Link {
	configured := map[string]bool{}
	for _, r := range l.net.Routes() {
		configured[r.Name] = true
	}
	var out []monitor.Link
	for _, r := range l.mesh.Routes() {
		out = append(out, monitor.Link{
			Name: r.Name, ID: r.ServerID, Version: r.Version, Addr: r.Addr, Configured: configured[r.Name], Since: r.Since, RTT: r.RTT,
			Pending: r.Pending, InMsgs: r.InMsgs, OutMsgs: r.OutMsgs, InBytes: r.InBytes, OutBytes: r.OutBytes, Subscriptions: r.Subscriptions,
		})
	}
	return out
}

// Meta describes the catalogue's group as nats-server does its meta group.
func (l monitored) Meta() *monitor.MetaCluster {
	d := l.b.durable.Load()
	if d == nil {
		return nil
	}
	o := l.b.options.Load()
	st, members, leader := d.state.CatalogueStats(), d.state.CatalogueMembers(), d.state.CatalogueLeader()
	self := l.net.Name()
	m := &monitor.MetaCluster{Name: o.Cluster.Name, Leader: leader, Peer: self, Size: len(members), Pending: st.Pending}
	voters := 0
	for _, p := range members {
		if p.Voter {
			voters++
		}
		if p.Node == self || leader != self {
			continue
		}
		i := monitor.PeerInfo{Name: p.Node, Peer: p.Node, Offline: !p.Online, Lag: p.Lag}
		i.Current = p.Online && i.Lag == 0
		if !p.LastContact.IsZero() {
			i.Active = time.Since(p.LastContact)
		}
		m.Replicas = append(m.Replicas, i)
	}
	slices.SortFunc(m.Replicas, func(a, b monitor.PeerInfo) int { return cmp.Compare(a.Name, b.Name) })
	m.Quorum = voters/2 + 1
	if !st.SnapshotTaken.IsZero() {
		m.Snapshot = &monitor.Snapshots{PendingEntries: lag(st.Last, st.Snapshot), LastTime: st.SnapshotTaken.UTC()}
	}
	return m
}
