package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/tests/harness"
)

// The checks of advertisements, on one node and on three.

// alone starts one node that is in no cluster.
func alone(t *testing.T) *world {
	t.Helper()
	w := prepare(t, harness.ClusterOptions{Nodes: 1})
	n := w.Nodes[0]
	conf := fmt.Sprintf("host: %q\nport: %d\nhttp: \"%s:%d\"\nserver_name: %s\njetstream { store_dir: %q }\n", n.Host, n.ClientPort, n.Host, n.HTTPPort, n.Name, n.Store)
	if err := os.WriteFile(n.Conf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start(n)
	return w
}

// TestAdvertise asks one node and a cluster of three for all that doesn't kill a node.
func TestAdvertise(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			t.Parallel()
			w := alone(t)
			if n > 1 {
				w = form(t, n)
			}
			for _, c := range []struct {
				name string
				test func(*testing.T, *world)
			}{
				{"a plain client can list", plainClientLists},
				{"every node lists the same", sameList},
				{"a publisher that is killed", killedPublisher},
				{"a publisher that comes back in time", publisherBack},
				{"what does not conform is refused", refused},
				{"figures are summed", summed},
				{"only holders publish what is exclusive", exclusive},
				{"a watch resumes on another node", watchResumes},
				{"what contradicts is refused, and told", conflicts},
				{"what does not conform is kept beside", quarantined},
				{"readers come and go", readersComeAndGo},
				{"undeclared traffic, and what is near", undeclaredAndNear},
				{"silence and its end are told", silence},
				{"the services are micro services", micros},
				{"exported, wiped, imported, exported", exported},
				{"thousands come in pages", thousands},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(t, &world{w.Cluster, t}) })
			}
		})
	}
}

// last is a node that, where there are several, probably does not lead.
func (w *world) last() *harness.Node { return w.Nodes[len(w.Nodes)-1] }

// adv asks the advertise service.
func (w *world) adv(nc *nats.Conn, verb, body string) map[string]any {
	w.t.Helper()
	var v map[string]any
	if err := json.Unmarshal(w.advRaw(nc, verb, body), &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) advRaw(nc *nats.Conn, verb, body string) []byte {
	w.t.Helper()
	m, err := nc.Request("$HERALD.ADV."+verb, []byte(body), patience)
	if err != nil {
		w.t.Fatalf("%s: %v", verb, err)
	}
	return m.Data
}

// put advertises, and fails unless that is done.
func (w *world) put(nc *nats.Conn, body string) map[string]any {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		v := w.adv(nc, "PUT", body)
		e, failed := v["error"].(map[string]any)
		switch {
		case !failed:
			return v
		case e["err_code"] == 20013.0 && time.Now().Before(end): // the outcome is not known: asked for again, it is the same
		default:
			w.t.Fatalf("put %s: %v", body, e)
		}
	}
}

// event is what a subscription or a watch is told.
type event struct {
	Event         string
	Revision      uint64
	Watching      bool
	Resumed       bool
	Name          string
	Advertisement struct{ Name string }
}

func (w *world) event(sub *nats.Subscription, wait time.Duration) (e event, ok bool) {
	w.t.Helper()
	m, err := sub.NextMsg(wait)
	if errors.Is(err, nats.ErrTimeout) {
		return e, false
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		w.t.Fatalf("%v in %s", err, m.Data)
	}
	if e.Name == "" {
		e.Name = e.Advertisement.Name
	}
	return e, true
}

func (w *world) subscribe(nc *nats.Conn, subject string) *nats.Subscription {
	w.t.Helper()
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		w.t.Fatal(err)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		w.t.Fatal(err)
	}
	return sub
}

