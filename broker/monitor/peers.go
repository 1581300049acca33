package monitor

import (
	"net"
	"strconv"
	"time"
)

// The pages about other servers. A node alone has none; the pages say so in the
// form that tools read.

// Routez is the page of connections to peers.
type Routez struct {
	ID        string    `json:"server_id"`
	Name      string    `json:"server_name"`
	Now       time.Time `json:"now"`
	NumRoutes int       `json:"num_routes"`
	Routes    []Route   `json:"routes"`
}

// Route is one connection to a peer.
type Route struct {
	RID           uint64    `json:"rid"`
	RemoteID      string    `json:"remote_id"`
	RemoteName    string    `json:"remote_name"`
	DidSolicit    bool      `json:"did_solicit"`
	IsConfigured  bool      `json:"is_configured"`
	IP            string    `json:"ip"`
	Port          int       `json:"port"`
	Start         time.Time `json:"start"`
	RTT           string    `json:"rtt,omitempty"`
	Uptime        string    `json:"uptime"`
	Idle          string    `json:"idle"`
	Pending       int64     `json:"pending_size"`
	InMsgs        int64     `json:"in_msgs"`
	OutMsgs       int64     `json:"out_msgs"`
	InBytes       int64     `json:"in_bytes"`
	OutBytes      int64     `json:"out_bytes"`
	Subscriptions int       `json:"subscriptions"`
	Version       string    `json:"version,omitempty"` // Herald's, of the peer
}

// Routez makes the page of connections to peers.
func (m *Monitor) Routez() *Routez {
	now := time.Now()
	z := &Routez{ID: m.s.ServerID, Name: m.s.ServerName, Now: now.UTC(), Routes: []Route{}}
	c := m.cluster()
	if c == nil {
		return z
	}
	for i, l := range c.Links() {
		host, port, _ := net.SplitHostPort(l.Addr) // it may have told none
		p, _ := strconv.Atoi(port)
		z.Routes = append(z.Routes, Route{
			RID: uint64(i + 1), RemoteID: l.ID, RemoteName: l.Name, DidSolicit: l.Configured, IsConfigured: l.Configured,
			IP: host, Port: p, Start: l.Since.UTC(), RTT: l.RTT.String(), Uptime: Uptime(now.Sub(l.Since)), Idle: "0s",
			Pending: l.Pending, InMsgs: l.InMsgs, OutMsgs: l.OutMsgs, InBytes: l.InBytes, OutBytes: l.OutBytes,
			Subscriptions: l.Subscriptions, Version: l.Version,
		})
	}
	z.NumRoutes = len(z.Routes)
	return z
}

// Gatewayz is the page of connections to other clusters.
type Gatewayz struct {
	ID       string              `json:"server_id"`
	Now      time.Time           `json:"now"`
	Outbound map[string]struct{} `json:"outbound_gateways"`
	Inbound  map[string]struct{} `json:"inbound_gateways"`
}

// Gatewayz makes the page of connections to other clusters.
func (m *Monitor) Gatewayz() *Gatewayz {
	return &Gatewayz{ID: m.s.ServerID, Now: time.Now().UTC(), Outbound: map[string]struct{}{}, Inbound: map[string]struct{}{}}
}

// Leafz is the page of leaf nodes.
type Leafz struct {
	ID       string     `json:"server_id"`
	Now      time.Time  `json:"now"`
	NumLeafs int        `json:"leafnodes"`
	Leafs    []struct{} `json:"leafs"`
}

// Leafz makes the page of leaf nodes.
func (m *Monitor) Leafz() *Leafz {
	return &Leafz{ID: m.s.ServerID, Now: time.Now().UTC(), Leafs: []struct{}{}}
}
