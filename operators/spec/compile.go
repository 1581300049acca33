package spec

import (
	"reflect"
	"strings"
	"time"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/schema"
)

// Options are what a file may refer to, and what went before.
type Options struct {
	Functions map[string]steps.Factory // process functions by name
	// IDs are those of the version that is replaced, by the name of the step: its
	// state stays where it is. See graph.Node.ID.
	IDs map[string]uint16
}

// compiler makes a graph of a spec.
type compiler struct {
	reporter
	s    *Spec
	o    Options
	env  *expr.Env
	g    *graph.Graph
	outs map[string]*outlet // by name of an input, a step, a branch, a side output
	ids  map[uint16]bool

	events   map[int]*expr.Program     // what finds an input's event time
	encoders map[int]*encoder          // by sink
	schemas  map[string]*schema.Schema // by digest
}

// outlet is something records can be taken from, and what is known of them.
type outlet struct {
	name      string
	connect   func(e graph.Edge)
	taken     bool
	at        Pos
	optional  bool // it needn't be taken: late records
	keyed     bool
	keys      []string // names of the key's fields
	changelog bool
	windows   bool                  // of windows: a row is told apart by its window too
	fields    map[string]bool       // of the value; nil: not known
	types     map[string]jsonSchema // of fields, where they are known
	whole     bool                  // all of fields are always there
	lag       time.Duration
	inputs    map[int]bool // whose records these are
}

// Compile makes the graph of a normalized spec. Warnings come with it; the error is
// Problems, the warnings included, and then there is no graph.
func Compile(s *Spec, o Options) (*graph.Graph, Problems, error) {
	env, err := expr.NewEnv(expr.Options{Clock: true})
	if err != nil {
		return nil, nil, err
	}
	c := &compiler{reporter: reporter{file: s.File}, s: s, o: o, env: env, outs: map[string]*outlet{}, ids: map[uint16]bool{}, events: map[int]*expr.Program{}, encoders: map[int]*encoder{}, schemas: map[string]*schema.Schema{}}
	c.g = &graph.Graph{
		Name: s.Operator.Text, Version: s.Version, Summary: s.Summary,
		Time:       eventtime.Config{Disorder: durationOr(s.Time.Disorder, 0), IdleAfter: durationOr(s.Time.IdleAfter, 0), MaxFuture: durationOr(s.Time.MaxFuture, 0)},
		Checkpoint: s.Checkpoint, Partitions: s.Partitions,
		State:  graph.StateConfig{Max: s.State.Max, Pebble: s.State.Backend == "pebble", Auto: s.State.Backend == "auto", TTL: s.State.TTL},
		Limits: graph.Limits{Records: s.Limits.Batch, Bytes: int(s.Limits.BatchBytes), Linger: s.Limits.Linger, InFlight: s.Limits.InFlight},
	}
	for i, name := range []string{"active", "passive", "upstream", "amnesia"} {
		if name == s.Recovery.Text {
			c.g.Recovery = graph.Recovery(i)
		}
	}
	for i, name := range []string{"auto", "delta", "replay"} {
		if name == s.Standby.Text {
			c.g.Standby = graph.StandbyMode(i)
		}
	}
	c.names()
	c.inputs()
	c.steps()
	c.outputs()
	c.errorsOut()
	c.finish()
	c.all.sort()
	if c.failed() {
		return nil, nil, c.all
	}
	c.g.JSON, c.g.Digest = s.JSON(), s.Digest()
	return c.g, c.all, nil
}

// schema compiles the schema of a codec that has one; those who have the same share it.
func (c *compiler) schema(codec Codec) *schema.Schema {
	if codec.Schema.Format == "" {
		return nil
	}
	digest := codec.Schema.Digest()
	if known := c.schemas[digest]; known != nil {
		return known
	}
	s, err := schema.Compile(codec.Schema)
	if err != nil {
		c.problem(codec.At, "codec: %v", err)
		return nil
	}
	c.schemas[digest] = s
	return s
}

// nameMax is how long a name may be.
const nameMax = 64

func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && c != '-' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= nameMax
}

// names checks the names of everything.
func (c *compiler) names() {
	if !validName(c.s.Operator.Text) {
		c.problem(c.s.Operator.At, "an operator's name is 1 to %d letters, digits, - and _, not %q", nameMax, c.s.Operator.Text)
	}
	if len(c.s.Inputs) == 0 {
		c.problem(Pos{}, "an operator has an input")
	}
	seen := map[string]string{}
	check := func(kind, name string, at Pos) {
		if !validName(name) {
			c.problem(at, "a name is 1 to %d letters, digits, - and _, not %q", nameMax, name)
		}
		if other, twice := seen[name]; twice {
			c.problem(at, "%s is the name of %s already", name, other)
		}
		seen[name] = kind
	}
	for i := range c.s.Inputs {
		check("an input", c.s.Inputs[i].Name, c.s.Inputs[i].At)
	}
	for i := range c.s.Steps {
		check("a step", c.s.Steps[i].Name, c.s.Steps[i].At)
	}
}

// compile compiles an expression; nil where it is wrong.
func (c *compiler) compile(e Expr, from *outlet, match bool) *expr.Program {
	var p *expr.Program
	var err error
	if match {
		p, err = c.env.CompileMatch(e.Text)
	} else {
		p, err = c.env.Compile(e.Text)
	}
	if err != nil {
		bad, ok := err.(*expr.Error) //nolint:errorlint // documented to be that very type
		if !ok {
			c.problem(e.At, "%v", err)
			return nil
		}
		for _, one := range bad.Problems {
			at := e.At
			if at.Line > 0 && one.Line > 1 {
				at = Pos{at.Line + one.Line - 1, one.Column}
			} else if at.Line > 0 {
				at.Column += one.Column - 1
			}
			c.problem(at, "expression %s: %s", e.Text, strings.ReplaceAll(one.Message, "\n", " "))
		}
		return nil
	}
	c.knows(e, p, from)
	return p
}

