package monitor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// JszOptions says how much of the durable side to show.
type JszOptions struct {
	Account          string `json:"account,omitempty"`
	Accounts         bool   `json:"accounts,omitempty"`
	Streams          bool   `json:"streams,omitempty"`
	Consumer         bool   `json:"consumer,omitempty"`
	DirectConsumer   bool   `json:"direct_consumer,omitempty"`
	Config           bool   `json:"config,omitempty"`
	LeaderOnly       bool   `json:"leader_only,omitempty"`
	StreamLeaderOnly bool   `json:"stream_leader_only,omitempty"`
	RaftGroups       bool   `json:"raft,omitempty"`
	Offset           int    `json:"offset,omitempty"`
	Limit            int    `json:"limit,omitempty"`
}

// Jsz is the page of the durable side.
type Jsz struct {
	ID       string           `json:"server_id"`
	Now      time.Time        `json:"now"`
	Disabled bool             `json:"disabled,omitempty"`
	Config   *JetStreamConfig `json:"config,omitempty"`
	Limits   *JetStreamLimits `json:"limits,omitempty"`
	*JetStreamStats
	Streams   int              `json:"streams"`
	Consumers int              `json:"consumers"`
	Messages  uint64           `json:"messages"`
	Bytes     uint64           `json:"bytes"`
	Meta      *MetaCluster     `json:"meta_cluster,omitempty"`
	Details   []*AccountDetail `json:"account_details,omitempty"`
	Total     int              `json:"total"`
}

// AccountDetail is one account's share.
type AccountDetail struct {
	Name           string          `json:"name"`
	ID             string          `json:"id"`
	Memory         uint64          `json:"memory"`
	Store          uint64          `json:"storage"`
	ReservedMemory uint64          `json:"reserved_memory"`
	ReservedStore  uint64          `json:"reserved_storage"`
	Accounts       int             `json:"accounts"`
	HAAssets       int             `json:"ha_assets"`
	API            jsapi.APIStats  `json:"api"`
	Streams        []*StreamDetail `json:"stream_detail,omitempty"`
}

// StreamDetail is one topic.
type StreamDetail struct {
	Name      string                `json:"name"`
	Created   time.Time             `json:"created"`
	Cluster   *jsapi.ClusterInfo    `json:"cluster,omitempty"`
	Config    *topics.Config        `json:"config,omitempty"`
	State     jsapi.StreamState     `json:"state"`
	Consumer  []*jsapi.ConsumerInfo `json:"consumer_detail,omitempty"`
	Mirror    *jsapi.SourceInfo     `json:"mirror,omitempty"`
	Sources   []*jsapi.SourceInfo   `json:"sources,omitempty"`
	RaftGroup string                `json:"stream_raft_group,omitempty"`
}

// ErrNotMeant is for a question that another node answers: the leader of the
// catalogue.
var ErrNotMeant = errors.New("this node does not lead the catalogue")

// Jsz makes the page of the durable side. The error is for the asker.
func (m *Monitor) Jsz(o JszOptions) (*Jsz, error) {
	z := &Jsz{ID: m.s.ServerID, Now: time.Now().UTC(), JetStreamStats: &JetStreamStats{}}
	durable := m.s.Durable()
	if durable == nil {
		z.Disabled = true
		return z, nil
	}
	v := m.jetStreamVarz()
	if o.LeaderOnly && v.Meta != nil && v.Meta.Leader != m.s.ServerName {
		return nil, ErrNotMeant
	}
	z.Config, z.Limits, z.JetStreamStats, z.Meta = v.Config, v.Limits, v.Stats, v.Meta
	durable.Topics("", func(t Topic) bool {
		z.Streams++
		z.Consumers += t.State.Consumers
		z.Messages += t.State.Messages
		z.Bytes += t.State.Bytes
		return true
	})
	names := m.durableAccounts()
	z.Total = len(names)
	switch {
	case o.Account != "":
		if !slices.Contains(names, o.Account) {
			return nil, fmt.Errorf("account %q not found", o.Account)
		}
		names = []string{o.Account}
	case o.Accounts || o.Streams || o.Consumer:
		from, to, _ := page(o.Offset, o.Limit, jszLimit, len(names))
		names = names[from:to]
	default:
		return z, nil
	}
	for _, name := range names {
		z.Details = append(z.Details, accountDetail(durable, name, o))
	}
	return z, nil
}

func accountDetail(durable Durable, name string, o JszOptions) *AccountDetail {
	u := durable.Usage(name)
	d := &AccountDetail{
		Name: name, ID: name, Memory: u.Memory, Store: u.Store, ReservedMemory: u.ReservedMemory, ReservedStore: u.ReservedStore,
		API: durable.API(name),
	}
	if !o.Streams && !o.Consumer && o.Account == "" {
		return d
	}
	durable.Topics(name, func(t Topic) bool {
		if o.StreamLeaderOnly && !t.Leads {
			return true
		}
		d.Streams = append(d.Streams, streamDetail(t, o))
		return true
	})
	return d
}

func streamDetail(t Topic, o JszOptions) *StreamDetail {
	i := t.Info()
	d := &StreamDetail{
		Name: t.Name, Created: i.Created, Cluster: i.Cluster, State: i.State, Mirror: i.Mirror, Sources: i.Sources,
	}
	if o.Config {
		d.Config = i.Config
	}
	if o.RaftGroups {
		d.RaftGroup = fmt.Sprintf("group-%d", t.Group)
	}
	if o.Consumer {
		d.Consumer = t.Consumers()
	}
	return d
}
