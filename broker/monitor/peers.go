package monitor

import "time"

// The pages about other servers. A single node has none; the pages say so in
// the form that tools read.

// Routez is the page of connections to peers.
type Routez struct {
	ID        string     `json:"server_id"`
	Name      string     `json:"server_name"`
	Now       time.Time  `json:"now"`
	NumRoutes int        `json:"num_routes"`
	Routes    []struct{} `json:"routes"`
}

// Routez makes the page of connections to peers.
func (m *Monitor) Routez() *Routez {
	return &Routez{ID: m.s.ServerID, Name: m.s.ServerName, Now: time.Now().UTC(), Routes: []struct{}{}}
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
