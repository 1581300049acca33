package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/heraldmq/herald/operators/graph"
)

// DrawFormats are what Draw knows.
func DrawFormats() []string { return []string{"text", "mermaid", "dot"} }

// Draw draws a graph, as text for a terminal, or for Mermaid or Graphviz; ok is false
// where the format isn't known.
func Draw(g *graph.Graph, format string) (text string, ok bool) {
	d := &drawing{g: g}
	switch format {
	case "text":
		return d.text(), true
	case "mermaid":
		return d.lines("flowchart LR\n", "  %s[%q]\n", "  %s -->%s %s\n", func(l string) string { return "|" + l + "|" }, ""), true
	case "dot":
		return d.lines("digraph {\n  rankdir=LR; node [shape=box];\n", "  %s [label=%q];\n", "  %s -> %[3]s%[2]s;\n", func(l string) string { return fmt.Sprintf(" [label=%q]", l) }, "}\n"), true
	}
	return "", false
}

// drawing lists the boxes and arrows of a graph.
type drawing struct{ g *graph.Graph }

type arrow struct{ from, to, label string }

func (d *drawing) to(e graph.Edge) string {
	if e.Node < 0 {
		return fmt.Sprintf("o%d", e.Port)
	}
	return fmt.Sprintf("n%d", e.Node)
}

func (d *drawing) arrows() (all []arrow) {
	for i := range d.g.Inputs {
		for _, e := range d.g.Inputs[i].Out {
			all = append(all, arrow{fmt.Sprintf("i%d", i), d.to(e), ""})
		}
	}
	for i := range d.g.Nodes {
		n := &d.g.Nodes[i]
		for port, edges := range n.Outs {
			label := ""
			if len(n.Outs) > 1 {
				label = fmt.Sprint(port)
			}
			for _, e := range edges {
				all = append(all, arrow{fmt.Sprintf("n%d", i), d.to(e), label})
			}
		}
		for _, side := range slices.Sorted(maps.Keys(n.Sides)) {
			for _, e := range n.Sides[side] {
				all = append(all, arrow{fmt.Sprintf("n%d", i), d.to(e), side})
			}
		}
	}
	return all
}

func (d *drawing) boxes() (ids []string, labels map[string]string) {
	labels = map[string]string{}
	put := func(id, label string) { ids, labels[id] = append(ids, id), label }
	for i := range d.g.Inputs {
		put(fmt.Sprintf("i%d", i), "input "+d.g.Inputs[i].Name)
	}
	for i := range d.g.Nodes {
		n := &d.g.Nodes[i]
		put(fmt.Sprintf("n%d", i), n.Kind+" "+n.Name)
	}
	for i := range d.g.Sinks {
		put(fmt.Sprintf("o%d", i), "output "+d.g.Sinks[i].Name)
	}
	return ids, labels
}

func (d *drawing) lines(head, box, line string, label func(string) string, foot string) string {
	var b strings.Builder
	b.WriteString(head)
	ids, labels := d.boxes()
	for _, id := range ids {
		fmt.Fprintf(&b, box, id, labels[id])
	}
	for _, a := range d.arrows() {
		text := ""
		if a.label != "" {
			text = label(a.label)
		}
		fmt.Fprintf(&b, line, a.from, text, a.to)
	}
	b.WriteString(foot)
	return b.String()
}

// text lists each box with where it leads, and what is known of steps.
func (d *drawing) text() string {
	var b strings.Builder
	ids, labels := d.boxes()
	next := map[string][]string{}
	for _, a := range d.arrows() {
		name := strings.SplitN(labels[a.to], " ", 2)[0] + " " + labels[a.to][strings.LastIndex(labels[a.to], " ")+1:]
		if a.label != "" {
			name += " (" + a.label + ")"
		}
		next[a.from] = append(next[a.from], name)
	}
	for _, id := range ids {
		about := ""
		if id[0] == 'n' {
			var i int
			_, _ = fmt.Sscanf(id, "n%d", &i) // it was written so
			about = "  [" + d.g.Nodes[i].Class.String() + "]"
		}
		fmt.Fprintf(&b, "%s%s\n", labels[id], about)
		for _, n := range next[id] {
			fmt.Fprintf(&b, "  └► %s\n", n)
		}
	}
	return b.String()
}
