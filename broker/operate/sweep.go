package operate

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

func (e *Engine) dir(k unitKey) string {
	name := strconv.FormatUint(k.id, 10)
	if k.slot != 0 {
		name += "-" + strconv.FormatUint(uint64(k.slot), 10)
	}
	return filepath.Join(e.o.Dir, name)
}

// sweepProducers removes the producers of operators that are gone, on the leaders of
// their groups.
func (e *Engine) sweepProducers(there map[uint64]*catalogue.Operator) {
	if !e.runs() {
		return
	}
	for _, g := range e.state.Groups() {
		if !g.IsLeader() {
			continue
		}
		g.Store().Producers(func(id, _ uint64) bool {
			if id&topics.BurialProducer == 0 && there[id&^topics.OutboxBit&^savepointBit] == nil && e.isOver(id) {
				ctx, cancel := context.WithTimeout(e.ctx, time.Second)
				defer cancel()
				if _, err := g.DeclareProducer(ctx, id, 0); err != nil {
					e.o.Log.Debug("A producer that is gone could not be removed yet", "group", g.ID(), "producer", id, "error", err)
				}
			}
			return true
		})
	}
}

// outboxOver is for how long what an outbox has sent is still known once its operator is
// gone: a parcel that is under way then is not taken for a new one.
const outboxOver = time.Minute

// isOver tells whether a producer whose operator is gone can be forgotten.
func (e *Engine) isOver(id uint64) bool {
	if id&topics.OutboxBit == 0 { // unless it is new, and not known here yet
		ctx, cancel := context.WithTimeout(e.ctx, time.Second)
		defer cancel()
		return e.state.SyncCatalogue(ctx) == nil && e.operator(id) == nil
	}
	since, ok := e.over[id]
	if !ok {
		since = time.Now()
		e.over[id] = since
	}
	if time.Since(since) < outboxOver {
		return false
	}
	delete(e.over, id)
	return true
}

// sweepFiles removes, once, the state of instances that went while this node was down.
func (e *Engine) sweepFiles() {
	if e.swept {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, time.Second)
	defer cancel()
	if e.state.SyncCatalogue(ctx) != nil {
		return // it is tried again
	}
	e.swept = true
	list, err := os.ReadDir(e.o.Dir)
	if err != nil {
		return // there is nothing yet
	}
	for _, f := range list {
		name, _, _ := strings.Cut(f.Name(), ".") // of a shadow, or put aside
		k, ok := keyOf(name)
		if !ok {
			continue
		}
		if o := e.operator(k.id); o != nil && homeOf(o, k.slot) != 0 || e.unit(k, o) != nil {
			continue
		}
		e.o.Log.Info("The state of an operator's instance that is gone is removed", "dir", f.Name())
		if err := opstate.RemoveFolder(filepath.Join(e.o.Dir, f.Name())); err != nil {
			e.o.Log.Warn("The state of an operator's instance that is gone can't be removed", "dir", f.Name(), "error", err)
		}
	}
}

// keyOf is dir's way back.
func keyOf(name string) (k unitKey, ok bool) {
	id, slot, has := strings.Cut(name, "-")
	n, err := strconv.ParseUint(id, 10, 64)
	if err == nil && has {
		var s uint64
		s, err = strconv.ParseUint(slot, 10, 32)
		k.slot = uint32(s)
	}
	k.id = n
	return k, err == nil
}
