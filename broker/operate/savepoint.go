package operate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// A savepoint's content:
//
//	"HERALDSP", length u32 of a savepointHead as JSON, the JSON
//	for each instance: step u64, keys u64, bytes u64, then its state as frames
//
// An instance reads its inputs by itself, and what it has made is in its outbox or sent; so
// the states of the instances, each after a step of its own, fit together. What waits in
// outboxes is left to the operator that made it.

const savepointMagic = "HERALDSP"

type savepointHead struct {
	Operator  string            `json:"operator"`
	Version   string            `json:"version,omitempty"`
	Spec      json.RawMessage   `json:"spec"`
	IDs       map[string]uint16 `json:"ids"`
	Starts    []topics.Sequence `json:"starts,omitempty"`
	Instances int               `json:"instances"`
}

const (
	headBytesMax     = 16 << 20
	savepointTimeout = time.Hour
	savepointsMax    = 100 // of an operator
)

// streamSavepoint asks the node where an instance is led for its whole state.
const streamSavepoint = "op.savepoint"

// writeWhole writes an instance's state, where it is whole: step, keys, bytes, frames.
func (u *unit) writeWhole(w io.Writer, epoch uint64) (Cut, error) {
	st := u.store.Load()
	u.mu.Lock()
	bad := u.quarantined
	u.mu.Unlock()
	if st == nil || bad || st.Epoch() != epoch || !u.group.IsLeader() {
		return Cut{}, refuse(503, "the operator isn't ready where it is led; try again")
	}
	if p := u.behind.Load(); p != nil {
		if n, _ := p.log.Size(); n > 0 {
			return Cut{}, refuse(503, "the operator is just taking over; try again")
		}
	}
	if hollow, err := engine.IsHollow(st); err != nil || hollow {
		return Cut{}, errors.Join(err, refuse(503, "the operator is just taking over; try again"))
	}
	s, err := st.Snapshot()
	if err != nil {
		return Cut{}, err
	}
	defer s.Close()
	c := Cut{Seq: s.Seq()}
	if err := s.Scan(nil, nil, func(k, v []byte) bool { c.Keys++; c.Bytes += int64(len(k) + len(v)); return true }); err != nil {
		return c, err
	}
	b := binary.LittleEndian.AppendUint64(nil, c.Seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Keys))
	if _, err := w.Write(binary.LittleEndian.AppendUint64(b, uint64(c.Bytes))); err != nil {
		return c, err
	}
	return c, opstate.WriteFrames(w, epoch, s)
}

func (e *Engine) giveSavepoint(_ context.Context, _ string, body []byte, w io.Writer) error {
	k, at, err := askedFor(body)
	if err != nil {
		return err
	}
	u := e.unit(k, nil)
	if u == nil {
		return errNobody
	}
	_, err = u.writeWhole(w, at.Epoch)
	return err
}

// copyWhole writes an instance's state, wherever it is led.
func (e *Engine) copyWhole(ctx context.Context, w io.Writer, k unitKey, o *catalogue.Operator) (Cut, error) {
	g := e.state.Group(homeOf(o, k.slot))
	if g == nil {
		return Cut{}, refuse(503, "group %d is not known here yet; try again", homeOf(o, k.slot))
	}
	if u := e.unit(k, o); u != nil && g.IsLeader() {
		return u.writeWhole(w, o.Epoch)
	}
	leader := g.Leader()
	if leader == "" || e.o.Peers == nil {
		return Cut{}, refuse(503, "the operator's group has no leader now; try again")
	}
	r, err := e.o.Peers.OpenStream(ctx, leader, streamSavepoint, asksFor(k, topics.Place{Epoch: o.Epoch}))
	if err != nil {
		return Cut{}, err
	}
	defer r.Close()
	from := bufio.NewReader(io.TeeReader(r, w))
	c, err := readCut(from)
	if err != nil {
		return c, fmt.Errorf("from %s: %w", leader, err)
	}
	return c, opstate.SkipFrames(from)
}

