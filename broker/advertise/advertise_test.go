package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/subject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a catalogue without a log.
type memory struct {
	mu       sync.Mutex
	c        *catalogue.Catalogue
	told     func(catalogue.Event)
	follower bool
}

func (m *memory) apply(cmd catalogue.Command) (catalogue.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.c.Apply(&cmd)
	if err == nil && r.Fault != nil {
		err = r.Fault
	}
	if r.Event != nil {
		m.told(*r.Event)
	}
	return r, err
}

func (m *memory) Advertise(_ context.Context, p state.Put) (*catalogue.Advertisement, *catalogue.Event, error) {
	r, err := m.apply(catalogue.Command{Op: catalogue.OpAdvertise, Account: p.Account, ID: p.ID, By: p.By, Body: p.Body, Revision: p.Revision})
	return r.Advertisement, r.Event, err
}

func (m *memory) Advertisement(account string, k catalogue.Key) *catalogue.Advertisement {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.c.Advertisement(account, k)
}

func (m *memory) Topics(string, func(*state.Topic) bool) {}

func (m *memory) Withdraw(_ context.Context, a *catalogue.Advertisement, expired bool) error {
	_, err := m.apply(catalogue.Command{Op: catalogue.OpWithdraw, Account: a.Account, Name: a.Name, Owner: a.Owner.Key(), Expired: expired})
	return err
}

func (m *memory) Advertisements(account string) (all []*catalogue.Advertisement, revision uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	accounts := []string{account}
	if account == "" {
		accounts = m.c.AdvertisingAccounts()
	}
	for _, a := range accounts {
		all = append(all, m.c.Advertisements(a)...)
	}
	return all, m.c.Revision()
}

func (m *memory) IsCatalogueLeader() bool { return !m.follower }

func (m *memory) Topic(string, string) (*state.Topic, bool) { return nil, false }

var errNoTopics = errors.New("no topics here")

func (m *memory) CreateTopic(context.Context, string, topics.Config) (*state.Topic, bool, error) {
	return nil, false, errNoTopics
}

func (m *memory) UpdateTopic(context.Context, string, topics.Config) (*state.Topic, error) {
	return nil, errNoTopics
}

// fakeBus is an account's subjects.
type fakeBus struct {
	mu        sync.Mutex
	listeners map[string]chan string // by pattern
	interest  map[string]func(bool)
}

func newBus() *fakeBus {
	return &fakeBus{listeners: map[string]chan string{}, interest: map[string]func(bool){}}
}

func (b *fakeBus) publish(s string, payload []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	heard := false
	for p, c := range b.listeners {
		if subject.Match(p, s) {
			c <- s + " " + string(payload)
			heard = true
		}
	}
	return heard
}

func (b *fakeBus) hasInterest(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listeners[s] != nil
}

func (b *fakeBus) watchInterest(s string, f func(bool)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interest[s] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.interest, s)
	}
}

func (b *fakeBus) listen(string, func(*front.Message)) (func(), error) { return func() {}, nil }
func (b *fakeBus) subscribers(string) int                              { return 0 }
func (b *fakeBus) interested(string) front.Interested                  { return front.Interested{} }
func (b *fakeBus) setGate(front.Gate)                                  {}
func (b *fakeBus) setObserver(front.Observer)                          {}

func (b *fakeBus) hear(pattern string) chan string {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan string, 1000)
	b.listeners[pattern] = c
	return c
}

func (b *fakeBus) unlisten(s string) {
	b.mu.Lock()
	delete(b.listeners, s)
	f := b.interest[s]
	b.mu.Unlock()
	if f != nil {
		f(false)
	}
}

// bench is a service with its surroundings.
type bench struct {
	*testing.T
	s     *Service
	m     *memory
	bus   *fakeBus
	mu    sync.Mutex
	clock time.Time
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, m: &memory{c: catalogue.New()}, bus: newBus(), clock: time.Unix(1000, 0)}
	b.s = New(Options{Catalogue: b.m, Now: b.now})
	b.m.told = b.s.Changed
	b.s.enterAccount("A", b.bus)
	t.Cleanup(b.s.Close)
	return b
}

func (b *bench) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clock
}

// pass lets time go by.
func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	b.clock = b.clock.Add(d)
	b.mu.Unlock()
	b.s.nudge()
}

// ask sends a request for a connection and waits for the answer.
func (b *bench) ask(client uint64, verb, payload string) map[string]any {
	b.Helper()
	return b.askOn(client, verb, payload, "_INBOX.x")
}

func (b *bench) askOn(client uint64, verb, payload, reply string) map[string]any {
	b.Helper()
	answers := make(chan string, 1)
	b.s.accept(request{
		account: "A", verb: verb, payload: []byte(payload), reply: reply, client: client, respond: func(p []byte) { answers <- string(p) },
	})
	return b.parse(b.next(answers))
}

func (b *bench) next(c chan string) string {
	b.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(5 * time.Second):
		b.Fatal("nothing came within 5 s")
		return ""
	}
}

