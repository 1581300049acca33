package filter

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func message(subject, header, payload string) *Message {
	m := &Message{}
	if header != "" {
		header = "NATS/1.0\r\n" + strings.ReplaceAll(header, "|", "\r\n") + "\r\n\r\n"
	}
	m.Reset(subject, []byte(header), []byte(payload))
	return m
}

// TestWhatConditionsSay is the contract of docs/filters.md: what is stated there of
// big integers, null, missing fields and types.
func TestWhatConditionsSay(t *testing.T) {
	for _, c := range []struct {
		where, header, payload string
		want                   bool
		reason                 Reason
	}{
		{where: `n == 1`, payload: `{"n":1}`, want: true},
		{where: `n == 1`, payload: `{"n":2}`},
		{where: `n == 1.0`, payload: `{"n":1}`, want: true},
		{where: `subject == "a.b" && tokens[1] == "b"`, payload: `not JSON`, want: true},
		{where: `header["Region"] == "eu"`, header: "Region: eu", payload: `not JSON`, want: true},
		{where: `headers["X"].size() == 2`, header: "X: 1|X: 2", want: true},
		{where: `header["Region"] == "eu"`, reason: Missing},
		{where: `"Region" in header && header["Region"] == "eu"`},
		// Big integers stay exact.
		{where: `n == 9007199254740993`, payload: `{"n":9007199254740993}`, want: true},
		{where: `n == 9007199254740992`, payload: `{"n":9007199254740993}`},
		{where: `n == 18446744073709551615u`, payload: `{"n":18446744073709551615}`, want: true},
		{where: `n > 18446744073709551615u`, payload: `{"n":18446744073709551616}`, want: true},
		{where: `n + 1 > 0`, payload: `{"n":9223372036854775807}`, reason: Arithmetic},
		{where: `n / 0 == 1`, payload: `{"n":1}`, reason: Arithmetic},
		{where: `n % 0 == 1`, payload: `{"n":1}`, reason: Arithmetic},
		// Null, and what is missing.
		{where: `n == null`, payload: `{"n":null}`, want: true},
		{where: `n != null`, payload: `{"n":null}`},
		{where: `n == 0`, payload: `{"n":null}`},
		{where: `n > 0`, payload: `{"n":null}`, reason: Type},
		{where: `n == null`, payload: `{}`, reason: Missing},
		{where: `has(n)`, payload: `{}`},
		{where: `has(n)`, payload: `{"n":null}`, want: true},
		{where: `this.?n.orValue(0) == 0`, payload: `{}`, want: true},
		{where: `items[3] == 1`, payload: `{"items":[1]}`, reason: Missing},
		// Types.
		{where: `n > 1`, payload: `{"n":"1"}`, reason: Type},
		{where: `n == 1`, payload: `{"n":"1"}`},
		{where: `n`, payload: `{"n":true}`, want: true},
		{where: `n`, payload: `{"n":1}`, reason: Type},
		// && and || forgive when the other side decides.
		{where: `n > 1 || m == 1`, payload: `{"m":1}`, want: true},
		{where: `n > 1 && m == 1`, payload: `{"m":2}`},
		// Payloads.
		{where: `n == 1`, payload: `{"n":`, reason: Payload},
		{where: `n == 1`, payload: ``, reason: Payload},
		{where: `n == 1`, payload: `7`, reason: Missing},
		{where: `this == 7`, payload: `7`, want: true},
		{where: `n == 1`, payload: `{"n":1,"n":2}`, reason: Payload},
	} {
		t.Run(c.where+" on "+c.payload, func(t *testing.T) {
			f, err := NewSet().Get(c.where, "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Match(message("a.b", c.header, c.payload))
			var e *Error
			reason := Reason("")
			if errors.As(err, &e) {
				reason = e.Reason
			}
			if got != c.want || reason != c.reason {
				t.Errorf("got %v %v, want %v and reason %q", got, err, c.want, c.reason)
			}
		})
	}
}

func TestCostIsBounded(t *testing.T) {
	f, err := NewSet().Get(`items.exists(a, items.exists(b, items.exists(c, a + b + c == -1)))`, JSON)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Match(message("a", "", `{"items":[`+strings.Repeat("1,", 999)+`1]}`))
	var e *Error
	if !errors.As(err, &e) || e.Reason != Cost {
		t.Errorf("got %v, want reason cost", err)
	}
}

func TestWrongConditionsSayWhere(t *testing.T) {
	s := NewSet()
	for text, want := range map[string]string{
		"":                "empty",
		"  ":              "empty",
		"n ==":            "1:",
		"1 + 1":           "true or false",
		"size(tokens)":    "true or false",
		"n == \"a":        "1:",
		"nosuchfunc(n)":   "nosuchfunc",
		"now > timestamp": "", // a field called now, and one called timestamp: fine
	} {
		_, err := s.Get(text, "")
		if want == "" {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want something with %q", text, err, want)
		}
	}
	for codec, want := range map[string]string{
		"avro": `{"avro": …}`, "xml": "json", `{"avro":{"type":"nothing"}}`: "nothing", `{"avro":"int","message":"a"}`: "message", `{"protobuf":"message {}"}`: "1:9",
	} {
		if _, err := s.Get("true", codec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("codec %s: got %v, want something with %s", codec, err, want)
		}
	}
}

func TestSharedAndCounted(t *testing.T) {
	s := NewSet()
	var wg sync.WaitGroup
	got := make([]*Filter, 50)
	for i := range got {
		wg.Go(func() {
			f, err := s.Get(" n > 1 ", []string{"", "json"}[i%2])
			if err != nil {
				t.Error(err)
			}
			got[i] = f
		})
	}
	wg.Wait()
	if s.Len() != 1 {
		t.Fatalf("%d filters, want one", s.Len())
	}
	for _, f := range got {
		if f != got[0] {
			t.Fatal("not shared")
		}
		f.Release()
	}
	if s.Len() != 0 {
		t.Errorf("%d filters are kept that nobody uses", s.Len())
	}
}

func TestPayloadIsDecodedOnceOrNever(t *testing.T) {
	s := NewSet()
	head, _ := s.Get(`tokens[0] == "a" && !("X" in header)`, "")
	a, _ := s.Get(`n == 1`, "")
	b, _ := s.Get(`has(m)`, "")
	m := message("a.b", "", `{"n":1}`)
	if ok, err := head.Match(m); !ok || err != nil || m.Decoded() || head.UsesPayload() {
		t.Errorf("subject and headers: %v %v, decoded %v", ok, err, m.Decoded())
	}
	if ok, _ := a.Match(m); !ok || !m.Decoded() {
		t.Error("the payload was not decoded")
	}
	m.payload = nil // another decoding would fail
	if ok, err := b.Match(m); ok || err != nil {
		t.Errorf("second filter: %v %v", ok, err)
	}
	place, _ := s.Get(`seq > 1`, "")
	if !place.UsesPlace() || a.UsesPlace() {
		t.Error("who asks for the place")
	}
}

func TestTally(t *testing.T) {
	f, _ := NewSet().Get(`n > 1`, "")
	var tally Tally
	for i, p := range []string{`{"n":2}`, `{"n":1}`, `{"m":1}`, `x` + strings.Repeat("y", 500), `{"k":1}`} {
		m := message(fmt.Sprintf("s.%d", i), "", p)
		ok, err := f.Match(m)
		tally.Count(m, ok, err)
	}
	tally.Deliver()
	s := tally.Stats()
	if s.Scanned != 5 || s.Matched != 1 || s.Delivered != 1 || s.Errors != 3 || s.ByReason[Missing] != 2 || s.ByReason[Payload] != 1 {
		t.Errorf("%+v", s)
	}
	if s.First == nil || s.First.Subject != "s.2" || s.First.Payload != `{"m":1}` {
		t.Errorf("the first example is %+v", s.First)
	}
	sum := s
	sum.ByReason = map[Reason]uint64{}
	sum.Add(s)
	if sum.Scanned != 10 || sum.Errors != 6 {
		t.Errorf("%+v", sum)
	}
}

func BenchmarkMatch(b *testing.B) {
	payload := `{"order":{"id":12345678901234567,"region":"eu","lines":[{"sku":"a","qty":2},{"sku":"b","qty":1}]},"amount":129.95,"currency":"EUR","customer":"c-4711"}`
	for _, c := range []struct{ name, where string }{
		{"subject", `tokens[1] == "eu"`},
		{"header", `header["Region"] == "eu"`},
		{"payload", `amount > 100`},
		{"payload_nested", `order.lines.exists(l, l.sku == "b" && l.qty >= 1) && currency == "EUR"`},
	} {
		f, err := NewSet().Get(c.where, "")
		if err != nil {
			b.Fatal(err)
		}
		header := []byte("NATS/1.0\r\nRegion: eu\r\nNats-Msg-Id: 17\r\n\r\n")
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var m Message
			for b.Loop() {
				m.Reset("orders.eu.created", header, []byte(payload))
				if ok, err := f.Match(&m); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(`n > 1`, `{"n":2}`)
	f.Add(`has(a) && a.b == null`, `{"a":{}}`)
	f.Fuzz(func(t *testing.T, where, payload string) {
		filter, err := NewSet().Get(where, "")
		if err != nil {
			return
		}
		a, errA := filter.Match(message("a.b", "X: 1", payload))
		b, errB := filter.Match(message("a.b", "X: 1", payload))
		if a != b || (errA == nil) != (errB == nil) || a && errA != nil {
			t.Errorf("%q over %q: %v %v, then %v %v", where, payload, a, errA, b, errB)
		}
	})
}