func readCut(r io.Reader) (Cut, error) {
	b := make([]byte, 24)
	if _, err := io.ReadFull(r, b); err != nil {
		return Cut{}, fmt.Errorf("%w: %w", errObject, err)
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return Cut{n(0), int64(n(1)), int64(n(2))}, nil
}

// makeSavepoint stores a savepoint of an operator.
func (e *Engine) makeSavepoint(ctx context.Context, o *catalogue.Operator, name string) (*Savepoint, error) {
	replicas := 1
	if g := e.state.Group(o.Group); g != nil {
		replicas = max(g.Replicas(), 1)
	}
	t, err := e.savepointsOf(ctx, o.Account, replicas)
	if err != nil {
		return nil, fmt.Errorf("make the topic of savepoints: %w", err)
	}
	w, err := e.newObject(ctx, t, o.ID)
	if err != nil {
		return nil, err
	}
	s := &Savepoint{Name: name, Operator: o.Name, Version: o.Version, Epoch: o.Epoch}
	err = func() error {
		head, err := json.Marshal(savepointHead{o.Name, o.Version, o.Spec, o.IDs, o.Starts, len(o.Homes())})
		if err != nil {
			return err
		}
		b := binary.LittleEndian.AppendUint32([]byte(savepointMagic), uint32(len(head)))
		if _, err := w.Write(append(b, head...)); err != nil {
			return err
		}
		for _, k := range instances(o) {
			c, err := e.copyWhole(ctx, w, k, o)
			if err != nil {
				return err
			}
			s.Instances = append(s.Instances, c)
		}
		if now := e.state.Operator(o.Account, o.Name); now == nil || now.Epoch != o.Epoch || now.Layout != o.Layout {
			return refuse(409, "the operator has been changed meanwhile")
		}
		return w.finish(s, time.Unix(0, int64(e.state.Now())))
	}()
	if err != nil {
		return nil, errors.Join(err, e.dropObject(ctx, t, w.nuid))
	}
	return s, nil
}

// openSavepoint reads a savepoint's head and leaves the reader in front of the states.
func (e *Engine) openSavepoint(ctx context.Context, account string, s *Savepoint) (*savepointHead, io.Reader, error) {
	t, err := e.savepointsOf(ctx, account, 0)
	if err != nil || t == nil {
		return nil, nil, errors.Join(err, refuse(404, "the account has no savepoints"))
	}
	r := bufio.NewReaderSize(e.readObject(ctx, t, s), chunkBytes)
	start := make([]byte, len(savepointMagic)+4)
	if _, err := io.ReadFull(r, start); err != nil {
		return nil, nil, fmt.Errorf("read savepoint %s: %w", s.Name, err)
	}
	n := binary.LittleEndian.Uint32(start[len(savepointMagic):])
	if !bytes.HasPrefix(start, []byte(savepointMagic)) || n > headBytesMax {
		return nil, nil, fmt.Errorf("read savepoint %s: %w", s.Name, errObject)
	}
	raw, head := make([]byte, n), &savepointHead{}
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, nil, fmt.Errorf("read savepoint %s: %w", s.Name, err)
	}
	if err := json.Unmarshal(raw, head); err != nil {
		return nil, nil, fmt.Errorf("read savepoint %s: %w: %w", s.Name, errObject, err)
	}
	return head, r, nil
}

// findSavepoint finds a savepoint: NAME of an operator, or OPERATOR/NAME.
func (e *Engine) findSavepoint(ctx context.Context, account, operator, name string) (*Savepoint, error) {
	if o, n, both := strings.Cut(name, "/"); both {
		operator, name = o, n
	}
	all, err := e.savepoints(ctx, account, operator)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, refuse(404, "operator %s has no savepoint %s", operator, name)
}

// What becomes of a step's state.
const (
	stepNew     = "new"
	stepKept    = "kept"
	stepDropped = "dropped"
	stepShadow  = "the shadow's"
)

// fits tells which steps keep the state that they have with another graph: those of the
// same name and configuration.
func fits(was, is *graph.Graph) (kept []uint16, fates map[string]string) {
	kept, fates = []uint16{}, map[string]string{}
	for i := range is.Nodes {
		fates[is.Nodes[i].Name] = stepNew
	}
	for i := range was.Nodes {
		before := &was.Nodes[i]
		at := slices.IndexFunc(is.Nodes, func(n graph.Node) bool {
			return n.ID == before.ID && n.Kind == before.Kind && n.Config == before.Config
		})
		switch {
		case at >= 0:
			fates[is.Nodes[at].Name] = stepKept
			kept = append(kept, before.ID)
		case fates[before.Name] == "":
			fates[before.Name] = stepDropped
		}
	}
	return kept, fates
}

