package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Report is what one node has of an operator.
type Report struct {
	Node      string         `json:"node"`
	Instance  int            `json:"instance,omitempty"` // of several, from 1
	Leads     bool           `json:"leads"`
	Epoch     uint64         `json:"epoch"`
	Seq       uint64         `json:"seq"` // the last step taken in
	Behind    uint64         `json:"behind"`
	Watermark time.Time      `json:"watermark,omitzero"`
	Keys      int64          `json:"state_keys"`
	Bytes     int64          `json:"state_bytes"`
	Sizes     []StateSize    `json:"state_steps,omitempty"` // of Keys and Bytes, by step
	Lag       uint64         `json:"lag_records"`
	LagFor    float64        `json:"lag_seconds"`
	Blocked   string         `json:"blocked,omitempty"`
	Waits     bool           `json:"waits,omitempty"` // for what may come: records of an input, the catalogue
	Stands    float64        `json:"standstill_seconds,omitempty"`
	Outbox    []LaneReport   `json:"outbox,omitempty"`
	Faulty    bool           `json:"quarantined,omitempty"`
	Stats     Stats          `json:"stats"`
	Counts    []engine.Count `json:"counts,omitempty"`
	Loads     []engine.Load  `json:"loads,omitempty"` // where it is led
	// Standby is what a step brings the other replicas: delta, replay, or progress.
	Standby string `json:"standby,omitempty"`
	// Checkpoint is the age of a passive standby's state, and Kept how many steps are
	// behind the state, of any that has not run them.
	Checkpoint float64 `json:"checkpoint_age_seconds,omitempty"`
	Kept       int     `json:"kept_steps,omitempty"`
	// Shadow is how another version compares that runs beside it, where it is led.
	Shadow *ShadowReport `json:"shadow,omitempty"`
	Log    []LogLine     `json:"log,omitempty"`
}

// StateSize is how much of a state is one step's.
type StateSize struct {
	Step  string `json:"step"` // "": the engine's own, as what waits to be sent
	Keys  int64  `json:"keys"`
	Bytes int64  `json:"bytes"`
}

// stepSizes are the sizes of a state by step, in the order of their names. What is of no step
// of the operator any more is taken as the engine's.
func stepSizes(o *catalogue.Operator, all []opstate.StepSize) []StateSize {
	names := map[uint16]string{}
	for name, id := range o.IDs {
		names[id] = name
	}
	by := map[string]StateSize{}
	for _, s := range all {
		name := names[s.Step]
		e := by[name]
		by[name] = StateSize{name, e.Keys + s.Keys, e.Bytes + s.Bytes}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b StateSize) int { return strings.Compare(a.Step, b.Step) })
}

// Info is the answer to INFO.
type Info struct {
	Operator *catalogue.Operator `json:"operator"`
	Leader   string              `json:"leader"`
	Replicas []Report            `json:"replicas"`
	// Advertised is how its outputs are advertised, but of those that aren't to be.
	Advertised []AdvertReport `json:"outputs"`
}

func (s *service) info(ctx context.Context, account string, r *Request) (any, error) {
	o := s.e.state.Operator(account, r.Name)
	if o == nil {
		return nil, catalogue.FaultNoOperator
	}
	out := Info{Operator: o, Replicas: s.reports(ctx, account, o), Advertised: s.e.advertReports(o)}
	for _, rep := range out.Replicas {
		if rep.Leads {
			out.Leader = rep.Node
		}
	}
	return out, nil
}

// reports asks every node of the operator's group.
func (s *service) reports(ctx context.Context, account string, o *catalogue.Operator) []Report {
	all := []Report{}
	body, _ := json.Marshal(Request{Name: o.Name}) // can't fail
	if here, err := s.report(account, body); err == nil {
		all = append(all, here...)
	}
	s.nodes(ctx, s.e.nodesOf(o), asked{account, "REPORT", body}, func(_ string, b []byte) {
		var some []Report
		if json.Unmarshal(b, &some) == nil {
			all = append(all, some...)
		}
	})
	slices.SortFunc(all, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), strings.Compare(a.Node, b.Node))
	})
	return all
}

// report is what this node has of an operator, a Report for each instance.
func (s *service) report(account string, body []byte) ([]Report, error) {
	var r Request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, refuse(400, "request body: %v", err)
	}
	all := []Report{}
	here := s.here(account, r.Name)
	refresh(s.e.ctx, here)
	for _, u := range here {
		all = append(all, *u.report())
	}
	return all, nil
}

