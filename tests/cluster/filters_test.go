package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

// condition is the filter under test, and matches says the same in Go.
const condition = `n % 3 == 0 && header["Region"] == "eu"`

func matches(n int) bool { return n%3 == 0 && n%2 == 0 }

// heard is what one subscriber got: numbers of messages.
type heard struct {
	name string
	mu   sync.Mutex
	n    []int
	last string // id of the last event
}

func (h *heard) add(payload []byte, id string) {
	var m struct{ N int }
	_ = json.Unmarshal(payload, &m)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n = append(h.n, m.N)
	if id != "" {
		h.last = id
	}
}

func (h *heard) got() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.n)
}

func (h *heard) lastID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// publish publishes messages from up to before to, through all nodes in turn.
func (w *world) numbered(from, to int, through ...*harness.Node) {
	w.t.Helper()
	var all []jetstream.JetStream
	for _, n := range through {
		all = append(all, w.js(w.connect(n)))
	}
	for i := from; i < to; i++ {
		region := map[bool]string{true: "eu", false: "us"}[i%2 == 0]
		m := &nats.Msg{Subject: "F.x", Header: nats.Header{"Region": {region}}, Data: fmt.Appendf(nil, `{"n":%d}`, i)}
		if _, err := all[i%len(all)].PublishMsg(w.within(), m); err != nil {
			w.t.Fatal(err)
		}
	}
}

func webURL(n *harness.Node, scheme, query string) string {
	return fmt.Sprintf("%s://%s:%d/subscribe?subject=F.x&where=%s%s", scheme, n.Host, n.HTTPPort, url.QueryEscape(condition), query)
}

// websocket subscribes at a node until ctx ends or the node does.
func (w *world) websocket(ctx context.Context, h *heard, n *harness.Node, query string) (done <-chan struct{}) {
	w.t.Helper()
	c, _, err := websocket.DefaultDialer.DialContext(ctx, webURL(n, "ws", query), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	var open struct{ Op string }
	if err := c.ReadJSON(&open); err != nil || open.Op != "open" {
		w.t.Fatal(open, err)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	go func() {
		defer close(ended)
		defer stop()
		for {
			var f struct {
				Op   string
				Seq  uint64
				Data json.RawMessage
			}
			if c.ReadJSON(&f) != nil {
				_ = c.Close()
				return
			}
			if f.Op == "msg" {
				h.add(f.Data, fmt.Sprint(f.Seq))
			}
		}
	}()
	return ended
}

// events subscribes by Server-Sent Events, as a browser does.
func (w *world) events(ctx context.Context, h *heard, n *harness.Node, query string) (done <-chan struct{}) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", webURL(n, "http", query), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if id := h.lastID(); id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil || r.StatusCode != http.StatusOK {
		w.t.Fatal(r, err)
	}
	ended, begun := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer r.Body.Close()
		id := ""
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case field == "event" && value == "open":
				close(begun)
			case field == "id":
				id = value
			case field == "data" && id != "":
				var f struct{ Data json.RawMessage }
				_ = json.Unmarshal([]byte(value), &f)
				h.add(f.Data, id)
				id = ""
			}
		}
	}()
	select {
	case <-begun:
	case <-time.After(patience):
		w.t.Fatal("the event stream does not open")
	}
	return ended
}

