package jetstream

import (
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// Leads tells that this node has begun to lead a group with other replicas, so that
// those who listen hear of it: an advisory for each of its streams and consumers.
// It doesn't block. For the catalogue it is told in the system account.
func (s *Service) Leads(g topics.GroupID) {
	s.LeaderKnown(g, s.o.ServerName)
	if !s.clustered() || len(s.o.Peers.Members(g)) < 2 {
		return
	}
	s.beside(func() { s.tellLeader(g) })
}

// beside runs something that Close waits for.
func (s *Service) beside(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.moving.Go(run)
	}
	return !s.closed
}

// lostPatience is how long a group has no leader before it is told that its quorum is
// lost: an election takes less.
const lostPatience = 5 * time.Second

// tellLost tells, on the node that led a group last, that nobody can.
func (s *Service) tellLost(g topics.GroupID) {
	timer := time.NewTimer(lostPatience)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return
	}
	if g == topics.CatalogueGroup || s.o.Peers.Leader(g) != "" || s.leaders.last(g) != s.o.Peers.Name() {
		return
	}
	replicas := s.groupInfo(g).Replicas
	s.o.State.Topics("", func(t *state.Topic) bool {
		s.mu.Lock()
		a := s.accounts[t.Account()]
		s.mu.Unlock()
		if t.Group().ID() != g || a == nil || s.ctx.Err() != nil {
			return s.ctx.Err() == nil
		}
		if subject := jsapi.AdvisoryPrefix + "STREAM.QUORUM_LOST." + t.Name(); a.listened(subject) {
			a.advise(subject, &jsapi.QuorumLost{
				Event: a.event("stream_quorum_lost"), Stream: t.Name(), Replicas: replicas, Domain: s.o.Domain, Account: t.Account(),
			})
		}
		return true
	})
}

// listened tells whether anybody would hear an advisory.
func (a *accountAPI) listened(subject string) bool {
	return a.account.HasInterest(subject) || a.account.Captures(subject)
}

func (s *Service) tellLeader(g topics.GroupID) {
	s.mu.Lock()
	accounts := make(map[string]*accountAPI, len(s.accounts))
	for name, a := range s.accounts {
		accounts[name] = a
	}
	s.mu.Unlock()
	info := s.groupInfo(g)
	info.Replicas = append(info.Replicas, &jsapi.PeerInfo{Name: info.Leader, Current: true, Peer: info.Leader})
	if g == topics.CatalogueGroup {
		for _, fa := range s.o.Server.Accounts() {
			if fa.System() {
				fa.Publish(jsapi.AdvisoryPrefix+"DOMAIN.LEADER_ELECTED", "", nil, jsapi.Marshal(&jsapi.LeaderElected{
					Event: s.newEvent("domain_leader_elected"), Leader: info.Leader, Replicas: info.Replicas,
					Domain: s.o.Domain, Cluster: s.o.Cluster,
				}))
			}
		}
		return
	}
	s.o.State.Topics("", func(t *state.Topic) bool {
		a := accounts[t.Account()]
		if t.Group().ID() != g || a == nil || s.ctx.Err() != nil {
			return s.ctx.Err() == nil
		}
		a.tellLeader(t, info)
		return true
	})
}

// tellLeader tells who leads a stream and its consumers, if anybody listens.
func (a *accountAPI) tellLeader(t *state.Topic, info *jsapi.ClusterInfo) {
	e := jsapi.LeaderElected{Stream: t.Name(), Leader: info.Leader, Replicas: info.Replicas, Domain: a.s.o.Domain, Account: t.Account()}
	if subject := jsapi.AdvisoryPrefix + "STREAM.LEADER_ELECTED." + t.Name(); a.listened(subject) {
		e.Event = a.event("stream_leader_elected")
		a.advise(subject, &e)
	}
	if t.Data() == nil {
		return
	}
	for _, name := range t.Data().ConsumerNames() {
		subject := jsapi.AdvisoryPrefix + "CONSUMER.LEADER_ELECTED." + t.Name() + "." + name
		if !a.listened(subject) {
			continue
		}
		e.Event, e.Consumer = a.event("consumer_leader_elected"), name
		a.advise(subject, &e)
	}
}
