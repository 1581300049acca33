package operate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics/catalogue"
)

func TestOutputsAreAdvertisedWithWhatTheyAreMadeFrom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openWith(t, dir, nil, compile, groupsOf(2, 0))
	defer func() { p.close() }()
	p.spread(1, 1, 1, 1)
	text := `
operator: told
version: 1.2.0
summary: What is told
advertise: {description: all about it, owner: {team: data, service: told}, tags: [a]}
inputs: [{topic: IN}]
steps: [{name: all, filter: v >= 0}]
outputs:
  - {topic: OUT, subject: 'out.{k}.{string(v)}'}
  - {topic: FAR}
  - {live: 'now.{k}'}
`
	deploy := func(text string, may bool) error {
		_, err := p.ops.service.deploy(t.Context(), "A", &Request{Spec: text, advertises: func(string, bool) bool { return may }})
		return err
	}
	if err := deploy(text, false); err == nil || !strings.Contains(err.Error(), "out.*.*") {
		t.Errorf("without the right: %v", err)
	}
	if err := deploy(strings.Replace(text, "tags: [a]", "exclusive: true", 1), true); err == nil || !strings.Contains(err.Error(), "can't say exclusive") {
		t.Errorf("what it can't say: %v", err)
	}
	if err := deploy(text, true); err != nil {
		t.Fatal(err)
	}
	there := func() (all []string) {
		ads, _ := p.Advertisements("A")
		for _, a := range ads {
			all = append(all, fmt.Sprint(a.Name, " ", a.Subject, " ", a.Role, " ", a.Lineage, " ", a.Owner.Key(), " ", a.Summary))
		}
		slices.Sort(all)
		return all
	}
	want := []string{
		"FAR FAR operator [IN] data/told What is told",
		"OUT out.{k}.* operator [IN] data/told What is told",
		"now now.{k} operator [IN] data/told What is told",
	}
	wait(t, "they are advertised", func() (bool, string) { return slices.Equal(there(), want), fmt.Sprint(there()) })

	// One that is somebody else's stays.
	mine := []byte(`{"name":"mine","subject":"mine","role":"operator","lease":{"mode":"permanent"},"lineage":["x"]}`)
	if _, _, err := p.Advertise(t.Context(), state.Put{Account: "A", ID: "mine", Body: mine}); err != nil {
		t.Fatal(err)
	}
	p.close()
	p = openWith(t, dir, nil, compile, groupsOf(2, 0))
	shorter := strings.Replace(strings.Replace(text, "  - {live: 'now.{k}'}\n", "", 1), "What is told", "What was told", 1)
	if _, err := p.ops.service.update(t.Context(), "A", &Request{Spec: shorter}); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i] = strings.Replace(want[i], "What is told", "What was told", 1)
	}
	want[2] = "mine mine operator [x]  "
	wait(t, "they follow an update", func() (bool, string) { return slices.Equal(there(), want), fmt.Sprint(there()) })
	if _, err := p.ops.service.remove(t.Context(), "A", &Request{Name: "told"}); err != nil {
		t.Fatal(err)
	}
	wait(t, "they are withdrawn", func() (bool, string) { return slices.Equal(there(), want[2:]), fmt.Sprint(there()) })
	if a := p.Advertisement("A", catalogue.Key{Name: "mine"}); a == nil {
		t.Error("somebody else's advertisement is gone")
	}
}