// TestFiltersOnThreeNodes: the same condition gives the same messages live, durable and
// over the web, on every node, after a node was killed, and after it is back.
func TestFiltersOnThreeNodes(t *testing.T) {
	t.Parallel()
	w := prepare(t, harness.ClusterOptions{Nodes: 3, Extra: "web: enabled"})
	w.start(w.Nodes...)
	ctx, cancel := context.WithCancel(t.Context())
	var ends []<-chan struct{}
	t.Cleanup(func() {
		cancel()
		for _, end := range ends {
			<-end
		}
	})
	s := w.stream(w.js(w.connect(w.Nodes[0])), "F", 3)
	var all, live []*heard
	named := func(kind string, n *harness.Node) *heard {
		h := &heard{name: kind + " at " + n.Name}
		all = append(all, h)
		return h
	}
	clients := map[*harness.Node]*client.Client{}
	for i, n := range w.Nodes {
		// Each client knows all nodes, and begins with its own.
		c, err := client.Connect(w.URLs(append([]*harness.Node{n}, w.others(n)...)...), client.Timeout(patience), client.ReconnectWait(20*time.Millisecond), client.NATS(nats.DontRandomize()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients[n] = c
		into := func(h *heard) client.Handler {
			return func(m *client.Message) error { h.add(m.Payload, ""); return nil }
		}
		subscribe := func(h *heard, options ...client.SubscribeOption) {
			t.Helper()
			if _, err := c.Subscribe("F.x", into(h), append(options, client.Where(condition))...); err != nil {
				t.Fatal(err)
			}
		}
		h := named("live", n)
		live = append(live, h)
		subscribe(h)
		subscribe(named("durable", n), client.Durable(fmt.Sprint("d", i)))
		subscribe(named("ordered", n), client.From(client.First()))
	}
	sockets, streams := map[*harness.Node]*heard{}, map[*harness.Node]*heard{}
	over := map[*harness.Node][]<-chan struct{}{}
	for _, n := range w.Nodes {
		sockets[n], streams[n] = named("websocket", n), named("events", n)
		over[n] = []<-chan struct{}{w.websocket(ctx, sockets[n], n, "&from=first"), w.events(ctx, streams[n], n, "&from=first")}
		ends = append(ends, over[n]...)
	}
	var want []int
	expect := func(until int) {
		t.Helper()
		for i := len(want); ; i++ {
			next := 0
			if len(want) > 0 {
				next = want[len(want)-1] + 1
			}
			for ; next < until && !matches(next); next++ {
			}
			if next >= until {
				break
			}
			want = append(want, next)
		}
		for _, h := range all {
			var why string
			w.eventually(h.name+" to have the rest", func() bool {
				why = fmt.Sprint(h.got(), " of ", want)
				return len(h.got()) >= len(want)
			}, &why)
			if got := h.got(); !slices.Equal(distinct(got), want) || strings.HasPrefix(h.name, "durable") == false && len(got) != len(want) {
				t.Fatalf("%s has %v, want %v", h.name, got, want)
			}
		}
	}
	w.numbered(0, 60, w.Nodes...)
	expect(60)

	// The leader dies; those who were there go on at another node.
	victim := w.leader(s)
	victim.Kill()
	for _, end := range over[victim] {
		<-end
	}
	left := w.others(victim)
	w.eventually("another leader", func() bool {
		js := w.js(w.connect(left[0]))
		st, err := js.Stream(w.within(), "F")
		return err == nil && st.CachedInfo().Cluster.Leader != "" && st.CachedInfo().Cluster.Leader != victim.Name
	})
	w.eventually("the client's new connection", func() bool {
		nc := clients[victim].Conn()
		return nc.IsConnected() && nc.ConnectedUrl() != victim.URL()
	})
	w.filtersBack(clients[victim], left)
	other := left[0]
	ends = append(ends,
		w.websocket(ctx, sockets[victim], other, "&last_event_id="+sockets[victim].lastID()),
		w.events(ctx, streams[victim], other, "&from=first"))
	w.numbered(60, 120, left...)
	expect(120)

	// It comes back, and serves the same.
	w.start(victim)
	late := named("websocket later", victim)
	ends = append(ends, w.websocket(ctx, late, victim, "&from=first"))
	w.numbered(120, 150, w.Nodes...)
	expect(150)
	for _, h := range live {
		if n := len(h.got()); n != len(want) {
			t.Errorf("%s has %d messages, want %d", h.name, n, len(want))
		}
	}
}

// filtersBack waits until a client that has changed its node is heard there: its filter is
// known, and all nodes know that somebody listens.
func (w *world) filtersBack(c *client.Client, nodes []*harness.Node) {
	w.t.Helper()
	for _, n := range nodes {
		nc := w.connect(n)
		w.eventually("live filters at "+n.Name, func() bool {
			m, err := nc.Request("$HERALD.FILTER.LIST", nil, time.Second)
			if err != nil {
				return false
			}
			var list struct {
				Filters []struct {
					Subject   string
					Listeners int
				}
			}
			return json.Unmarshal(m.Data, &list) == nil && len(list.Filters) >= 1 && c.Conn().IsConnected()
		})
	}
	if err := c.Conn().FlushTimeout(patience); err != nil {
		w.t.Fatal(err)
	}
}

// distinct drops repeats: what is durable may come twice when a leader dies.
func distinct(list []int) []int {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}
