package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// What nodes ask each other. All integers are little-endian.
//
//	state.ask        group u32, kind u8, body → answer
//	state.decide     a catalogue command (JSON) → index u64, its result (JSON), as the body of an answer
//	state.committed  group u32 → index u64
//	state.transfer   group u32, node → nothing
//	state.usage      nothing → usage (JSON)
//	state.clock      nothing → its own time i64 (ns), the cluster's i64, whether that is settled u8
//
// An answer is a code u8 and, with answerDone, the index up to which the group is
// applied u64 and the result; with answerFault a fault; with answerFailed a text.
const (
	methodAsk       = "state.ask"
	methodDecide    = "state.decide"
	methodCommitted = "state.committed"
	methodTransfer  = "state.transfer"
	methodUsage     = "state.usage"
	methodClock     = "state.clock"
)

// The codes of answers.
const (
	answerDone = iota
	answerNotLeader
	answerBusy
	answerUnknown
	answerClosed
	answerFault
	answerFailed
)

// The kinds of results.
const (
	resultNil = iota
	resultFault
	resultCreated
	resultReset
	resultPurged
	resultRemoved
	resultGuard
	resultDeclared
)

func appendFaultBinary(dst []byte, f *topics.Fault) []byte {
	if f == nil {
		return append(dst, 0)
	}
	dst = binary.LittleEndian.AppendUint16(append(dst, 1), uint16(f.Status))
	dst = binary.LittleEndian.AppendUint16(dst, f.ErrCode)
	return appendText(dst, f.Text)
}

func (b *body) u8() byte {
	if len(b.rest) < 1 {
		b.bad = true
		return 0
	}
	v := b.rest[0]
	b.rest = b.rest[1:]
	return v
}

