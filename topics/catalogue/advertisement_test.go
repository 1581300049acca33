package catalogue

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNamedTokensBecomeWildcards(t *testing.T) {
	for in, want := range map[string]string{
		"orders.{region}.created": "orders.*.created",
		"{a}.{b}":                 "*.*",
		"logs.{rest...}":          "logs.>",
		"{all...}":                ">",
		"plain":                   "plain",
		"a.*.b":                   "a.*.b",
		"a.>":                     "a.>",
		"a.{b":                    "",
		"a.{}":                    "",
		"a.x{b}":                  "",
		"a.{b c}":                 "",
		"a.{rest...}.b":           "",
		"a..b":                    "",
		"":                        "",
	} {
		got, ok := Pattern(in)
		if ok != (want != "") || ok && got != want {
			t.Errorf("Pattern(%q) = %q, %t, want %q", in, got, ok, want)
		}
	}
}

func TestWhatIsWrongWithAnAdvertisementIsSaid(t *testing.T) {
	for body, field := range map[string]string{
		`[]`:                           "object",
		`{"subject":"a"}`:              "name",
		`{"name":"a b","subject":"a"}`: "name",
		`{"name":"a"}`:                 "subject",
		`{"name":"a","subject":"a","role":"boss"}`:                                                      "role",
		`{"name":"a","subject":"a","kind":"x"}`:                                                         "kind",
		`{"name":"a","subject":"a","lease":{"mode":"x"}}`:                                               "lease.mode",
		`{"name":"a","subject":"a","lease":{"ttl":"1ms"}}`:                                              "lease.ttl",
		`{"name":"a","subject":"a","lease":{"ttl":"soon"}}`:                                             "time span",
		`{"name":"a","subject":"a","schema":{"format":"xml"}}`:                                          "schema.format",
		`{"name":"a","subject":"a","schema":{"format":"json-schema","inline":{},"ref":"x"}}`:            "schema",
		`{"name":"a","subject":"a","schema":{"format":"json-schema","inline":{},"sha256":"00"}}`:        "schema.sha256",
		`{"name":"a","subject":"a","durable":{"topic":"a.b"}}`:                                          "durable.topic",
		`{"name":"a","subject":"a","durable":{"retention":"ever"}}`:                                     "durable.retention",
		`{"name":"a","subject":"a","owner":{"team":"x y"}}`:                                             "owner",
		`{"name":"a","subject":"a","description":"` + strings.Repeat("x", AdvertisementBytesMax) + `"}`: "at most",
	} {
		if _, f := ParseAdvertisement([]byte(body)); f == nil || !strings.Contains(f.Text, field) {
			t.Errorf("%.80s: %v, want something about %s", body, f, field)
		}
	}
}

func TestUnknownFieldsAreKept(t *testing.T) {
	body := `{"name":"orders.created","subject":"orders.{region}.created","x-cost":{"centre":7},"tags":["a"],"durable":{"tier":"cold"},
		"schema":{"format":"json-schema","inline":{ "type" : "object" },"draft":2020}}`
	c := New()
	a := mustApply(t, c, Command{Op: OpAdvertise, Account: "A", ID: "ID1", Time: 5, Body: []byte(body)}).Advertisement
	out, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	schema, _ := got["schema"].(map[string]any)
	cost, _ := got["x-cost"].(map[string]any)
	durable, _ := got["durable"].(map[string]any)
	if durable["topic"] != "orders_created" || durable["retention"] != "limits" || durable["tier"] != "cold" {
		t.Fatalf("durable is not completed: %s", out)
	}
	if cost["centre"] != 7.0 || schema["draft"] != 2020.0 || schema["sha256"] == nil {
		t.Fatalf("lost something: %s", out)
	}
	if got["id"] != "ID1" || got["pattern"] != "orders.*.created" || got["revision"] != 1.0 || got["role"] != "publishes" {
		t.Fatalf("the server's fields are missing: %s", out)
	}
	// Neither the same again nor what was given back changes anything.
	for _, b := range []string{body, string(out)} {
		again := mustApply(t, c, Command{Op: OpAdvertise, Account: "A", ID: "ID2", Time: 9, Body: []byte(b)})
		if again.Event != nil || again.Advertisement != a {
			t.Fatalf("the same advertisement was taken for another: %+v\n%s", again, b)
		}
	}
}

// What is sent back, or kept, must be the same advertisement: JSON escapes <, > and &
// on its way.
func TestDigestsOutliveTheEncoder(t *testing.T) {
	for _, schema := range []string{`{"pattern":"^<a&b>$"}`, `{"pattern":"^\u003ca\u0026b\u003e$"}`, `"message A { /* <&> */ }"`, `{ "x" : 1 }`} {
		body := `{"name":"a","subject":"a","schema":{"format":"json-schema","inline":` + schema + `}}`
		a, f := ParseAdvertisement([]byte(body))
		if f != nil {
			t.Fatal(f)
		}
		again, f := ParseAdvertisement(a.Body())
		if f != nil || again.Schema.SHA256 != a.Schema.SHA256 {
			t.Errorf("%s: %v, or another digest", schema, f)
		}
	}
	// The digest of the plain text is taken too.
	if _, f := ParseAdvertisement([]byte(`{"name":"a","subject":"a","schema":{"format":"json-schema","inline":{"p":"<"},"sha256":"` + digestOf([]byte(`{"p":"<"}`)) + `"}}`)); f != nil {
		t.Error(f)
	}
}