func (b *bench) parse(s string) map[string]any {
	b.Helper()
	if _, payload, ok := strings.Cut(s, " "); ok && !strings.HasPrefix(s, "{") {
		s = payload
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		b.Fatalf("%v in %s", err, s)
	}
	return v
}

func (b *bench) event(c chan string, kind, name string) map[string]any {
	b.Helper()
	s := b.next(c)
	v := b.parse(s)
	a, _ := v["advertisement"].(map[string]any)
	if v["event"] != kind || name != "" && a["name"] != name {
		b.Fatalf("got %s, want %s of %s", s, kind, name)
	}
	return v
}

func wantCode(t *testing.T, v map[string]any, code float64) {
	t.Helper()
	e, _ := v["error"].(map[string]any)
	if e["err_code"] != code {
		t.Fatalf("got %v, want error %v", v, code)
	}
}

func TestPutGetListWithdraw(t *testing.T) {
	b := newBench(t)
	events := b.bus.hear("$HERALD.ADV.EVENT.>")
	put := b.ask(1, "PUT", `{"name":"orders.created","subject":"orders.{region}.created","owner":{"team":"sales","instance":"i1"},"x":1}`)
	ad, _ := put["advertisement"].(map[string]any)
	if ad["pattern"] != "orders.*.created" || ad["x"] != 1.0 || ad["id"] == "" {
		t.Fatalf("put answered %v", put)
	}
	if s := b.next(events); !strings.HasPrefix(s, "$HERALD.ADV.EVENT.added.orders.created ") {
		t.Fatalf("event %s", s)
	}
	// Another instance of the same owner is no change.
	again := b.ask(2, "PUT", `{"name":"orders.created","subject":"orders.{region}.created","owner":{"team":"sales","instance":"i2"},"x":1}`)
	if again["revision"] != put["revision"] {
		t.Fatalf("revisions %v and %v", put["revision"], again["revision"])
	}
	if l, _ := again["lease"].(map[string]any); l["holders"] != 2.0 {
		t.Fatalf("lease %v", again["lease"])
	}
	b.ask(3, "PUT", `{"name":"orders.created","subject":"x","owner":{"team":"other"}}`)
	b.event(events, "added", "orders.created")
	wantCode(t, b.ask(1, "GET", `{"name":"orders.created"}`), 20005)
	wantCode(t, b.ask(1, "GET", `{"name":"nothing"}`), 20002)
	wantCode(t, b.ask(1, "GET", `{"nome":"x"}`), 20000)
	wantCode(t, b.ask(1, "PUT", `{"name":"x"}`), 20001)
	wantCode(t, b.ask(1, "PUT", `{"name":"x","subject":"x","durable":{"replicas":3}}`), 10074)
	wantCode(t, b.ask(1, "PUT", `{"name":"x","subject":"x","durable":{"replicas":-1}}`), 10133)
	if got := b.ask(1, "GET", `{"name":"orders.created","owner":"other"}`); got["advertisement"] == nil {
		t.Fatalf("get answered %v", got)
	}
	if got := b.ask(1, "LIST", `{"tags":["t"]}`); fmt.Sprint(got["advertisements"]) != "[]" {
		t.Errorf("a list of nothing is %v", got)
	}
	if got := b.ask(1, "LIST", `{"undeclared":true}`); fmt.Sprint(got["undeclared"]) != "[]" {
		t.Errorf("a list of nothing is %v", got)
	}
	for q, want := range map[string]int{
		``: 2, `{}`: 2, `{"subject":"orders.>"}`: 1, `{"owner":"sales"}`: 1, `{"tags":["t"]}`: 0, `{"limit":1}`: 1, `{"offset":2}`: 0,
	} {
		got := b.ask(1, "LIST", q)
		list, _ := got["advertisements"].([]any)
		if len(list) != want {
			t.Errorf("list %s gave %v", q, got)
		}
	}
	// The first instance goes, the second still holds it.
	if got := b.ask(1, "WITHDRAW", `{"name":"orders.created","owner":"sales"}`); got["withdrawn"] == true {
		t.Fatalf("withdrawn although another instance holds it: %v", got)
	}
	if got := b.ask(2, "WITHDRAW", `{"name":"orders.created","owner":"sales"}`); got["withdrawn"] != true {
		t.Fatalf("withdraw answered %v", got)
	}
	b.event(events, "withdrawn", "orders.created")
	// A stranger means the advertisement itself.
	if got := b.ask(9, "WITHDRAW", `{"name":"orders.created"}`); got["withdrawn"] != true {
		t.Fatalf("withdraw answered %v", got)
	}
	b.event(events, "withdrawn", "orders.created")
}

