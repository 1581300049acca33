package jetstream

import (
	"context"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// peers counts the nodes that may hold a replica.
func (s *Service) peers() int {
	if !s.clustered() {
		return 1
	}
	return len(s.o.Peers.Nodes())
}

// leaderOf names the node that leads a stream, "" when nobody is known to.
func (s *Service) leaderOf(t *state.Topic) string {
	if s.clustered() {
		return s.o.Peers.Leader(t.Group().ID())
	}
	if !t.Group().IsLeader() {
		return t.Group().Leader()
	}
	return s.o.ServerName
}

// gather describes streams, each by the node that leads it; missing are the names
// of those whose leader there is none, or doesn't answer in time.
func (s *Service) gather(list []*state.Topic) (infos []*jsapi.StreamInfo, missing []string) {
	parts := s.gatherParts(list)
	for _, t := range list {
		p, ok := parts[t.ID()]
		if !ok {
			missing = append(missing, t.Name())
			continue
		}
		infos = append(infos, s.assemble(t, p))
	}
	return infos, missing
}

func (s *Service) gatherParts(list []*state.Topic) map[topics.TopicID]streamPart {
	parts := make(map[topics.TopicID]streamPart, len(list))
	elsewhere := map[string][]topics.TopicID{}
	led := map[topics.GroupID]string{}
	for _, t := range list {
		g := t.Group().ID()
		leader, known := led[g]
		if !known {
			leader = s.leaderOf(t)
			led[g] = leader
		}
		switch {
		case s.clustered() && leader != s.o.Peers.Name():
			if leader != "" {
				elsewhere[leader] = append(elsewhere[leader], t.ID())
			}
		case t.Data() != nil:
			parts[t.ID()] = s.part(t)
		}
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for node, ids := range elsewhere {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, callPatience)
			defer cancel()
			for len(ids) > 0 {
				a, err := call[streamsQuery, streamsAnswer](ctx, s, node, callStreams, streamsQuery{ids})
				if err != nil || a.Done <= 0 {
					return
				}
				mu.Lock()
				for _, p := range a.Infos {
					parts[p.ID] = p
				}
				mu.Unlock()
				ids = ids[min(a.Done, len(ids)):]
			}
		})
	}
	wait.Wait()
	return parts
}

// assemble describes a stream by what every node knows and what its leader does.
func (s *Service) assemble(t *state.Topic, p streamPart) *jsapi.StreamInfo {
	return &jsapi.StreamInfo{
		Config: t.Config(), Created: t.Created(), State: p.State, Domain: s.o.Domain, Time: s.o.Now().UTC(),
		Cluster: p.Cluster, Mirror: p.Mirror, Sources: p.Sources,
	}
}

// changed describes a stream as the answer to its change, by the node that leads
// it; when that doesn't answer, without what it holds.
func (s *Service) changed(t *state.Topic) *jsapi.StreamInfo {
	if !s.clustered() {
		return s.describe(t)
	}
	p, ok := s.gatherParts([]*state.Topic{t})[t.ID()]
	if !ok {
		p = streamPart{ID: t.ID(), Cluster: s.cluster(t)}
	}
	return shown(s.assemble(t, p))
}

// clusterFresh is how old what is said of a group's members may be in the answer to the
// creation of a stream; who leads it learns of them once a second, too.
const clusterFresh = time.Second

// groupSeen is what a group's leader said of its members.
type groupSeen struct {
	mu sync.Mutex
	of map[topics.GroupID]seenAt
}

type seenAt struct {
	info *jsapi.ClusterInfo // read only
	at   time.Time
}

func (c *groupSeen) note(g topics.GroupID, info *jsapi.ClusterInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[topics.GroupID]seenAt{}
	}
	c.of[g] = seenAt{info, time.Now()}
}

// fresh returns what was said, nil when that is too long ago or another node leads by now.
func (c *groupSeen) fresh(g topics.GroupID, leader string) *jsapi.ClusterInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.of[g]; s.info != nil && s.info.Leader == leader && time.Since(s.at) < clusterFresh {
		return s.info
	}
	return nil
}

// created describes a stream that has just been made, as the answer to that. What it
// holds is known, so that its leader is asked about its group only now and then: making
// thousands of streams would mean as many questions.
func (s *Service) created(t *state.Topic) *jsapi.StreamInfo {
	cfg := t.Config()
	if !s.clustered() || cfg.FirstSeq > 1 || cfg.Mirror != nil || len(cfg.Sources) > 0 {
		return s.changed(t)
	}
	g := t.Group().ID()
	var where *jsapi.ClusterInfo
	if s.leads(g) {
		where = s.cluster(t)
	} else {
		where = s.groups.fresh(g, s.o.Peers.Leader(g))
	}
	if where == nil {
		info := s.changed(t)
		if info.Cluster != nil && info.Cluster.Leader != "" {
			s.groups.note(g, info.Cluster)
		}
		return info
	}
	p := streamPart{ID: t.ID(), Cluster: where}
	if data := t.Data(); data != nil { // else no replica is here, and it is taken for empty
		p.State = streamState(data.State())
	}
	return shown(s.assemble(t, p))
}

// shown puts what only replies have into a stream's metadata.
func shown(info *jsapi.StreamInfo) *jsapi.StreamInfo {
	cfg := *info.Config
	cfg.Metadata = jsapi.ReplyMetadata(cfg.Metadata)
	info.Config = &cfg
	return info
}

// usage is what an account holds in the whole cluster and what it asked of the API
// of all nodes. A node that doesn't answer in time is left out.
func (s *Service) usage(account string) usageAnswer {
	sum := usageAnswer{Usage: s.usageLed(account), API: s.Stats(account)}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, node := range s.o.Peers.Nodes() {
		if node == s.o.Peers.Name() {
			continue
		}
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, callPatience)
			defer cancel()
			a, err := call[usageQuery, usageAnswer](ctx, s, node, callUsage, usageQuery{account})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			u, v := &sum.Usage, &a.Usage
			u.Memory += v.Memory
			u.Storage += v.Storage
			u.ReservedMemory += v.ReservedMemory
			u.ReservedStorage += v.ReservedStorage
			u.Streams += v.Streams
			u.Consumers += v.Consumers
			sum.API.Total += a.API.Total
			sum.API.Errors += a.API.Errors
			sum.API.Inflight += a.API.Inflight
		})
	}
	wait.Wait()
	return sum
}