// restore begins an epoch with the state of a savepoint. What waits in the outbox stays:
// it has been committed.
func (u *unit) restore(o *catalogue.Operator, epoch uint64) error {
	ctx, cancel := context.WithTimeout(u.life, savepointTimeout)
	defer cancel()
	began := time.Now()
	s, err := u.e.findSavepoint(ctx, o.Account, o.From.Operator, o.From.Savepoint)
	if err != nil {
		return fmt.Errorf("restore operator %s: %w", o.Name, err)
	}
	if s.Object != o.From.Object {
		return fmt.Errorf("restore operator %s: savepoint %s is another one now", o.Name, s.Name)
	}
	_, r, err := u.e.openSavepoint(ctx, o.Account, s)
	if err != nil {
		return err
	}
	_, index := layoutOf(u.slot)
	for i := 0; ; i++ {
		if _, err := readCut(r); err != nil {
			return err
		}
		if i == index {
			break
		}
		if err := opstate.SkipFrames(r); err != nil {
			return err
		}
	}
	st := u.store.Load()
	from := restored{kept: kept{opstate.Frames(r), o.Kept, false}, outbox: st, has: epoch > 1}
	if err := st.Begin(epoch, from, 0); err != nil {
		return fmt.Errorf("restore operator %s: %w", o.Name, err)
	}
	u.epoch, u.inst = epoch, nil
	u.note("info", "epoch %d begins with savepoint %s, taken over in %s", epoch, s.Name, time.Since(began).Round(time.Millisecond))
	return u.reopen()
}

// restored is a state from elsewhere with the outbox that is here.
type restored struct {
	kept
	outbox opstate.Reader
	has    bool
}

func (r restored) Scan(from, to []byte, f func(key, v []byte) bool) error {
	more := true
	err := r.kept.Scan(from, to, func(key, v []byte) bool {
		if !engine.IsOutbox(key) {
			more = f(key, v)
		}
		return more
	})
	if err != nil || !more || !r.has {
		return err
	}
	return kept{Reader: r.outbox, outbox: true}.Scan(from, to, f)
}

// nameOK tells whether a savepoint may be called so.
func nameOK(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}

func (s *service) savepointCreate(ctx context.Context, account string, r *Request) (any, error) {
	o := s.e.state.Operator(account, r.Name)
	switch {
	case o == nil:
		return nil, catalogue.FaultNoOperator
	case !nameOK(r.Savepoint):
		return nil, refuse(400, "a savepoint's name is 1 to 64 of letters, digits, '-', '_' and '.'")
	}
	all, err := s.e.savepoints(ctx, account, r.Name)
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(all, func(p Savepoint) bool { return p.Name == r.Savepoint }):
		return nil, refuse(409, "operator %s has a savepoint %s already: remove it, or take another name", r.Name, r.Savepoint)
	case len(all) >= savepointsMax:
		return nil, refuse(400, "operator %s has %d savepoints, as many as it may: remove some", r.Name, len(all))
	}
	type outcome struct {
		s   *Savepoint
		err error
	}
	done := make(chan outcome, 1)
	if !s.e.begin(func() {
		c, cancel := context.WithTimeout(s.e.ctx, savepointTimeout)
		defer cancel()
		p, err := s.e.makeSavepoint(c, o, r.Savepoint)
		if err != nil {
			s.e.o.Log.Warn("A savepoint could not be made", "operator", o.Name, "savepoint", r.Savepoint, "error", err)
		}
		done <- outcome{p, err}
	}) {
		return nil, refuse(503, "the node is stopping")
	}
	soon := time.NewTimer(requestTimeout / 2)
	defer soon.Stop()
	select {
	case d := <-done:
		return d.s, d.err
	case <-soon.C:
	case <-ctx.Done():
	}
	return map[string]string{"making": r.Savepoint}, nil // it is listed once it is there
}

// begin runs something that the engine waits for; not any more when it is closed.
func (e *Engine) begin(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.stopped {
		return false
	}
	e.wg.Go(f)
	return true
}

func (s *service) savepointList(ctx context.Context, account string, r *Request) (any, error) {
	all, err := s.e.savepoints(ctx, account, r.Name)
	if err != nil {
		return nil, err
	}
	return map[string]any{"savepoints": all}, nil
}

func (s *service) savepointInfo(ctx context.Context, account string, r *Request) (any, error) {
	p, err := s.e.findSavepoint(ctx, account, r.Name, r.Savepoint)
	if err != nil {
		return nil, err
	}
	head, _, err := s.e.openSavepoint(ctx, account, p)
	if err != nil {
		return nil, err
	}
	return map[string]any{"savepoint": p, "spec": head.Spec, "steps": head.IDs}, nil
}

