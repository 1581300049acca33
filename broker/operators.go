package broker

import (
	"context"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/broker/operate"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/topics"
)

// newOperators makes what runs operators. peers is nil on a single node.
func (d *durable) newOperators(peers operate.Peers) *operate.Engine {
	return operate.New(operate.Options{
		Identity: d.b.identity("operators", "operators", "stream operators"),
		Create: func(ctx context.Context, account string, cfg topics.Config) (*state.Topic, error) {
			return d.api.Create(ctx, account, cfg)
		},
		Dir: filepath.Join(d.b.storeDir, "operators"), Account: d.b.front.Account, Peers: peers, Fetch: d.copies.Page, Log: d.b.cfg.Log,
		Compile: func(_ string, text []byte, ids map[string]uint16) (*graph.Graph, error) {
			s, err := spec.Parse("operator", text)
			if err != nil {
				return nil, err
			}
			g, _, err := spec.Compile(s, spec.Options{Functions: d.b.cfg.Functions, IDs: ids})
			return g, err
		},
	})
}

// operatorHooks tells the operators what the groups decide.
func (d *durable) operatorHooks(h *state.Hooks) {
	h.OnStep, h.OnProducer, h.OnAdopted = d.ops.Stepped, d.ops.Declared, d.ops.Adopted
	h.OnOperator, h.OnFlush = d.ops.OperatorChanged, d.ops.Flush
	grown, leader := h.OnGrown, h.OnLeader
	h.OnGrown = func(g *state.Group, ids []topics.TopicID) {
		grown(g, ids)
		d.ops.Grown(ids)
	}
	known := h.OnLeaderKnown
	h.OnLeaderKnown = func(g *state.Group, leader string) {
		if known != nil {
			known(g, leader)
		}
		d.ops.LeaderKnown(g, leader)
	}
	h.OnLeader = func(g *state.Group, leads bool) {
		leader(g, leads)
		d.ops.Lead(g, leads)
	}
}

// operatorMetrics is what operators measure, once durable topics are open.
type operatorMetrics struct{ b *Broker }

// Describe sends nothing: the set of series depends on what is open.
func (m operatorMetrics) Describe(chan<- *prometheus.Desc) {}

func (m operatorMetrics) Collect(ch chan<- prometheus.Metric) {
	if d := m.b.durable.Load(); d != nil {
		d.ops.Collect(ch)
	}
}
