package asyncapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/client"
)

// Version is the version of AsyncAPI that is written; 3.0 is read as well.
const Version = "3.1.0"

// The formats of schemas, as AsyncAPI names them.
var schemaFormats = map[string]string{
	"avro":     "application/vnd.apache.avro+json;version=1.9.0",
	"protobuf": "application/vnd.google.protobuf;version=3",
}

// serverFields are what the broker knows about an advertisement, which is no part of it.
var serverFields = []string{"id", "pattern", "revision", "created", "changed", "by", "observed"}

// exactText is, behind x-herald-, the JSON of a schema that would not come back as it is.
const exactText = "schema-text"

// extension is a name that may stand behind "x-".
var extension = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Export writes advertisements as one document, in YAML. The same give the same bytes.
func Export(title string, ads []client.Advertisement) ([]byte, error) {
	ads = slices.Clone(ads)
	slices.SortFunc(ads, func(a, b client.Advertisement) int {
		return strings.Compare(a.Name+"\x00"+a.Owner.Key(), b.Name+"\x00"+b.Owner.Key())
	})
	root, info, channels, operations := newObject(), newObject(), newObject(), newObject()
	root.set("asyncapi", text(Version))
	info.set("title", text(title))
	info.set("version", text("1.0.0"))
	root.set("info", info.Node)
	ids := map[string]bool{}
	for i := range ads {
		id := idOf(&ads[i], ids)
		channel, err := exportChannel(&ads[i])
		if err != nil {
			return nil, fmt.Errorf("advertisement %s: %w", ads[i].Name, err)
		}
		channels.set(id, channel)
		operations.set(id, exportOperation(&ads[i], id))
	}
	root.set("channels", channels.Node)
	root.set("operations", operations.Node)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(root.Node); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// idOf is the identifier of an advertisement's channel: its name, and its owner where
// another one has the name.
func idOf(ad *client.Advertisement, taken map[string]bool) string {
	id := ad.Name
	if taken[id] {
		id += "-of-" + strings.Map(func(r rune) rune {
			if r == '/' || r == '~' || r == '%' || r == '#' || r == ' ' {
				return '-'
			}
			return r
		}, ad.Owner.Key())
	}
	for n := 2; taken[id]; n++ {
		id = fmt.Sprintf("%s-%d", ad.Name, n)
	}
	taken[id] = true
	return id
}

// fieldsOf are the fields of an advertisement that its owner wrote.
func fieldsOf(ad *client.Advertisement) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(ad)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, err
	}
	for _, f := range serverFields {
		delete(fields, f)
	}
	return fields, nil
}

func exportChannel(ad *client.Advertisement) (*yaml.Node, error) {
	fields, err := fieldsOf(ad)
	if err != nil {
		return nil, err
	}
	c := newObject()
	address, parameters := addressOf(ad.Subject)
	c.set("address", text(address))
	c.setText("summary", ad.Summary)
	c.setText("description", ad.Description)
	if len(parameters) > 0 {
		p := newObject()
		for _, name := range parameters {
			p.set(name, newObject().Node)
		}
		c.set("parameters", p.Node)
	}
	message, err := exportMessage(ad, fields)
	if err != nil {
		return nil, err
	}
	messages := newObject()
	messages.set("message", message)
	c.set("messages", messages.Node)
	if len(ad.Tags) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, t := range ad.Tags {
			tag := newObject()
			tag.set("name", text(t))
			list.Content = append(list.Content, tag.Node)
		}
		c.set("tags", list)
	}
	for _, f := range []string{"summary", "description", "tags", "content_type", "headers_schema", "examples"} {
		delete(fields, f)
	}
	if address == ad.Subject {
		delete(fields, "subject")
	}
	if ad.Role == "publishes" || ad.Role == "consumes" {
		delete(fields, "role") // the operation's action says it
	}
	return c.Node, exportExtras(c, fields)
}

