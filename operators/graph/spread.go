package graph

import (
	"fmt"
	"slices"
)

// A graph can be run by several instances, each of which has a share of the keys. Every
// instance reads all inputs and runs the steps without state in front of the key; then each
// record is left to the one whose share its key is in.

// Stateless tells whether what the node gives follows from the record alone.
func (n *Node) Stateless() bool {
	switch n.Kind {
	case "filter", "assert", "map", "project", "flatmap", "key", "union", "split", "table":
		return true
	}
	return false
}

// Rekeys tells whether the node gives records another key.
func (n *Node) Rekeys() bool { return n.Kind == "key" || n.Kind == "table" }

// Behind returns, by node, whether one that f picks can be reached from it, or is it.
func (g *Graph) Behind(f func(n *Node) bool) []bool {
	found := make([]bool, len(g.Nodes))
	for i := len(g.Nodes) - 1; i >= 0; i-- { // each is behind those whose records it takes
		n := &g.Nodes[i]
		found[i] = f(n)
		for _, e := range n.edges() {
			found[i] = found[i] || e.Node >= 0 && found[e.Node]
		}
	}
	return found
}

func (n *Node) edges() []Edge {
	all := slices.Concat(n.Outs...)
	for _, side := range n.Sides {
		all = append(all, side...)
	}
	return all
}

// Unspreadable tells why the graph can't be run by several instances, and which step is in
// the way; "" where it can.
func (g *Graph) Unspreadable() (step, why string) {
	keyed := false
	rekeyed := g.Behind((*Node).Rekeys)
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case n.Stateless():
			continue
		case !n.Keyed:
			return n.Name, fmt.Sprintf("step %s keeps its state in one place, for all records: put a key step in front of it", n.Name)
		case rekeyed[i]:
			return n.Name, fmt.Sprintf("behind step %s, which keeps state by a key, records get another key: what one instance has would belong to another; put the steps behind the second key into an operator of their own", n.Name)
		}
		keyed = true
	}
	if !keyed {
		return "", "no step keeps state by a key, so there is nothing to spread"
	}
	return "", ""
}
