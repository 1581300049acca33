package broker

import (
	"context"
	"errors"

	"github.com/heraldmq/herald/broker/cluster"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/monitor"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// What monitoring asks: monitor.Durable.

func (d *durable) Usage(account string) monitor.Usage {
	u := d.state.Usage(account)
	return monitor.Usage{
		Memory: u.MemoryBytes, Store: u.FileBytes,
		ReservedMemory: uint64(max(u.MemoryReserved, 0)), ReservedStore: uint64(max(u.FileReserved, 0)),
	}
}

func (d *durable) Topics(account string, f func(monitor.Topic) bool) {
	d.state.Topics(account, func(t *state.Topic) bool { return t.Data() == nil || f(d.show(t)) })
}

func (d *durable) Topic(account, name string) (monitor.Topic, bool) {
	t, ok := d.state.Topic(account, name)
	if !ok || t.Data() == nil {
		return monitor.Topic{}, false
	}
	return d.show(t), true
}

func (d *durable) show(t *state.Topic) monitor.Topic {
	return monitor.Topic{
		Account: t.Account(), Name: t.Name(), Group: t.Group().ID(), Leads: t.Group().IsLeader(), State: t.Data().State(),
		Info:      func() *jsapi.StreamInfo { return d.api.StreamInfo(t) },
		Consumers: func() []*jsapi.ConsumerInfo { return d.api.ConsumerInfos(t) },
	}
}

func (d *durable) Groups() []monitor.Group {
	groups := []monitor.Group{showGroup(0, d.state.CatalogueStats(), d.state.CatalogueMembers())}
	for _, g := range d.state.Groups() {
		groups = append(groups, showGroup(g.ID(), g.Stats(), g.Members()))
	}
	return groups
}

func showGroup(id topics.GroupID, s replication.Stats, members []replication.Member) monitor.Group {
	g := monitor.Group{
		ID: id, Leader: s.Leader, Leads: s.State == "Leader", Term: s.Term, FirstIndex: s.First, Last: s.Last,
		Committed: s.Committed, Applied: s.Applied, Flushed: s.Flushed, Pending: s.Pending, NoSpace: s.NoSpace,
		LogBytes: s.LogBytes, Snapshot: s.Snapshot, SnapshotTaken: s.SnapshotTaken,
	}
	if len(members) < 2 {
		return g
	}
	for _, m := range members {
		v := monitor.GroupMember{Node: m.Node, Voter: m.Voter, Online: m.Online, Contact: m.LastContact}
		if !m.Leader {
			v.Lag = m.Lag
		}
		g.Members = append(g.Members, v)
	}
	return g
}

// Behind tells what of this node doesn't serve everything yet.
func (d *durable) Behind() []monitor.Lack {
	ready, why := d.state.Ready()
	if ready {
		return nil
	}
	l := monitor.Lack{Group: 1, Reason: why}
	if d.state.CatalogueLeader() == "" {
		l.Group = 0
	}
	return []monitor.Lack{l}
}

// damage is what of this node's files can't be used, or couldn't.
func (d *durable) damage(node string) []cluster.Damage {
	var out []cluster.Damage
	for _, f := range d.state.Damage() {
		v := cluster.Damage{Node: node, Group: f.Group, What: f.What, Files: f.Files, Time: f.Found.UTC()}
		if f.Files != "" {
			v.Action = "refilled from the others"
		}
		out = append(out, v)
	}
	return out
}

// scrub reads all files of a group on this node.
func (d *durable) scrub(ctx context.Context, id topics.GroupID) (cluster.Scrubbed, error) {
	r, err := d.state.Scrub(ctx, id)
	s := cluster.Scrubbed{Group: id, Bytes: r.Bytes}
	if err := errors.Join(r.Damage...); err != nil {
		s.Fault = err.Error()
	}
	return s, err
}

func (d *durable) API(account string) jsapi.APIStats {
	if account != "" {
		return d.api.Stats(account)
	}
	sum := jsapi.APIStats{Level: jsapi.Level}
	for _, a := range d.b.front.Accounts() {
		s := d.api.Stats(a.Name())
		sum.Total += s.Total
		sum.Errors += s.Errors
		sum.Inflight += s.Inflight
	}
	return sum
}