// plainClientLists: a NATS client that knows nothing of Herald.
func plainClientLists(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	w.put(nc, `{"name":"plain","subject":"plain.{x}","lease":{"mode":"permanent"}}`)
	out, err := exec.Command(natsBinary(t), "-s", w.last().URL(), "req", "--raw", "$HERALD.ADV.LIST", "").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"name":"plain"`) {
		t.Fatalf("nats req: %v: %s", err, out)
	}
}

func sameList(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			w.put(nc, fmt.Sprintf(`{"name":"same.%02d","subject":"same.%d","lease":{"mode":"permanent"},"x":{"b":1,"a":[%d]}}`, i, i, i))
		})
	}
	wg.Wait()
	var first []byte
	for _, n := range w.Nodes {
		got := w.advRaw(w.connect(n), "LIST", "")
		if first == nil {
			first = got
		}
		if string(got) != string(first) {
			t.Errorf("%s lists\n%s\nnot\n%s", n.Name, got, first)
		}
	}
}

// asPublisher makes the test's executable a publisher that advertises and waits to be
// killed.
const asPublisher = "HERALD_TEST_PUBLISHER"

func TestPublisherProcess(t *testing.T) {
	url := os.Getenv(asPublisher)
	if url == "" {
		t.Skip("is for other tests to start")
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request("$HERALD.ADV.PUT", []byte(`{"name":"killed","subject":"killed","lease":{"grace":"300ms"}}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("advertised %s\n", m.Data)
	<-time.After(time.Minute)
}

