package spec

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/topics/value"
)

// FileMax is how big a file may be.
const FileMax = 1 << 20

// reader decodes YAML nodes and reports what is wrong with them.
type reader struct{ reporter }

func at(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

// inside is the place of the first letter of a scalar's text.
func inside(n *yaml.Node) Pos {
	p := at(n)
	switch n.Style {
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		p.Column++
	case yaml.LiteralStyle, yaml.FoldedStyle:
		p.Line, p.Column = p.Line+1, 1
	}
	return p
}

var yamlLine = regexp.MustCompile(`line (\d+): (.*)`)

var yamlParser = regexp.MustCompile(`^did not find expected ([',-]|key|node content|<)`)

// document reads the one document of a file.
func (d *reader) document(text []byte) *yaml.Node {
	if len(text) > FileMax {
		d.problem(Pos{1, 1}, "the file has %d bytes, the most is %d", len(text), FileMax)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var n, more yaml.Node
	if err := dec.Decode(&n); err != nil {
		if errors.Is(err, io.EOF) {
			d.problem(Pos{1, 1}, "the file is empty: an operator begins with operator: NAME")
			return nil
		}
		p, what := Pos{1, 1}, strings.TrimPrefix(err.Error(), "yaml: ")
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			what = m[2]
			if yamlParser.MatchString(what) {
				p.Line++ // what isn't found while parsing is told with lines counted from 0
			}
		}
		if strings.Contains(what, "mapping values are not allowed") {
			what += "; a text with a colon and a space in it must be quoted: 'max(place, by: mag)'"
		}
		if strings.Contains(what, "did not find expected ',' or '}'") && strings.Contains(string(text), "?") {
			what += "; within braces a text with a question mark in it must be quoted: 'right.?name'"
		}
		d.problem(p, "this is no YAML: %s", what)
		return nil
	}
	if err := dec.Decode(&more); err == nil {
		d.problem(at(&more), "a second document: a file holds one operator")
		return nil
	}
	return n.Content[0]
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

// key is a key of a mapping that may be there, and what reads it.
type key struct {
	name string
	read func(n *yaml.Node)
}

// mapping reads a mapping of known keys. want says what it is.
func (d *reader) mapping(n *yaml.Node, want string, keys ...key) {
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), "%s is a mapping, not %s", want, kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if seen[k.Value] {
			d.problem(at(k), "%s is there twice", k.Value)
			continue
		}
		seen[k.Value] = true
		found := false
		var names []string
		for j := range keys {
			names = append(names, keys[j].name)
			if keys[j].name == k.Value {
				keys[j].read(v)
				found = true
			}
		}
		if !found {
			hint := meant(k.Value, names)
			if hint == "" {
				hint = "; it can have " + listed(names)
			}
			d.problem(at(k), "%s has no %q%s", want, k.Value, hint)
		}
	}
}

func has(n *yaml.Node, name string) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

// text reads a scalar as it is written.
func (d *reader) text(n *yaml.Node, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		d.problem(at(n), "%s is a text, not %s", want, kindOf(n))
		return "", false
	}
	return n.Value, true
}

func (d *reader) str(to *string, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) { *to, _ = d.text(n, want) }
}

func (d *reader) expr(to *Expr, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := d.text(n, want)
		if ok && strings.TrimSpace(s) == "" {
			d.problem(at(n), "%s is empty", want)
		}
		*to = Expr{s, inside(n)}
	}
}

func (d *reader) choice(to *string, want string, choices ...string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		s, ok := d.text(n, want)
		if !ok {
			return
		}
		for _, c := range choices {
			if s == c {
				*to = s
				return
			}
		}
		hint := meant(s, choices)
		if hint == "" {
			hint = "; it is " + listed(choices)
		}
		d.problem(at(n), "%s can't be %q%s", want, s, hint)
	}
}

func (d *reader) boolean(to *bool, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.Decode(to) != nil {
			d.problem(at(n), "%s is true or false, not %s", want, kindOf(n))
		}
	}
}

func (d *reader) integer(to *int, want string, least, most int) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		i, err := strconv.Atoi(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode || err != nil:
			d.problem(at(n), "%s is a whole number, not %s", want, kindOf(n))
		case i < least || i > most:
			d.problem(at(n), "%s is from %d to %d, not %d", want, least, most, i)
		default:
			*to = i
		}
	}
}

var dayUnit = regexp.MustCompile(`^(\d+)d`)

