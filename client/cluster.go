package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ClusterStatus describes the cluster that the broker is part of, as all its nodes
// together see it.
type ClusterStatus struct {
	Cluster string          `json:"cluster"`
	Server  string          `json:"server"` // who answered
	Time    time.Time       `json:"time"`
	Healthy bool            `json:"healthy"`
	Nodes   []ClusterNode   `json:"nodes"`
	Groups  []ClusterGroup  `json:"groups"`
	Damage  []ClusterDamage `json:"damage"`
	Advice  []string        `json:"advice"` // what to do next, most urgent first
}

// ClusterNode is one node. State is "active", "draining", "drained", "removed",
// "joining", or "live" when it has no durable topics.
type ClusterNode struct {
	Name    string        `json:"name"`
	ID      string        `json:"id,omitempty"`
	State   string        `json:"state"`
	Online  bool          `json:"online"`
	Ready   bool          `json:"ready"`
	Reasons []string      `json:"reasons,omitempty"` // why it isn't ready
	Address string        `json:"address,omitempty"` // for other nodes
	Client  string        `json:"client_url,omitempty"`
	Version string        `json:"version,omitempty"`
	Started time.Time     `json:"started,omitzero"`
	RTT     time.Duration `json:"rtt_ns,omitempty"` // from the node that answered
	Groups  int           `json:"groups"`           // replicas of data groups it holds
	Leads   int           `json:"leads"`            // data groups it leads
}

// ClusterGroup is one group of topics that are replicated together; group 0 is the
// catalogue of all topics.
type ClusterGroup struct {
	ID        uint32          `json:"id"`
	Replicas  int             `json:"replicas"` // wanted
	Leader    string          `json:"leader,omitempty"`
	Term      uint64          `json:"term"`
	Topics    int             `json:"topics"`
	Last      uint64          `json:"last"`
	Committed uint64          `json:"committed"`
	Members   []ClusterMember `json:"members"`
}

// ClusterMember is one replica of a group.
type ClusterMember struct {
	Node    string        `json:"node"`
	Replica string        `json:"replica,omitempty"`
	Voter   bool          `json:"voter"`
	Online  bool          `json:"online"`
	Applied uint64        `json:"applied"`
	Lag     uint64        `json:"lag"` // entries behind the leader
	Contact time.Duration `json:"contact_ns,omitempty"`
}

// ClusterDamage is something on a node's disk that can't be used.
type ClusterDamage struct {
	Node   string    `json:"node"`
	Group  uint32    `json:"group"`
	What   string    `json:"what"`
	Action string    `json:"action"` // what the node did about it, "" when nothing could be done
	Files  string    `json:"files,omitempty"`
	Time   time.Time `json:"time,omitzero"`
}

// ClusterScrub is what reading one replica's files came to.
type ClusterScrub struct {
	Node  string `json:"node"`
	Group uint32 `json:"group"`
	Bytes int64  `json:"bytes"`
	Fault string `json:"fault,omitempty"` // what is damaged, "" when all is well
}

// ClusterStatus asks what the cluster looks like. It needs a user of the system
// account, unless the broker lets everybody in; ErrNoResponders means that the
// broker is not part of a cluster or that the user may not ask.
func (c *Client) ClusterStatus(ctx context.Context) (*ClusterStatus, error) {
	var s ClusterStatus
	return &s, c.cluster(ctx, "STATUS", "", nil, &s)
}

// AddNode lets a node hold topics (again): one that was drained or removed.
func (c *Client) AddNode(ctx context.Context, node string) (done string, err error) {
	return c.clusterChange(ctx, "ADD", node, clusterRequest{Node: node})
}

// DrainNode moves all replicas away from a node. It returns when that has been
// decided; ClusterStatus tells how far it is.
func (c *Client) DrainNode(ctx context.Context, node string) (done string, err error) {
	return c.clusterChange(ctx, "DRAIN", node, clusterRequest{Node: node})
}

// RemoveNode takes a node out of the cluster; its replicas are placed elsewhere.
// It is refused (ErrConflict) for a node that runs and holds replicas, and for one
// that has the only copy of a topic, unless force is set.
func (c *Client) RemoveNode(ctx context.Context, node string, force bool) (done string, err error) {
	return c.clusterChange(ctx, "REMOVE", node, clusterRequest{Node: node, Force: force})
}

// TransferGroup hands the lead of a group to a node, "" for the one that suits best.
func (c *Client) TransferGroup(ctx context.Context, group uint32, to string) (done string, err error) {
	return c.clusterChange(ctx, "TRANSFER", fmt.Sprintf("group %d", group), clusterRequest{Group: &group, To: to})
}

// TransferLeads hands over all that a node leads.
func (c *Client) TransferLeads(ctx context.Context, from string) (done string, err error) {
	return c.clusterChange(ctx, "TRANSFER", from, clusterRequest{Node: from})
}

// Scrub has every byte of a group read and checked on all nodes that hold it, of all
// groups when group is nil. It takes as long as the disks do: give ctx the time.
func (c *Client) Scrub(ctx context.Context, group *uint32) ([]ClusterScrub, error) {
	var r struct {
		Replicas []ClusterScrub `json:"replicas"`
	}
	err := c.cluster(ctx, "SCRUB", "", clusterRequest{Group: group}, &r)
	return r.Replicas, err
}

type clusterRequest struct {
	Node  string  `json:"node,omitempty"`
	Group *uint32 `json:"group,omitempty"`
	To    string  `json:"to,omitempty"`
	Force bool    `json:"force,omitempty"`
}

func (c *Client) clusterChange(ctx context.Context, verb, target string, r clusterRequest) (string, error) {
	var done struct {
		Done string `json:"done"`
	}
	err := c.cluster(ctx, verb, target, r, &done)
	return done.Done, err
}

// cluster asks $HERALD.CLUSTER.<verb>.
func (c *Client) cluster(ctx context.Context, verb, target string, body, to any) error {
	op := map[string]string{
		"STATUS": "describe the cluster", "ADD": "add node", "DRAIN": "drain node", "REMOVE": "remove node",
		"TRANSFER": "transfer the lead of", "SCRUB": "scrub",
	}[verb]
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return failed(op, target, err)
		}
	}
	m, err := c.Request(ctx, "$HERALD.CLUSTER."+verb, b)
	if err != nil {
		var mine *Error
		if errors.As(err, &mine) {
			return &Error{Op: op, Target: target, Kind: mine.Kind, Err: mine.Err}
		}
		return failed(op, target, err)
	}
	var e struct {
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return failed(op, target, fmt.Errorf("decode the answer: %w", err))
	}
	if e.Error != nil {
		return &Error{Op: op, Target: target, Kind: statusKind(e.Error.Code), Err: errors.New(e.Error.Description)}
	}
	return failed(op, target, json.Unmarshal(m.Payload, to))
}

// statusKind is the kind of failure that a status of HTTP's stands for.
func statusKind(code int) error {
	if code == 504 {
		return ErrTimeout
	}
	return classifyCode(0, code)
}
