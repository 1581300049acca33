package jetstream

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// leaders is who was last known to lead each group, and since when.
type leaders struct {
	mu  sync.Mutex
	all map[topics.GroupID]leading
}

type leading struct {
	node  string
	since time.Time
}

// note enters who leads a group now, and returns since when.
func (l *leaders) note(g topics.GroupID, node string, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[topics.GroupID]leading{}
	}
	if have := l.all[g]; have.node == node {
		return have.since
	}
	l.all[g] = leading{node, now}
	return now
}

// last returns who was last known to lead a group.
func (l *leaders) last(g topics.GroupID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[g].node
}

// LeaderKnown tells that a group is led by another node than before, "" when
// nobody is known to lead; group 0 is the catalogue. It doesn't block.
func (s *Service) LeaderKnown(g topics.GroupID, leader string) {
	if !s.clustered() {
		return
	}
	if leader != "" {
		s.leaders.note(g, leader, s.o.Now())
	} else if s.leaders.last(g) == s.o.Peers.Name() {
		s.beside(func() { s.tellLost(g) })
	}
	s.waiting.poke()
}

// led tells whether somebody answers for a group, so that what waits can go on.
func (s *Service) led(g topics.GroupID) bool {
	leader := s.o.Peers.Leader(g)
	switch {
	case leader != s.o.Peers.Name():
		return leader != ""
	case g == topics.CatalogueGroup:
		return s.o.Peers.Ready()
	}
	e := s.o.Engine(g)
	return e == nil || e.Leads()
}

// raftGroup is how infos name a group.
func raftGroup(g topics.GroupID) string { return "HERALD-" + strconv.FormatUint(uint64(g), 10) }

// cluster says which nodes hold a stream: this one where there is but one.
func (s *Service) cluster(t *state.Topic) *jsapi.ClusterInfo {
	g := t.Group().ID()
	if !s.clustered() {
		return &jsapi.ClusterInfo{Name: s.o.Cluster, Leader: s.leaderOf(t)}
	}
	return s.groupInfo(g)
}

// groupInfo says which nodes hold a group.
func (s *Service) groupInfo(g topics.GroupID) *jsapi.ClusterInfo {
	info := &jsapi.ClusterInfo{Name: s.o.Cluster, RaftGroup: raftGroup(g), Leader: s.o.Peers.Leader(g)}
	if info.Leader != "" {
		since := s.leaders.note(g, info.Leader, s.o.Now()).UTC()
		info.LeaderSince = &since
	}
	for _, m := range s.o.Peers.Members(g) {
		if m.Node == info.Leader {
			continue
		}
		info.Replicas = append(info.Replicas, &jsapi.PeerInfo{
			Name: m.Node, Current: m.Online && m.Lag == 0 && info.Leader != "", Offline: !m.Online, Active: m.Active, Lag: m.Lag, Peer: m.Node,
		})
	}
	slices.SortFunc(info.Replicas, func(a, b *jsapi.PeerInfo) int { return strings.Compare(a.Name, b.Name) })
	return info
}

// consumerCluster says which nodes hold a consumer: those that hold its stream. One
// that asked for a single replica is shown with one, although it has more.
func (s *Service) consumerCluster(t *state.Topic, cfg *topics.ConsumerConfig) *jsapi.ClusterInfo {
	info := s.cluster(t)
	if cfg.Replicas == 1 {
		info.Replicas = nil
	}
	return info
}

// place adds to a consumer's info where it is, in the answers that show it only
// where there are several nodes.
func (s *Service) placed(t *state.Topic, info *jsapi.ConsumerInfo) *jsapi.ConsumerInfo {
	if s.clustered() {
		info.Cluster = s.consumerCluster(t, info.Config)
	}
	return info
}

// alternates are a stream and its mirrors, between which a reader may choose.
func (s *Service) alternates(t *state.Topic) []jsapi.StreamAlternate {
	if !s.clustered() {
		return nil
	}
	var names []string
	if s.o.Mirrors != nil {
		names = s.o.Mirrors(t.Account(), t.Name())
	} else {
		s.o.State.Topics(t.Account(), func(o *state.Topic) bool {
			if m := o.Config().Mirror; m != nil && m.Name == t.Name() && m.External == nil {
				names = append(names, o.Name())
			}
			return true
		})
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	out := []jsapi.StreamAlternate{{Name: t.Name(), Domain: s.o.Domain, Cluster: s.o.Cluster}}
	for _, n := range names {
		out = append(out, jsapi.StreamAlternate{Name: n, Domain: s.o.Domain, Cluster: s.o.Cluster})
	}
	return out
}
