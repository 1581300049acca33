package asyncapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// JSON and YAML nodes, with the order of keys and the spelling of numbers kept: digests
// of schemas depend on both.

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// object is a mapping that is filled in order.
type object struct{ *yaml.Node }

func newObject() object { return object{&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}} }

func (o object) set(key string, v *yaml.Node) {
	o.Content = append(o.Content, text(key), v)
}

// setText sets what is not empty.
func (o object) setText(key, v string) {
	if v != "" {
		o.set(key, text(v))
	}
}

func (o object) empty() bool { return len(o.Content) == 0 }

// toNode reads one JSON value.
func toNode(raw json.RawMessage) (*yaml.Node, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return readValue(d)
}

func readValue(d *json.Decoder) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := t.(type) {
	case json.Delim:
		return readMany(d, v)
	case string:
		return text(v), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: numberTag(v.String()), Value: v.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

func numberTag(s string) string {
	if bytes.ContainsAny([]byte(s), ".eE") {
		return "!!float"
	}
	return "!!int"
}

func readMany(d *json.Decoder, open json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if open == '{' {
		n = newObject().Node
	}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, text(fmt.Sprint(key)))
		}
		v, err := readValue(d)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, v)
	}
	_, err := d.Token()
	return n, err
}

// The bounds of what is read: an alias may refer to what contains it, or to what refers to
// what refers on, many times each.
const (
	levelsMax = 200
	jsonMax   = 4 << 20 // bytes that one value may become
)

// toJSON writes a node as JSON without white space.
func toJSON(n *yaml.Node) (json.RawMessage, error) { return appendJSON(nil, n, 0) }

func appendJSON(b []byte, n *yaml.Node, level int) ([]byte, error) {
	if level > levelsMax || len(b) > jsonMax {
		return nil, fmt.Errorf("line %d: too many levels, or too long", n.Line)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return appendJSON(b, n.Alias, level+1)
	case yaml.DocumentNode:
		return appendJSON(b, n.Content[0], level+1)
	case yaml.MappingNode:
		return appendObject(b, n, level)
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, c := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = appendJSON(b, c, level+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case yaml.ScalarNode:
		return appendScalar(b, n)
	}
	return nil, errors.New("an empty document")
}

func appendObject(b []byte, n *yaml.Node, level int) ([]byte, error) {
	b = append(b, '{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			return nil, fmt.Errorf("line %d: keys must be plain words", k.Line)
		}
		b = appendString(b, k.Value)
		b = append(b, ':')
		var err error
		if b, err = appendJSON(b, n.Content[i+1], level+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendString writes a string as JSON does, but <, > and & as they are.
func appendString(b []byte, s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // texts always encode
		return append(b, `""`...)
	}
	return append(b, bytes.TrimRight(out.Bytes(), "\n")...)
}

func appendScalar(b []byte, n *yaml.Node) ([]byte, error) {
	switch n.Tag {
	case "!!null":
		return append(b, "null"...), nil
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		return strconv.AppendBool(b, v), nil
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(b, n.Value...), nil
		}
		var v float64
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		out, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s is no number of JSON", n.Line, n.Value)
		}
		return append(b, out...), nil
	}
	return appendString(b, n.Value), nil
}

// get returns the value of a key of a mapping, nil when there is none. References within
// the document are followed.
func (d *document) get(n *yaml.Node, key string) *yaml.Node {
	n = d.resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return d.resolve(n.Content[i+1])
		}
	}
	return nil
}

// word is the text of a key, "" when there is none.
func (d *document) word(n *yaml.Node, key string) string {
	if v := d.get(n, key); v != nil && v.Kind == yaml.ScalarNode && v.Tag != "!!null" {
		return v.Value
	}
	return ""
}
