package advertise

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
)

// running is the service behind a real front and a real log.
type running struct {
	*testing.T
	url   string
	state *state.State
	stop  func()
}

func run(t *testing.T, dir string) *running {
	t.Helper()
	var s *Service
	srv, err := front.New(front.Options{OnDisconnect: func(c *front.ClientInfo, _ front.ConnInfo) { s.Disconnected(c) }})
	if err != nil {
		t.Fatal(err)
	}
	st, err := state.Open(state.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s = New(Options{Catalogue: st})
	if err := st.Start(state.Hooks{OnAdvertisement: s.Changed, OnAdvertisements: s.Restored, OnCatalogueLeader: s.Lead}); err != nil {
		t.Fatal(err)
	}
	for _, a := range srv.Accounts() {
		if err := s.Serve(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{T: t, url: fmt.Sprintf("nats://%s", srv.Addr()), state: st}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := srv.Close(); err != nil {
			t.Errorf("close the front: %v", err)
		}
		s.Close()
		if err := st.Close(); err != nil {
			t.Errorf("close the state: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

func (r *running) connect() *nats.Conn {
	r.Helper()
	nc, err := nats.Connect(r.url, nats.NoReconnect())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(nc.Close)
	return nc
}

func (r *running) request(nc *nats.Conn, verb, body string) map[string]any {
	r.Helper()
	m, err := nc.Request("$HERALD.ADV."+verb, []byte(body), 5*time.Second)
	if err != nil {
		r.Fatalf("%s: %v", verb, err)
	}
	var v map[string]any
	if err := json.Unmarshal(m.Data, &v); err != nil {
		r.Fatalf("%s: %v in %s", verb, err, m.Data)
	}
	return v
}

// next returns the next message of a subscription as "subject event revision name".
func (r *running) next(sub *nats.Subscription) string {
	r.Helper()
	m, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		r.Fatal(err)
	}
	var v struct {
		Watching      bool
		Event         string
		Revision      uint64
		Advertisement struct{ Name string }
	}
	if err := json.Unmarshal(m.Data, &v); err != nil {
		r.Fatalf("%v in %s", err, m.Data)
	}
	if v.Watching {
		v.Event = "watching"
	}
	return strings.TrimSpace(fmt.Sprint(v.Event, " ", v.Revision, " ", v.Advertisement.Name))
}

func TestAnyClientCanAdvertiseAndWatch(t *testing.T) {
	dir := t.TempDir()
	r := run(t, dir)
	nc, owner := r.connect(), r.connect()

	if v := r.request(owner, "PUT", `{"name":"orders","subject":"orders.{region}","durable":{"max_msgs":5},"lease":{"mode":"permanent"}}`); v["error"] != nil {
		t.Fatalf("put: %v", v)
	}
	if v := r.request(owner, "PUT", `{"name":"live","subject":"live","lease":{"grace":"10ms"}}`); v["error"] != nil {
		t.Fatalf("put: %v", v)
	}
	top, ok := r.state.Topic("$G", "orders")
	if !ok || top.Config().Subjects[0] != "orders.*" || top.Config().MaxMsgs != 5 {
		t.Fatal("the durable advertisement has no topic of its kind")
	}
	if v := r.request(owner, "PUT", `{"name":"other","subject":"other","durable":{"topic":"orders"}}`); fmt.Sprint(v["error"]) == "<nil>" {
		t.Fatalf("another advertisement took over the topic: %v", v)
	}

	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$HERALD.ADV.LIST", inbox, []byte(`{"watch":true}`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"watching 2", "current 2 live", "current 1 orders", "caught-up 2"} {
		if got := r.next(sub); got != want {
			t.Fatalf("watch told %q, want %q", got, want)
		}
	}
	owner.Close()
	if got := r.next(sub); got != "expired 3 live" {
		t.Fatalf("watch told %q after the owner had gone", got)
	}
	r.stop()

	r = run(t, dir)
	nc = r.connect()
	v := r.request(nc, "LIST", "")
	if v["total"] != 1.0 || v["revision"] != 3.0 {
		t.Fatalf("after a restart: %v", v)
	}
	if _, ok := r.state.Topic("$G", "orders"); !ok {
		t.Fatal("the topic is gone after a restart")
	}
	if v := r.request(nc, "WITHDRAW", `{"name":"orders"}`); v["withdrawn"] != true {
		t.Fatalf("withdraw: %v", v)
	}
	if _, ok := r.state.Topic("$G", "orders"); !ok {
		t.Fatal("the messages went with the advertisement")
	}
}
