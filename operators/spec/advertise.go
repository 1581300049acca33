package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/value"
)

// advertiseOwn are the fields of an advertisement that the operator decides.
var advertiseOwn = []string{
	"subject", "role", "durable", "lease", "lineage", "enforce", "exclusive", "examples",
	catalogue.FieldOperator, catalogue.FieldImplicit, catalogue.FieldDerived,
}

// advertFields are those of an advertisement.
type advertFields map[string]json.RawMessage

func (f advertFields) set(name string, v any) { f[name], _ = json.Marshal(v) } // can't fail

// or sets a field that nobody has said.
func (f advertFields) or(name string, v any) {
	if f[name] == nil {
		f.set(name, v)
	}
}

func (f advertFields) text(name string) (s string) {
	_ = json.Unmarshal(f[name], &s) // another kind is found by the check
	return s
}

// advertise makes the advertisements of the outputs, without what only the broker knows: the
// subjects of topics whose outputs have none of their own.
func (c *compiler) advertise() {
	all, ok := c.advertBlock(c.s.Advertise, c.s.Operator.At)
	if !ok {
		return
	}
	used := map[string]bool{}
	for i := range c.s.Outputs {
		o := &c.s.Outputs[i]
		own, ok := c.advertBlock(o.Advertise, o.At)
		says := o.Advertise
		if says.IsNull() {
			says = c.s.Advertise
		}
		if !ok || says.Kind() == value.Bool && !says.Bool() {
			continue
		}
		fields := advertFields{}
		if o.Advertise.Kind() != value.Bool { // true: as if nobody had said anything
			maps.Copy(fields, all)
		}
		maps.Copy(fields, own)
		name := c.advertNamed(o, own.text("name"), fields.text("name"), used)
		used[name] = true
		a := graph.Advert{Output: c.sinkName(o), Topic: o.Topic.Text, Implicit: len(fields) == 0}
		c.advertFill(o, name, fields, a.Implicit)
		a.Fields = fields
		if why := checkAdvert(a); why != "" && !a.Implicit {
			c.problem(o.At, "the advertisement of this output: %s", why)
		} else {
			a.Why = why
		}
		c.g.Adverts = append(c.g.Adverts, a)
	}
}

// advertBlock is what advertise says, of the operator or of an output.
func (c *compiler) advertBlock(block value.Value, at Pos) (advertFields, bool) {
	if block.Kind() == value.Bool || block.IsNull() {
		return nil, true
	}
	fields := advertFields{}
	if block.Kind() != value.Object || json.Unmarshal(value.AppendJSON(nil, block), &fields) != nil {
		c.problem(at, "advertise is a mapping like {summary: …, owner: {team: …}}, or false")
		return nil, false
	}
	for _, own := range advertiseOwn {
		if _, said := fields[own]; said {
			c.problem(at, "advertise can't say %s: that is for the operator's outputs to decide", own)
		}
	}
	return fields, true
}

// advertFill says what the output decides, and what nobody has said.
func (c *compiler) advertFill(o *Output, name string, fields advertFields, implicit bool) {
	fields.set("name", name)
	fields.set("lineage", c.lineage(o))
	fields.set("role", catalogue.Operates)
	fields.set("lease", map[string]any{"mode": catalogue.LeasePermanent})
	fields.set(catalogue.FieldOperator, c.s.Operator.Text)
	if implicit {
		fields.set(catalogue.FieldImplicit, true)
	}
	owner := map[string]any{"service": c.s.Operator.Text}
	if c.s.Version != "" {
		owner["version"] = c.s.Version
	}
	fields.or("owner", owner)
	summary := c.s.Summary
	if summary == "" {
		summary = fmt.Sprintf("output %s of operator %s", c.sinkName(o), c.s.Operator.Text)
	}
	fields.or("summary", summary)
	if o.Codec.Kind == "json" {
		fields.or("content_type", "application/json")
	}
	if o.Key.Set() {
		fields.or("key", map[string]any{"header": "Herald-Key"})
	}
	if s := advertSubject(o); s != "" {
		fields.set("subject", s)
	}
	if derived := c.derived(o, c.outs[o.From.Text]); derived != nil && fields["schema"] == nil {
		fields.set(catalogue.FieldDerived, derived)
	}
}

// sinkName is how an output is called: by its topic, or its live subject.
func (c *compiler) sinkName(o *Output) string {
	if o.Live.Set() {
		return o.Live.Text
	}
	return o.Topic.Text
}

// lineage is what an output is made from: the topics of the inputs that lead to it, with
// their subjects where not all are read.
func (c *compiler) lineage(o *Output) []string {
	all := []string{}
	for i := range c.s.Inputs {
		if from := c.outs[o.From.Text]; from != nil && !from.inputs[i] {
			continue
		}
		all = append(all, c.s.Inputs[i].Topic.Text)
		all = append(all, c.s.Inputs[i].Subjects...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkAdvert tells what is wrong with an advertisement.
func checkAdvert(a graph.Advert) string {
	if a.Fields["subject"] == nil {
		a = a.With("any")
	}
	body, _ := json.Marshal(a.Fields) // can't fail
	ad, f := catalogue.ParseAdvertisement(body)
	if f == nil {
		f = ad.Check()
	}
	if f != nil {
		return f.Text
	}
	return ""
}

var wholeField = regexp.MustCompile(`^\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// advertSubject is what an output publishes on, its fields as named tokens where they have
// a name; "": what the topic says.
func advertSubject(o *Output) string {
	text := o.Subject.Text
	if o.Live.Set() {
		text = o.Live.Text
	}
	if text == "" {
		return ""
	}
	var tokens []string
	for _, t := range strings.Split(braces.ReplaceAllStringFunc(text, func(f string) string {
		return strings.ReplaceAll(f, ".", "\x00") // a point in an expression divides nothing
	}), ".") {
		if strings.Contains(t, "{") && !wholeField.MatchString(t) {
			t = "*"
		}
		tokens = append(tokens, t)
	}
	return strings.Join(tokens, ".")
}

// advertNamed is what an output's advertisement is called: as the output says; else after the
// output, behind what the operator says, where it has several.
func (c *compiler) advertNamed(o *Output, own, said string, used map[string]bool) string {
	name := advertName(o)
	switch {
	case own != "":
		return own
	case said != "" && len(c.s.Outputs) == 1:
		name = said
	case said != "":
		name = said + "." + name
	}
	first := name
	for n := 2; used[name]; n++ {
		name = fmt.Sprintf("%s-%d", first, n)
	}
	return name
}

// notInName is what can't stand in an advertisement's name.
var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// advertName is the topic's name, or the tokens of a live subject that have no field.
func advertName(o *Output) string {
	if o.Topic.Set() {
		return notInName.ReplaceAllString(o.Topic.Text, "_")
	}
	var tokens []string
	for _, t := range strings.Split(advertSubject(o), ".") {
		if t != "*" && !strings.Contains(t, "{") {
			tokens = append(tokens, notInName.ReplaceAllString(t, "_"))
		}
	}
	if len(tokens) == 0 {
		return "live"
	}
	return strings.Join(tokens, ".")
}
