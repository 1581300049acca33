package operate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// streamState is how nodes ask each other for the state of an operator: its number u64,
// the epoch u64 and the step u64 that it must have reached at least, its slot u32. The answer is
// frames (operators/state.WriteFrames).
const streamState = "op.state"

// fetchTimeout bounds the way of a state from another node.
const fetchTimeout = 10 * time.Minute

// behindMax is how long a unit may be behind its group without a step coming, before it
// asks another replica: what was applied a moment ago may be on its way.
const behindMax = 500 * time.Millisecond

// catchUp gets the state of another replica where this one misses something; ready: it misses
// nothing. held: an epoch can't begin here yet.
func (u *unit) catchUp(held bool) (ready bool, err error) {
	data := u.group.Store()
	if data == nil {
		return true, nil
	}
	if u.damaged() {
		return false, nil // see mend
	}
	at := data.Place(u.id, u.slot)
	o := u.op.Load()
	anew := at.Epoch < o.Epoch && o.Outbox == o.Epoch // because what it had is lost
	switch first := at.Epoch < max(o.Laid, 1); {
	case (first || anew) && u.group.IsLeader() && u.e.runs():
		return true, u.declare(o)
	case first:
		return true, nil
	}
	has := topics.Place{Epoch: u.epoch}
	if u.inst != nil {
		has.Seq = u.reached()
	}
	if has != u.p.behindAt { // it comes on
		u.p.behind, u.p.behindAt = time.Time{}, has
	}
	if u.level(has, at) && !held {
		u.p.behind = time.Time{}
		if n, _ := u.kept().Size(); n == 0 {
			u.goes()
		}
		return true, nil
	}
	if at.Epoch > u.epoch && at.Seq == 0 && !held {
		err := u.begin(at.Epoch, nil)
		if h := (*heldError)(nil); !errors.As(err, &h) {
			return true, err
		}
	}
	if u.p.behind.IsZero() {
		u.p.behind = time.Now()
	}
	if !u.faulty && time.Since(u.p.behind) < behindMax {
		time.AfterFunc(behindMax, u.poke)
		return true, nil
	}
	return u.replace(at, held)
}

// level tells whether what is here is good, and as far as the group has come. What failed for
// a moment is opened anew.
func (u *unit) level(has, at topics.Place) bool {
	st := u.store.Load()
	if u.faulty && !u.quarantined && st.Epoch() == u.epoch && u.epoch >= at.Epoch && u.reached() >= at.Seq {
		return u.reopen() == nil
	}
	return !u.faulty && u.inst != nil && has.Epoch >= at.Epoch && has.Seq >= at.Seq
}

// replace asks the others for a state that is as far as the group.
func (u *unit) replace(at topics.Place, held bool) (ready bool, err error) {
	time.AfterFunc(retryEvery, u.poke)
	if !held {
		step := u.reached() + 1
		if s := u.still; s == nil || s.step != step || s.plight == waits {
			u.stands(lacks, step, u.lacking())
		}
	}
	if !u.still.mayAsk() {
		return false, nil
	}
	if err := u.askOthers(at); err != nil {
		return false, err
	}
	u.p.behind = time.Time{}
	return false, nil
}

var (
	errNobody = errors.New("it is not here")
	// errMissing: a step has not come here that the group has committed.
	errMissing = errors.New("what the group has committed since is missing here")
)

// rebuild fetches a state that has come as far as the group has, or further.
func (u *unit) rebuild(at topics.Place) error {
	began := time.Now()
	err := errors.New("there is none")
	if p := u.e.o.Peers; p != nil {
		leader := p.Leader(u.group.ID())
		nodes := slices.Clone(u.group.Nodes())
		slices.SortStableFunc(nodes, func(a, b string) int {
			switch {
			case a == leader && b != leader:
				return -1
			case b == leader && a != leader:
				return 1
			}
			return 0
		})
		for _, node := range nodes {
			if node == p.Name() || node == "" {
				continue
			}
			if err = u.fetch(node, at); err == nil {
				u.count(func(st *Stats) { st.Rebuilt++ })
				u.note("info", "took over the state of %s at step %d in %s", node, u.inst.Committed(), time.Since(began).Round(time.Millisecond))
				return nil
			}
		}
	}
	return fmt.Errorf("get the state of operator %s, step %d of epoch %d, from another replica: %w", u.op.Load().Name, at.Seq, at.Epoch, err)
}

