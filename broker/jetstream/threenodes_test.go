package jetstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

// node is a client of one node of a cluster.
type node struct {
	name string
	nc   *nats.Conn
	js   jetstream.JetStream
	sys  *nats.Conn
}

// threeNodes starts a cluster in this process and connects to each of its nodes.
func threeNodes(t *testing.T) []node {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	var nodes []node
	var routes []string
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(t.TempDir(), "test.conf")
		text := fmt.Sprintf(`port: -1
server_name: %s
accounts { A { users: [{user: a, password: a}], jetstream: true }, SYS { users: [{user: s, password: s}] } }
system_account: SYS
no_auth_user: a
jetstream { store_dir: %q }
cluster { name: three, port: -1, routes: [%s] }
`, name, t.TempDir(), strings.Join(routes, ", "))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := config.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := broker.New(broker.Config{Options: o, StoreDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- b.Run(context.Background()) }()
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ran; err != nil {
				t.Error(err)
			}
		})
		<-b.Ready()
		u, err := url.Parse(b.ClusterURL())
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, fmt.Sprintf("%q", "nats-route://"+u.Host))
		n := node{name: name, nc: must[*nats.Conn](t)(nats.Connect(b.ClientURL()))}
		t.Cleanup(n.nc.Close)
		n.sys = must[*nats.Conn](t)(nats.Connect(b.ClientURL(), nats.UserInfo("s", "s")))
		t.Cleanup(n.sys.Close)
		n.js = must[jetstream.JetStream](t)(jetstream.New(n.nc))
		nodes = append(nodes, n)
	}
	within(t, time.Minute, "three nodes that hold a stream", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := nodes[0].js.CreateStream(ctx, jetstream.StreamConfig{Name: "FIRST", Replicas: 3})
		return err == nil
	})
	return nodes
}

func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", d, what)
		}
	}
}

func (n node) create(t *testing.T, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	return must[jetstream.Stream](t)(n.js.CreateStream(deadline(t), cfg))
}

// stepDown moves the lead of a stream, and returns who leads then.
func (n node) stepDown(t *testing.T, stream string) string {
	t.Helper()
	before := n.leader(t, stream)
	if r := raw(t, n.nc, "STREAM.LEADER.STEPDOWN."+stream, ""); r["success"] != true {
		t.Fatal(r)
	}
	var now string
	within(t, patience, "another leader", func() bool {
		now = n.leader(t, stream)
		return now != "" && now != before
	})
	return now
}

func (n node) leader(t *testing.T, stream string) string {
	t.Helper()
	c, _ := raw(t, n.nc, "STREAM.INFO."+stream, "")["cluster"].(map[string]any)
	leader, _ := c["leader"].(string)
	return leader
}

