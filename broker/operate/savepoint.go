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
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// A savepoint's content:
//
//	"HERALDS2", length u32 of a savepointHead as JSON, the JSON
//	for each instance: length u32 of a Cut as JSON, the JSON, then its state as frames
//
// An instance reads its inputs by itself, and what it has made is in its outbox or sent; so
// the states of the instances, each after a step of its own, fit together. Of one place in
// the inputs (mark.go), they can be spread over more or fewer instances.

const savepointMagic = "HERALDS2"

type savepointHead struct {
	Operator  string            `json:"operator"`
	Version   string            `json:"version,omitempty"`
	Spec      json.RawMessage   `json:"spec"`
	IDs       map[string]uint16 `json:"ids"`
	Starts    []topics.Sequence `json:"starts,omitempty"`
	Instances int               `json:"instances"`
	// ID and Created tell the operator from others that are called so.
	ID      uint64       `json:"id"`
	Created topics.Nanos `json:"created"`
	// Aligned: all instances have read up to the same place.
	Aligned bool `json:"aligned"`
}

const (
	headBytesMax     = 16 << 20
	savepointTimeout = time.Hour
	savepointsMax    = 100 // of an operator
)

// streamSavepoint asks the node where an instance is led for its whole state.
const streamSavepoint = "op.savepoint"

// writeWhole writes an instance's state, where it is whole: a Cut, frames. With a mark it is
// the state that the instance keeps for it.
func (u *unit) writeWhole(w io.Writer, q *markRequest) (c Cut, err error) {
	var s opstate.Snapshot
	if q.Mark != 0 {
		s, err = u.markedState(q.Mark)
	} else {
		s, err = u.wholeNow(q.Epoch)
	}
	if err != nil {
		return c, err
	}
	defer s.Close()
	at, err := engine.StandingOf(s)
	if err != nil {
		return c, err
	}
	c = Cut{Seq: s.Seq(), Ends: at.Ends}
	if c.Waits, err = engine.Waiting(s); err != nil {
		return c, err
	}
	if err := s.Scan(nil, nil, func(k, v []byte) bool { c.Keys++; c.Bytes += int64(len(k) + len(v)); return true }); err != nil {
		return c, err
	}
	head, err := json.Marshal(c)
	if err != nil {
		return c, err
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), head...)); err != nil {
		return c, err
	}
	return c, opstate.WriteFrames(w, q.Epoch, s)
}

// wholeNow returns the state as it is.
func (u *unit) wholeNow(epoch uint64) (opstate.Snapshot, error) {
	st := u.store.Load()
	u.mu.Lock()
	bad := u.quarantined
	u.mu.Unlock()
	if st == nil || bad || st.Epoch() != epoch || !u.group.IsLeader() {
		return nil, refuse(503, "the operator isn't ready where it is led; try again")
	}
	if n, _ := u.kept().Size(); n > 0 {
		return nil, refuse(503, "the operator is just taking over; try again")
	}
	if hollow, err := engine.IsHollow(st); err != nil || hollow {
		return nil, errors.Join(err, refuse(503, "the operator is just taking over; try again"))
	}
	return st.Snapshot()
}

func (e *Engine) giveSavepoint(_ context.Context, _ string, body []byte, w io.Writer) error {
	var q markRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return fmt.Errorf("a request for a savepoint: %w", err)
	}
	u := e.unit(unitKey{q.ID, q.Slot}, nil)
	if u == nil {
		return errNobody
	}
	_, err := u.writeWhole(w, &q)
	return err
}

// copyWhole writes an instance's state, wherever it is led, or of a mark from where it is
// kept.
func (e *Engine) copyWhole(ctx context.Context, w io.Writer, k unitKey, o *catalogue.Operator, mark uint64, node string) (Cut, error) {
	q := markRequest{ID: k.id, Slot: k.slot, Epoch: o.Epoch, Mark: mark}
	g := e.state.Group(homeOf(o, k.slot))
	if g == nil {
		return Cut{}, refuse(503, "group %d is not known here yet; try again", homeOf(o, k.slot))
	}
	if node == "" {
		if node = g.Leader(); g.IsLeader() {
			node = e.name()
		}
	}
	if u := e.unit(k, o); u != nil && node == e.name() {
		return u.writeWhole(w, &q)
	}
	if node == "" || e.o.Peers == nil {
		return Cut{}, refuse(503, "the operator's group has no leader now; try again")
	}
	body, err := json.Marshal(q)
	if err != nil {
		return Cut{}, err
	}
	r, err := e.o.Peers.OpenStream(ctx, node, streamSavepoint, body)
	if err != nil {
		return Cut{}, err
	}
	defer r.Close()
	from := bufio.NewReader(io.TeeReader(r, w))
	c, err := readCut(from)
	if err != nil {
		return c, fmt.Errorf("from %s: %w", node, err)
	}
	return c, opstate.SkipFrames(from)
}

func readCut(r io.Reader) (c Cut, err error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return c, fmt.Errorf("%w: %w", errObject, err)
	}
	if binary.LittleEndian.Uint32(n[:]) > headBytesMax {
		return c, errObject
	}
	head := make([]byte, binary.LittleEndian.Uint32(n[:]))
	if _, err := io.ReadFull(r, head); err != nil {
		return c, fmt.Errorf("%w: %w", errObject, err)
	}
	if err := json.Unmarshal(head, &c); err != nil {
		return c, fmt.Errorf("%w: %w", errObject, err)
	}
	return c, nil
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
		m, aligned, err := e.align(ctx, o)
		if err != nil {
			return err
		}
		head, err := json.Marshal(savepointHead{o.Name, o.Version, o.Spec, o.IDs, o.Starts, len(o.Homes()), o.ID, o.Created, aligned})
		if err != nil {
			return err
		}
		b := binary.LittleEndian.AppendUint32([]byte(savepointMagic), uint32(len(head)))
		if _, err := w.Write(append(b, head...)); err != nil {
			return err
		}
		for i, k := range instances(o) {
			mark := m.id
			if !aligned {
				mark = 0
			}
			c, err := e.copyWhole(ctx, w, k, o, mark, m.nodes[i])
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
	case o.Next != nil && len(o.Homes()) > 1:
		return nil, refuse(409, "its instances are being replaced; try again in a moment")
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
