package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
)

// handler does what a request asks for.
type handler func(ctx context.Context, body []byte) (any, error)

// request is the body of every request but STATUS.
type request struct {
	Node  string          `json:"node,omitempty"`  // ADD, DRAIN, REMOVE; TRANSFER: all that it leads
	Group *topics.GroupID `json:"group,omitempty"` // TRANSFER, SCRUB
	To    string          `json:"to,omitempty"`    // TRANSFER; "" is the best
	Force bool            `json:"force,omitempty"` // REMOVE a node that runs
}

// Done is the answer to a change.
type Done struct {
	Done string `json:"done"` // in words
}

// ScrubResult is the answer to SCRUB.
type ScrubResult struct {
	Replicas []Scrubbed `json:"replicas"`
}

func (s *Service) verbs() map[string]handler {
	timed := func(d time.Duration, f func(ctx context.Context, r request) (any, error)) handler {
		return func(ctx context.Context, body []byte) (any, error) {
			var r request
			if len(body) > 0 {
				if err := json.Unmarshal(body, &r); err != nil {
					return nil, &Fault{400, "request body: " + err.Error()}
				}
			}
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			return f(ctx, r)
		}
	}
	return map[string]handler{
		"STATUS":   timed(changeTimeout, func(ctx context.Context, _ request) (any, error) { return s.Status(ctx), nil }),
		"ADD":      timed(changeTimeout, s.add),
		"DRAIN":    timed(changeTimeout, s.drain),
		"REMOVE":   timed(changeTimeout, s.remove),
		"TRANSFER": timed(changeTimeout, s.transfer),
		"SCRUB":    timed(scrubTimeout, s.scrub),
	}
}

// PeerMethods are what other nodes may ask of this one.
func (s *Service) PeerMethods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	answer := func(f func(ctx context.Context, r request) (any, error)) func(context.Context, string, []byte) ([]byte, error) {
		return func(ctx context.Context, _ string, body []byte) ([]byte, error) {
			var r request
			if len(body) > 0 {
				if err := json.Unmarshal(body, &r); err != nil {
					return nil, fmt.Errorf("request body: %w", err)
				}
			}
			v, err := f(ctx, r)
			if err != nil {
				return nil, err
			}
			return json.Marshal(v)
		}
	}
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		MethodReport: answer(func(context.Context, request) (any, error) { return s.o.Backend.Report(), nil }),
		MethodTransfer: answer(func(ctx context.Context, r request) (any, error) {
			if r.Group == nil {
				return nil, errors.New("no group is named")
			}
			return Done{"transferred"}, s.o.Backend.Transfer(ctx, *r.Group, r.To)
		}),
		MethodScrub: answer(func(ctx context.Context, r request) (any, error) {
			return s.o.Backend.Scrub(ctx, r.Group)
		}),
	}
}

// Status asks every node and puts the answers together.
func (s *Service) Status(ctx context.Context) Status {
	linked := s.o.Backend.Peers()
	reports := []Report{s.o.Backend.Report()}
	var mu sync.Mutex
	s.each(ctx, linked, reportTimeout, MethodReport, nil, func(_ string, b []byte, err error) {
		var r Report
		if err != nil || json.Unmarshal(b, &r) != nil {
			return // it is shown as linked, and not ready
		}
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r)
	})
	st := merge(reports, linked)
	st.Cluster, st.Time = s.o.Cluster, time.Now().UTC()
	return st
}

// each asks every peer the same and calls f with each answer, on goroutines that
// have ended when it returns.
func (s *Service) each(ctx context.Context, peers map[string]time.Duration, d time.Duration, method string, body []byte, f func(from string, b []byte, err error)) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for name := range peers {
		wg.Go(func() {
			b, err := s.o.Backend.Call(ctx, name, method, body)
			f(name, b, err)
		})
	}
	wg.Wait()
}

// node finds a node by name.
func (s *Service) node(ctx context.Context, name string) (*Status, *Node, error) {
	if name == "" {
		return nil, nil, &Fault{400, "no node is named"}
	}
	st := s.Status(ctx)
	for i := range st.Nodes {
		if st.Nodes[i].Name == name {
			return &st, &st.Nodes[i], nil
		}
	}
	var names []string
	for _, n := range st.Nodes {
		names = append(names, n.Name)
	}
	return nil, nil, &Fault{404, fmt.Sprintf("no node is called %q; there are %v", name, names)}
}

func (s *Service) add(ctx context.Context, r request) (any, error) {
	if r.Node == "" {
		return nil, &Fault{400, "no node is named"}
	}
	if err := s.o.Backend.AddNode(ctx, r.Node); err != nil {
		return nil, err
	}
	s.o.Log.Info("A node was added by request", "node", r.Node)
	return Done{fmt.Sprintf("node %s may hold topics", r.Node)}, nil
}

