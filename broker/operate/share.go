package operate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// streamShare is how those that come ask for their share of a state: a shareRequest. The
// answer is frames, only where the instance stands still at the cut.
const streamShare = "op.share"

type shareRequest struct {
	ID    uint64            `json:"id"`
	Slot  uint32            `json:"slot"`
	Epoch uint64            `json:"epoch"`
	Next  uint32            `json:"next"` // the layout that comes
	Cut   []topics.Sequence `json:"cut"`
	Index int               `json:"index"`
	Of    int               `json:"of"`
	// Shadow is the digest of the shadow whose state is wanted; "": the instance's own.
	Shadow string `json:"shadow,omitempty"`
}

// arrive gets the share of a unit that is to take over.
func (u *unit) arrive() (time.Duration, error) {
	o := u.op.Load()
	if u.store.Load() == nil {
		s, err := u.journal()
		if err != nil {
			return 0, err
		}
		u.store.Store(s)
	}
	st, n := u.store.Load(), o.Next
	layout, index := layoutOf(u.slot)
	if n == nil || n.Layout != layout || n.Cut == nil || st.Epoch() > o.Epoch {
		u.epoch = st.Epoch()
		return idle, nil
	}
	g, err := u.e.o.Compile(o.Account, n.Spec, n.IDs)
	if err != nil {
		return 0, fmt.Errorf("%w: operator %s, which takes over: %w", errCompile, o.Name, err)
	}
	began := time.Now()
	var parts []opstate.Reader
	for _, k := range instances(o) {
		q := shareRequest{k.id, k.slot, o.Epoch, n.Layout, n.Cut, index, len(n.Groups), n.Promotes}
		m, err := u.shareOf(o, &q)
		if err != nil {
			u.p.blocked = err.Error()
			return succeedEvery, nil // it is not there yet, or its nodes aren't
		}
		var r opstate.Reader = m
		if n.Kept != nil {
			r = kept{m, n.Kept, false}
		}
		parts = append(parts, r)
	}
	m, err := engine.Inherit(g, parts...)
	if err != nil {
		return 0, err
	}
	if err := st.Begin(o.Epoch+1, m, 0); err != nil {
		return 0, err
	}
	if err := st.Flush(); err != nil {
		return 0, errors.Join(err, st.Begin(0, opstate.NewMemory(), 0)) // it is not ready
	}
	u.epoch, u.p.blocked = o.Epoch+1, ""
	keys, size := st.Size()
	u.note("info", "took %d keys of %d bytes over from %d instances in %s", keys, size, len(parts), time.Since(began).Round(time.Millisecond))
	return idle, nil
}

// shareOf fetches a share of one of the instances before, from whoever has it.
func (u *unit) shareOf(o *catalogue.Operator, q *shareRequest) (*opstate.Memory, error) {
	var b bytes.Buffer
	err := u.e.giveShare(q, &b)
	if err == nil {
		m := opstate.NewMemory()
		_, _, err = opstate.ReadFrames(bufio.NewReader(&b), m)
		return m, err
	}
	g := u.e.state.Group(homeOf(o, q.Slot))
	if u.e.o.Peers == nil || g == nil {
		return nil, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(u.life, time.Minute)
	defer cancel()
	err = errNobody
	for _, node := range g.Nodes() {
		if node == u.e.o.Peers.Name() || node == "" {
			continue
		}
		var m *opstate.Memory
		if m, err = u.e.fetchShare(ctx, node, body); err == nil {
			return m, nil
		}
	}
	return nil, err
}

func (e *Engine) fetchShare(ctx context.Context, node string, body []byte) (*opstate.Memory, error) {
	r, err := e.o.Peers.OpenStream(ctx, node, streamShare, body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", node, err)
	}
	defer r.Close()
	m := opstate.NewMemory()
	if _, _, err := opstate.ReadFrames(bufio.NewReader(r), m); err != nil {
		return nil, fmt.Errorf("from %s: %w", node, err)
	}
	return m, nil
}

// shared is a share of a snapshot.
type shared struct {
	opstate.Snapshot
	part opstate.Reader
}

func (s shared) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return s.part.Scan(from, to, f)
}

// Seq is never 0, which would say that more follows.
func (s shared) Seq() uint64 { return max(s.Snapshot.Seq(), 1) }

// giveShare gives a share of what an instance on this node has, if it stands still at the
// cut.
func (e *Engine) giveShare(q *shareRequest, w io.Writer) error {
	u, s, epoch, err := e.snapshotOf(unitKey{q.ID, q.Slot})
	if err != nil {
		return err
	}
	defer s.Close()
	at, err := engine.StandingOf(s)
	if err != nil {
		return err
	}
	if epoch != q.Epoch || !reaches(u.op.Load(), q.Next, q.Cut, &at) {
		return fmt.Errorf("%w: instance %d is not at the cut here: it has read %v of %v", errNobody, q.Slot, at.Ends, q.Cut)
	}
	var from opstate.Reader = s
	if q.Shadow != "" {
		trial, err := u.trialOf(q.Shadow, s.Seq())
		if err != nil {
			return err
		}
		defer trial.Close()
		from = promoted{s, trial}
	}
	return opstate.WriteFrames(w, q.Epoch, shared{s, engine.Part(from, engine.Share{Index: q.Index, Of: q.Of})})
}
