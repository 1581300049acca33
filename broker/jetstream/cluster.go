package jetstream

import (
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// clustered refuses what needs more than one node.
func (r *request) clustered() *topics.Fault {
	if r.api.s.o.Peers() > 1 {
		return nil
	}
	return jsapi.ErrClusterRequired
}

// needsCluster answers the requests that move replicas. Placement of replicas
// is the cluster's own business in Herald, so where there are several nodes they
// are refused as well, with another code.
func (r *request) needsCluster() (any, error) {
	if f := r.clustered(); f != nil {
		return nil, f
	}
	return nil, jsapi.ErrClusterTags
}

// leaderStepdown answers STREAM. and CONSUMER.LEADER.STEPDOWN. On a single node
// nobody could take over.
func (r *request) leaderStepdown() (any, error) {
	if f := r.clustered(); f != nil {
		return nil, f
	}
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	if r.name != "" && t.Data().ConsumerID(r.name) == 0 {
		return nil, jsapi.ErrConsumerNotFound
	}
	return nil, jsapi.ErrClusterNotLeader
}

// metaStepdown answers META.LEADER.STEPDOWN.
func (r *request) metaStepdown() (any, error) {
	if f := r.clustered(); f != nil {
		return nil, f
	}
	return nil, jsapi.ErrClusterNotLeader
}

// serverRemove answers SERVER.REMOVE.
func (r *request) serverRemove() (any, error) {
	if f := r.clustered(); f != nil {
		return nil, f
	}
	return nil, jsapi.ErrServerNotMember
}