// refreshPatience is how long a report waits for units to say where they are now; those that
// are busy, or can't go on, are reported as they were when they last did.
const refreshPatience = 100 * time.Millisecond

// refresh has units note where they are, for reports.
func refresh(ctx context.Context, units []*unit) {
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	was := make([]uint64, len(units))
	for i, u := range units {
		u.mu.Lock()
		was[i] = u.shows
		u.mu.Unlock()
		u.asked.Store(true)
		u.poke()
	}
	for i, u := range units {
		stop := context.AfterFunc(ctx, func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.told.Broadcast()
		})
		u.mu.Lock()
		for u.shows == was[i] && ctx.Err() == nil && !u.ended() {
			u.told.Wait()
		}
		u.mu.Unlock()
		stop()
	}
}

// here returns an operator's units on this node.
func (s *service) here(account, name string) (all []*unit) {
	o := s.e.state.Operator(account, name)
	if o == nil {
		return nil
	}
	for _, k := range instances(o) {
		if u := s.e.unit(k, o); u != nil {
			all = append(all, u)
		}
	}
	return all
}

// nodesOf returns the nodes where an operator lives.
func (e *Engine) nodesOf(o *catalogue.Operator) (nodes []string) {
	homes := o.Homes()
	if o.Next != nil {
		homes = slices.Concat(homes, o.Next.Groups)
	}
	for _, id := range homes {
		if g := e.state.Group(id); g != nil {
			nodes = append(nodes, g.Nodes()...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// report says how far this node is.
func (u *unit) report() *Report {
	u.asked.Store(true) // the next report is fresher
	u.poke()
	u.mu.Lock()
	r := u.shown
	r.Stats, r.Log = u.stats, slices.Clone(u.log)
	r.Faulty, r.Shadow = u.quarantined, u.compared
	u.mu.Unlock()
	r.Instance = u.instance()
	r.Node, r.Leads = u.e.name(), u.group.IsLeader()
	for i := range r.Log {
		r.Log[i].Node = r.Node
	}
	if st := u.store.Load(); st != nil {
		r.Epoch, r.Seq = st.Epoch(), st.Seq()
		r.Keys, r.Bytes = st.Size()
		r.Sizes = stepSizes(u.op.Load(), st.Steps())
	}
	r.Checkpoint = u.checkpointAge().Seconds()
	reached := r.Seq
	if log := u.kept(); log != nil {
		r.Kept, _ = log.Size()
		reached = log.Last(r.Seq)
	}
	why, waiting, since := u.stuck()
	r.Blocked, r.Waits, r.Stands = cmp.Or(why, r.Blocked), waiting, since.Seconds()
	if data := u.group.Store(); data != nil {
		if at := data.Place(u.id, u.slot); at.Epoch == r.Epoch && at.Seq > reached {
			r.Behind = at.Seq - reached
		}
	}
	return &r
}

// show notes what only the unit's goroutine knows, for reports.
func (u *unit) show() {
	if u.inst == nil || time.Since(u.p.shown) < time.Second && !u.asked.Swap(false) {
		return
	}
	u.p.shown = time.Now()
	u.showShadow()
	r := Report{Blocked: u.p.blocked, Standby: "delta"}
	switch {
	case forgetful(u.g):
		r.Standby = "progress"
	case u.g.Recovery == graph.Passive || u.p.replays:
		r.Standby = "replay"
	}
	if u.group.IsLeader() {
		r.Loads = u.inst.Loads()
	}
	if w := u.inst.Watermark(); w != stream.TimeMin && w != stream.TimeMax {
		r.Watermark = time.Unix(0, int64(w)).UTC()
	}
	r.Outbox = u.outbox.report(u.inst)
	r.Counts, _ = u.inst.Counts() // none where the state can't be read, which is told elsewhere
	o := u.op.Load()
	for i := range u.g.Inputs {
		t, ok := u.e.state.Topic(o.Account, u.g.Inputs[i].Topic)
		if !ok || t.Data() == nil {
			continue
		}
		at := max(u.inst.Position(i), start(o, i)) + 1
		r.Lag += t.Data().Count(topics.NewFilter(u.g.Inputs[i].Subjects), at)
		if seq, ok := t.Data().Next(topics.NewFilter(u.g.Inputs[i].Subjects), at); ok {
			if m, err := t.Data().Load(seq); err == nil {
				r.LagFor = max(r.LagFor, time.Duration(u.e.state.Now()-m.Time).Seconds())
			}
		}
	}
	u.mu.Lock()
	u.shown = r
	u.shows++
	u.told.Broadcast()
	u.mu.Unlock()
}
