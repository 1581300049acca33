package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/client"
)

func ad(name string) client.Advertisement {
	return client.Advertisement{
		Name: name, Subject: name + ".{region}.created", Kind: "event", Tags: []string{"shop"},
		Owner: client.Owner{Team: "sales", Service: "checkout"},
		Keep:  &client.Keep{Topic: name},
		Extra: map[string]json.RawMessage{"x_note": json.RawMessage(`"kept"`)},
	}
}

func TestAnAdvertisementMakesItsTopicAndCanBeFound(t *testing.T) {
	c := connect(t)
	p, err := c.Advertise(t.Context(), ad("orders"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Send(t.Context(), client.Tokens{"region": "eu"}, []byte("1"))
	if err != nil || r.Topic != "orders" || r.Sequence != 1 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := p.Send(t.Context(), nil, nil); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("without its token: %v", err)
	}
	found, err := c.Discover(t.Context(), client.Query{Subject: "orders.eu.>"})
	if err != nil || len(found) != 1 || found[0].Pattern() != "orders.*.created" || found[0].Owner.Team != "sales" || string(found[0].Extra["x_note"]) != `"kept"` {
		t.Errorf("got %+v, %v", found, err)
	}
	for _, q := range []client.Query{{Subject: "orders.eu"}, {Team: "other"}, {Tag: "x"}, {Name: "order"}} {
		if found, err := c.Discover(t.Context(), q); err != nil || found == nil || len(found) != 0 {
			t.Errorf("%+v finds %+v, %v", q, found, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Advertisement(t.Context(), "orders", client.Owner{}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := c.Topic(t.Context(), "orders"); err != nil {
		t.Errorf("the topic went with its advertisement: %v", err)
	}
}

func TestLongListsComeWhole(t *testing.T) {
	c := connect(t)
	const n = 30
	for i := range n {
		long := client.Advertisement{Name: fmt.Sprintf("long-%02d", i), Subject: "long", Description: strings.Repeat("x", 60<<10), Lease: client.Lease{Mode: client.LeasePermanent}}
		if _, err := c.PutAdvertisement(t.Context(), long); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Discover(t.Context(), client.Query{})
	if err != nil || len(all) != n {
		t.Fatalf("%d of %d, %v", len(all), n, err)
	}
	for i, ad := range all {
		if ad.Name != fmt.Sprintf("long-%02d", i) {
			t.Errorf("%d is %s", i, ad.Name)
		}
	}
}

func TestAWatchTellsWhatIsThereThenWhatChanges(t *testing.T) {
	c := connect(t)
	old, err := c.Advertise(t.Context(), ad("old"))
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan client.Event, 100)
	w, err := c.Watch(t.Context(), client.Query{Tag: "shop"}, func(e client.Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(kind client.EventKind, name string) {
		t.Helper()
		e := receive(t, events, 1)[0]
		got := ""
		if e.Advertisement != nil {
			got = e.Advertisement.Name
		}
		if e.Kind != kind || got != name {
			t.Fatalf("got %s %q, want %s %q", e.Kind, got, kind, name)
		}
	}
	expect(client.Current, "old")
	expect(client.Caught, "")
	fresh, err := c.Advertise(t.Context(), ad("new"))
	if err != nil {
		t.Fatal(err)
	}
	expect(client.Added, "new")
	changed := ad("new")
	changed.Summary = "now with a summary"
	if _, err := c.PutAdvertisement(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	expect(client.Changed, "new")
	if err := errors.Join(fresh.Close(), old.Close()); err != nil {
		t.Fatal(err)
	}
	expect(client.Withdrawn, "new")
	expect(client.Withdrawn, "old")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.Done():
	default:
		t.Error("not done after Close")
	}
}

func TestALostConnectionEndsItsAdvertisementAfterTheGrace(t *testing.T) {
	url := serve(t)
	watcher, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	owner, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	short := ad("short")
	short.Lease = client.Lease{Mode: client.LeaseConnection, Grace: client.Duration(50 * time.Millisecond)}
	if _, err := owner.Advertise(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	events := make(chan client.Event, 100)
	if _, err := watcher.Watch(t.Context(), client.Query{}, func(e client.Event) { events <- e }); err != nil {
		t.Fatal(err)
	}
	receive(t, events, 2)
	owner.Conn().Close() // as a crash would: nothing is withdrawn
	if e := receive(t, events, 1)[0]; e.Kind != client.Expired || e.Advertisement.Name != "short" {
		t.Errorf("got %+v", e)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBadAdvertisementsAreRefused(t *testing.T) {
	c := connect(t)
	for name, bad := range map[string]client.Advertisement{
		"no name":    {Subject: "a"},
		"no subject": {Name: "a"},
		"bad role":   {Name: "a", Subject: "a", Role: "dances"},
	} {
		if _, err := c.Advertise(t.Context(), bad); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFillingInTokens(t *testing.T) {
	for _, x := range []struct {
		subject string
		tokens  client.Tokens
		want    string // "" is a refusal
	}{
		{"a.b", nil, "a.b"},
		{"a.{x}.{y}", client.Tokens{"x": "1", "y": "2"}, "a.1.2"},
		{"a.{x...}", client.Tokens{"x": "1.2.3"}, "a.1.2.3"},
		{"a.{x}", nil, ""},
		{"a.{x}", client.Tokens{"x": ""}, ""},
		{"a.{x}", client.Tokens{"x": "1.2"}, ""},
		{"a.{x}", client.Tokens{"x": "*"}, ""},
		{"a.{x}", client.Tokens{"x": "b c"}, ""},
		{"a.{x}", client.Tokens{"x": "{y}", "y": "1"}, ""},
		{"a.b", client.Tokens{"x": "1"}, ""},
		{"a.{x...}", client.Tokens{"x": "1..2"}, ""},
	} {
		a := client.Advertisement{Subject: x.subject}
		got, err := a.Fill(x.tokens)
		if got != x.want || (err == nil) != (x.want != "") {
			t.Errorf("%s with %v: %q, %v; want %q", x.subject, x.tokens, got, err, x.want)
		}
		if err == nil && x.tokens != nil && x.want != "" {
			continue
		}
		if err != nil && !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%v is not invalid", err)
		}
	}
}

func TestPatterns(t *testing.T) {
	for subject, want := range map[string]string{"a.b": "a.b", "a.{x}.c": "a.*.c", "{x}": "*", "a.{rest...}": "a.>", "a.{x}.{rest...}": "a.*.>", "a.>": "a.>"} {
		a := client.Advertisement{Subject: subject}
		if got := a.Pattern(); got != want {
			t.Errorf("%s is %s, want %s", subject, got, want)
		}
	}
}

func TestAPublisherIsToldOfSubscribers(t *testing.T) {
	c := connect(t)
	reader, err := client.Connect(c.Conn().ConnectedUrl())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	told := make(chan int, 100)
	p, err := c.Advertise(t.Context(), client.Advertisement{Name: "watched", Subject: "watched.{x}"}, client.OnSubscribers(func(n int) { told <- n }))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want int) {
		t.Helper()
		for got := -1; got != want; {
			got = receive(t, told, 1)[0]
		}
	}
	expect(0)
	s, err := reader.Subscribe("watched.>", func(*client.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	other, err := reader.Subscribe("watched.a", func(*client.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	expect(2)
	if err := errors.Join(s.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	expect(0)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsObserved(t *testing.T) {
	c := connect(t)
	strict := client.Advertisement{
		Name: "strict", Subject: "strict.{k}", KeyBy: &client.KeyBy{Token: "k"}, Enforce: "reject", Lease: client.Lease{Mode: client.LeasePermanent},
		Schema: &client.Schema{Format: "json-schema", Compat: "full", Inline: json.RawMessage(`{"type":"object","required":["n"]}`)},
		Keep:   &client.Keep{}, Examples: []json.RawMessage{json.RawMessage(`{"n":1,"api_key":"0123456789"}`)},
	}
	var warnings []string
	if _, err := c.PutAdvertisement(t.Context(), strict, client.OnWarning(func(w string) { warnings = append(warnings, w) })); err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "examples[0]") {
		t.Errorf("warned %q", warnings)
	}
	for i := range 3 {
		if _, err := c.PublishDurable(t.Context(), fmt.Sprintf("strict.%d", i), []byte(`{"n":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.PublishDurable(t.Context(), "strict.x", []byte(`{}`)); !errors.Is(err, client.ErrRefused) || !strings.Contains(err.Error(), "required") {
		t.Errorf("what is not as advertised: %v", err)
	}
	if err := errors.Join(c.Publish("stray", []byte("x")), c.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	found, err := c.DiscoverObserved(t.Context(), client.Query{Name: "strict"})
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if o := found[0].Observed; o == nil || o.Msgs != 3 || o.Failed1h != 1 || *o.Conformance != 75 || *o.Keys != 3 || o.Publishers != 1 || !o.Unused {
		t.Errorf("observed %+v", o)
	}
	stray, err := c.Undeclared(t.Context(), "")
	if err != nil || len(stray) != 1 || stray[0].Pattern != "stray" {
		t.Errorf("undeclared %+v, %v", stray, err)
	}
	n, err := c.Nearest(t.Context(), "strickt.1")
	if err != nil || len(n.Like) == 0 || n.Like[0] != "strict.{k}" || n.Traffic {
		t.Errorf("nearest %+v, %v", n, err)
	}
	s, err := c.Sample(t.Context(), client.SampleQuery{Name: "strict", Count: 2})
	if err != nil || len(s.Messages) != 2 || string(s.Messages[1].Payload()) != `{"n":1}` || s.Messages[1].Sequence != 3 {
		t.Errorf("sample %+v, %v", s, err)
	}
	checked, err := c.CheckMessages(t.Context(), client.SampleQuery{Subject: "strict.*", Schema: &client.Schema{Format: "json-schema", Inline: json.RawMessage(`false`)}})
	if err != nil || checked.Checked != 3 || checked.Failed != 3 {
		t.Errorf("checked %+v, %v", checked, err)
	}
	narrower := strict
	narrower.Schema = &client.Schema{Format: "json-schema", Inline: json.RawMessage(`{"type":"object","required":["n","m"]}`)}
	narrower.Examples = nil
	if _, err := c.PutAdvertisement(t.Context(), narrower); !errors.Is(err, client.ErrConflict) {
		t.Errorf("an incompatible schema: %v", err)
	}
	if _, err := c.PutAdvertisement(t.Context(), narrower, client.Force()); err != nil {
		t.Errorf("forced: %v", err)
	}
}
