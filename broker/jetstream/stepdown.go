package jetstream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// Streams share their groups: who makes one stream step down moves the lead of all
// that are in its group, and of their consumers. Placement of replicas is the
// cluster's own business, so that requests that move the replicas of one stream are
// refused; nodes are emptied or removed as a whole.

// alone refuses what needs more than one node.
func (r *request) alone() *topics.Fault {
	if r.api.s.peers() > 1 {
		return nil
	}
	return jsapi.ErrClusterRequired
}

// notOffered answers the requests that move replicas.
func (r *request) notOffered() (any, error) {
	if f := r.alone(); f != nil {
		return nil, f
	}
	return nil, jsapi.ErrUnsupportedClustered
}

// leaderStepdown answers STREAM. and CONSUMER.LEADER.STEPDOWN.
func (r *request) leaderStepdown() (any, error) {
	if f := r.alone(); f != nil {
		return nil, f
	}
	var req jsapi.PlacementRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	if r.name != "" && t.Data().ConsumerID(r.name) == 0 {
		return nil, jsapi.ErrConsumerNotFound
	}
	return r.stepDown(t.Group().ID(), req.Placement)
}

// metaStepdown answers META.LEADER.STEPDOWN.
func (r *request) metaStepdown() (any, error) {
	if f := r.alone(); f != nil {
		return nil, f
	}
	var req jsapi.PlacementRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	return r.stepDown(topics.CatalogueGroup, req.Placement)
}

// transferPatience bounds a hand-over.
const transferPatience = 5 * time.Second

func (r *request) stepDown(g topics.GroupID, p *topics.Placement) (any, error) {
	c := r.api.s.o.Peers
	if c == nil {
		return nil, jsapi.ErrClusterNotLeader
	}
	to := ""
	if p != nil {
		if to = p.Preferred; len(p.Tags) > 0 && to == "" {
			return nil, jsapi.ErrClusterTags
		}
		if p.Cluster != "" && p.Cluster != r.api.s.o.Cluster {
			return nil, jsapi.NoPeers("no replacement peer connected")
		}
	}
	members := c.Members(g)
	voters := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return !m.Voter })
	success := &jsapi.SuccessReply{Reply: r.head(), Success: true}
	if to == c.Name() || to == "" && len(voters) < 2 {
		return success, nil // nobody to hand over to, or it is where it shall be
	}
	if to != "" && !slices.ContainsFunc(voters, func(m Member) bool { return m.Node == to }) {
		return nil, jsapi.NoPeers("preferred server unknown")
	}
	ctx, cancel := context.WithTimeout(r.api.s.ctx, transferPatience)
	defer cancel()
	if err := c.Transfer(ctx, g, to); err != nil {
		if errors.Is(err, replication.ErrNotLeader) {
			return nil, err
		}
		r.api.s.o.Log.Warn("a lead was not handed over", "group", g, "to", cmp.Or(to, "the best"), "error", err)
		return nil, jsapi.NoPeers("no replacement peer connected")
	}
	return success, nil
}

// node finds the node a request names; its id is its name.
func (r *request) node() (string, error) {
	var req jsapi.PeerRequest
	if err := r.decode(&req); err != nil {
		return "", err
	}
	name := cmp.Or(req.Peer, req.PeerID)
	if name == "" {
		return "", jsapi.ErrBadRequest
	}
	if !slices.Contains(r.api.s.o.Peers.Nodes(), name) {
		return "", jsapi.ErrServerNotMember
	}
	return name, nil
}

// serverRemove answers SERVER.REMOVE.
func (r *request) serverRemove() (any, error) {
	return r.changeNode(func(ctx context.Context, node string) error { return r.api.s.o.Peers.RemoveNode(ctx, node) })
}

// serverEvacuate answers SERVER.EVACUATE.
func (r *request) serverEvacuate() (any, error) {
	return r.changeNode(func(ctx context.Context, node string) error { return r.api.s.o.Peers.DrainNode(ctx, node) })
}

func (r *request) changeNode(change func(context.Context, string) error) (any, error) {
	if f := r.alone(); f != nil {
		return nil, f
	}
	if r.api.s.o.Peers == nil {
		return nil, jsapi.ErrServerNotMember
	}
	node, err := r.node()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.wait()
	defer cancel()
	if err := change(ctx, node); err != nil {
		return nil, err
	}
	return &jsapi.SuccessReply{Reply: r.head(), Success: true}, nil
}

// accountPurge answers ACCOUNT.PURGE: all streams of an account go. It is answered
// before they have.
func (r *request) accountPurge() (any, error) {
	if f := r.alone(); f != nil {
		return nil, f
	}
	s := r.api.s
	var names []string
	s.o.State.Topics(r.stream, func(t *state.Topic) bool {
		names = append(names, t.Name())
		return true
	})
	account := r.stream
	if !s.transfer(func() {
		for _, name := range names {
			ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
			if err := s.o.State.DeleteTopic(ctx, account, name); err != nil {
				s.o.Log.Warn("a stream of a purged account was not deleted", "account", account, "stream", name, "error", err)
			}
			cancel()
		}
	}) {
		return nil, jsapi.ErrClusterUnavailable
	}
	return &jsapi.AccountPurgeReply{Reply: r.head(), Initiated: true}, nil
}