func (s *service) savepointRemove(ctx context.Context, account string, r *Request) (any, error) {
	p, err := s.e.findSavepoint(ctx, account, r.Name, r.Savepoint)
	if err != nil {
		return nil, err
	}
	for _, o := range s.e.state.Operators(account) {
		if o.From == nil || o.From.Object != p.Object || o.From.Epoch != o.Epoch {
			continue
		}
		for _, k := range instances(o) {
			if g := s.e.state.Group(homeOf(o, k.slot)); g == nil || g.Store() == nil || g.Store().Place(k.id, k.slot).Seq == 0 {
				return nil, refuse(409, "operator %s is begun with savepoint %s, and has not run a step since", o.Name, p.Name)
			}
		}
	}
	t, err := s.e.savepointsOf(ctx, account, 0)
	if err != nil || t == nil {
		return nil, errors.Join(err, refuse(404, "the account has no savepoints"))
	}
	if _, err := s.e.state.Purge(ctx, t, store.Purge{Subject: metaSubject(p.Operator, p.Name)}); err != nil {
		return nil, err
	}
	return map[string]string{"removed": p.Operator + "/" + p.Name}, s.e.dropObject(ctx, t, p.Object)
}

// withSavepoint plans an operator that begins with a savepoint; old is what it replaces,
// nil: nothing. Without a spec it is the savepoint's.
func (s *service) withSavepoint(ctx context.Context, account string, r *Request, old *catalogue.Operator) (*catalogue.Operator, map[string]string, error) {
	name := r.Name
	if r.Spec != "" {
		g, err := s.e.o.Compile(account, []byte(r.Spec), nil)
		if err != nil {
			return nil, nil, refuse(400, "%v", err)
		}
		name = g.Name
	}
	p, err := s.e.findSavepoint(ctx, account, name, r.Savepoint)
	if err != nil {
		return nil, nil, err
	}
	head, _, err := s.e.openSavepoint(ctx, account, p)
	if err != nil {
		return nil, nil, err
	}
	with := *r
	if with.Spec == "" {
		with.Spec = string(head.Spec)
	}
	g, o, err := s.plan(ctx, account, &with, head.IDs)
	if err != nil {
		return nil, nil, err
	}
	was, err := s.e.o.Compile(account, head.Spec, head.IDs)
	if err != nil {
		return nil, nil, refuse(400, "what the savepoint is of can't be compiled any more (%v): its state can't be kept", err)
	}
	if err := sameInputs(was, g); err != nil {
		return nil, nil, err
	}
	if n := max(g.Partitions, 1); n != head.Instances {
		return nil, nil, refuse(400, "the savepoint is of %d partitions, and can't be spread over %d", head.Instances, n)
	}
	var fates map[string]string
	o.Starts = head.Starts
	o.Kept, fates = fits(was, g)
	if old != nil {
		if old.Next != nil {
			return nil, nil, refuse(409, "its instances are being replaced; try again in a moment")
		}
		if o.Name != old.Name {
			return nil, nil, refuse(400, "the savepoint is of operator %s: say the spec that operator %s is to have with it", o.Name, old.Name)
		}
		if len(old.Homes()) != len(o.Homes()) {
			return nil, nil, refuse(400, "it has %d partitions, and the savepoint %d", len(old.Homes()), len(o.Homes()))
		}
		o.Lives(old)
		o.Epoch, o.Revision = old.Epoch+1, old.Revision+1
	}
	o.From = &catalogue.Origin{Epoch: o.Epoch, Operator: p.Operator, Savepoint: p.Name, Object: p.Object}
	return o, fates, nil
}

// putSavepoint has an operator that is there go on from a savepoint.
func (s *service) putSavepoint(ctx context.Context, account string, r *Request, old *catalogue.Operator) (any, error) {
	o, fates, err := s.withSavepoint(ctx, account, r, old)
	if err != nil {
		return nil, err
	}
	d := Deployed{Operator: o, Steps: fates}
	if r.Dry {
		return d, nil
	}
	d.Operator, err = s.e.state.PutOperator(ctx, o)
	return d, err
}

func (s *service) restore(ctx context.Context, account string, r *Request) (any, error) {
	old := s.e.state.Operator(account, r.Name)
	switch {
	case old == nil:
		return nil, catalogue.FaultNoOperator
	case r.Savepoint == "":
		return nil, refuse(400, "say which savepoint it is to go on from")
	}
	return s.putSavepoint(ctx, account, r, old)
}
