package engine

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
)

// Next returns the clock at which Run has something to do though nothing arrives: an
// input becomes idle, a timer is due, or event time, which then goes on with the clock,
// reaches one. stream.TimeMax: never.
func (i *Instance) Next() (stream.Time, error) {
	for kind := range i.now.timers {
		if i.now.timers[kind] != stream.TimeMin {
			continue
		}
		var from state.Reader = i.store
		if n := len(i.open); n > 0 {
			from = i.open[n-1].overlay
		}
		key, _, ok, err := state.First(from, []byte{spaceTimer, byte(kind)}, []byte{spaceTimer, byte(kind) + 1})
		if err != nil {
			return 0, fmt.Errorf("look for timers of operator %s: %w", i.graph.Name, err)
		}
		if i.now.timers[kind] = stream.TimeMax; ok {
			i.now.timers[kind] = timerTime(key)
		}
	}
	t := i.now.tracker
	return min(t.Next(), i.now.timers[stream.Processing], t.Due(i.now.timers[stream.EventTime])), nil
}

// OfNode tells whose state a key of an instance's store is: the place of a node; with
// own, the engine's.
func OfNode(key []byte) (node uint16, own bool) {
	switch {
	case len(key) >= 5 && key[0] == spaceState:
		return uint16(key[3])<<8 | uint16(key[4]), false
	case len(key) >= timerHead && key[0] == spaceTimer:
		return uint16(key[10])<<8 | uint16(key[11]), false
	}
	return 0, true
}

// Keeps returns what state.Durable.Retain asks: which keys go on with a graph whose steps at
// these places keep their state. until is where the keys end that share a key's fate.
func Keeps(nodes []uint16) func(key []byte) (stays bool, until []byte) {
	return func(key []byte) (bool, []byte) {
		node, own := OfNode(key)
		switch {
		case own:
			return Own(key), nil
		case !slices.Contains(nodes, node):
			return false, nil
		case key[0] == spaceState:
			return true, after(key[:5])
		}
		return true, nil
	}
}

// Own tells whether a key is one of those that the engine keeps for itself and that go
// on with another graph: its clock, how far it has read and what waits to be sent.
func Own(key []byte) bool {
	for _, own := range [][]byte{metaClock, metaTracker, metaInputs, metaHollow, metaPlaces, metaRollback} {
		if bytes.Equal(key, own) {
			return true
		}
	}
	return IsOutbox(key)
}
