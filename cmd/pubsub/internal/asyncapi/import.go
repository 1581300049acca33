package asyncapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/client"
)

// document is one that is being read.
type document struct{ root *yaml.Node }

// Is tells whether a text (YAML or JSON) is an AsyncAPI document, rather than an
// advertisement.
func Is(doc []byte) bool {
	var head struct {
		AsyncAPI string `yaml:"asyncapi"`
	}
	return yaml.Unmarshal(doc, &head) == nil && head.AsyncAPI != ""
}

// Import reads the advertisements of a document: one for each operation, and one for each
// channel that has none.
func Import(doc []byte) ([]client.Advertisement, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	d := &document{&root}
	if root.Kind == yaml.DocumentNode {
		d.root = root.Content[0]
	}
	if v := d.word(d.root, "asyncapi"); !strings.HasPrefix(v, "3.") {
		return nil, fmt.Errorf("AsyncAPI %q is not read, only 3.x: convert it with asyncapi convert", v)
	}
	var ads []client.Advertisement
	used := map[*yaml.Node]bool{}
	operations := d.get(d.root, "operations")
	if operations != nil && operations.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(operations.Content); i += 2 {
			id, op := operations.Content[i].Value, d.resolve(operations.Content[i+1])
			channel := d.get(op, "channel")
			if channel == nil {
				return nil, fmt.Errorf("operation %s: its channel is not in the document", id)
			}
			used[channel] = true
			ad, err := d.advertisement(id, channel, op)
			if err != nil {
				return nil, fmt.Errorf("operation %s: %w", id, err)
			}
			ads = append(ads, *ad)
		}
	}
	channels := d.get(d.root, "channels")
	if channels != nil && channels.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(channels.Content); i += 2 {
			id, channel := channels.Content[i].Value, d.resolve(channels.Content[i+1])
			if used[channel] {
				continue
			}
			ad, err := d.advertisement(id, channel, nil)
			if err != nil {
				return nil, fmt.Errorf("channel %s: %w", id, err)
			}
			ads = append(ads, *ad)
		}
	}
	if len(ads) == 0 {
		return nil, errors.New("the document has no channels and no operations")
	}
	return ads, nil
}

// resolve follows references within the document. One that leads nowhere, or out of it,
// is nil.
func (d *document) resolve(n *yaml.Node) *yaml.Node {
	for range levelsMax {
		if n == nil {
			return nil
		}
		if n.Kind == yaml.AliasNode {
			n = n.Alias
			continue
		}
		ref := ""
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == "$ref" {
					ref = n.Content[i+1].Value
				}
			}
		}
		if ref == "" {
			return n
		}
		path, ok := strings.CutPrefix(ref, "#/")
		if !ok {
			return nil
		}
		n = d.at(path)
	}
	return nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}")

func (d *document) at(path string) *yaml.Node {
	n := d.root
	for token := range strings.SplitSeq(path, "/") {
		token = unescape.Replace(token)
		at := n
		n = nil
		if at == nil || at.Kind != yaml.MappingNode {
			return nil
		}
		for i := 0; i+1 < len(at.Content); i += 2 {
			if at.Content[i].Value == token {
				n = at.Content[i+1]
			}
		}
	}
	return n
}

// fields are those of an advertisement under way.
type fields map[string]json.RawMessage

func (f fields) text(name, v string) {
	if v == "" {
		return
	}
	f[name] = appendString(nil, v)
}

func (d *document) advertisement(id string, channel, op *yaml.Node) (*client.Advertisement, error) {
	f := fields{}
	if err := d.extras(f, channel); err != nil {
		return nil, err
	}
	if f["name"] == nil {
		f.text("name", nameOf(id))
	}
	if address := d.word(channel, "address"); f["subject"] == nil {
		f.text("subject", subjectOf(address))
	} else if err := unchanged(f["subject"], address); err != nil {
		return nil, err
	}
	if f["role"] == nil {
		role := "publishes"
		if d.word(op, "action") == "receive" {
			role = "consumes"
			if d.get(op, "reply") != nil {
				role = "responds"
			}
		}
		f.text("role", role)
	}
	for name, key := range map[string]string{"summary": "summary", "description": "description"} {
		v := d.word(channel, key)
		if v == "" {
			v = d.word(op, key)
		}
		f.text(name, v)
	}
	if err := d.tags(f, channel); err != nil {
		return nil, err
	}
	if err := d.message(f, channel, op); err != nil {
		return nil, err
	}
	b, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var ad client.Advertisement
	return &ad, json.Unmarshal(b, &ad)
}

// extras reads what stands under x-herald-.
func (d *document) extras(f fields, channel *yaml.Node) error {
	if channel == nil || channel.Kind != yaml.MappingNode {
		return errors.New("its channel is not an object")
	}
	for i := 0; i+1 < len(channel.Content); i += 2 {
		name, ok := strings.CutPrefix(channel.Content[i].Value, "x-herald-")
		if !ok {
			continue
		}
		raw, err := toJSON(channel.Content[i+1])
		if err != nil {
			return err
		}
		if name != "fields" {
			f[name] = raw
			continue
		}
		var odd map[string]json.RawMessage
		if err := json.Unmarshal(raw, &odd); err != nil {
			return fmt.Errorf("x-herald-fields: %w", err)
		}
		for k, v := range odd {
			f[k] = v
		}
	}
	return nil
}

