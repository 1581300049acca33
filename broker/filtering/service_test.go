package filtering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/front"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

func newServer(t testing.TB, o front.Options) *front.Server {
	t.Helper()
	s, err := front.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newService(t testing.TB, s *front.Server, o Options) *Service {
	t.Helper()
	svc := New(o)
	t.Cleanup(svc.Close)
	for _, a := range s.Accounts() {
		if err := svc.Serve(a); err != nil {
			t.Fatal(err)
		}
	}
	return svc
}

func dial(t testing.TB, s *front.Server, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://"+s.Addr().String(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// request asks and returns the answer.
func request[T any](t testing.TB, nc *nats.Conn, verb, body string) T {
	t.Helper()
	m, err := nc.Request("$HERALD.FILTER."+verb, []byte(body), patience)
	if err != nil {
		t.Fatalf("%s %s: %v", verb, body, err)
	}
	var v T
	if err := json.Unmarshal(m.Data, &v); err != nil {
		t.Fatalf("%s: %v in %s", verb, err, m.Data)
	}
	return v
}

func subscribe(t testing.TB, nc *nats.Conn, body string) subscribed {
	t.Helper()
	a := request[subscribed](t, nc, "SUBSCRIBE", body)
	if a.Error != nil {
		t.Fatalf("%s: %+v", body, a.Error)
	}
	return a
}

func next(t testing.TB, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(patience)
	if err != nil {
		t.Fatalf("%s: %v", sub.Subject, err)
	}
	return m
}

func listen(t testing.TB, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestMessagesThatMatchCome(t *testing.T) {
	s := newServer(t, front.Options{})
	svc := newService(t, s, Options{})
	nc := dial(t, s)
	got := subscribe(t, nc, `{"subject":"orders.>","where":"amount > 10"}`)
	sub := listen(t, nc, got.Subject)
	all := listen(t, nc, ">") // sees deliveries as well, and must not multiply them
	wide := listen(t, nc, subscribe(t, nc, `{"subject":">","where":"has(amount)"}`).Subject)
	for i, p := range []string{`{"amount":5}`, `{"amount":50}`, `{}`, `no`, `{"amount":51}`} {
		m := nats.NewMsg(fmt.Sprintf("orders.%d", i))
		m.Data, m.Reply = []byte(p), "answer.here"
		m.Header.Set("X", "y")
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"orders.1", "orders.4"} {
		if m := next(t, sub); m.Subject != want || m.Header.Get("X") != "y" || m.Reply != "answer.here" {
			t.Errorf("got %+v, want %s", m, want)
		}
	}
	for _, want := range []string{"orders.0", "orders.1", "orders.4"} {
		if m := next(t, wide); m.Subject != want {
			t.Errorf("by > came %s, want %s", m.Subject, want)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := wide.Pending(); n != 0 {
		t.Errorf("%d messages too many", n)
	}
	_ = all.Unsubscribe()
	one := request[found](t, nc, "GET", `{"id":"`+got.ID+`"}`)
	st := one.Filter.Stats
	if st.Scanned != 5 || st.Matched != 2 || st.Delivered != 2 || st.Errors != 2 || st.First == nil || st.First.Subject != "orders.2" {
		t.Errorf("%+v", st)
	}
	list := request[found](t, nc, "LIST", ``)
	if *list.Total != 2 || list.Filters[0].ID != got.ID || list.Filters[0].Where != "amount > 10" {
		t.Errorf("%+v", list)
	}
	if n, _ := svc.Totals(); n != 2 {
		t.Errorf("%d registrations", n)
	}
	if c := request[found](t, nc, "CANCEL", `{"id":"`+got.ID+`"}`); !c.Cancelled {
		t.Errorf("%+v", c)
	}
	if a := request[found](t, nc, "GET", `{"id":"`+got.ID+`"}`); a.Error == nil || a.Error.Code != 404 {
		t.Errorf("%+v", a)
	}
}

// TestCodecsWithASchema: what the schema doesn't read is counted as what isn't JSON is.
func TestCodecsWithASchema(t *testing.T) {
	s := newServer(t, front.Options{})
	newService(t, s, Options{})
	nc := dial(t, s)
	avro := `{"avro":{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}}`
	got := subscribe(t, nc, `{"subject":"a","where":"n > 10","codec":`+avro+`}`)
	proto := subscribe(t, nc, `{"subject":"a","where":"n > 10","codec":"{\"protobuf\":\"syntax = \\\"proto3\\\"; message M { sint64 n = 4; }\"}"}`)
	subA, subP := listen(t, nc, got.Subject), listen(t, nc, proto.Subject)
	for _, payload := range []string{"\x16", "\x20\x16", "{}", "\x02"} { // 11 in Avro, 11 in Protobuf, neither, 1 in Avro
		if err := nc.Publish("a", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if m := next(t, subA); string(m.Data) != "\x16" {
		t.Errorf("by Avro came %x", m.Data)
	}
	if m := next(t, subP); string(m.Data) != "\x20\x16" {
		t.Errorf("by Protobuf came %x", m.Data)
	}
	st := request[found](t, nc, "GET", `{"id":"`+got.ID+`"}`).Filter
	if st.Codec != avro || st.Stats.Scanned != 4 || st.Stats.Matched != 1 || st.Stats.Errors != 2 || st.Stats.ByReason["payload"] != 2 || !strings.Contains(st.Stats.First.Error, "avro schema") {
		t.Errorf("%+v", st)
	}
	for body, want := range map[string]string{
		`{"subject":"a","where":"true","codec":{"avro":{"type":"nothing"}}}`: "nothing",
		`{"subject":"a","where":"true","codec":7}`:                           "a string or an object",
		`{"subject":"a","where":"true","codec":{"xml":1}}`:                   "codec",
	} {
		if a := request[subscribed](t, nc, "SUBSCRIBE", body); a.Error == nil || !strings.Contains(a.Error.Description, want) {
			t.Errorf("%s: %+v, want something with %q", body, a.Error, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := newServer(t, front.Options{})
	newService(t, s, Options{PerAccount: 1})
	nc := dial(t, s)
	for body, want := range map[string]string{
		`{"subject":"a..b","where":"true"}`:                           "not a subject",
		`{"subject":"a","where":"n >"}`:                               "1:",
		`{"subject":"a","where":"seq > 1"}`:                           "live message",
		`{"subject":"a","where":"true","codec":"avro"}`:               "json",
		`{"subject":"a","where":"true","deliver":"b"}`:                "inbox",
		`{"subject":"a","where":"true","deliver":"_INBOX.*"}`:         "inbox",
		`{"subject":"a","where":"true","id":"x"}`:                     "id",
		`{"subject":"a","where":"true","queue":"q","deliver":"_I.a"}`: "queue",
		`{"subject":"a","wher":"true"}`:                               "unknown field",
		`{"subject":"a","where":""}`:                                  "empty",
	} {
		a := request[subscribed](t, nc, "SUBSCRIBE", body)
		if a.Error == nil || !strings.Contains(a.Error.Description, want) {
			t.Errorf("%s: %+v, want something with %q", body, a.Error, want)
		}
	}
	a := request[subscribed](t, nc, "SUBSCRIBE", `{"subject":"a","where":"n > > 1"}`)
	if a.Error == nil || len(a.Error.Problems) == 0 || a.Error.Problems[0].Line != 1 {
		t.Errorf("the place of the problem: %+v", a.Error)
	}
	subscribe(t, nc, `{"subject":"a","where":"true"}`)
	if a := request[subscribed](t, nc, "SUBSCRIBE", `{"subject":"b","where":"true"}`); a.Error == nil || a.Error.Code != 503 {
		t.Errorf("one too many: %+v", a)
	}
}

func TestPermissions(t *testing.T) {
	s := newServer(t, front.Options{Auth: auth.Config{Users: []auth.User{
		{Name: "all", Password: "x"},
		{Name: "some", Password: "x", Permissions: &auth.Permissions{Subscribe: &auth.SubjectPermission{
			Allow: []string{"orders.>", "_INBOX.>", "$HERALD.F.>"}, Deny: []string{"orders.secret.>"},
		}}},
	}}})
	newService(t, s, Options{})
	all, some := dial(t, s, nats.UserInfo("all", "x")), dial(t, s, nats.UserInfo("some", "x"))
	if a := request[subscribed](t, some, "SUBSCRIBE", `{"subject":"pay.>","where":"true"}`); a.Error == nil || a.Error.Code != 403 {
		t.Errorf("what may not be subscribed to: %+v", a)
	}
	sub := listen(t, some, subscribe(t, some, `{"subject":"orders.>","where":"true"}`).Subject)
	for _, subject := range []string{"orders.secret.1", "orders.2"} {
		if err := all.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if m := next(t, sub); m.Subject != "orders.2" {
		t.Errorf("got %s, which is denied", m.Subject)
	}
	subscribe(t, all, `{"subject":"pay.>","where":"true"}`)
	if l := request[found](t, some, "LIST", ``); *l.Total != 1 {
		t.Errorf("%d registrations are shown, want only one's own subjects", *l.Total)
	}
}

func TestQueueGroupsShare(t *testing.T) {
	s := newServer(t, front.Options{})
	svc := newService(t, s, Options{})
	body := `{"subject":"jobs.*","where":"n % 2 == 0","queue":"workers"}`
	var subs []*nats.Subscription
	for range 3 {
		nc := dial(t, s)
		a := subscribe(t, nc, body)
		sub, err := nc.QueueSubscribeSync(a.Subject, a.Queue)
		if err != nil || nc.Flush() != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	if n, _ := svc.Totals(); n != 1 {
		t.Fatalf("%d registrations, want one for the group", n)
	}
	nc := dial(t, s)
	for i := range 300 {
		_ = nc.Publish("jobs.a", fmt.Appendf(nil, `{"n":%d}`, i))
	}
	_ = nc.Flush()
	eventually(t, "150 messages in all", func() bool {
		sum := 0
		for _, sub := range subs {
			n, _, _ := sub.Pending()
			sum += n
		}
		return sum == 150
	})
}

func TestEndsWhenNobodyListens(t *testing.T) {
	s := newServer(t, front.Options{})
	svc := newService(t, s, Options{Grace: 300 * time.Millisecond, sweepEvery: 10 * time.Millisecond})
	nc := dial(t, s)
	listen(t, nc, ">") // listens to everything, and so to nobody's filter in particular
	a := subscribe(t, nc, `{"subject":"a","where":"true"}`)
	sub := listen(t, nc, a.Subject)
	_ = sub.Unsubscribe()
	sub = listen(t, nc, a.Subject) // within the grace
	_ = nc.Publish("a", nil)
	next(t, sub)
	_ = sub.Unsubscribe()
	eventually(t, "the end", func() bool { n, _ := svc.Totals(); return n == 0 })
	if n := svc.Filters().Len(); n != 0 {
		t.Errorf("%d filters are kept", n)
	}
	b := subscribe(t, nc, `{"subject":"a","where":"true","id":"`+a.ID+`"}`)
	if b.Subject != a.Subject {
		t.Errorf("going on under %s, want %s", b.Subject, a.Subject)
	}
}

// fakePeers joins services without a network.
type fakePeers struct {
	mu       sync.Mutex
	handlers map[string]func(context.Context, string, []byte) ([]byte, error)
	other    *fakePeers
	up       func(string)
}

func (p *fakePeers) Others() []string {
	if p.other == nil {
		return nil
	}
	return []string{"other"}
}

func (p *fakePeers) Call(ctx context.Context, _, method string, body []byte) ([]byte, error) {
	p.other.mu.Lock()
	h := p.other.handlers[method]
	p.other.mu.Unlock()
	if h == nil {
		return nil, errors.New("no such method")
	}
	return h(ctx, "peer", body)
}

func (p *fakePeers) OnUp(f func(string)) { p.mu.Lock(); p.up = f; p.mu.Unlock() }

func (p *fakePeers) Handle(method string, h func(context.Context, string, []byte) ([]byte, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handlers == nil {
		p.handlers = map[string]func(context.Context, string, []byte) ([]byte, error){}
	}
	p.handlers[method] = h
}

// A node that comes tells what it has, and hears it, at once: messages that are published
// through it are filtered from the beginning.
func TestANodeThatComesIsComparedWithAtOnce(t *testing.T) {
	pa, pb := &fakePeers{}, &fakePeers{}
	sa, sb := newServer(t, front.Options{}), newServer(t, front.Options{})
	o := Options{compareEvery: time.Hour}
	o.Peers = pa
	newService(t, sa, o)
	na := dial(t, sa)
	early := subscribe(t, na, `{"subject":"x","where":"true"}`)
	listen(t, na, early.Subject)
	o.Peers = pb
	b := newService(t, sb, o)
	pa.other, pb.other = pb, pa
	pb.mu.Lock()
	up := pb.up
	pb.mu.Unlock()
	up("other")
	eventually(t, "b takes over what a has", func() bool { n, _ := b.Totals(); return n == 1 })
}

func TestOtherNodesKnow(t *testing.T) {
	pa, pb := &fakePeers{}, &fakePeers{}
	pa.other, pb.other = pb, pa
	sa, sb := newServer(t, front.Options{}), newServer(t, front.Options{})
	o := Options{Grace: 500 * time.Millisecond, sweepEvery: 10 * time.Millisecond, compareEvery: 20 * time.Millisecond}
	o.Peers = pa
	a := newService(t, sa, o)
	na, nb := dial(t, sa), dial(t, sb)
	early := subscribe(t, na, `{"subject":"x","where":"true"}`) // b isn't there yet
	listen(t, na, early.Subject)
	o.Peers = pb
	b := newService(t, sb, o)
	eventually(t, "b takes over what a has", func() bool { n, _ := b.Totals(); return n == 1 })
	sub := listen(t, nb, early.Subject)
	_ = nb.Publish("x", nil)
	next(t, sub)
	late := subscribe(t, na, `{"subject":"y","where":"true"}`)
	if n, _ := b.Totals(); n != 2 {
		t.Errorf("b has %d registrations when a has answered, want 2", n)
	}
	listen(t, nb, late.Subject)
	_ = na.Publish("x", nil)
	_ = na.Flush()
	if g := request[found](t, na, "GET", `{"id":"`+early.ID+`"}`); g.Filter.Stats.Scanned != 2 {
		t.Errorf("both nodes have seen %d, want 2", g.Filter.Stats.Scanned)
	}
	if c := request[found](t, nb, "CANCEL", `{"id":"`+late.ID+`"}`); !c.Cancelled {
		t.Errorf("%+v", c)
	}
	na.Close()
	nb.Close()
	eventually(t, "the end on both nodes", func() bool {
		x, _ := a.Totals()
		y, _ := b.Totals()
		return x == 0 && y == 0
	})
}

func BenchmarkRoute(b *testing.B) {
	s := newServer(b, front.Options{})
	newService(b, s, Options{})
	nc := dial(b, s)
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("registrations_%d", n), func(b *testing.B) {
			subject := fmt.Sprintf("bench%d", n)
			for i := range n {
				a := subscribe(b, nc, fmt.Sprintf(`{"subject":%q,"where":"n == %d"}`, subject, i))
				if _, err := nc.Subscribe(a.Subject, func(*nats.Msg) {}); err != nil {
					b.Fatal(err)
				}
			}
			_ = nc.Flush()
			p := s.GlobalAccount().NewPublisher()
			payload := []byte(`{"n":5,"region":"eu","amount":129.95}`)
			for b.Loop() {
				p.Publish(subject, "", nil, payload)
			}
			p.Flush()
		})
	}
}
