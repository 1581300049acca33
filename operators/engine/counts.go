package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Count is how often something happened in a step, in all the steps of the engine that
// are committed: "in", "out", "late", "error", and what nodes count.
type Count struct {
	Step string // the step's name, or the input's
	Name string
	N    uint64
}

// Counts returns what was counted, by step and name. What was counted for steps that
// are no more is left out.
func (i *Instance) Counts() (all []Count, err error) {
	names := map[uint16]string{}
	for n := range i.graph.Nodes {
		names[i.graph.Nodes[n].ID] = i.graph.Nodes[n].Name
	}
	for in := range i.graph.Inputs {
		names[uint16(0xffff-in)] = i.graph.Inputs[in].Name
	}
	err = i.store.Scan(metaCounts, after(metaCounts), func(key, v []byte) bool {
		rest := key[len(metaCounts):]
		n, used := binary.Uvarint(v)
		if len(rest) < 2 || used <= 0 {
			return true
		}
		if name, ok := names[binary.BigEndian.Uint16(rest)]; ok {
			all = append(all, Count{name, string(rest[2:]), n})
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("read the counts of operator %s: %w", i.graph.Name, err)
	}
	return all, nil
}

// measuredEvery is of how many steps one is measured.
const measuredEvery = 8

// Load is how much time a node took for how many calls, by records, timers and event time,
// of the steps that were measured: Calls by Busy is the true rate at which it works.
type Load struct {
	Step  string `json:"step"`
	Calls uint64 `json:"calls"`
	Busy  int64  `json:"busy_ns"`
}

// Loads returns what was measured since the instance was opened, by node.
func (i *Instance) Loads() []Load { return slices.Clone(i.exec.loads) }