func (s *Service) drain(ctx context.Context, r request) (any, error) {
	st, n, err := s.node(ctx, r.Node)
	if err != nil {
		return nil, err
	}
	if err := notTheLast(st, n); err != nil {
		return nil, err
	}
	if err := s.o.Backend.DrainNode(ctx, r.Node); err != nil {
		return nil, err
	}
	s.o.Log.Info("A node is drained by request", "node", r.Node)
	return Done{fmt.Sprintf("the groups of node %s are being moved away", r.Node)}, nil
}

func (s *Service) remove(ctx context.Context, r request) (any, error) {
	st, n, err := s.node(ctx, r.Node)
	if err != nil {
		return nil, err
	}
	if err := notTheLast(st, n); err != nil {
		return nil, err
	}
	if !r.Force {
		if n.Online && n.Groups > 0 {
			return nil, &Fault{409, fmt.Sprintf("node %s runs and holds %d replicas: drain it first, or force it", n.Name, n.Groups)}
		}
		for _, g := range st.Groups {
			if last := onlyHolder(&g, n.Name); last {
				return nil, &Fault{409, fmt.Sprintf("node %s has the only copy of group %d: its topics would be lost; force it if they may be", n.Name, g.ID)}
			}
		}
	}
	if err := s.o.Backend.RemoveNode(ctx, r.Node); err != nil {
		return nil, err
	}
	s.o.Log.Info("A node was removed by request", "node", r.Node)
	return Done{fmt.Sprintf("node %s is no longer part of the cluster", r.Node)}, nil
}

// notTheLast refuses what would leave no node to hold topics.
func notTheLast(st *Status, n *Node) error {
	if slices.ContainsFunc(st.Nodes, func(o Node) bool { return o.State == Active && o.Name != n.Name }) {
		return nil
	}
	return &Fault{409, fmt.Sprintf("node %s is the only one that holds topics: add another first", n.Name)}
}

// onlyHolder tells whether a group with topics is on that node alone.
func onlyHolder(g *Group, node string) bool {
	return g.ID != 0 && g.Topics > 0 && len(g.Members) > 0 &&
		!slices.ContainsFunc(g.Members, func(m Member) bool { return m.Node != node })
}

// transfer moves the lead of a group, or of all groups that a node leads.
func (s *Service) transfer(ctx context.Context, r request) (any, error) {
	if r.Group == nil && r.Node == "" {
		return nil, &Fault{400, "neither a group nor a node is named"}
	}
	st := s.Status(ctx)
	var moved []topics.GroupID
	for _, g := range st.Groups {
		if r.Group != nil && g.ID != *r.Group || r.Node != "" && g.Leader != r.Node {
			continue
		}
		if g.Leader == "" {
			return nil, &Fault{503, name(g) + " has no leader now; try again"}
		}
		if r.To != "" && g.Leader == r.To {
			continue
		}
		if r.To != "" && !slices.ContainsFunc(g.Members, func(m Member) bool { return m.Node == r.To && m.Voter }) {
			return nil, &Fault{409, fmt.Sprintf("node %s has no vote in %s", r.To, name(g))}
		}
		if err := s.transferOne(ctx, st.Server, &g, r.To); err != nil {
			return nil, fmt.Errorf("%s: %w", name(g), err)
		}
		moved = append(moved, g.ID)
	}
	if r.Group != nil && !slices.ContainsFunc(st.Groups, func(g Group) bool { return g.ID == *r.Group }) {
		return nil, &Fault{404, fmt.Sprintf("there is no group %d", *r.Group)}
	}
	return Done{fmt.Sprintf("the lead of %d groups was handed over", len(moved))}, nil
}

func (s *Service) transferOne(ctx context.Context, self string, g *Group, to string) error {
	if g.Leader == self {
		return s.o.Backend.Transfer(ctx, g.ID, to)
	}
	body, err := json.Marshal(request{Group: &g.ID, To: to})
	if err != nil {
		return err
	}
	_, err = s.o.Backend.Call(ctx, g.Leader, MethodTransfer, body)
	return err
}

// scrub reads a group, or all, on every node that is there.
func (s *Service) scrub(ctx context.Context, r request) (any, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var (
		mu     sync.Mutex
		out    ScrubResult
		faults []error
	)
	collect := func(from string, list []Scrubbed, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", from, err))
		}
		out.Replicas = append(out.Replicas, list...)
	}
	var own sync.WaitGroup
	own.Go(func() {
		list, err := s.o.Backend.Scrub(ctx, r.Group)
		collect(s.o.Backend.Report().Node.Name, list, err)
	})
	s.each(ctx, s.o.Backend.Peers(), scrubTimeout, MethodScrub, body, func(from string, b []byte, err error) {
		var list []Scrubbed
		if err == nil {
			err = json.Unmarshal(b, &list)
		}
		collect(from, list, err)
	})
	own.Wait()
	slices.SortFunc(out.Replicas, func(a, b Scrubbed) int {
		if a.Group != b.Group {
			return int(a.Group) - int(b.Group)
		}
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	if len(out.Replicas) == 0 && len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return out, nil
}
