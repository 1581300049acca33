package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestYAMLAdvertisements(t *testing.T) {
	one := "name: quakes\nsubject: quakes.{net}.{type}\nlease: {mode: ttl, ttl: 30s}\nrate:\n  expected: 50/s\ntags: [a, b]\nx-more: 1\n"
	for _, doc := range []string{one, "- {name: other, subject: other}\n- " + strings.ReplaceAll(strings.TrimSpace(one), "\n", "\n  "), "name: other\nsubject: other\n---\n" + one} {
		ads, err := plainAdvertisements([]byte(doc))
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		got, err := json.Marshal(ads[len(ads)-1])
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"lease":{"mode":"ttl","ttl":"30s","grace":"0s"},"name":"quakes","rate":{"expected":"50/s"},"subject":"quakes.{net}.{type}","tags":["a","b"],"x-more":1}`; !sameJSON(t, string(got), want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for doc, want := range map[string]string{
		"a: 1\na: 2\n":       "line 2",
		"a: [1, 2\n":         "line",
		"a: 1\n\tb: 2\n":     "line",
		"- just\n- a list\n": "mapping",
		"":                   "no advertisement",
	} {
		if _, err := plainAdvertisements([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", doc, err, want)
		}
	}
}

// sameJSON compares what two texts say; spans of time that are nothing are left out.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	for text, to := range map[string]*any{a: &x, b: &y} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	ax, errX := json.Marshal(x)
	by, errY := json.Marshal(y)
	drop := strings.NewReplacer(`"grace":"0s",`, "", `,"grace":"0s"`, "")
	return errX == nil && errY == nil && drop.Replace(string(ax)) == drop.Replace(string(by))
}