func TestLeasesEnd(t *testing.T) {
	b := newBench(t)
	events := b.bus.hear("$HERALD.ADV.EVENT.>")
	b.ask(1, "PUT", `{"name":"conn","subject":"c"}`)
	b.ask(2, "PUT", `{"name":"ttl","subject":"t","lease":{"mode":"ttl","ttl":"20s","grace":"5s"}}`)
	b.ask(3, "PUT", `{"name":"ever","subject":"e","lease":{"mode":"permanent"}}`)
	for _, n := range []string{"conn", "ttl", "ever"} {
		b.event(events, "added", n)
	}
	b.pass(24 * time.Second)
	b.ask(2, "RENEW", `{"name":"ttl"}`)
	b.pass(24 * time.Second)
	b.ask(2, "GET", `{"name":"ttl"}`)
	b.pass(time.Second)
	b.event(events, "expired", "ttl")
	wantCode(t, b.ask(2, "RENEW", `{"name":"ttl"}`), 20002)

	// Back within the grace: nothing happened.
	b.s.disconnected(1)
	b.pass(9 * time.Second)
	b.ask(11, "RENEW", `{"name":"conn"}`)
	b.pass(time.Hour)
	b.s.disconnected(11)
	b.pass(10 * time.Second)
	b.event(events, "expired", "conn")
	if got := b.ask(1, "LIST", ``); got["total"] != 1.0 {
		t.Fatalf("left: %v", got)
	}
	select {
	case e := <-events:
		t.Fatalf("one event too many: %s", e)
	default:
	}
}

func TestANewLeaderGrantsAFullTerm(t *testing.T) {
	b := newBench(t)
	events := b.bus.hear("$HERALD.ADV.EVENT.>")
	b.ask(1, "PUT", `{"name":"a","subject":"c"}`)
	b.event(events, "added", "a")
	b.s.Lead(false)
	b.pass(time.Hour)
	b.s.Lead(true)
	b.pass(39 * time.Second)
	if got := b.ask(1, "GET", `{"name":"a"}`); got["advertisement"] == nil {
		t.Fatalf("gone early: %v", got)
	}
	b.pass(time.Second)
	b.event(events, "expired", "a")

	b.m.follower = true
	wantCode(t, b.ask(1, "LIST", ``), 20011)
}

func TestWatchIsTheSetThenTheChanges(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.ask(1, "PUT", fmt.Sprintf(`{"name":"a%d","subject":"a.%d","lease":{"mode":"permanent"}}`, i, i))
	}
	told := b.bus.hear("_INBOX.w")
	go b.s.accept(request{
		account: "A", verb: "LIST",
		payload: []byte(`{"watch":true,"subject":"a.>"}`), reply: "_INBOX.w", client: 7, respond: func([]byte) { t.Error("answered twice") },
	})
	if v := b.parse(b.next(told)); v["watching"] != true || v["revision"] != 3.0 {
		t.Fatalf("watch answered %v", v)
	}
	for i := range 3 {
		b.event(told, "current", fmt.Sprintf("a%d", i))
	}
	if v := b.event(told, "caught-up", ""); v["revision"] != 3.0 {
		t.Fatalf("end marker %v", v)
	}
	b.ask(1, "PUT", `{"name":"other","subject":"b","lease":{"mode":"permanent"}}`)
	b.ask(1, "PUT", `{"name":"a0","subject":"a.new","lease":{"mode":"permanent"}}`)
	b.event(told, "changed", "a0")
	b.ask(1, "PUT", `{"name":"a1","subject":"b.1","lease":{"mode":"permanent"}}`) // no longer matches
	b.event(told, "withdrawn", "a1")
	b.ask(1, "PUT", `{"name":"a1","subject":"a.1","lease":{"mode":"permanent"}}`)
	if v := b.event(told, "added", "a1"); v["revision"] != 7.0 {
		t.Fatalf("got %v", v)
	}
	b.bus.unlisten("_INBOX.w")
	b.s.mu.Lock()
	n := len(b.s.accounts["A"].watches)
	b.s.mu.Unlock()
	if n != 0 {
		t.Fatalf("%d watches are left after the watcher went", n)
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	b := newBench(t)
	b.m.mu.Lock() // nothing gets on
	refused := make(chan string, 10000)
	for i := range workerQueueMax + 10 {
		b.s.accept(request{
			account: "A", verb: "RENEW",
			payload: []byte(`{"name":"a"}`), reply: "r", client: uint64(i), respond: func(p []byte) { refused <- string(p) },
		})
	}
	wantCode(t, b.parse(b.next(refused)), 20010)
	b.m.mu.Unlock()
}

func FuzzRequest(f *testing.F) {
	f.Add("PUT", `{"name":"a","subject":"a"}`)
	f.Add("LIST", `{"subject":"a.>","limit":-1,"offset":-1}`)
	f.Add("WITHDRAW", `{"name":"a","owner":"x"}`)
	m := &memory{c: catalogue.New(), told: func(catalogue.Event) {}}
	s := New(Options{Catalogue: m})
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, verb, payload string) {
		answered := false
		s.carryOut(t.Context(), request{account: "A", verb: verb, payload: []byte(payload), reply: "r", respond: func(p []byte) {
			answered = json.Valid(p)
		}})
		if !answered && !strings.Contains(payload, "watch") {
			t.Fatalf("%s %s got no answer", verb, payload)
		}
	})
}