// exportExtras writes what AsyncAPI has no word for.
func exportExtras(c object, fields map[string]json.RawMessage) error {
	odd := newObject()
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		n, err := toNode(fields[f])
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		if !extension.MatchString(f) || f == "fields" {
			odd.set(f, n)
			continue
		}
		c.set("x-herald-"+f, n)
	}
	if !odd.empty() {
		c.set("x-herald-fields", odd.Node)
	}
	return nil
}

// exportMessage writes the message, and takes what it has written out of the fields.
func exportMessage(ad *client.Advertisement, fields map[string]json.RawMessage) (*yaml.Node, error) {
	m := newObject()
	m.set("name", text(ad.Name))
	m.setText("contentType", ad.ContentType)
	if len(ad.HeadersSchema) > 0 {
		n, err := toNode(ad.HeadersSchema)
		if err != nil {
			return nil, err
		}
		m.set("headers", n)
	}
	if err := exportSchema(m, ad, fields); err != nil {
		return nil, err
	}
	if len(ad.Examples) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, e := range ad.Examples {
			n, err := toNode(e)
			if err != nil {
				return nil, err
			}
			example := newObject()
			example.set("payload", n)
			list.Content = append(list.Content, example.Node)
		}
		m.set("examples", list)
	}
	return m.Node, nil
}

// exportSchema writes an inline schema as the payload's. One whose text would not come
// back as it is stands in x-herald-schema-text besides.
func exportSchema(m object, ad *client.Advertisement, fields map[string]json.RawMessage) error {
	s := ad.Schema
	if s == nil || len(s.Inline) == 0 {
		return nil
	}
	n, err := toNode(s.Inline)
	if err != nil {
		return err
	}
	back, err := toJSON(n)
	if err != nil {
		return err
	}
	lossless := sameText(back, s.Inline)
	format, other := schemaFormats[s.Format]
	switch {
	case s.Format == "json-schema" && n.Kind == yaml.MappingNode: // true and false are schemas, but not for AsyncAPI
		m.set("payload", n)
	case other:
		multi := newObject()
		multi.set("schemaFormat", text(format))
		multi.set("schema", n)
		m.set("payload", multi.Node)
	default:
		lossless = false
	}
	if !lossless {
		fields[exactText] = appendString(nil, string(s.Inline))
	}
	var rest map[string]json.RawMessage
	if err := json.Unmarshal(fields["schema"], &rest); err != nil {
		return err
	}
	delete(rest, "inline")
	fields["schema"], err = json.Marshal(rest)
	return err
}

// sameText tells whether two texts of JSON differ at most in white space and in how <, >
// and & are written.
func sameText(a, b json.RawMessage) bool {
	var x, y, ex, ey bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return false
	}
	json.HTMLEscape(&ex, x.Bytes())
	json.HTMLEscape(&ey, y.Bytes())
	return bytes.Equal(ex.Bytes(), ey.Bytes())
}

// addressOf returns the address of a subject and the names of its parameters. AsyncAPI has
// no parameter of several tokens: {rest...} becomes {rest}.
func addressOf(subject string) (address string, parameters []string) {
	address = subject
	if open := strings.LastIndex(subject, "{"); open >= 0 && strings.HasSuffix(subject, "...}") {
		address = strings.TrimSuffix(subject, "...}") + "}"
	}
	for _, t := range strings.Split(address, ".") {
		if strings.HasPrefix(t, "{") && strings.HasSuffix(t, "}") {
			if name := t[1 : len(t)-1]; !slices.Contains(parameters, name) {
				parameters = append(parameters, name)
			}
		}
	}
	return address, parameters
}

func exportOperation(ad *client.Advertisement, id string) *yaml.Node {
	o, channel := newObject(), newObject()
	action := "send"
	if ad.Role == "consumes" || ad.Role == "responds" {
		action = "receive"
	}
	o.set("action", text(action))
	channel.set("$ref", text("#/channels/"+id))
	o.set("channel", channel.Node)
	return o.Node
}
