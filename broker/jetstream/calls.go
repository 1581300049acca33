package jetstream

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// What the services of the nodes ask each other, beside the requests they hand on.
const (
	callStreams   = "js.streams"   // what streams hold that the other node leads
	callUsage     = "js.usage"     // what an account holds in them
	callFit       = "js.fit"       // whether a stream's consumers allow other limits
	callCatalogue = "js.catalogue" // how far the catalogue is, of its leader
)

// callBytesMost is what one answer holds; more is asked for again.
const callBytesMost = 512 << 10

// answerPeers has the calls of the other nodes answered.
func (s *Service) answerPeers() {
	handle(s, callStreams, s.onStreams)
	handle(s, callUsage, s.onUsage)
	handle(s, callFit, s.onFit)
	s.o.Peers.Handle(callAbreast, s.onAbreast)
}

// handle answers a method whose request and answer are JSON.
func handle[Q, A any](s *Service, method string, f func(context.Context, Q) (A, error)) {
	s.o.Peers.Handle(method, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		var q Q
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		a, err := f(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	})
}

// call asks another node.
func call[Q, A any](ctx context.Context, s *Service, node, method string, q Q) (a A, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return a, fmt.Errorf("%s: %w", method, err)
	}
	answer, err := s.o.Peers.Call(ctx, node, method, body)
	if err != nil {
		return a, fmt.Errorf("ask %s for %s: %w", node, method, err)
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return a, fmt.Errorf("%s of %s: %w", method, node, err)
	}
	return a, nil
}

type streamsQuery struct {
	IDs []topics.TopicID `json:"ids"`
}

type streamsAnswer struct {
	Infos []streamPart `json:"infos"`
	Done  int          `json:"done"` // how many of the ids are answered
}

// streamPart is what only the node knows that leads a stream.
type streamPart struct {
	ID      topics.TopicID      `json:"id"`
	State   jsapi.StreamState   `json:"state"`
	Cluster *jsapi.ClusterInfo  `json:"cluster,omitempty"`
	Mirror  *jsapi.SourceInfo   `json:"mirror,omitempty"`
	Sources []*jsapi.SourceInfo `json:"sources,omitempty"`
}

func (s *Service) onStreams(ctx context.Context, q streamsQuery) (a streamsAnswer, err error) {
	settled := map[topics.GroupID]bool{}
	size := 0
	for _, id := range q.IDs {
		if size > callBytesMost {
			break
		}
		a.Done++
		t, ok := s.o.State.TopicByID(id)
		if !ok || t.Data() == nil {
			continue
		}
		g := t.Group().ID()
		fit, known := settled[g]
		if !known {
			t.Group().Settle(ctx)
			fit = s.linearize(ctx, t) == nil
			settled[g] = fit
		}
		if !fit {
			continue
		}
		i := s.part(t)
		size += 512 + 256*(len(i.Sources)+len(i.Cluster.Replicas))
		a.Infos = append(a.Infos, i)
	}
	return a, nil
}

// part describes what this node, which leads a stream, knows of it.
func (s *Service) part(t *state.Topic) streamPart {
	p := streamPart{ID: t.ID(), State: streamState(t.Data().State()), Cluster: s.cluster(t)}
	if s.o.Sources != nil {
		p.Mirror, p.Sources = s.o.Sources(t.ID())
	}
	return p
}

type usageQuery struct {
	Account string `json:"account"`
}

type usageAnswer struct {
	Usage jsapi.Usage    `json:"usage"`
	API   jsapi.APIStats `json:"api"`
}

func (s *Service) onUsage(_ context.Context, q usageQuery) (usageAnswer, error) {
	return usageAnswer{Usage: s.usageLed(q.Account), API: s.Stats(q.Account)}, nil
}

// usageLed is what an account holds in the streams this node leads.
func (s *Service) usageLed(account string) (u jsapi.Usage) {
	led := map[topics.GroupID]bool{}
	s.o.State.Topics(account, func(t *state.Topic) bool {
		g := t.Group().ID()
		here, known := led[g]
		if !known {
			here = s.leads(g)
			led[g] = here
		}
		if !here || t.Data() == nil {
			return true
		}
		st, cfg := t.Data().State(), t.Config()
		u.Streams++
		u.Consumers += st.Consumers
		if cfg.Storage == topics.StoreMemory {
			u.Memory += st.Bytes
			u.ReservedMemory += uint64(max(cfg.MaxBytes, 0))
		} else {
			u.Storage += st.Bytes
			u.ReservedStorage += uint64(max(cfg.MaxBytes, 0))
		}
		return true
	})
	return u
}

type fitQuery struct {
	ID     topics.TopicID `json:"id"`
	Config topics.Config  `json:"config"`
}

func (s *Service) onFit(ctx context.Context, q fitQuery) (*jsapi.Error, error) {
	t, ok := s.o.State.TopicByID(q.ID)
	if !ok || t.Data() == nil {
		return nil, jsapi.ErrClusterUnavailable
	}
	if err := s.linearize(ctx, t); err != nil {
		return nil, err
	}
	if f := consumersFit(t.Data(), &q.Config); f != nil {
		return jsapi.ErrorOf(f), nil
	}
	return nil, nil
}

// fits refuses consumer limits that consumers of a stream already exceed, wherever
// it is led.
func (s *Service) fits(ctx context.Context, t *state.Topic, next *topics.Config) error {
	if next.ConsumerLimits == (topics.ConsumerLimits{}) {
		return nil
	}
	leader := s.leaderOf(t)
	if leader == "" {
		return jsapi.ErrClusterUnavailable
	}
	if s.leads(t.Group().ID()) && t.Data() != nil {
		if f := consumersFit(t.Data(), next); f != nil {
			return f
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	e, err := call[fitQuery, *jsapi.Error](ctx, s, leader, callFit, fitQuery{t.ID(), *next})
	if err != nil {
		return err
	}
	if e != nil {
		return &topics.Fault{Status: e.Code, ErrCode: e.ErrCode, Text: e.Description}
	}
	return nil
}

// Seen is what other rooms call after they have changed a stream: it waits until the
// other nodes know, first of all the one that asked.
func (s *Service) Seen(t *state.Topic, asker string) { s.seen(t.Group().ID(), asker) }
