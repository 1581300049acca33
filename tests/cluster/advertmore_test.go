package cluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

const wantsQty = `"schema":{"format":"json-schema","inline":{"type":"object","required":["qty"]}},"lease":{"mode":"permanent"}`

// conflicts: the older one stays, whoever is asked, and everybody hears of it.
func conflicts(t *testing.T, w *world) {
	one, two := w.connect(w.Nodes[0]), w.connect(w.last())
	events := w.subscribe(w.connect(w.last()), "$HERALD.ADV.EVENT.conflict.>")
	w.put(one, `{"name":"older","subject":"conflict.*.c",`+wantsQty+`}`)
	v := w.adv(two, "PUT", `{"name":"newer","subject":"conflict.b.*","schema":{"format":"json-schema","inline":{"type":"string"}}}`)
	if e, _ := v["error"].(map[string]any); e["err_code"] != 20016.0 || !strings.Contains(fmt.Sprint(e["description"]), "older") {
		t.Fatalf("a contradiction: %v", v)
	}
	if e, ok := w.event(events, patience); !ok || e.Event != "conflict" || e.Name != "newer" {
		t.Errorf("told %+v, %t", e, ok)
	}
	if e, ok := w.event(events, 300*time.Millisecond); ok {
		t.Errorf("told once more: %+v", e)
	}
	for _, n := range w.Nodes {
		if v := w.adv(w.connect(n), "LIST", `{"subject":"conflict.>"}`); v["total"] != 1.0 {
			t.Errorf("%s lists %v", n.Name, v["total"])
		}
	}
	// One that is incompatible with what was there is refused too.
	v = w.adv(two, "PUT", `{"name":"older","subject":"conflict.*.c","schema":{"format":"json-schema","compat":"backward","inline":{"type":"object","required":["qty"]}},"lease":{"mode":"permanent"}}`)
	if v["error"] != nil {
		t.Fatal(v)
	}
	v = w.adv(two, "PUT", `{"name":"older","subject":"conflict.*.c","schema":{"format":"json-schema","inline":{"type":"object","required":["qty","id"]}},"lease":{"mode":"permanent"}}`)
	if e, _ := v["error"].(map[string]any); e["err_code"] != 20021.0 {
		t.Errorf("an incompatible schema: %v", v)
	}
}