// ParseDuration reads a duration as Go writes it, with days in front: 1d12h. A bare 0
// is one too.
func ParseDuration(s string) (time.Duration, error) {
	days := time.Duration(0)
	if m := dayUnit.FindStringSubmatch(s); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 32)
		if err != nil || n > 100_000 {
			return 0, errors.New("too many days")
		}
		days = time.Duration(n) * 24 * time.Hour
		if s = s[len(m[0]):]; s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	return days + d, err
}

// duration reads a duration that is at least least.
func (d *reader) duration(to *time.Duration, want string, least time.Duration) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		v, err := ParseDuration(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode || err != nil:
			d.problem(at(n), "%s is a duration like 10s, 5m, 1h or 7d, not %s", want, kindOf(n))
		case v < least:
			d.problem(at(n), "%s is at least %v, not %v", want, least, v)
		default:
			*to = v
		}
	}
}

func (d *reader) durationPtr(to **time.Duration, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		*to = new(time.Duration)
		d.duration(*to, want, 0)(n)
	}
}

var sizeText = regexp.MustCompile(`^(\d+)\s*(B|KiB|MiB|GiB|TiB)?$`)

func (d *reader) size(to *int64, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		m := sizeText.FindStringSubmatch(n.Value)
		if n.Kind != yaml.ScalarNode || m == nil {
			d.problem(at(n), "%s is a size like 256MiB, not %s", want, kindOf(n))
			return
		}
		v, ok := parseSize(m)
		if !ok {
			d.problem(at(n), "%s is too big: %s", want, n.Value)
			return
		}
		*to = v
	}
}

// items reads a list, or one item that stands for a list of it.
func items(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

func (d *reader) strs(to *[]string, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		for _, item := range items(n) {
			if s, ok := d.text(item, want); ok {
				*to = append(*to, s)
			}
		}
	}
}

func (d *reader) exprs(to *[]Expr, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		for _, item := range items(n) {
			var e Expr
			d.expr(&e, want)(item)
			*to = append(*to, e)
		}
	}
}

// fields reads a mapping of names to expressions, in its order.
func (d *reader) fields(to *[]Field, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
			d.problem(at(n), "%s is a mapping of names to expressions, not %s", want, kindOf(n))
			return
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			f := Field{Name: n.Content[i].Value}
			if v := n.Content[i+1]; v.Tag == "!!null" && strings.Count(f.Name, ")") > strings.Count(f.Name, "(") {
				d.problem(at(n.Content[i]), "%s %s has no expression: in braces, one with a comma in it must be quoted: {strongest: 'max(place, by: mag)'}", want, f.Name)
				continue
			}
			d.expr(&f.Expr, want+" "+f.Name)(n.Content[i+1])
			if seen[f.Name] {
				d.problem(at(n.Content[i]), "%s is there twice", f.Name)
			}
			seen[f.Name] = true
			*to = append(*to, f)
		}
	}
}

// keyBy reads a key: an expression, a list of them, or a mapping of names to them.
func (d *reader) keyBy(to *[]Field, want string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			d.fields(to, want)(n)
			return
		}
		for _, item := range items(n) {
			var f Field
			d.expr(&f.Expr, want)(item)
			*to = append(*to, f)
		}
		if len(*to) == 0 {
			d.problem(at(n), "%s is an empty list", want)
		}
	}
}

// data reads anything as a value: as JSON would say it.
func (d *reader) data(n *yaml.Node) value.Value {
	switch n.Kind {
	case yaml.MappingNode:
		var list []value.Field
		for i := 0; i+1 < len(n.Content); i += 2 {
			list = append(list, value.Field{Name: n.Content[i].Value, Value: d.data(n.Content[i+1])})
		}
		return value.OfObject(list...)
	case yaml.SequenceNode:
		list := []value.Value{}
		for _, item := range n.Content {
			list = append(list, d.data(item))
		}
		return value.OfList(list)
	case yaml.AliasNode:
		d.problem(at(n), "an alias can't stand here: write it out")
		return value.Value{}
	}
	switch n.Tag {
	case "!!null":
		return value.Value{}
	case "!!bool":
		var b bool
		_ = n.Decode(&b) // the tag says that it is one
		return value.OfBool(b)
	case "!!int", "!!float":
		if v, err := value.Parse([]byte(n.Value), value.Options{}); err == nil {
			return v
		}
		d.problem(at(n), "%s is no number in JSON; quote it where it is a text", n.Value)
	}
	return value.OfString(n.Value)
}
