package cli

import (
	"strings"
	"testing"
)

func TestYAMLAdvertisements(t *testing.T) {
	got, err := yamlToJSON([]byte("name: quakes\nsubject: quakes.{net}.{type}\nlease: {mode: ttl, ttl: 30s}\nrate:\n  expected: 50/s\ntags: [a, b]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"lease":{"mode":"ttl","ttl":"30s"},"name":"quakes","rate":{"expected":"50/s"},"subject":"quakes.{net}.{type}","tags":["a","b"]}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for doc, want := range map[string]string{
		"a: 1\na: 2\n":       "line 2",
		"a: [1, 2\n":         "line",
		"a: 1\n---\nb: 2\n":  "more than one document",
		"a: 1\n\tb: 2\n":     "line",
		"- just\n- a list\n": "line 1",
	} {
		if _, err := yamlToJSON([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", doc, err, want)
		}
	}
}