// quarantined: kept beside, with the reason, wherever it was published.
func quarantined(t *testing.T, w *world) {
	maker, nc := w.connect(w.Nodes[0]), w.connect(w.last())
	w.stream(w.js(maker), "side", len(w.Nodes))
	w.put(maker, `{"name":"side","subject":"side.{x}","enforce":"quarantine",`+wantsQty+`}`)
	js := w.js(nc)
	var ack *jetstream.PubAck
	w.eventually("the rule to be in force on the other node", func() bool {
		var err error
		ack, err = js.Publish(w.within(), "side.1", []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Stream != "side"
	})
	if ack.Stream != "QUARANTINE_side" {
		t.Fatalf("acknowledged by %s", ack.Stream)
	}
	kept, err := w.js(maker).Stream(w.within(), "QUARANTINE_side")
	if err != nil {
		t.Fatal(err)
	}
	m, err := kept.GetMsg(w.within(), ack.Sequence)
	if err != nil || m.Header.Get("Herald-Dead-Subject") != "side.1" || m.Header.Get("Herald-Dead-Keyword") != "required" {
		t.Fatalf("kept %+v, %v", m, err)
	}
	if ack, err := js.Publish(w.within(), "side.1", []byte(`{"qty":1}`)); err != nil || ack.Stream != "side" {
		t.Errorf("a valid one right after: %+v, %v", ack, err)
	}
}

// readersComeAndGo: a publisher is told of readers on every node.
func readersComeAndGo(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	w.put(nc, `{"name":"read","subject":"read.{x}","lease":{"mode":"permanent"}}`)
	inbox := nats.NewInbox()
	told := w.subscribe(nc, inbox)
	if err := nc.PublishRequest("$HERALD.ADV.GET", inbox, []byte(`{"name":"read","subscribers":true}`)); err != nil {
		t.Fatal(err)
	}
	count := func(want int) {
		t.Helper()
		for {
			m, err := told.NextMsg(patience)
			if err != nil {
				t.Fatalf("never told of %d: %v", want, err)
			}
			var v struct{ Subscribers *int }
			if json.Unmarshal(m.Data, &v) == nil && v.Subscribers != nil && *v.Subscribers == want {
				return
			}
		}
	}
	count(0)
	var subs []*nats.Subscription
	for _, n := range w.Nodes {
		subs = append(subs, w.subscribe(w.connect(n), "read.>"))
	}
	count(len(w.Nodes))
	for _, s := range subs {
		if err := s.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	count(0)
}

// undeclaredAndNear: traffic that nobody declared is found from any node, and who asks for
// what isn't there is told what is like it.
func undeclaredAndNear(t *testing.T, w *world) {
	w.put(w.connect(w.Nodes[0]), `{"name":"near","subject":"nearby.orders.{region}","lease":{"mode":"permanent"}}`)
	for i, n := range w.Nodes {
		p := w.connect(n)
		for j := range 5 {
			if err := p.Publish(fmt.Sprintf("shadow.%d.done", 100*i+j), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.FlushTimeout(patience); err != nil {
			t.Fatal(err)
		}
	}
	nc := w.connect(w.last())
	w.eventually("all of the undeclared traffic", func() bool {
		v := w.adv(nc, "LIST", `{"undeclared":true}`)
		list, _ := v["undeclared"].([]any)
		return slices.ContainsFunc(list, func(x any) bool {
			m, _ := x.(map[string]any)
			return m["pattern"] == "shadow.*.done" && m["msgs"] == float64(5*len(w.Nodes))
		})
	})
	w.eventually("the nearest subject", func() bool {
		v := w.adv(nc, "LIST", `{"subject":"nearby.ordres.eu","nearest":true}`)
		m, _ := v["nearest"].(map[string]any)
		return strings.Contains(fmt.Sprint(m["like"]), "nearby.orders.{region}")
	})
}

// silence is told once, and so is its end, although each node counts for itself.
func silence(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	events := w.subscribe(nc, "$HERALD.ADV.EVENT.*.still")
	w.put(nc, `{"name":"still","subject":"still","rate":{"silence_after":"1s"},"lease":{"mode":"permanent"}}`)
	expect := func(want string) {
		t.Helper()
		if e, ok := w.event(events, patience); !ok || e.Event != want {
			t.Fatalf("told %+v, %t, wanted %s", e, ok, want)
		}
	}
	expect("added")
	expect("silent")
	p := w.connect(w.last())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if p.Publish("still", nil) != nil || p.FlushTimeout(patience) != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	expect("resumed")
	close(stop)
	wg.Wait()
}

// micros: each of the broker's services is one of NATS's micro services on each node.
func micros(t *testing.T, w *world) {
	nc := w.connect(w.last())
	services := []string{"herald-advertise", "herald-filter", "herald-operators"}
	if len(w.Nodes) > 1 {
		services = append(services, "herald-cluster")
	}
	for _, name := range services {
		inbox := nats.NewInbox()
		sub := w.subscribe(nc, inbox)
		if err := nc.PublishRequest("$SRV.PING."+name, inbox, nil); err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for range w.Nodes {
			m, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatalf("%s: %v after %d", name, err, len(ids))
			}
			var p micro.Ping
			if err := json.Unmarshal(m.Data, &p); err != nil || p.Name != name || p.Type != micro.PingResponseType {
				t.Fatalf("%s: %v in %s", name, err, m.Data)
			}
			ids[p.ID] = true
		}
		if len(ids) != len(w.Nodes) {
			t.Errorf("%s has the instances %v", name, ids)
		}
		for id := range ids { // by name and id one answers, from whichever node
			m, err := nc.Request("$SRV.INFO."+name+"."+id, nil, patience)
			var i micro.Info
			if err != nil || json.Unmarshal(m.Data, &i) != nil || i.ID != id || len(i.Endpoints) < 4 {
				t.Errorf("%s %s: %+v, %v", name, id, i, err)
			}
		}
	}
	tool := natsBinary(t)
	w.adv(nc, "GET", `{"name":"none of that name"}`)
	for what, want := range map[string]string{"info": "$HERALD.ADV.LIST", "stats": "herald-advertise"} {
		out, err := exec.Command(tool, "-s", w.last().URL(), "service", what, "herald-advertise").CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("nats service %s: %v: %s", what, err, out)
		}
	}
}

// thousands come in pages of which every node has the same; with HERALD_LONG ten thousand.
func thousands(t *testing.T, w *world) {
	n := 1500
	if os.Getenv("HERALD_LONG") != "" {
		n = 10_000
	}
	var wg sync.WaitGroup
	for g := range 30 {
		nc := w.connect(w.Nodes[g%len(w.Nodes)])
		wg.Go(func() {
			for i := g; i < n; i += 30 {
				w.put(nc, fmt.Sprintf(`{"name":"many.%05d","subject":"many.%d.{x}","summary":"one of many","owner":{"team":"many"},"lease":{"mode":"permanent"}}`, i, i))
			}
		})
	}
	wg.Wait()
	var first string
	for _, node := range w.Nodes {
		nc := w.connect(node)
		var all strings.Builder
		pages, began := 0, time.Now()
		for got := 0; got < n; pages++ {
			var v struct {
				Advertisements []struct{ Name string }
				Total          int
			}
			if err := json.Unmarshal(w.advRaw(nc, "LIST", fmt.Sprintf(`{"owner":"many","offset":%d}`, got)), &v); err != nil || v.Total != n || len(v.Advertisements) == 0 {
				t.Fatalf("%s: page %d: %d of %d, %v", node.Name, pages, len(v.Advertisements), v.Total, err)
			}
			if pages == 0 {
				t.Logf("%s: the first page of %d took %v", node.Name, n, time.Since(began))
			}
			for _, a := range v.Advertisements {
				all.WriteString(a.Name + "\n")
				got++
			}
		}
		if first == "" {
			first = all.String()
		}
		if all.String() != first || strings.Count(first, "\n") != n || pages < 2 {
			t.Errorf("%s lists others, in %d pages", node.Name, pages)
		}
		inbox := nats.NewInbox()
		watch := w.subscribe(nc, inbox)
		began = time.Now()
		if err := nc.PublishRequest("$HERALD.ADV.LIST", inbox, []byte(`{"watch":true,"owner":"many"}`)); err != nil {
			t.Fatal(err)
		}
		current := 0
		for caught := false; !caught; {
			e, ok := w.event(watch, patience)
			if !ok {
				t.Fatalf("%s: the watch stops after %d", node.Name, current)
			}
			if e.Event == "current" {
				current++
			}
			caught = e.Event == "caught-up"
		}
		if current != n {
			t.Errorf("%s: a watch begins with %d", node.Name, current)
		}
		t.Logf("%s: a watch of %d caught up in %v", node.Name, n, time.Since(began))
	}
}

// exported: what is written as AsyncAPI, wiped, and read in again is written the same.
func exported(t *testing.T, w *world) {
	tool := harness.Pubsub(t)
	run := func(n *harness.Node, args ...string) string {
		t.Helper()
		cmd := exec.Command(tool, append([]string{"--server", n.URL()}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("pubsub %s: %v: %s", strings.Join(args, " "), err, stderr.String())
		}
		return string(out)
	}
	nc := w.connect(w.Nodes[0])
	for _, ad := range []string{
		`{"name":"api.orders","subject":"api.{region}.orders","summary":"Orders","x-mine":{"b":1,"a":[2]},"enforce":"warn","rate":{"silence_after":"5m"},` + wantsQty + `}`,
		`{"name":"api.logs","subject":"api.logs.{rest...}","kind":"event","owner":{"team":"ops"},"lease":{"mode":"permanent"}}`,
		`{"name":"api.reads","subject":"api.*.orders","role":"consumes","lease":{"mode":"permanent"}}`,
	} {
		w.put(nc, ad)
	}
	list := func(n *harness.Node) string {
		return run(n, "discover", "--subject", "api.>", "--asyncapi", "--no-services")
	}
	first := list(w.last())
	for _, n := range w.Nodes {
		if got := list(n); got != first {
			t.Errorf("%s writes\n%s\nnot\n%s", n.Name, got, first)
		}
	}
	for _, name := range []string{"api.orders", "api.logs", "api.reads"} {
		w.adv(nc, "WITHDRAW", fmt.Sprintf(`{"name":%q}`, name))
	}
	if v := w.adv(nc, "LIST", `{"subject":"api.>"}`); v["total"] != 0.0 {
		t.Fatalf("not wiped: %v", v)
	}
	file := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	run(w.last(), "advertise", "-f", file)
	if again := list(w.Nodes[0]); again != first {
		t.Errorf("exported again it differs:\n%s\n---\n%s", first, again)
	}
}

// TestLeasesDontCareForClocks: nodes whose clocks are hours apart lead in turn, as does one
// that comes back with another clock. No lease ends, and none is counted twice.
func TestLeasesDontCareForClocks(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			offsets := []time.Duration{0, 3 * time.Hour, -3 * time.Hour, 72 * time.Hour, -time.Hour}
			clock := func(n *harness.Node, d time.Duration) { n.Env = []string{"HERALD_TEST_CLOCK_OFFSET=" + d.String()} }
			var w *world
			if nodes == 1 {
				w = alone(t)
			} else {
				w = prepare(t, harness.ClusterOptions{Nodes: nodes})
				for i, n := range w.Nodes {
					clock(n, offsets[i])
				}
				w.start(w.Nodes...)
			}
			nc := w.connect(w.Nodes...)
			const leases = 40
			for i := range leases {
				mode := []string{"ttl", "connection"}[i%2]
				w.put(nc, fmt.Sprintf(`{"name":"lease.%d","subject":"lease.%d","lease":{"mode":%q,"ttl":"60s","grace":"60s"}}`, i, i, mode))
			}
			before := w.adv(nc, "LIST", `{"limit":1}`)
			events := w.subscribe(nc, "$HERALD.ADV.EVENT.*.lease.*")
			for _, d := range offsets[1:] {
				n := w.Nodes[0]
				if nodes > 1 {
					n = w.catalogueLeader()
				}
				n.Kill()
				clock(n, d)
				w.start(n)
				w.eventually("the advertise service", func() bool {
					m, err := nc.Request("$HERALD.ADV.LIST", []byte(`{"limit":1}`), patience)
					return err == nil && strings.Contains(string(m.Data), `"total":`)
				})
			}
			if e, ok := w.event(events, 2*time.Second); ok {
				t.Errorf("%+v", e)
			}
			after := w.adv(nc, "LIST", `{"limit":1}`)
			if after["total"] != float64(leases) || after["revision"] != before["revision"] {
				t.Errorf("%v are left of %d, at revision %v after %v", after["total"], leases, after["revision"], before["revision"])
			}
			if v := w.adv(nc, "RENEW", `{"name":"lease.0"}`); v["error"] != nil {
				t.Errorf("renew: %v", v)
			}
			ended := w.subscribe(nc, "$HERALD.ADV.EVENT.expired.short")
			w.put(nc, `{"name":"short","subject":"short","lease":{"mode":"ttl","ttl":"1s","grace":"100ms"}}`)
			if _, ok := w.event(ended, patience); !ok { // and one that isn't renewed does end
				t.Error("what isn't renewed does not expire")
			}
		})
	}
}

// catalogueLeader is the node that leads the catalogue.
func (w *world) catalogueLeader() *harness.Node {
	w.t.Helper()
	leader := ""
	w.status(w.Nodes[0], "a leader of the catalogue", func(s *client.ClusterStatus) bool {
		for _, g := range s.Groups {
			if g.ID == 0 {
				leader = g.Leader
			}
		}
		return leader != ""
	})
	return w.Node(leader)
}
