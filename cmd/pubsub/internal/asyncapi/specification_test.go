package asyncapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// specification is AsyncAPI's own schema of its documents, see testdata/README.md.
func specification(t *testing.T) *jsonschema.Schema {
	t.Helper()
	f, err := os.Open("testdata/asyncapi-3.1.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(z)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	const url = "http://asyncapi.com/definitions/3.1.0/asyncapi.json"
	if err := c.AddResource(url, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON reads YAML as the validator wants it.
func asJSON(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestWhatIsExportedIsAsTheSpecificationSays(t *testing.T) {
	s := specification(t)
	out, err := Export("Herald", advertisements(t, ours...))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(asJSON(t, out)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = Export("Herald", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(asJSON(t, out)); err != nil {
		t.Errorf("without advertisements: %v", err)
	}
	// It does look.
	bad := strings.Replace(string(out), "asyncapi: 3.1.0", "asyncapi: 3.1.0\nchannnels: {}", 1)
	if err := s.Validate(asJSON(t, []byte(bad))); err == nil {
		t.Error("a document with an unknown field conforms")
	}
}