// knows tells of fields that what comes in can't have.
func (c *compiler) knows(e Expr, p *expr.Program, from *outlet) {
	if from == nil || from.fields == nil {
		return
	}
	for _, name := range p.Needs() {
		if !from.fields[name] {
			known := sortedNames(from.fields)
			hint := meant(name, known)
			if hint == "" {
				hint = "; it has " + listed(known)
			}
			c.problem(e.At, "what comes from %s has no field %s%s", from.name, name, hint)
		}
	}
}

// fields compiles named expressions.
func (c *compiler) fields(list []Field, from *outlet) []steps.Named {
	out := make([]steps.Named, 0, len(list))
	for _, f := range list {
		if p := c.compile(f.Expr, from, false); p != nil {
			out = append(out, steps.Named{Name: f.Name, Expr: p})
		}
	}
	return out
}

func (c *compiler) key(by []Field, from *outlet) (*steps.Key, []string) {
	k := &steps.Key{}
	var names []string
	for _, f := range namedKey(by) {
		if p := c.compile(f.Expr, from, false); p != nil {
			k.By = append(k.By, p)
		}
		names = append(names, f.Name)
	}
	return k, names
}

// policy returns a step's policy.
func (c *compiler) policy(own *Errors) graph.Policy {
	name := c.s.Errors.Policy
	if own != nil && own.Policy != "" {
		name = own.Policy
	}
	switch name {
	case "skip":
		return graph.Skip
	case "dead-letter":
		return graph.DeadLetter
	}
	return graph.Stop
}

// take returns an outlet by name, and notes that it is taken.
func (c *compiler) take(name Expr, who string) *outlet {
	o := c.outs[name.Text]
	if o == nil {
		var known []string
		for n := range c.outs {
			known = append(known, n)
		}
		hint := meant(name.Text, sorted(known))
		if hint == "" {
			hint = "; there are " + listed(sorted(known))
		}
		c.problem(name.At, "%s takes from %q, which is no input and no step%s", who, name.Text, hint)
		return nil
	}
	o.taken = true
	return o
}

// node adds a node and gives its outlet of port 0, with what is known of from.
func (c *compiler) node(st *Step, name, kind string, n stream.Node, class stream.Class, from ...*outlet) (int, *outlet) {
	i := len(c.g.Nodes)
	node := graph.Node{
		Name: name, Kind: kind, Node: n, Class: class, Policy: c.policy(st.OnError),
		Outs: make([][]graph.Edge, 1), Sides: map[string][]graph.Edge{}, Config: kind + " " + st.config(),
	}
	out := &outlet{name: name, at: st.At, inputs: map[int]bool{}}
	for p, f := range from {
		if p == 0 {
			out.keyed, out.keys, out.changelog, out.windows = f.keyed, f.keys, f.changelog, f.windows
			out.holds(f.fields, f.types, f.whole)
		} else {
			out.meet(f)
		}
		node.Lag = max(node.Lag, f.lag)
		for in := range f.inputs {
			out.inputs[in] = true
		}
	}
	out.lag = node.Lag
	node.Keyed = out.keyed
	out.connect = c.port(i, 0)
	c.g.Nodes = append(c.g.Nodes, node)
	return i, out
}

// holds says which fields records have.
func (out *outlet) holds(fields map[string]bool, types map[string]jsonSchema, whole bool) {
	out.fields, out.types, out.whole = fields, types, whole
}

// meet keeps what is known of both.
func (out *outlet) meet(f *outlet) {
	out.keyed = out.keyed && f.keyed
	out.changelog = out.changelog || f.changelog
	out.windows = out.windows || f.windows
	if strings.Join(out.keys, "\x00") != strings.Join(f.keys, "\x00") {
		out.keys = nil
	}
	if out.fields == nil || f.fields == nil {
		out.holds(nil, nil, false)
		return
	}
	both, types := map[string]bool{}, map[string]jsonSchema{}
	for n := range out.fields {
		if !f.fields[n] {
			continue
		}
		both[n] = true
		if reflect.DeepEqual(out.types[n], f.types[n]) {
			types[n] = out.types[n]
		}
	}
	out.holds(both, types, out.whole && f.whole)
}

// port returns what connects an output port of a node.
func (c *compiler) port(node, port int) func(e graph.Edge) {
	return func(e graph.Edge) {
		outs := &c.g.Nodes[node].Outs
		for len(*outs) <= port {
			*outs = append(*outs, nil)
		}
		(*outs)[port] = append((*outs)[port], e)
	}
}

// side makes a node's side output an outlet, and connects it to a subject where one is
// said.
func (c *compiler) side(node int, st *Step, from *outlet, side string, to Expr) {
	o := *from
	o.name, o.optional, o.taken, o.at = st.Name+"."+side, true, false, st.At
	o.connect = func(e graph.Edge) {
		s := c.g.Nodes[node].Sides
		s[side] = append(s[side], e)
	}
	c.outs[o.name] = &o
	if to.Set() {
		o.connect(graph.ToSink(c.subjectSink(side+" of "+st.Name, to)))
	}
}