func (u *unit) fetch(node string, at topics.Place) error {
	ctx, cancel := context.WithTimeout(u.life, fetchTimeout)
	defer cancel()
	r, err := u.e.o.Peers.OpenStream(ctx, node, streamState, asksFor(u.unitKey, at))
	if err != nil {
		return fmt.Errorf("ask %s: %w", node, err)
	}
	defer r.Close()
	epoch := uint64(0)
	err = u.store.Load().Receive(r, func(e, seq uint64) error {
		if epoch = e; e < at.Epoch || e == at.Epoch && seq < at.Seq {
			return fmt.Errorf("it is at step %d of epoch %d", seq, e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("from %s: %w", node, err)
	}
	u.kept().Trim(u.store.Load().Seq())
	u.epoch, u.inst = epoch, nil
	return u.reopen()
}

// asksFor says which instance's state is asked for, and how far it must have come.
func asksFor(k unitKey, at topics.Place) []byte {
	body := binary.LittleEndian.AppendUint64(nil, k.id)
	body = binary.LittleEndian.AppendUint64(body, at.Epoch)
	body = binary.LittleEndian.AppendUint64(body, at.Seq)
	return binary.LittleEndian.AppendUint32(body, k.slot)
}

func askedFor(body []byte) (k unitKey, at topics.Place, err error) {
	if len(body) != 28 {
		return k, at, errors.New("a request for an operator's state is of another version")
	}
	k = unitKey{binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint32(body[24:])}
	return k, topics.Place{Epoch: binary.LittleEndian.Uint64(body[8:]), Seq: binary.LittleEndian.Uint64(body[16:])}, nil
}

// snapshotOf returns the state of an instance on this node and the epoch that it is of, for
// others: never one that was found to differ. The snapshot must be closed.
func (e *Engine) snapshotOf(k unitKey) (u *unit, s opstate.Snapshot, epoch uint64, err error) {
	u = e.unit(k, nil)
	if u == nil || u.store.Load() == nil {
		return nil, nil, 0, fmt.Errorf("%w: operator %d", errNobody, k.id)
	}
	u.mu.Lock()
	bad := u.quarantined
	u.mu.Unlock()
	st := u.store.Load()
	epoch = st.Epoch()
	if s, err = st.Snapshot(); err != nil {
		return nil, nil, 0, err
	}
	if bad || st.Epoch() != epoch { // another one begins just now
		return nil, nil, 0, errors.Join(fmt.Errorf("%w: the state of operator %d is withheld, or is just being replaced", errNobody, k.id), s.Close())
	}
	return u, s, epoch, nil
}

// answerPeers has other nodes given the state of operators.
func (e *Engine) answerPeers() {
	e.o.Peers.HandleStream(streamState, func(_ context.Context, from string, body []byte, w io.Writer) error {
		k, at, err := askedFor(body)
		if err != nil {
			return err
		}
		u, snapshot, epoch, err := e.snapshotOf(k)
		if err != nil {
			return err
		}
		defer snapshot.Close()
		if epoch < at.Epoch || epoch == at.Epoch && snapshot.Seq() < at.Seq {
			return fmt.Errorf("%w: it is at step %d of epoch %d here", errNobody, snapshot.Seq(), epoch)
		}
		e.o.Log.Debug("An operator's state is given to another node", "operator", u.op.Load().Name, "node", from, "step", snapshot.Seq())
		return opstate.WriteFrames(w, epoch, u.given(snapshot))
	})
	e.o.Peers.HandleStream(streamCheckpoint, e.giveCheckpoint)
	e.o.Peers.HandleStream(streamSavepoint, e.giveSavepoint)
	e.o.Peers.HandleStream(streamShare, func(_ context.Context, _ string, body []byte, w io.Writer) error {
		var q shareRequest
		if err := json.Unmarshal(body, &q); err != nil {
			return fmt.Errorf("a request for a share of an operator's state: %w", err)
		}
		return e.giveShare(&q, w)
	})
	e.o.Peers.Handle(methodMark, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		var q markRequest
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("a savepoint's mark: %w", err)
		}
		a, err := e.answerMark(ctx, &q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	})
	e.o.Peers.Handle(methodAsk, e.service.answerAsk)
}