// spread waits until all nodes lead groups for streams with one replica.
func spread(t *testing.T, n node) {
	t.Helper()
	leaders := map[string]bool{}
	i := 0
	within(t, time.Minute, "streams on every node", func() bool {
		i++
		s := n.create(t, jetstream.StreamConfig{Name: fmt.Sprint("W", i)})
		leaders[s.CachedInfo().Cluster.Leader] = true
		return len(leaders) == 3
	})
	for ; i > 0; i-- {
		if err := n.js.DeleteStream(deadline(t), fmt.Sprint("W", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThreeNodesServeAsOne asks each node for what any of them leads.
func TestThreeNodesServeAsOne(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	a, b, c := nodes[0], nodes[1], nodes[2]
	spread(t, a)
	t.Run("streams on any node", func(t *testing.T) {
		for i := range 6 { // in groups that different nodes lead
			n := nodes[i%3]
			s := n.create(t, jetstream.StreamConfig{Name: fmt.Sprint("S", i), Subjects: []string{fmt.Sprint("s.", i)}, AllowDirect: true})
			if i := s.CachedInfo(); i.Cluster == nil || i.Cluster.Leader == "" || i.Cluster.Name != "three" {
				t.Errorf("%+v", i.Cluster)
			}
			for _, m := range nodes {
				if _, err := m.js.Publish(deadline(t), fmt.Sprint("s.", i), []byte(m.name)); err != nil {
					t.Errorf("publish to S%d at %s, right after it was made: %v", i, m.name, err)
				}
			}
		}
		leaders := map[string]bool{}
		for _, n := range nodes {
			infos := n.js.ListStreams(deadline(t))
			count := 0
			for i := range infos.Info() {
				if count++; strings.HasPrefix(i.Config.Name, "S") && i.State.Msgs != 3 {
					t.Errorf("%s says that %s has %d messages", n.name, i.Config.Name, i.State.Msgs)
				}
				leaders[i.Cluster.Leader] = true
			}
			if infos.Err() != nil || count != 7 {
				t.Errorf("%s lists %d streams: %v", n.name, count, infos.Err())
			}
			account := must[*jetstream.AccountInfo](t)(n.js.AccountInfo(deadline(t)))
			if account.Streams != 7 || account.Store == 0 {
				t.Errorf("%s: %+v", n.name, account)
			}
			for i := range 6 {
				s := must[jetstream.Stream](t)(n.js.Stream(deadline(t), fmt.Sprint("S", i)))
				if m, err := s.GetLastMsgForSubject(deadline(t), fmt.Sprint("s.", i)); err != nil || string(m.Data) != "c" {
					t.Errorf("%s: last of S%d: %v, %v", n.name, i, m, err)
				}
			}
		}
		if len(leaders) != 3 {
			t.Errorf("led by %v", leaders)
		}
	})
	t.Run("copies", func(t *testing.T) {
		for i := range 3 {
			nodes[i].create(t, jetstream.StreamConfig{Name: fmt.Sprint("M", i), Mirror: &jetstream.StreamSource{Name: "S0"}})
		}
		x := c.create(t, jetstream.StreamConfig{Name: "X", Sources: []*jetstream.StreamSource{{Name: "S0"}, {Name: "S1"}, {Name: "S2"}}})
		for i := range 100 {
			if _, err := b.js.Publish(deadline(t), fmt.Sprint("s.", i%3), nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			s := must[jetstream.Stream](t)(a.js.Stream(deadline(t), fmt.Sprint("M", i)))
			within(t, patience, "a mirror", func() bool {
				return must[*jetstream.StreamInfo](t)(s.Info(deadline(t))).State.LastSeq == 37
			})
		}
		within(t, patience, "sources", func() bool { return must[*jetstream.StreamInfo](t)(x.Info(deadline(t))).State.Msgs == 109 })
	})
	t.Run("backups", func(t *testing.T) {
		for i, n := range nodes {
			name := fmt.Sprint("S", 3+i)
			request, archive := takeBackup(t, n.nc, name, "")
			if r := raw(t, n.nc, "STREAM.DELETE."+name, ""); r["success"] != true {
				t.Fatal(r)
			}
			m := nodes[(i+1)%3]
			r := giveBack(t, m.nc, name, request, archive)
			st, _ := r["state"].(map[string]any)
			if errCode(r) != 0 || st["messages"] != 3.0 {
				t.Errorf("restored at %s: %v", m.name, r)
			}
		}
	})
	t.Run("advertisements", func(t *testing.T) {
		for _, n := range nodes {
			m := must[*nats.Msg](t)(n.nc.Request("$HERALD.ADV.PUT", []byte(`{"name":"ad-`+n.name+`","subject":"ad.`+n.name+`","durable":{}}`), patience))
			if strings.Contains(string(m.Data), `"error"`) {
				t.Errorf("%s: %s", n.name, m.Data)
			}
			if _, err := n.js.Publish(deadline(t), "ad."+n.name, nil); err != nil {
				t.Errorf("%s: publish as advertised: %v", n.name, err)
			}
		}
		for _, n := range nodes {
			m := must[*nats.Msg](t)(n.nc.Request("$HERALD.ADV.LIST", nil, patience))
			var v struct{ Total int }
			if err := json.Unmarshal(m.Data, &v); err != nil || v.Total != 3 {
				t.Errorf("%s: %s", n.name, m.Data)
			}
		}
	})
}

// TestConsumersOutliveTheirLeader moves the lead under consumers of all kinds: each
// gets every message, those that nobody uses are kept for their full term.
func TestConsumersOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	a, b, c := nodes[0], nodes[1], nodes[2]
	s := a.create(t, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	elected := must[*nats.Subscription](t)(a.nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S"))
	if _, err := s.CreateConsumer(deadline(t), jetstream.ConsumerConfig{Name: "IDLE", InactiveThreshold: 4 * time.Second}); err != nil {
		t.Fatal(err)
	}
	idleSince := time.Now()

	var mu sync.Mutex
	got := map[string]map[string]int{"pull": {}, "push": {}, "ordered": {}}
	note := func(kind string, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		got[kind][string(body)]++
	}
	pull := must[jetstream.Consumer](t)(must[jetstream.Stream](t)(b.js.Stream(deadline(t), "S")).CreateConsumer(deadline(t),
		jetstream.ConsumerConfig{Durable: "PULL", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second}))
	stop := must[jetstream.ConsumeContext](t)(pull.Consume(func(m jetstream.Msg) { note("pull", m.Data()); _ = m.Ack() },
		jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(3*time.Second)))
	defer stop.Stop()
	old := must[nats.JetStreamContext](t)(c.nc.JetStream())
	push := must[*nats.Subscription](t)(old.Subscribe("s", func(m *nats.Msg) { note("push", m.Data); _ = m.Ack() },
		nats.ManualAck(), nats.AckWait(2*time.Second), nats.IdleHeartbeat(time.Second), nats.EnableFlowControl(), nats.BindStream("S")))
	defer func() { _ = push.Unsubscribe() }()
	ordered := must[jetstream.Consumer](t)(a.js.OrderedConsumer(deadline(t), "S", jetstream.OrderedConsumerConfig{}))
	stopOrdered := must[jetstream.ConsumeContext](t)(ordered.Consume(func(m jetstream.Msg) { note("ordered", m.Data()) },
		jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(3*time.Second)))
	defer stopOrdered.Stop()

	const rounds, each = 4, 50
	for round := range rounds {
		for i := range each {
			body := fmt.Sprint(round, "-", i)
			within(t, patience, "a publish", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_, err := nodes[i%3].js.Publish(ctx, "s", []byte(body), jetstream.WithMsgID(body))
				return err == nil
			})
			if i == each/2 {
				nodes[round%3].stepDown(t, "S")
			}
		}
	}
	for kind := range got {
		within(t, 30*time.Second, "all messages at "+kind, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(got[kind]) == rounds*each
		})
	}
	if m, err := elected.NextMsg(patience); err != nil || !strings.Contains(string(m.Data), "stream_leader_elected") {
		t.Errorf("no advisory of the election: %v", err)
	}
	info := must[*jetstream.ConsumerInfo](t)(pull.Info(deadline(t)))
	if info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Errorf("%+v", info.Cluster)
	}
	within(t, 30*time.Second, "everything acknowledged", func() bool {
		i, err := pull.Info(deadline(t))
		return err == nil && i.NumAckPending == 0 && i.NumPending == 0
	})
	within(t, time.Minute, "the end of the idle consumer", func() bool {
		_, err := s.Consumer(deadline(t), "IDLE")
		return err != nil
	})
	if d := time.Since(idleSince); d < 4*time.Second {
		t.Errorf("the idle consumer ended after %s", d)
	}
}

// TestLeadersMoveOnRequest has the catalogue and groups led elsewhere.
func TestLeadersMoveOnRequest(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	meta := func() string {
		m := must[*nats.Msg](t)(nodes[0].sys.Request("$SYS.REQ.SERVER.PING.JSZ", nil, patience))
		var v struct {
			Data struct {
				Meta struct{ Leader string } `json:"meta_cluster"`
			}
		}
		if err := json.Unmarshal(m.Data, &v); err != nil {
			t.Fatal(err)
		}
		return v.Data.Meta.Leader
	}
	for _, n := range nodes {
		m := must[*nats.Msg](t)(n.sys.Request("$JS.API.META.LEADER.STEPDOWN", []byte(`{"placement":{"preferred":"`+n.name+`"}}`), patience))
		if !strings.Contains(string(m.Data), `"success":true`) {
			t.Fatalf("%s", m.Data)
		}
		within(t, patience, "the catalogue led by "+n.name, func() bool { return meta() == n.name })
		n.create(t, jetstream.StreamConfig{Name: "AT-" + n.name, Replicas: 3})
		if r := raw(t, nodes[0].nc, "STREAM.LEADER.STEPDOWN.FIRST", `{"placement":{"preferred":"`+n.name+`"}}`); r["success"] != true {
			t.Fatal(r)
		}
		within(t, patience, "a stream led by "+n.name, func() bool { return nodes[1].leader(t, "FIRST") == n.name })
	}
	if r := raw(t, nodes[0].nc, "STREAM.CREATE.FIVE", `{"name":"FIVE","num_replicas":5}`); errCode(r) != 10023 {
		t.Error(r)
	}
}