func TestDefaultsOfALease(t *testing.T) {
	a, f := ParseAdvertisement([]byte(`{"name":"a","subject":"a"}`))
	if f != nil {
		t.Fatal(f)
	}
	want := Lease{Mode: LeaseConnection, TTL: Duration(30 * time.Second), Grace: Duration(10 * time.Second)}
	if a.Lease != want {
		t.Fatalf("lease %+v, want %+v", a.Lease, want)
	}
	a, f = ParseAdvertisement([]byte(`{"name":"a","subject":"a","lease":{"mode":"ttl","ttl":2000000000,"grace":"1s"}}`))
	if f != nil || a.Lease.TTL != Duration(2*time.Second) || a.Lease.Grace != Duration(time.Second) {
		t.Fatalf("lease %+v (%v)", a.Lease, f)
	}
}

func TestAdvertisementsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New()
		type entry struct {
			summary string
			rev     uint64
		}
		m := map[string]map[Key]*entry{"A": {}, "B": {}}
		var revision uint64
		accounts := rapid.SampledFrom([]string{"A", "B"})
		names := rapid.SampledFrom([]string{"one", "two"})
		owners := rapid.SampledFrom([]string{"", "x", "y"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				account, k := accounts.Draw(t, "account"), Key{names.Draw(t, "name"), owners.Draw(t, "owner")}
				summary := rapid.SampledFrom([]string{"s", "t"}).Draw(t, "summary")
				body := fmt.Sprintf(`{"name":%q,"subject":"s","summary":%q,"owner":{"service":%q}}`, k.Name, summary, k.Owner)
				r := mustApply(t, c, Command{Op: OpAdvertise, Account: account, ID: "i", Body: []byte(body)})
				had := m[account][k]
				if had != nil && had.summary == summary {
					if r.Event != nil {
						t.Fatalf("an event without change: %+v", r.Event)
					}
					return
				}
				revision++
				want := Added
				if had != nil {
					want = Changed
				}
				if r.Event == nil || r.Event.Kind != want || r.Event.Revision != revision || r.Advertisement.Revision != revision {
					t.Fatalf("got %+v, want %s at %d", r.Event, want, revision)
				}
				m[account][k] = &entry{summary, revision}
			},
			"withdraw": func(t *rapid.T) {
				account, k := accounts.Draw(t, "account"), Key{names.Draw(t, "name"), owners.Draw(t, "owner")}
				expired := rapid.Bool().Draw(t, "expired")
				had := m[account][k]
				cmd := Command{Op: OpWithdraw, Account: account, Name: k.Name, Owner: k.Owner, Expired: expired}
				if rapid.Bool().Draw(t, "stale") && had != nil {
					cmd.Revision = had.rev + 1
					had = nil
				}
				r := mustApply(t, c, cmd)
				if had == nil {
					if r.Fault != FaultNoAdvertised {
						t.Fatalf("got %v", r.Fault)
					}
					return
				}
				revision++
				want := Withdrawn
				if expired {
					want = Expired
				}
				if r.Event == nil || r.Event.Kind != want || r.Event.Revision != revision {
					t.Fatalf("got %+v, want %s at %d", r.Event, want, revision)
				}
				delete(m[account], k)
			},
			"restart": func(t *rapid.T) {
				b, err := c.Freeze().AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				c = New()
				if err := c.UnmarshalBinary(b); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				if c.Revision() != revision {
					t.Fatalf("revision %d, the model says %d", c.Revision(), revision)
				}
				for account, want := range m {
					got := c.Advertisements(account)
					if len(got) != len(want) {
						t.Fatalf("%s has %d, the model says %d", account, len(got), len(want))
					}
					for _, a := range got {
						if w := want[a.Key()]; w == nil || w.rev != a.Revision || w.summary != a.Summary {
							t.Fatalf("%v is %+v, the model says %+v", a.Key(), a, w)
						}
					}
				}
			},
		})
	})
}

func FuzzAdvertisement(f *testing.F) {
	f.Add([]byte(`{"name":"a","subject":"a.{b}.{c...}","schema":{"format":"avro","inline":"x"},"lease":{"ttl":"5s"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, fault := ParseAdvertisement(b)
		if fault != nil {
			return
		}
		if _, err := json.Marshal(a); err != nil {
			t.Fatal(err)
		}
		back, fault := ParseAdvertisement(a.body)
		if fault != nil || string(back.body) != string(a.body) {
			t.Fatalf("not stable: %v\n%s\n%s", fault, a.body, back.body)
		}
	})
}