// unchanged refuses a document whose address was edited while x-herald-subject stayed.
func unchanged(subject json.RawMessage, address string) error {
	var s string
	if json.Unmarshal(subject, &s) != nil {
		return errors.New("x-herald-subject is not a text")
	}
	if was, _ := addressOf(s); was != address {
		return fmt.Errorf("its address is %s and x-herald-subject %s: change both, or remove the latter", address, s)
	}
	return nil
}

func (d *document) tags(f fields, channel *yaml.Node) error {
	list := d.get(channel, "tags")
	if list == nil {
		return nil
	}
	var names []string
	for _, t := range list.Content {
		if name := d.word(t, "name"); name != "" {
			names = append(names, name)
		}
	}
	b, err := json.Marshal(names)
	f["tags"] = b
	return err
}

// message reads the first message of the operation, or of the channel.
func (d *document) message(f fields, channel, op *yaml.Node) error {
	var m *yaml.Node
	if list := d.get(op, "messages"); list != nil && len(list.Content) > 0 {
		m = d.resolve(list.Content[0])
	} else if all := d.get(channel, "messages"); all != nil && len(all.Content) > 1 {
		m = d.resolve(all.Content[1])
	}
	if m == nil {
		return nil
	}
	content := d.word(m, "contentType")
	if content == "" && f["name"] == nil {
		content = d.word(d.root, "defaultContentType")
	}
	f.text("content_type", content)
	if h := d.get(m, "headers"); h != nil {
		raw, err := d.plain(h)
		if err != nil {
			return err
		}
		f["headers_schema"] = raw
	}
	if err := d.schema(f, d.get(m, "payload")); err != nil {
		return err
	}
	list := d.get(m, "examples")
	if list == nil {
		return nil
	}
	var examples []json.RawMessage
	for _, e := range list.Content {
		if p := d.get(e, "payload"); p != nil && len(examples) < 5 {
			raw, err := toJSON(p)
			if err != nil {
				return err
			}
			examples = append(examples, raw)
		}
	}
	if len(examples) > 0 {
		b, err := json.Marshal(examples)
		f["examples"] = b
		return err
	}
	return nil
}

// schema reads the payload's schema, unless its exact text stands in x-herald-schema.
func (d *document) schema(f fields, payload *yaml.Node) error {
	var s map[string]json.RawMessage
	if f["schema"] != nil {
		if err := json.Unmarshal(f["schema"], &s); err != nil {
			return fmt.Errorf("x-herald-schema: %w", err)
		}
	}
	if f[exactText] != nil && s != nil {
		var exact string
		if err := json.Unmarshal(f[exactText], &exact); err != nil || !json.Valid([]byte(exact)) {
			return errors.New("x-herald-schema-text is not the JSON of a schema, as a text")
		}
		delete(f, exactText)
		s["inline"] = json.RawMessage(exact)
		var err error
		f["schema"], err = json.Marshal(s)
		return err
	}
	if payload == nil || s["inline"] != nil {
		return nil
	}
	if s == nil {
		s = map[string]json.RawMessage{}
	}
	format := "json-schema"
	if name := d.word(payload, "schemaFormat"); name != "" {
		switch {
		case strings.Contains(name, "avro"):
			format = "avro"
		case strings.Contains(name, "protobuf"):
			format = "protobuf"
		case !strings.Contains(name, "schema") && !strings.Contains(name, "asyncapi"):
			return fmt.Errorf("schemaFormat %q is none that Herald checks by", name)
		}
		payload = d.get(payload, "schema")
	}
	if payload == nil {
		return nil
	}
	raw, err := d.plain(payload)
	if err != nil {
		return err
	}
	if s["format"] == nil {
		s["format"] = appendString(nil, format)
	}
	s["inline"] = raw
	delete(s, "sha256") // somebody may have changed the text; the broker fills it in
	f["schema"], err = json.Marshal(s)
	return err
}

// plain is a schema as JSON. References to schemas elsewhere in the document are put in
// place, up to a depth: a schema has to be whole by itself.
func (d *document) plain(n *yaml.Node) (json.RawMessage, error) {
	left := inlinedMax
	whole := d.inlined(n, 0, &left)
	if left < 0 {
		return nil, fmt.Errorf("line %d: the schema has more than %d parts", n.Line, inlinedMax)
	}
	return toJSON(whole)
}

const (
	inlineMax  = 16     // references in references
	inlinedMax = 50_000 // parts of a schema
)

func (d *document) inlined(n *yaml.Node, level int, left *int) *yaml.Node {
	if *left--; *left < 0 {
		return n
	}
	if n == nil || level > inlineMax || n.Kind != yaml.MappingNode && n.Kind != yaml.SequenceNode {
		return n
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if ref := n.Content[i+1].Value; n.Content[i].Value == "$ref" && strings.HasPrefix(ref, "#/components/") {
				if to := d.resolve(n); to != nil {
					return d.inlined(to, level+1, left)
				}
			}
		}
	}
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = d.inlined(c, level, left)
	}
	return &out
}

// nameOf makes an advertisement's name of an identifier.
func nameOf(id string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		case r == '/':
			return '.'
		}
		return '_'
	}, id)
	return strings.Trim(name, ".")
}

// subjectOf makes a subject of an address: those of other protocols have slashes.
func subjectOf(address string) string {
	return strings.ReplaceAll(strings.Trim(address, "/"), "/", ".")
}
