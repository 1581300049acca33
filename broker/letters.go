package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// A leader that goes between giving a message up and removing the place of its letter's
// guard leaves the place behind, and the next one knows nothing of it: for it the message is
// gone. So whoever leads a group looks now and then at the places that have been there for
// a while, and asks who leads the other groups whether a message of theirs still waits for
// its letter. A message is pending in every copy from before its place is made until it is
// given up: what nobody wants, asked of leaders that are known to lead, is done with.

const (
	callLetters = "dead.wanted"

	letterAge      = time.Minute // how long a place must have been there
	letterPatience = 5 * time.Second
	lettersAtOnce  = 4096
)

// letterPeers is the way to the other nodes.
type letterPeers interface {
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))
}

// letters looks for places of dead letters that were left behind.
type letters struct {
	d     *durable
	peers letterPeers // nil on a single node
	age   time.Duration
	since map[topics.GroupID]map[uint64]time.Time // when a place was seen first; sweep's own
}

func (l *letters) init(d *durable, peers letterPeers) {
	l.d, l.peers, l.age = d, peers, letterAge
	l.since = map[topics.GroupID]map[uint64]time.Time{}
	if peers != nil {
		peers.Handle(callLetters, l.answer)
	}
}

// run sweeps until the broker ends.
func (l *letters) run() {
	tick := time.NewTicker(l.age)
	defer tick.Stop()
	for {
		select {
		case <-l.d.ctx.Done():
			return
		case <-tick.C:
			l.sweep(l.d.ctx, time.Now())
		}
	}
}

// sweep removes the places that nobody wants.
func (l *letters) sweep(ctx context.Context, now time.Time) {
	for _, g := range l.d.state.Groups() {
		ids := l.old(g, now)
		if len(ids) == 0 {
			continue
		}
		one, cancel := context.WithTimeout(ctx, letterPatience)
		err := l.remove(one, g, ids)
		cancel()
		if err != nil {
			l.d.b.cfg.Log.Debug("Places of dead letters could not be looked at", "group", g.ID(), "places", len(ids), "error", err)
		}
	}
}

// old returns the places of a group led here that have been there for a while.
func (l *letters) old(g *state.Group, now time.Time) map[uint64]bool {
	was, is := l.since[g.ID()], map[uint64]time.Time{}
	ids := map[uint64]bool{}
	if g.IsLeader() {
		g.Store().Producers(func(id, _ uint64) bool {
			if id&topics.BurialProducer == 0 || id&topics.OutboxBit != 0 {
				return true
			}
			first, known := was[id]
			if !known {
				first = now
			}
			is[id] = first
			if now.Sub(first) >= l.age {
				ids[id] = true
			}
			return len(ids) < lettersAtOnce
		})
	}
	l.since[g.ID()] = is
	return ids
}

func (l *letters) remove(ctx context.Context, g *state.Group, ids map[uint64]bool) error {
	// Twice: a topic that moves while they are asked may be in the group that was asked
	// before it came and in the one that was asked after it went, but not both times.
	for range 2 {
		for _, o := range l.d.state.AllGroups() {
			wanted, err := l.wanted(ctx, o, ids)
			if err != nil {
				return fmt.Errorf("ask group %d what waits for a letter: %w", o.ID(), err)
			}
			for _, id := range wanted {
				delete(ids, id)
			}
		}
	}
	for id := range ids {
		if _, err := g.DeclareProducer(ctx, id, 0); err != nil {
			return err
		}
	}
	return nil
}

// wanted asks the leader of a group which letters its messages wait for.
func (l *letters) wanted(ctx context.Context, g *state.Group, ids map[uint64]bool) ([]uint64, error) {
	if g.IsLeader() {
		return l.wantedHere(ctx, g, ids)
	}
	leader := g.Leader()
	if leader == "" || l.peers == nil {
		return nil, replication.ErrNotLeader
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(g.ID()))
	for id := range ids {
		body = binary.LittleEndian.AppendUint64(body, id)
	}
	b, err := l.peers.Call(ctx, leader, callLetters, body)
	if err != nil {
		return nil, err
	}
	return numbers(b)
}

func (l *letters) wantedHere(ctx context.Context, g *state.Group, ids map[uint64]bool) (wanted []uint64, err error) {
	if err := errors.Join(l.d.state.SyncCatalogue(ctx), g.Linearize(ctx)); err != nil {
		return nil, err
	}
	l.d.state.Topics("", func(t *state.Topic) bool {
		if data := t.Data(); data != nil { // of other groups too: more than is asked for does no harm
			wanted = append(wanted, delivery.Wanted(data, ids)...)
		}
		return true
	})
	return wanted, nil
}

// answer tells another node what is wanted of its places.
func (l *letters) answer(ctx context.Context, _ string, body []byte) ([]byte, error) {
	if len(body) < 4 {
		return nil, errLetters
	}
	list, err := numbers(body[4:])
	if err != nil {
		return nil, err
	}
	g := l.d.state.Group(topics.GroupID(binary.LittleEndian.Uint32(body)))
	if g == nil {
		return nil, replication.ErrNotLeader
	}
	ids := map[uint64]bool{}
	for _, id := range list {
		ids[id] = true
	}
	wanted, err := l.wantedHere(ctx, g, ids)
	var out []byte
	for _, id := range wanted {
		out = binary.LittleEndian.AppendUint64(out, id)
	}
	return out, err
}

var errLetters = errors.New("a list of dead letters that can't be read")

func numbers(b []byte) (list []uint64, err error) {
	if len(b)%8 != 0 {
		return nil, errLetters
	}
	for ; len(b) > 0; b = b[8:] {
		list = append(list, binary.LittleEndian.Uint64(b))
	}
	return list, nil
}
