package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/value"
)

func (s *service) logs(ctx context.Context, account string, r *Request) (any, error) {
	o := s.e.state.Operator(account, r.Name)
	if o == nil {
		return nil, catalogue.FaultNoOperator
	}
	lines := []LogLine{}
	for _, rep := range s.reports(ctx, account, o) {
		lines = append(lines, rep.Log...)
	}
	slices.SortStableFunc(lines, func(a, b LogLine) int { return a.Time.Compare(b.Time) })
	return map[string]any{"lines": lines}, nil
}

// GraphNode is a step as GRAPH shows it.
type GraphNode struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`
	Class  string   `json:"class"`
	Leads  []string `json:"to"`
	Config string   `json:"config,omitempty"`
}

func (s *service) graph(_ context.Context, account string, r *Request) (any, error) {
	o := s.e.state.Operator(account, r.Name)
	if o == nil {
		return nil, catalogue.FaultNoOperator
	}
	g, err := s.e.compile(o)
	if err != nil {
		return nil, err
	}
	name := func(e graph.Edge) string {
		if e.Node < 0 {
			return g.Sinks[e.Port].Name
		}
		return g.Nodes[e.Node].Name
	}
	nodes := []GraphNode{}
	for i := range g.Inputs {
		n := GraphNode{Name: g.Inputs[i].Name, Kind: "input", Class: stream.Repeatable.String()}
		for _, e := range g.Inputs[i].Out {
			n.Leads = append(n.Leads, name(e))
		}
		nodes = append(nodes, n)
	}
	for i := range g.Nodes {
		n := GraphNode{Name: g.Nodes[i].Name, Kind: g.Nodes[i].Kind, Class: g.Nodes[i].Class.String(), Config: g.Nodes[i].Config}
		for _, outs := range g.Nodes[i].Outs {
			for _, e := range outs {
				n.Leads = append(n.Leads, name(e))
			}
		}
		nodes = append(nodes, n)
	}
	return map[string]any{"operator": o.Name, "class": g.Class.String(), "nodes": nodes, "spec": o.Spec}, nil
}

// StateEntry is one entry of a state. Name, Sub and Value are as they are where they can be
// printed, else in hex behind "0x".
type StateEntry struct {
	Step  string `json:"step"`
	Key   string `json:"key"`           // what the step works by, as JSON; empty: it works by no key
	Name  string `json:"name"`          // of what the step keeps: "windows", or a function's own
	Sub   string `json:"sub,omitempty"` // of several under a key and name
	Value string `json:"value"`
}

// StateAnswer is the answer to STATE.
type StateAnswer struct {
	Keys    int64        `json:"keys"`
	Bytes   int64        `json:"bytes"`
	Entries []StateEntry `json:"entries"`
	Led     int          `json:"-"` // instances that are led where it was asked
}

func (s *service) state(ctx context.Context, account string, r *Request) (any, error) {
	o := s.e.state.Operator(account, r.Name)
	if o == nil {
		return nil, catalogue.FaultNoOperator
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	all, err := s.stateHere(account, body)
	if err != nil {
		return nil, err
	}
	s.nodes(ctx, s.e.nodesOf(o), asked{account, "STATE", body}, func(_ string, b []byte) {
		var some StateAnswer
		if json.Unmarshal(b, &some) == nil && some.Entries != nil {
			all.Keys, all.Bytes = all.Keys+some.Keys, all.Bytes+some.Bytes
			all.Entries, all.Led = append(all.Entries, some.Entries...), all.Led+1
		}
	})
	if all.Led == 0 {
		return nil, refuse(503, "the operator's group has no leader now; try again")
	}
	slices.SortStableFunc(all.Entries, func(a, b StateEntry) int {
		return cmp.Or(strings.Compare(a.Step, b.Step), strings.Compare(a.Key, b.Key), strings.Compare(a.Name, b.Name), strings.Compare(a.Sub, b.Sub))
	})
	all.Entries = all.Entries[:min(len(all.Entries), limitOf(r))]
	return all, nil
}

func limitOf(r *Request) int { return min(cmp.Or(r.Limit, 100), 1000) }

// stateHere is the state of the instances that are led on this node; Entries is nil when
// there is none.
func (s *service) stateHere(account string, body []byte) (*StateAnswer, error) {
	var r Request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, refuse(400, "request body: %v", err)
	}
	limit, out := limitOf(&r), &StateAnswer{}
	names := map[uint16]string{} // steps, by where their state is
	if o := s.e.state.Operator(account, r.Name); o != nil {
		for name, id := range o.IDs {
			names[id] = name
		}
	}
	for _, u := range s.here(account, r.Name) {
		if !u.group.IsLeader() || u.store.Load() == nil {
			continue
		}
		if out.Led++; out.Entries == nil {
			out.Entries = []StateEntry{}
		}
		most := len(out.Entries) + limit
		err := u.store.Load().Scan([]byte("s"), []byte("t"), func(key, v []byte) bool {
			k, ok := engine.ParseStateKey(key)
			if !ok {
				return true
			}
			e := StateEntry{names[k.Node], keyText(k.Key), printable([]byte(k.Name)), printable(k.Sub), printable(v)}
			if e.Step == "" || r.Key != "" && !strings.Contains(e.Key, r.Key) {
				return true
			}
			out.Entries = append(out.Entries, e)
			return len(out.Entries) < most
		})
		if err != nil {
			return nil, err
		}
		keys, bytes := u.store.Load().Size()
		out.Keys, out.Bytes = out.Keys+keys, out.Bytes+bytes
	}
	return out, nil
}

// keyText is a record's key as JSON.
func keyText(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	v, _, err := value.FromKey(key)
	if err != nil {
		return printable(key)
	}
	return v.String()
}

func printable(b []byte) string {
	if utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' }) {
		return string(b)
	}
	return fmt.Sprintf("0x%x", b)
}
