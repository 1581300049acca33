package advertise

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/catalogue"
)

// many is a service with 10,000 advertisements.
func many(t testing.TB) *bench {
	m := &memory{c: catalogue.New(), told: func(catalogue.Event) {}}
	for i := range 10_000 {
		body := fmt.Sprintf(`{"name":"a.%05d","subject":"area.%d.{region}.made","summary":"Number %d of many","owner":{"team":"t%d","service":"s"},"tags":["x","y"],
			"schema":{"format":"json-schema","inline":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"n%d":{"type":"integer"}}}},"lease":{"mode":"permanent"}}`, i, i, i, i%50, i)
		if _, err := m.apply(catalogue.Command{Op: catalogue.OpAdvertise, Account: "A", ID: fmt.Sprint(i), Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{m: m, bus: newBus(), clock: time.Unix(1000, 0)}
	if tt, ok := t.(*testing.T); ok {
		b.T = tt
	}
	b.s = New(Options{Catalogue: m, Now: b.now})
	m.told = b.s.Changed
	b.s.enterAccount("A", b.bus)
	t.Cleanup(b.s.Close)
	return b
}

// list asks for a page and returns the answer's bytes.
func (b *bench) page(t testing.TB, body string) []byte {
	answers := make(chan []byte, 1)
	b.s.accept(request{account: "A", verb: "LIST", payload: []byte(body), reply: "r", respond: func(p []byte) { answers <- p }})
	select {
	case p := <-answers:
		return p
	case <-time.After(time.Minute):
		t.Fatal("no answer")
		return nil
	}
}

func TestTenThousandComeInPages(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: many, and one after the other; without -short it runs")
	}
	b := many(t)
	names := map[string]bool{}
	for offset := 0; offset < 10_000; {
		p := b.page(t, fmt.Sprintf(`{"offset":%d}`, offset))
		if len(p) > 1<<20 {
			t.Fatalf("a page has %d bytes", len(p))
		}
		var v struct {
			Total          int
			Revision       uint64
			Advertisements []struct{ Name string }
		}
		if err := json.Unmarshal(p, &v); err != nil {
			t.Fatal(err)
		}
		if v.Total != 10_000 || v.Revision != 10_000 || len(v.Advertisements) < min(300, 10_000-offset) {
			t.Fatalf("page at %d: %d of %d, revision %d", offset, len(v.Advertisements), v.Total, v.Revision)
		}
		for _, a := range v.Advertisements {
			names[a.Name] = true
		}
		offset += len(v.Advertisements)
	}
	if len(names) != 10_000 {
		t.Errorf("%d came", len(names))
	}
}

func BenchmarkFirstPageOfTenThousand(b *testing.B) {
	x := many(b)
	for b.Loop() {
		x.page(b, "")
	}
}

func BenchmarkFirstPageOfTenThousandObserved(b *testing.B) {
	x := many(b)
	for b.Loop() {
		x.page(b, `{"observed":true}`)
	}
}

func BenchmarkWatchOfTenThousand(b *testing.B) {
	x := many(b)
	for i := 0; b.Loop(); i++ {
		on := fmt.Sprintf("w.%d", i)
		c := make(chan string, 20_000)
		x.bus.mu.Lock()
		x.bus.listeners[on] = c
		x.bus.mu.Unlock()
		x.s.accept(request{account: "A", verb: "LIST", payload: []byte(`{"watch":true}`), reply: on, respond: func(p []byte) { b.Errorf("answered %s", p) }})
		for range 10_002 { // the answer, each one, caught-up
			<-c
		}
		x.bus.unlisten(on)
	}
}

func TestSilenceIsToldOnceAndItsEnd(t *testing.T) {
	b := newBench(t)
	b.m.follower = false
	events := b.bus.hear("$HERALD.ADV.EVENT.>")
	b.ask(1, "PUT", `{"name":"s","subject":"s.x","rate":{"silence_after":"1ms"},"lease":{"mode":"permanent"}}`)
	b.event(events, "added", "s")
	<-time.After(5 * time.Millisecond)
	for range 3 {
		b.s.lookForSilence()
	}
	v := b.parse(b.next(events))
	if v["event"] != "silent" || v["name"] != "s" {
		t.Fatalf("told %v", v)
	}
	// Something comes.
	b.s.mu.Lock()
	all, _ := b.s.accounts["A"].seen.Tallies("s.x", false)
	b.s.mu.Unlock()
	b.mu.Lock()
	b.clock = time.Now().Add(time.Hour)
	b.mu.Unlock()
	all[0].Add(1, 1, 1)
	b.s.lookForSilence()
	if v := b.parse(b.next(events)); v["event"] != "resumed" {
		t.Fatalf("told %v", v)
	}
	select {
	case e := <-events:
		t.Fatalf("one too many: %s", e)
	default:
	}
}

func TestAWatchResumesWhereItWas(t *testing.T) {
	b := newBench(t)
	put := func(name, subject string) {
		b.ask(1, "PUT", fmt.Sprintf(`{"name":%q,"subject":%q,"lease":{"mode":"permanent"}}`, name, subject))
	}
	put("a", "x.a") // 1
	put("b", "y.b") // 2
	put("a", "y.a") // 3: no longer x
	put("b", "x.b") // 4: x from now on
	put("c", "x.c") // 5
	b.ask(1, "WITHDRAW", `{"name":"c"}`)
	watch := func(since int) (got []string) {
		on := fmt.Sprintf("_INBOX.%d", since)
		told := b.bus.hear(on)
		go b.s.accept(request{account: "A", verb: "LIST", payload: fmt.Appendf(nil, `{"watch":true,"subject":"x.>","since":%d}`, since), reply: on, client: 7, respond: func(p []byte) { t.Errorf("answered %s", p) }})
		for {
			v := b.parse(b.next(told))
			a, _ := v["advertisement"].(map[string]any)
			if v["watching"] == true {
				got = append(got, fmt.Sprint("resumed ", v["resumed"] == true))
				continue
			}
			got = append(got, fmt.Sprint(v["event"], " ", a["name"], " ", v["revision"]))
			if v["event"] == "caught-up" {
				b.bus.unlisten(on)
				return got
			}
		}
	}
	for since, want := range map[int]string{
		0: "[resumed true added a 1 withdrawn a 3 added b 4 added c 5 withdrawn c 6 caught-up <nil> 6]",
		2: "[resumed true withdrawn a 3 added b 4 added c 5 withdrawn c 6 caught-up <nil> 6]",
		5: "[resumed true withdrawn c 6 caught-up <nil> 6]",
		6: "[resumed true caught-up <nil> 6]",
		7: "[resumed false current b 4 caught-up <nil> 6]", // of another broker
	} {
		if got := fmt.Sprint(watch(since)); got != want {
			t.Errorf("since %d: %s, wanted %s", since, got, want)
		}
	}
	// What is no longer remembered comes whole.
	b.s.mu.Lock()
	b.s.history.from = 4
	b.s.mu.Unlock()
	if got := fmt.Sprint(watch(2)); got != "[resumed false current b 4 caught-up <nil> 6]" {
		t.Errorf("of old: %s", got)
	}
}

// BenchmarkCheck is what a message costs that is held against its schema.
func BenchmarkCheck(b *testing.B) {
	m := &memory{c: catalogue.New(), told: func(catalogue.Event) {}}
	body := `{"name":"o","subject":"o.*","enforce":"reject","lease":{"mode":"permanent"},"schema":{"format":"json-schema","inline":{"type":"object",
		"required":["id","qty","price","items"],"properties":{"id":{"type":"string","maxLength":64},"qty":{"type":"integer","minimum":1},"price":{"type":"number"},
		"items":{"type":"array","items":{"type":"object","properties":{"sku":{"type":"string"},"n":{"type":"integer"}}}}}}}}`
	if _, err := m.apply(catalogue.Command{Op: catalogue.OpAdvertise, Account: "A", Body: []byte(body)}); err != nil {
		b.Fatal(err)
	}
	s := New(Options{Catalogue: m})
	defer s.Close()
	s.enterAccount("A", newBus())
	set := gate{&s.accounts["A"].rules}.Rule("o.1")
	msg := &front.Message{Subject: []byte("o.1"), Client: &front.ClientInfo{}, Payload: []byte(`{"id":"ord-0001","qty":3,"price":12.5,"items":[{"sku":"a-1","n":1},{"sku":"b-2","n":2}],"note":"a message of about two hundred bytes, as they often are"}`)}
	b.SetBytes(int64(len(msg.Payload)))
	b.ReportAllocs()
	for b.Loop() {
		if v := set.Check(msg); v.Refuse {
			b.Fatal(v.Reason)
		}
	}
}
