package monitor

import (
	"net"
	"time"
)

// Cluster is what the pages ask about the other nodes. Any goroutine may call it.
type Cluster interface {
	// Addr is where the node listens for the others.
	Addr() net.Addr
	// URLs are the addresses of the other nodes, host:port.
	URLs() []string
	// Links are the connections to other nodes, by name.
	Links() []Link
	// Meta describes the group that holds the catalogue, nil without durable topics.
	Meta() *MetaCluster
}

// Link is the connection to one other node.
type Link struct {
	Name, ID, Version string
	Addr              string // host:port where it listens
	Configured        bool   // it is among the routes of the configuration
	Since             time.Time
	RTT               time.Duration
	Pending           int64 // bytes that wait to be sent to it
	InMsgs, OutMsgs   int64 // live messages
	InBytes, OutBytes int64
	Subscriptions     int // it has told of
}

// MetaCluster describes the group that holds the catalogue, as nats-server does
// its meta group.
type MetaCluster struct {
	Name     string     `json:"name,omitempty"`
	Leader   string     `json:"leader,omitempty"`
	Peer     string     `json:"peer,omitempty"`
	Replicas []PeerInfo `json:"replicas,omitempty"` // told by the leader
	Size     int        `json:"cluster_size"`
	Quorum   int        `json:"quorum_needed,omitempty"`
	Pending  int        `json:"pending"`
	Requests int        `json:"pending_requests"`
	Infos    int        `json:"pending_infos"`
	Snapshot *Snapshots `json:"snapshot,omitempty"`
}

// PeerInfo is one other replica.
type PeerInfo struct {
	Name    string        `json:"name"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Active  time.Duration `json:"active"`
	Lag     uint64        `json:"lag,omitempty"`
	Peer    string        `json:"peer"`
}

// Snapshots tells of a group's newest snapshot.
type Snapshots struct {
	PendingEntries uint64    `json:"pending_entries"`
	PendingSize    uint64    `json:"pending_size"`
	LastTime       time.Time `json:"last_time,omitzero"`
}

// cluster returns the node's view of the others, nil when it is alone.
func (m *Monitor) cluster() Cluster {
	if m.s.Cluster == nil {
		return nil
	}
	return m.s.Cluster()
}

func (m *Monitor) clusterVarz() ClusterVarz {
	o := m.s.Options()
	v := ClusterVarz{Name: o.Cluster.Name}
	c := m.cluster()
	if c == nil {
		return v
	}
	v.Host, v.Port, v.AuthTimeout, v.URLs = o.Cluster.Host, portOf(c.Addr()), o.Cluster.AuthTimeout.Seconds(), c.URLs()
	if t := o.Cluster.TLS; t != nil {
		v.TLSTimeout, v.TLSRequired, v.TLSVerify = t.Timeout.Seconds(), true, true
	}
	return v
}

func portOf(a net.Addr) int {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.Port
	}
	return 0
}
