package spec

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/value"
)

// advertiseOwn are the fields of an advertisement that the operator decides.
var advertiseOwn = []string{"subject", "role", "durable", "lease", "lineage", "enforce", "exclusive", "examples"}

// advertise makes the advertisements of the outputs, without what only the broker knows: the
// subjects of topics whose outputs have none of their own.
func (c *compiler) advertise() {
	block := c.s.Advertise
	if block.IsNull() {
		return
	}
	fields := map[string]json.RawMessage{}
	if block.Kind() != value.Object || json.Unmarshal(value.AppendJSON(nil, block), &fields) != nil {
		c.problem(c.s.Operator.At, "advertise is a mapping like {summary: …, owner: {team: …}}")
		return
	}
	for _, own := range advertiseOwn {
		if _, said := fields[own]; said {
			c.problem(c.s.Operator.At, "advertise can't say %s: that is for the operator's outputs to decide", own)
		}
	}
	lineage := []string{}
	for i := range c.s.Inputs {
		lineage = append(lineage, c.s.Inputs[i].Topic.Text)
	}
	slices.Sort(lineage)
	set := func(to map[string]json.RawMessage, name string, v any) {
		to[name], _ = json.Marshal(v) // can't fail
	}
	set(fields, "lineage", slices.Compact(lineage))
	set(fields, "role", catalogue.Operates)
	set(fields, "lease", map[string]any{"mode": catalogue.LeasePermanent})
	set(fields, "operator", c.s.Operator.Text)
	if fields["owner"] == nil {
		set(fields, "owner", map[string]any{"service": c.s.Operator.Text, "version": c.s.Version})
	}
	if fields["summary"] == nil && c.s.Summary != "" {
		set(fields, "summary", c.s.Summary)
	}
	name := ""
	_ = json.Unmarshal(fields["name"], &name) // another kind is found below
	used := map[string]bool{}
	for i := range c.s.Outputs {
		o := &c.s.Outputs[i]
		a := graph.Advert{Topic: o.Topic.Text, Fields: map[string]json.RawMessage{}}
		for k, v := range fields {
			a.Fields[k] = v
		}
		if a.Fields["content_type"] == nil && o.Codec.Kind == "json" {
			set(a.Fields, "content_type", "application/json")
		}
		own := advertName(o)
		switch {
		case name != "" && len(c.s.Outputs) == 1:
			own = name
		case name != "":
			own = name + "." + own
		}
		for n := 2; used[own]; n++ {
			own = fmt.Sprintf("%s-%d", advertName(o), n)
		}
		used[own] = true
		set(a.Fields, "name", own)
		if s := advertSubject(o); s != "" {
			set(a.Fields, "subject", s)
		}
		c.checkAdvert(o, a)
		c.g.Adverts = append(c.g.Adverts, a)
	}
}

// checkAdvert tells what is wrong with an advertisement.
func (c *compiler) checkAdvert(o *Output, a graph.Advert) {
	if a.Fields["subject"] == nil {
		a = a.With("any")
	}
	body, _ := json.Marshal(a.Fields) // can't fail
	ad, f := catalogue.ParseAdvertisement(body)
	if f == nil {
		f = ad.Check()
	}
	if f != nil {
		c.problem(o.At, "the advertisement of this output: %s", f.Text)
	}
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

// advertName is the topic's name, or the tokens of a live subject that have no field.
func advertName(o *Output) string {
	if o.Topic.Set() {
		return o.Topic.Text
	}
	var tokens []string
	for _, t := range strings.Split(advertSubject(o), ".") {
		if t != "*" && !strings.Contains(t, "{") {
			tokens = append(tokens, t)
		}
	}
	if len(tokens) == 0 {
		return "live"
	}
	return strings.Join(tokens, ".")
}
