package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/catalogue"
)

// A shadow is another version of an operator that runs beside it, where it is led: on the
// same records, clock and decisions, one committed step after the other. What it gives is
// compared with what the operator gives, and goes nowhere. It begins with the state that an
// update would keep; after a change of the lead, and where the instances are replaced, it
// begins again.

// ShadowReport is how a shadow compares. Rows are told apart by topic, subject and payload,
// whichever step they come in.
type ShadowReport struct {
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since"`
	Steps   uint64    `json:"steps"`
	Same    uint64    `json:"same"`     // rows that both gave
	OnlyOld uint64    `json:"only_old"` // rows that only the operator gave so far
	OnlyNew uint64    `json:"only_new"` // rows that only the shadow gave so far
	Old     []string  `json:"old_examples,omitempty"`
	New     []string  `json:"new_examples,omitempty"`
	// Partial tells that there were more differences than are kept: rows that the other
	// gives later no longer make up for them.
	Partial bool   `json:"partial,omitempty"`
	Error   string `json:"error,omitempty"` // the shadow can't go on
}

const (
	differencesMax = 10_000
	examplesMax    = 5
	exampleBytes   = 200
)

// shadow is a unit's.
type shadow struct {
	digest string
	g      *graph.Graph
	inst   *engine.Instance
	st     *opstate.Durable
	seq    uint64         // of the last step that it has followed
	open   map[string]int // rows that one has given more often: >0 the operator
	report ShadowReport
}

// tendShadow begins and ends the unit's shadow as the catalogue says.
func (u *unit) tendShadow() {
	o := u.op.Load()
	if u.shadow != nil && (o.Shadow == nil || o.Shadow.Digest != u.shadow.digest || !u.group.IsLeader() || u.inst == nil || u.shadow.seq != u.inst.Committed()) {
		u.endShadow()
	}
	if u.shadow != nil || o.Shadow == nil || u.inst == nil || !u.group.IsLeader() || o.State != catalogue.Running && o.Next == nil {
		return
	}
	sh := &shadow{digest: o.Shadow.Digest, open: map[string]int{}, report: ShadowReport{Version: o.Shadow.Version, Since: time.Now().UTC()}}
	u.shadow = sh
	if err := u.beginShadow(sh, o); err != nil {
		sh.report.Error = err.Error()
		u.note("error", "the shadow can't be run: %v", err)
	}
	u.try(sh)
	u.showShadow()
}

func (u *unit) shadowDir() string { return u.e.dir(u.unitKey) + ".shadow" }

func (u *unit) beginShadow(sh *shadow, o *catalogue.Operator) (err error) {
	sh.seq = u.inst.Committed()
	if sh.g, err = u.e.o.Compile(o.Account, o.Shadow.Spec, o.Shadow.IDs); err != nil {
		return err
	}
	if err := opstate.RemoveFolder(u.shadowDir()); err != nil {
		return err
	}
	if err := u.store.Load().Clone(u.shadowDir()); err != nil {
		return err
	}
	if sh.st, err = opstate.Open(u.shadowDir()); err != nil {
		return err
	}
	if err := sh.st.Retain(u.epoch, sh.seq, engine.Keeps(o.Shadow.Kept)); err != nil {
		return err
	}
	if err := sh.st.Use(backend(sh.g), opstate.AutoBytes); err != nil {
		return err
	}
	sh.inst, err = engine.Open(sh.g, sh.st, engine.Options{
		Operator: u.id, Partition: u.slot, Epoch: u.epoch, Clock: stream.Time(o.Began), Share: u.share(),
	})
	return err
}

// trial is what a shadow remembers, for those that take over from it.
type trial struct {
	digest string
	st     *opstate.Durable
	err    string // it has stopped
}

// try shows what the shadow remembers to others than the unit's goroutine.
func (u *unit) try(sh *shadow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trial = &trial{sh.digest, sh.st, sh.report.Error}
}