// killedPublisher: expired within the grace, once.
func killedPublisher(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	events := w.subscribe(nc, "$HERALD.ADV.EVENT.*.killed")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPublisherProcess$", "-test.v")
	cmd.Env = append(os.Environ(), asPublisher+"="+w.last().URL())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if e, ok := w.event(events, patience); !ok || e.Event != "added" {
		t.Fatalf("got %+v, %t, wanted added", e, ok)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	if e, ok := w.event(events, patience); !ok || e.Event != "expired" {
		t.Fatalf("got %+v, %t, wanted expired", e, ok)
	}
	if took := time.Since(killed); took < 250*time.Millisecond {
		t.Errorf("expired after %v, before the grace was over", took)
	}
	if e, ok := w.event(events, time.Second); ok {
		t.Errorf("and then %+v", e)
	}
}

// publisherBack: no event at all.
func publisherBack(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	events := w.subscribe(nc, "$HERALD.ADV.EVENT.*.back")
	const body = `{"name":"back","subject":"back","lease":{"grace":"20s"}}`
	p := w.connect(w.Nodes[0])
	w.put(p, body)
	if e, ok := w.event(events, patience); !ok || e.Event != "added" {
		t.Fatalf("got %+v, %t, wanted added", e, ok)
	}
	p.Close()
	for _, n := range w.Nodes {
		p := w.connect(n)
		w.put(p, body)
		p.Close()
	}
	if e, ok := w.event(events, time.Second); ok {
		t.Errorf("a publisher that came back made %+v", e)
	}
}

func refused(t *testing.T, w *world) {
	maker, nc := w.connect(w.Nodes[0]), w.connect(w.last())
	w.stream(w.js(maker), "strict", len(w.Nodes))
	live := w.subscribe(maker, "strict.x")
	events := w.subscribe(nc, "$HERALD.ADV.EVENT.violation.strict")
	w.put(maker, `{"name":"strict","subject":"strict.{x}","enforce":"reject","lease":{"mode":"permanent"},
		"schema":{"format":"json-schema","inline":{"type":"object","required":["qty"]}}}`)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	var api *nats.APIError
	bad := 0
	w.eventually("the rule to be in force on the other node", func() bool {
		bad++
		_, err := js.Publish("strict.probe", []byte(`{}`), nats.AckWait(patience))
		if err != nil && !errors.As(err, &api) {
			t.Fatal(err)
		}
		return err != nil
	})
	if api.ErrorCode != 20031 || !strings.Contains(api.Description, "required") {
		t.Errorf("told %+v", api)
	}
	before, err := js.StreamInfo("strict")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("strict.x", []byte(`{}`)); !errors.As(err, &api) {
		t.Errorf("an invalid message: %v", err)
	}
	if _, err := js.Publish("strict.x", []byte(`{"qty":1}`)); err != nil {
		t.Errorf("a valid one right after: %v", err)
	}
	if m, err := live.NextMsg(patience); err != nil || string(m.Data) != `{"qty":1}` {
		t.Errorf("delivered %v, %v", m, err)
	}
	after, err := js.StreamInfo("strict")
	if err != nil || after.State.Msgs != before.State.Msgs+1 {
		t.Errorf("stored %d, then %d (%v)", before.State.Msgs, after.State.Msgs, err)
	}
	if _, ok := w.event(events, patience); !ok {
		t.Error("no event of the violation")
	}
	v := w.adv(maker, "GET", `{"name":"strict","observed":true}`)
	o, _ := v["observed"].(map[string]any)
	if o["failed_1h"] == nil || o["failed_1h"].(float64) < 2 {
		t.Errorf("counted %v", o)
	}
	if v := w.adv(nc, "CHECK", `{"name":"strict"}`); v["failed"] != float64(before.State.Msgs) {
		t.Errorf("check of what is stored: %v, wanted %d failures", v, before.State.Msgs)
	}
	if v := w.adv(nc, "SAMPLE", `{"name":"strict","count":1}`); !strings.Contains(fmt.Sprint(v["messages"]), `qty`) {
		t.Errorf("sample: %v", v)
	}
}

func summed(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	w.put(nc, `{"name":"summed","subject":"summed.{k}","key":{"token":"k"},"lease":{"mode":"permanent"}}`)
	w.subscribe(w.connect(w.last()), "summed.>")
	want := 0
	for i, n := range w.Nodes {
		p := w.connect(n)
		// The count begins where the advertisement is known.
		w.eventually("the advertisement to be known", func() bool {
			return w.adv(p, "LIST", `{"name":"summed","observed":true}`)["total"] == 1.0
		})
		for j := range 10 {
			if err := p.Publish(fmt.Sprintf("summed.%d", 10*i+j), []byte("12345")); err != nil {
				t.Fatal(err)
			}
			want++
		}
		if err := p.FlushTimeout(patience); err != nil {
			t.Fatal(err)
		}
	}
	var o map[string]any
	why := ""
	w.eventually("all to be counted", func() bool {
		v := w.adv(w.connect(w.last()), "GET", `{"name":"summed","observed":true}`)
		o, _ = v["observed"].(map[string]any)
		why = fmt.Sprint(o)
		return o["msgs"] == float64(want)
	}, &why)
	if o["publishers"] != float64(len(w.Nodes)) || o["subscribers"] != 1.0 || o["bytes"] != float64(5*want) || o["incomplete"] != nil {
		t.Errorf("observed %v", o)
	}
	if keys, _ := o["keys"].(float64); keys < float64(want)*0.9 || keys > float64(want)*1.1 {
		t.Errorf("%d keys are estimated as %v", want, keys)
	}
}

func exclusive(t *testing.T, w *world) {
	holder, other := w.connect(w.last()), w.connect(w.Nodes[0])
	w.put(holder, `{"name":"mine","subject":"mine.>","exclusive":true,"owner":{"team":"us"}}`)
	got := w.subscribe(other, "mine.>")
	w.eventually("others to be refused", func() bool {
		if err := errors.Join(other.Publish("mine.x", []byte("other")), other.FlushTimeout(patience)); err != nil {
			t.Fatal(err)
		}
		_, err := got.NextMsg(50 * time.Millisecond)
		return errors.Is(err, nats.ErrTimeout)
	})
	if err := errors.Join(holder.Publish("mine.x", []byte("holder")), holder.FlushTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	if m, err := got.NextMsg(patience); err != nil || string(m.Data) != "holder" {
		t.Errorf("got %v, %v", m, err)
	}
	v := w.adv(other, "PUT", `{"name":"theirs","subject":"mine.y","owner":{"team":"them"}}`)
	if e, _ := v["error"].(map[string]any); e["err_code"] != 20016.0 {
		t.Errorf("another's advertisement: %v", v)
	}
}

func watchResumes(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	w.put(nc, `{"name":"w.0","subject":"w.0","lease":{"mode":"permanent"}}`)
	watch := func(n *harness.Node, body string) *nats.Subscription {
		c := w.connect(n)
		inbox := nats.NewInbox()
		sub := w.subscribe(c, inbox)
		if err := c.PublishRequest("$HERALD.ADV.LIST", inbox, []byte(body)); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	sub := watch(w.Nodes[0], `{"watch":true,"subject":"w.>"}`)
	var revision uint64
	for caught := false; !caught; {
		e, ok := w.event(sub, patience)
		if !ok {
			t.Fatal("the watch does not catch up")
		}
		caught, revision = e.Event == "caught-up", e.Revision
	}
	w.put(nc, `{"name":"w.1","subject":"w.1","lease":{"mode":"permanent"}}`)
	w.put(nc, `{"name":"other","subject":"other","lease":{"mode":"permanent"}}`)
	w.adv(nc, "WITHDRAW", `{"name":"w.0"}`)
	sub = watch(w.last(), fmt.Sprintf(`{"watch":true,"subject":"w.>","since":%d}`, revision))
	var got []string
	for len(got) < 5 {
		e, ok := w.event(sub, patience)
		if !ok {
			t.Fatalf("after %v nothing comes", got)
		}
		switch {
		case e.Watching:
			got = append(got, fmt.Sprint("resumed ", e.Resumed))
		case e.Event == "caught-up":
			w.put(nc, `{"name":"w.2","subject":"w.2","lease":{"mode":"permanent"}}`)
			fallthrough
		default:
			got = append(got, strings.TrimSpace(e.Event+" "+e.Name))
		}
	}
	if want := "[resumed true added w.1 withdrawn w.0 caught-up added w.2]"; fmt.Sprint(got) != want {
		t.Errorf("told %v, wanted %s", got, want)
	}
}

// TestAThousandLeasesOutliveTheLeader kills the node that leads the catalogue: nothing
// expires, revisions rise, and a watch goes on on another node without gap or repeat.
func TestAThousandLeasesOutliveTheLeader(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	const leases = 1000
	dies := w.catalogueLeader()
	rest := w.others(dies)
	events := w.subscribe(w.connect(rest[0]), "$HERALD.ADV.EVENT.expired.>")
	// A third of the clients is on the node that dies, and comes back elsewhere.
	var clients []*nats.Conn
	for i := range 30 {
		clients = append(clients, w.connect(append([]*harness.Node{w.Nodes[i%3]}, rest...)...))
	}
	var wg sync.WaitGroup
	for i, nc := range clients {
		wg.Go(func() {
			for j := i; j < leases; j += len(clients) {
				w.put(nc, fmt.Sprintf(`{"name":"lease.%d","subject":"lease.%d","lease":{"ttl":"20s","grace":"10s"}}`, j, j))
			}
		})
	}
	wg.Wait()
	watcher := w.connect(rest[1])
	inbox := nats.NewInbox()
	watch := w.subscribe(watcher, inbox)
	if err := watcher.PublishRequest("$HERALD.ADV.LIST", inbox, []byte(`{"watch":true}`)); err != nil {
		t.Fatal(err)
	}
	current := 0
	for {
		e, ok := w.event(watch, patience)
		if !ok {
			t.Fatalf("the watch ended after %d", current)
		}
		if e.Event == "current" {
			current++
		}
		if e.Event == "caught-up" {
			break
		}
	}
	if current != leases {
		t.Fatalf("%d are advertised, wanted %d", current, leases)
	}
	before := w.adv(watcher, "LIST", `{"limit":1}`)
	dies.Kill()
	nc := w.connect(rest...)
	var put map[string]any
	w.eventually("a new leader", func() bool {
		m, err := nc.Request("$HERALD.ADV.PUT", []byte(`{"name":"after","subject":"after","lease":{"mode":"permanent"}}`), patience)
		return err == nil && json.Unmarshal(m.Data, &put) == nil && put["error"] == nil
	})
	if was, is := before["revision"].(float64), put["revision"].(float64); is <= was {
		t.Errorf("revision %v after %v", is, was)
	}
	if e, ok := w.event(watch, patience); !ok || e.Event != "added" || e.Name != "after" || e.Revision != uint64(before["revision"].(float64))+1 {
		t.Errorf("the watch is told %+v, %t: there is a gap, or a repeat", e, ok)
	}
	// The clients of the dead node are back and renew; nobody else has to.
	for i, c := range clients {
		w.eventually("a client to be connected", c.IsConnected)
		for j := i; j < leases && i%3 == dies.Index%3; j += len(clients) {
			if v := w.adv(c, "RENEW", fmt.Sprintf(`{"name":"lease.%d"}`, j)); v["error"] != nil {
				t.Errorf("renew lease.%d: %v", j, v["error"])
			}
		}
	}
	if e, ok := w.event(events, 3*time.Second); ok {
		t.Errorf("%+v", e)
	}
	if v := w.adv(watcher, "LIST", `{"limit":1}`); v["total"] != float64(leases+1) {
		t.Errorf("%v are left of %d", v["total"], leases+1)
	}
	if e, ok := w.event(watch, 100*time.Millisecond); ok {
		t.Errorf("the watch is told %+v", e)
	}
}