func (b *body) u16() uint16 {
	if len(b.rest) < 2 {
		b.bad, b.rest = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint16(b.rest)
	b.rest = b.rest[2:]
	return v
}

func (b *body) fault() *topics.Fault {
	if b.u8() == 0 {
		return nil
	}
	return &topics.Fault{Status: int(b.u16()), ErrCode: b.u16(), Text: b.text()}
}

// appendResult appends what applying a record gave.
func appendResult(dst []byte, result any) ([]byte, error) {
	var number uint64
	var f *topics.Fault
	switch r := result.(type) {
	case nil:
		return append(dst, resultNil), nil
	case *topics.Fault:
		return appendFaultBinary(append(dst, resultFault), r), nil
	case created:
		dst, number, f = append(dst, resultCreated), uint64(r.id), r.fault
	case reset:
		dst, number, f = append(dst, resultReset), uint64(r.to), r.fault
	case purged:
		dst, number, f = append(dst, resultPurged), r.removed, r.fault
	case topics.GuardResult:
		dst = append(dst, resultGuard, byte(r.Verdict))
		dst = binary.LittleEndian.AppendUint64(dst, r.At.Epoch)
		return appendFaultBinary(binary.LittleEndian.AppendUint64(dst, r.At.Seq), r.Fault), nil
	case declared:
		dst, number = append(dst, resultDeclared), uint64(r)
	case removed:
		if r.found {
			number = 1
		}
		dst, f = append(dst, resultRemoved), r.fault
	default:
		return nil, fmt.Errorf("a result of type %T can't be sent", result)
	}
	return appendFaultBinary(binary.LittleEndian.AppendUint64(dst, number), f), nil
}

// result reads what appendResult wrote.
func (b *body) result() (any, error) {
	switch kind := b.u8(); kind {
	case resultNil:
		return nil, nil
	case resultFault:
		return b.fault(), nil
	case resultCreated:
		return created{topics.ConsumerID(b.u64()), b.fault()}, nil
	case resultReset:
		return reset{topics.Sequence(b.u64()), b.fault()}, nil
	case resultPurged:
		return purged{b.u64(), b.fault()}, nil
	case resultRemoved:
		return removed{b.u64() != 0, b.fault()}, nil
	case resultGuard:
		v := topics.Verdict(b.u8())
		at := topics.Place{Epoch: b.u64(), Seq: b.u64()}
		return topics.GuardResult{Verdict: v, At: at, Fault: b.fault()}, nil
	case resultDeclared:
		in := declared(b.u64())
		return in, faultError(b.fault())
	default:
		return nil, fmt.Errorf("a result of kind %d is not known to this version", kind)
	}
}

// appendAnswer appends an answer: an error, or an index with a result to follow.
func appendAnswer(dst []byte, i topics.Index, err error) []byte {
	var f *topics.Fault
	switch {
	case err == nil:
		return binary.LittleEndian.AppendUint64(append(dst, answerDone), uint64(i))
	case errors.As(err, &f):
		return appendFaultBinary(append(dst, answerFault), f)
	case errors.Is(err, replication.ErrNotLeader):
		return append(dst, answerNotLeader)
	case errors.Is(err, ErrBusy):
		return append(dst, answerBusy)
	case errors.Is(err, ErrUnknown):
		return append(dst, answerUnknown)
	case errors.Is(err, ErrClosed):
		return append(dst, answerClosed)
	}
	return appendText(append(dst, answerFailed), err.Error())
}

// answer reads the beginning of an answer.
func (b *body) answer() (topics.Index, error) {
	switch code := b.u8(); code {
	case answerDone:
		i := topics.Index(b.u64())
		if b.bad {
			return 0, errShortAnswer
		}
		return i, nil
	case answerNotLeader, answerClosed: // a node that stops no longer leads
		return 0, replication.ErrNotLeader
	case answerBusy:
		return 0, ErrBusy
	case answerUnknown:
		return 0, ErrUnknown
	case answerFault:
		if f := b.fault(); f != nil {
			return 0, f
		}
		return 0, errShortAnswer
	case answerFailed:
		return 0, errors.New(b.text())
	default:
		return 0, fmt.Errorf("an answer of code %d is not known to this version", code)
	}
}

var errShortAnswer = errors.New("the answer of a node is cut short")

// retryable tells whether a call surely had no effect.
func retryable(err error) bool {
	return errors.Is(err, replication.ErrNotLeader) || errors.Is(err, peer.ErrNoPeer) || errors.Is(err, peer.ErrBusy) ||
		errors.Is(err, peer.ErrNoHandler)
}

// callLeader asks whoever leads a group, again when that has changed, until ctx
// ends. here answers where this node leads. Whoever may have done what was asked
// without being able to say so gives ErrUnknown.
func (c *cluster) callLeader(ctx context.Context, id topics.GroupID, method string, request []byte, here func() ([]byte, error)) ([]byte, error) {
	return c.askLeader(ctx, id, here, func(leader string) ([]byte, error) { return c.net.Call(ctx, leader, method, request) })
}

// askLeader is callLeader with another way of asking a leader elsewhere.
func (c *cluster) askLeader(ctx context.Context, id topics.GroupID, here func() ([]byte, error), there func(leader string) ([]byte, error)) ([]byte, error) {
	for {
		var answer []byte
		var err error
		switch leader := c.leader(id); leader {
		case "":
			err = replication.ErrNotLeader
		case c.me:
			answer, err = here()
		default:
			answer, err = there(leader)
		}
		if lost(answer, err) {
			err = replication.ErrNotLeader
		}
		var remote *peer.RemoteError
		switch {
		case err == nil:
			return answer, nil
		case errors.As(err, &remote), errors.Is(err, peer.ErrTooLarge):
			return nil, err
		case !retryable(err):
			return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if !c.pause(ctx, 50*time.Millisecond) {
			return nil, replication.ErrNotLeader
		}
	}
}

// ask submits a record where the group is led and waits for what it gave. When ctx
// ends first the outcome is not known. On return this node's replica, if it has one,
// has applied it.
func (c *cluster) ask(ctx context.Context, g *Group, kind topics.RecordKind, raw []byte) (any, error) {
	request := binary.LittleEndian.AppendUint32(make([]byte, 0, 5+len(raw)), uint32(g.id))
	request = append(append(request, byte(kind)), raw...)
	// Not encoded where this node leads.
	var result any
	local := false
	answer, err := c.askLeader(ctx, g.id, func() ([]byte, error) {
		var err error
		result, err = g.askHere(ctx, kind, raw)
		if errors.Is(err, replication.ErrNotLeader) {
			return nil, err
		}
		local = true
		return appendAnswer(nil, 0, err), nil
	}, func(leader string) ([]byte, error) { return c.askTogether(ctx, leader, g.id, request) })
	if err != nil {
		return nil, err
	}
	b := bodyOf(answer)
	i, err := b.answer()
	if err != nil || local {
		return result, err
	}
	if result, err = b.result(); err != nil || b.bad {
		return nil, errors.Join(err, errShortAnswer)
	}
	if r := g.local.Load(); r != nil {
		if log := r.repl.Load(); log != nil {
			if err := log.WaitApplied(ctx, i); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
			}
		}
	}
	return result, nil
}

// submit is ask for those who don't wait.
func (c *cluster) submit(g *Group, kind topics.RecordKind, raw []byte, done func(any, error)) {
	select {
	case c.asking <- struct{}{}:
	default:
		done(nil, ErrBusy)
		return
	}
	if !c.s.spawn(func() {
		defer func() { <-c.asking }()
		ctx, cancel := context.WithTimeout(c.s.ctx, submitTimeout)
		defer cancel()
		done(c.ask(ctx, g, kind, raw))
	}) {
		<-c.asking
		done(nil, ErrClosed)
	}
}

// submitTimeout is how long a record may be on its way to another node.
const submitTimeout = 10 * time.Second

// answerAsk answers another node's ask.
func (c *cluster) answerAsk(ctx context.Context, _ string, request []byte) ([]byte, error) {
	b := bodyOf(request)
	id, kind := topics.GroupID(b.u32()), topics.RecordKind(b.u8())
	if b.bad {
		return nil, errShortAnswer
	}
	g := c.s.groups.find(id)
	if g == nil || !g.IsLeader() {
		return []byte{answerNotLeader}, nil
	}
	result, err := g.askHere(ctx, kind, b.rest)
	r := g.local.Load()
	if err != nil || r == nil {
		return appendAnswer(nil, 0, err), nil
	}
	return appendResult(appendAnswer(nil, r.repl.Load().Committed(), nil), result)
}

// committedAt asks the leader of a group how far it is.
func (c *cluster) committedAt(ctx context.Context, leader string, id topics.GroupID) (topics.Index, error) {
	answer, err := c.net.Call(ctx, leader, methodCommitted, binary.LittleEndian.AppendUint32(nil, uint32(id)))
	if err != nil {
		return 0, err
	}
	b := bodyOf(answer)
	return b.answer()
}

// syncGroup waits until this node's replica of a group, if it has one, has all that
// was committed before the call.
func (c *cluster) syncGroup(ctx context.Context, g *Group) error {
	log := c.log(g.id)
	if log == nil {
		return nil
	}
	here := false
	answer, err := c.callLeader(ctx, g.id, methodCommitted, binary.LittleEndian.AppendUint32(nil, uint32(g.id)), func() ([]byte, error) {
		here = true
		return []byte{answerDone}, nil
	})
	if err != nil || here {
		return err
	}
	b := bodyOf(answer)
	i, err := b.answer()
	if err == nil {
		err = log.WaitApplied(ctx, i)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return nil
}

func (c *cluster) answerCommitted(_ context.Context, _ string, request []byte) ([]byte, error) {
	b := bodyOf(request)
	id := topics.GroupID(b.u32())
	if b.bad {
		return nil, errShortAnswer
	}
	if !c.leadsNow(id) {
		return []byte{answerNotLeader}, nil
	}
	log := c.log(id)
	if log == nil {
		return []byte{answerNotLeader}, nil
	}
	return appendAnswer(nil, log.Committed(), nil), nil
}

func (c *cluster) log(id topics.GroupID) *replication.Group { return c.s.log(id) }

// log returns this node's replica's log of a group, nil when it has none.
func (s *State) log(id topics.GroupID) *replication.Group {
	if id == topics.CatalogueGroup {
		return s.meta.Load()
	}
	if g := s.groups.find(id); g != nil {
		if r := g.local.Load(); r != nil {
			return r.repl.Load()
		}
	}
	return nil
}

// transfer hands the lead of a group to a node, "" for the best.
func (c *cluster) transfer(ctx context.Context, id topics.GroupID, to string) error {
	answer, err := c.callLeader(ctx, id, methodTransfer, append(binary.LittleEndian.AppendUint32(nil, uint32(id)), to...), func() ([]byte, error) {
		return appendAnswer(nil, 0, c.log(id).Transfer(ctx, to)), nil
	})
	if err != nil {
		return err
	}
	b := bodyOf(answer)
	_, err = b.answer()
	return err
}

func (c *cluster) answerTransfer(ctx context.Context, _ string, request []byte) ([]byte, error) {
	b := bodyOf(request)
	id := topics.GroupID(b.u32())
	if b.bad {
		return nil, errShortAnswer
	}
	if !c.leadsNow(id) {
		return []byte{answerNotLeader}, nil
	}
	return appendAnswer(nil, 0, c.log(id).Transfer(ctx, string(b.rest))), nil
}