// trialOf returns what a shadow remembers after a step; it must be closed.
func (u *unit) trialOf(digest string, seq uint64) (opstate.Snapshot, error) {
	u.mu.Lock()
	t := u.trial
	u.mu.Unlock()
	if t == nil || t.digest != digest {
		return nil, fmt.Errorf("%w: no shadow runs here", errNobody)
	}
	if t.err != "" {
		return nil, fmt.Errorf("%w: the shadow has stopped: %s", errNobody, t.err)
	}
	s, err := t.st.Snapshot()
	if err == nil && s.Seq() != seq {
		err = errors.Join(fmt.Errorf("%w: the shadow is at step %d of %d", errNobody, s.Seq(), seq), s.Close())
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// promoted is the state of steps as a shadow has it, and what the engine keeps for itself as
// the operator has it: both have read the same.
type promoted struct {
	own, steps opstate.Reader
}

func (p promoted) Get(key []byte) ([]byte, bool, error) {
	if _, own := engine.OfNode(key); own {
		return p.own.Get(key)
	}
	return p.steps.Get(key)
}

func (p promoted) Scan(from, to []byte, f func(key, v []byte) bool) error {
	more := true
	pick := func(r opstate.Reader, wantOwn bool) error {
		return r.Scan(from, to, func(key, v []byte) bool {
			if _, own := engine.OfNode(key); own == wantOwn {
				more = f(key, v)
			}
			return more
		})
	}
	if err := pick(p.own, true); err != nil || !more {
		return err
	}
	return pick(p.steps, false)
}

func (u *unit) endShadow() {
	sh := u.shadow
	u.shadow = nil
	u.mu.Lock()
	u.trial = nil
	u.mu.Unlock()
	if sh.st != nil {
		if err := sh.st.Remove(); err != nil {
			u.note("warn", "the state of a shadow could not be removed: %v", err)
		}
	}
	u.mu.Lock()
	u.compared = nil
	u.mu.Unlock()
}

// follow has the shadow take a committed step's records, and compares.
func (u *unit) follow(f *flight) {
	sh := u.shadow
	if sh == nil || f.seq != sh.seq+1 {
		return // tendShadow sees to it
	}
	sh.seq = f.seq
	if sh.report.Error != "" {
		return
	}
	outputs, err := sh.inst.Follow(f.step, f.arrivals)
	if err != nil {
		sh.report.Error = err.Error()
		u.try(sh)
		u.note("warn", "the shadow has stopped: %v", err)
		return
	}
	sh.report.Steps++
	for i := range f.step.Outputs {
		sh.row(u.g, &f.step.Outputs[i], 1)
	}
	for i := range outputs {
		sh.row(sh.g, &outputs[i], -1)
	}
}

// row takes a row of the operator's (1) or the shadow's (-1).
func (sh *shadow) row(g *graph.Graph, out *engine.Output, whose int) {
	sink := &g.Sinks[out.Sink]
	to := sink.Topic
	if to == "" {
		to = "live"
	}
	row := to + " " + out.Subject + " " + string(out.Payload)
	r := &sh.report
	mine, other := &r.OnlyOld, &r.OnlyNew
	if whose < 0 {
		mine, other = other, mine
	}
	switch n := sh.open[row]; {
	case n*whose < 0: // the other one has given it
		*other--
		r.Same++
		if n+whose == 0 {
			delete(sh.open, row)
		} else {
			sh.open[row] = n + whose
		}
	default:
		*mine++
		if n == 0 && len(sh.open) >= differencesMax {
			r.Partial = true
			return
		}
		sh.open[row] = n + whose
	}
}

// showShadow notes how the shadow compares, for reports.
func (u *unit) showShadow() {
	if u.shadow == nil {
		return
	}
	r := u.shadow.report
	for row, n := range u.shadow.open {
		if len(row) > exampleBytes {
			row = row[:exampleBytes] + "…"
		}
		switch {
		case n > 0 && len(r.Old) < examplesMax:
			r.Old = append(r.Old, row)
		case n < 0 && len(r.New) < examplesMax:
			r.New = append(r.New, row)
		}
		if len(r.Old) == examplesMax && len(r.New) == examplesMax {
			break
		}
	}
	u.mu.Lock()
	u.compared = &r
	u.mu.Unlock()
}

// shadowed puts another version beside an operator.
func (s *service) shadowed(ctx context.Context, account string, r *Request) (any, error) {
	dry := *r
	dry.Dry, dry.Shadow = true, false
	v, err := s.update(ctx, account, &dry)
	if err != nil {
		return nil, err
	}
	d := v.(Deployed)
	o := d.Operator
	switch old := s.e.state.Operator(account, o.Name); {
	case r.Reset || r.Savepoint != "" || o.Next != nil:
		return nil, refuse(400, "a shadow runs on what the operator reads and keeps: without reset, savepoint or other partitions")
	case old == nil:
		return nil, catalogue.FaultNoOperator
	case r.Dry:
		return d, nil
	}
	c, err := s.change(ctx, account, &Request{Name: o.Name}, func(n *catalogue.Operator) error {
		n.Shadow = &catalogue.Shadow{Version: o.Version, Spec: o.Spec, Digest: o.Digest, IDs: o.IDs, Kept: o.Kept}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.Operator = c.(Deployed).Operator
	return d, nil
}

// promote puts the shadow in the operator's place: other instances come, as if it were
// rescaled, and take over what the shadow remembers at the place where the operator stops.
// With a recovery that keeps no state at standbys it is an update, and new steps begin anew.
func (s *service) promote(ctx context.Context, account string, r *Request) (any, error) {
	old := s.e.state.Operator(account, r.Name)
	switch {
	case old == nil:
		return nil, catalogue.FaultNoOperator
	case old.Shadow == nil:
		return nil, refuse(409, "operator %s has no shadow", r.Name)
	case old.State == catalogue.Failed && len(old.Homes()) > 1:
		return nil, refuse(409, "it has failed, and its instances can't come to the same place: %s; resume it first", old.Error)
	}
	for _, rep := range s.reports(ctx, account, old) {
		if rep.Leads && rep.Shadow != nil && rep.Shadow.Error != "" {
			return nil, refuse(409, "the shadow has stopped: %s; discard it, or update the operator to its version", rep.Shadow.Error)
		}
	}
	up := *r
	up.Spec, up.Shadow, up.Dry = string(old.Shadow.Spec), false, true
	v, err := s.update(ctx, account, &up)
	if err != nil {
		return nil, err
	}
	d := v.(Deployed)
	if g, err := s.e.compile(old); err != nil || forgetful(g) || d.Operator.Next != nil {
		up.Dry = r.Dry
		return s.update(ctx, account, &up)
	}
	for step, fate := range d.Steps {
		if fate != stepDropped {
			d.Steps[step] = stepShadow
		}
	}
	if r.Dry {
		return d, nil
	}
	o := d.Operator
	c := s.e.replaced(old, old.Group, len(old.Homes()))
	c.Next.Version, c.Next.Spec, c.Next.Digest, c.Next.IDs = o.Version, o.Spec, o.Digest, o.IDs
	c.Next.Groups, c.Next.Shadow, c.Next.Promotes = old.Homes(), nil, old.Shadow.Digest
	c.State, c.Error, c.At, c.Unadvertised = catalogue.Running, "", nil, o.Unadvertised
	d.Operator, err = s.e.state.PutOperator(ctx, c)
	return d, err
}

// discard ends the shadow.
func (s *service) discard(ctx context.Context, account string, r *Request) (any, error) {
	return s.change(ctx, account, r, func(o *catalogue.Operator) error {
		if o.Shadow == nil {
			return refuse(409, "operator %s has no shadow", r.Name)
		}
		o.Shadow = nil
		if o.Next != nil {
			if o.Next.Promotes != "" {
				return refuse(409, "the shadow is being promoted: call that off first (rescale --cancel)")
			}
			n := *o.Next
			n.Shadow = nil
			o.Next = &n
		}
		return nil
	})
}
