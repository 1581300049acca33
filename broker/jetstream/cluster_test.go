package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// fakeCluster is three nodes as a service on a sees them. Its state is a single
// node's, whoever is said to lead.
type fakeCluster struct {
	mu         sync.Mutex
	leader     map[topics.GroupID]string
	down       map[string]bool
	forwarded  chan forwarded
	handlers   map[string]func(context.Context, string, []byte) ([]byte, error)
	answers    map[string]func(node string, body []byte) ([]byte, error) // of other nodes
	linearized int
	moved      []string
}

type forwarded struct {
	node string
	m    *front.Message
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		leader: map[topics.GroupID]string{0: "a", 1: "a"}, down: map[string]bool{}, forwarded: make(chan forwarded, 64),
		handlers: map[string]func(context.Context, string, []byte) ([]byte, error){},
		answers:  map[string]func(string, []byte) ([]byte, error){},
	}
}

func (c *fakeCluster) set(g topics.GroupID, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader[g] = leader
}

func (c *fakeCluster) Name() string    { return "a" }
func (c *fakeCluster) Nodes() []string { return []string{"a", "b", "c"} }
func (c *fakeCluster) Leader(g topics.GroupID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader[g]
}

func (c *fakeCluster) Ready() bool { return true }

func (c *fakeCluster) Members(topics.GroupID) []Member {
	return []Member{{Node: "a", Voter: true, Online: true}, {Node: "b", Voter: true, Online: true, Lag: 3}, {Node: "c", Voter: true}}
}

func (c *fakeCluster) Linearize(_ context.Context, g topics.GroupID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linearized++
	if leader := c.leader[g]; leader == "" || g != 0 && leader != "a" {
		return replication.ErrNotLeader
	}
	return nil
}

func (c *fakeCluster) Reached(g topics.GroupID) topics.Index { return topics.Index(10 + g) }

func (c *fakeCluster) Reach(ctx context.Context, g topics.GroupID, i topics.Index) error {
	if i <= c.Reached(g) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (c *fakeCluster) Transfer(_ context.Context, g topics.GroupID, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = append(c.moved, fmt.Sprint(g, " to ", to))
	return nil
}

func (c *fakeCluster) Forward(node string, m *front.Message) error {
	c.mu.Lock()
	down := c.down[node]
	c.mu.Unlock()
	if down {
		return errors.New("no such peer")
	}
	c.forwarded <- forwarded{node, m.Clone()}
	return nil
}

func (c *fakeCluster) Call(_ context.Context, node, method string, body []byte) ([]byte, error) {
	c.mu.Lock()
	f := c.answers[method]
	c.mu.Unlock()
	if f == nil {
		return nil, errors.New("no such method")
	}
	return f(node, body)
}

func (c *fakeCluster) Handle(method string, h func(context.Context, string, []byte) ([]byte, error)) {
	c.handlers[method] = h
}

func (c *fakeCluster) RemoveNode(_ context.Context, node string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = append(c.moved, "remove "+node)
	return nil
}

func (c *fakeCluster) DrainNode(context.Context, string) error { return nil }

// rig is a service of node a.
type rig struct {
	*testing.T
	c *fakeCluster
	s *Service
	a *accountAPI
	n int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	srv, err := front.New(front.Options{ServerName: "a", Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	st, err := state.Open(state.Options{Dir: t.TempDir(), ServerName: "a", Replier: func(a *front.Account) state.Replier { return a.NewPublisher() }})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, c: newFakeCluster()}
	fa := srv.Account("$G")
	e := delivery.New(delivery.Options{
		Topic: func(id topics.TopicID) delivery.Topic {
			if d, ok := st.TopicByID(id); ok {
				return d.Data()
			}
			return nil
		},
		Topics:   func(func(delivery.Topic) bool) {},
		Account:  func(string) delivery.Account { return testAccount{fa} },
		Proposer: st.Groups()[0], DeleteConsumer: func(topics.TopicID, string) {},
	})
	r.s = New(Options{
		State: st, Server: srv, Engine: func(topics.GroupID) *delivery.Engine { return e }, ServerName: "a", Cluster: "C", Peers: r.c,
	})
	if err := st.Start(state.Hooks{OnLeader: func(_ *state.Group, leads bool) { e.Lead(leads) }}); err != nil {
		t.Fatal(err)
	}
	r.s.Start()
	if err := r.s.EnableAccount("$G", jsapi.Unlimited()); err != nil {
		t.Fatal(err)
	}
	r.a = r.s.accounts["$G"]
	t.Cleanup(func() {
		r.s.Close()
		e.Close()
		if err := errors.Join(srv.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

type testAccount struct{ *front.Account }

func (a testAccount) NewPublisher() delivery.Publisher { return a.Account.NewPublisher() }

// send publishes a client's request and returns where its answer comes.
func (r *rig) send(from, subject, body string) chan string {
	r.Helper()
	r.n++
	inbox := fmt.Sprintf("_INBOX.%d", r.n)
	answers := make(chan string, 16)
	if _, err := r.a.account.Subscribe(inbox, "", func(m *front.Message) { answers <- string(m.Header) + string(m.Payload) }); err != nil {
		r.Fatal(err)
	}
	m := &front.Message{
		Subject: []byte(subject), Reply: []byte(inbox), Payload: []byte(body), Account: r.a.account,
		Client: &front.ClientInfo{ID: 1, Account: "$G"}, Forwarded: from,
	}
	switch {
	case strings.HasPrefix(subject, ackPrefix):
		r.a.onAck(m)
	default:
		r.a.onAPI(m, len(apiPrefix))
	}
	return answers
}

func (r *rig) next(answers chan string) string {
	r.Helper()
	select {
	case s := <-answers:
		return s
	case <-time.After(10 * time.Second):
		r.Fatal("no answer")
		return ""
	}
}

func (r *rig) ask(subject, body string) map[string]any {
	r.Helper()
	var v map[string]any
	if s := r.next(r.send("", "$JS.API."+subject, body)); json.Unmarshal([]byte(s), &v) != nil {
		r.Fatalf("answer: %q", s)
	}
	return v
}

func (r *rig) code(v map[string]any) any {
	e, _ := v["error"].(map[string]any)
	return e["err_code"]
}

func (r *rig) passed() forwarded {
	r.Helper()
	select {
	case f := <-r.c.forwarded:
		return f
	case <-time.After(5 * time.Second):
		r.Fatal("nothing was handed on")
		return forwarded{}
	}
}

func TestRequestsGoToTheLeader(t *testing.T) {
	r := newRig(t)
	if v := r.ask("STREAM.CREATE.S", `{"name":"S","subjects":["s"],"num_replicas":3}`); v["error"] != nil {
		t.Fatal(v)
	}
	info := r.ask("STREAM.INFO.S", "")
	got, _ := json.Marshal(info["cluster"])
	for _, want := range []string{
		`"leader":"a"`, `"name":"C"`, `"raft_group":"HERALD-1"`, `"leader_since"`,
		`{"active":0,"current":false,"lag":3,"name":"b","peer":"b"}`, `"offline":true`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("cluster lacks %s: %s", want, got)
		}
	}
	// The catalogue is led elsewhere, the stream is not.
	r.c.set(0, "b")
	r.send("", "$JS.API.STREAM.CREATE.T", `{"name":"T"}`)
	if f := r.passed(); f.node != "b" || string(f.m.Subject) != "$JS.API.STREAM.CREATE.T" || len(f.m.Reply) == 0 {
		t.Errorf("handed on: %+v", f)
	}
	if v := r.ask("STREAM.INFO.S", ""); v["error"] != nil {
		t.Error(v)
	}
	// And the other way round.
	r.c.set(0, "a")
	r.c.set(1, "c")
	for _, subject := range []string{
		"$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S", "$JS.API.CONSUMER.MSG.NEXT.S.C", "$JS.ACK.S.C.1.1.1.1.0",
	} {
		r.send("", subject, "")
		if f := r.passed(); f.node != "c" || string(f.m.Subject) != subject {
			t.Errorf("%s was handed on: %+v", subject, f)
		}
	}
	// One that was handed on here goes on once more, not twice.
	r.send("b", "$JS.API.STREAM.INFO.S", "")
	f := r.passed()
	if !hasHop(f.m.Header) || f.m.Forwarded != "" {
		t.Errorf("handed on: %+v", f.m)
	}
	if r.s.forward("b", &front.Message{Forwarded: "c", Header: f.m.Header}) {
		t.Error("handed on a third time")
	}
}

func TestWhatNobodyLeadsWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ask("STREAM.CREATE.S", `{"name":"S","subjects":["s"],"allow_direct":true}`)
	r.ask("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}`)
	r.c.set(1, "")
	info := r.send("", "$JS.API.STREAM.INFO.S", "")
	pull := r.send("", "$JS.API.CONSUMER.MSG.NEXT.S.C", `{"batch":1,"no_wait":true}`)
	// A replica answers direct gets meanwhile.
	if s := r.next(r.send("", "$JS.API.DIRECT.GET.S", `{"seq":1}`)); !strings.HasPrefix(s, "NATS/1.0 404") {
		t.Errorf("direct get: %q", s)
	}
	select {
	case s := <-info:
		t.Fatalf("answered with nobody leading: %s", s)
	case <-time.After(100 * time.Millisecond):
	}
	r.c.set(1, "a")
	r.s.LeaderKnown(1, "a")
	if s := r.next(info); strings.Contains(s, "error") {
		t.Error(s)
	}
	if s := r.next(pull); s != "NATS/1.0 404 No Messages\r\n\r\n" {
		t.Errorf("pull: %q", s)
	}
	// Not for ever.
	r.c.set(1, "")
	began := time.Now()
	if v := r.ask("STREAM.INFO.S", ""); r.code(v) != 10008.0 {
		t.Error(v)
	}
	if d := time.Since(began); d < leaderPatience-time.Second || d > leaderPatience+2*time.Second {
		t.Errorf("waited for %s", d)
	}
	// Whoever is thought to lead may be gone.
	r.c.set(1, "b")
	r.c.mu.Lock()
	r.c.down["b"] = true
	r.c.mu.Unlock()
	pull = r.send("", "$JS.API.CONSUMER.MSG.NEXT.S.C", `{"batch":1,"no_wait":true}`)
	if s := r.next(pull); s != "NATS/1.0 503\r\n\r\n" {
		t.Errorf("pull: %q", s)
	}
}

func TestListsAreGathered(t *testing.T) {
	r := newRig(t)
	for _, n := range []string{"S", "T"} {
		r.ask("STREAM.CREATE."+n, `{"name":"`+n+`"}`)
	}
	v := r.ask("STREAM.LIST", "")
	if list, _ := v["streams"].([]any); len(list) != 2 || v["missing"] != nil {
		t.Fatal(v)
	}
	// The streams' leader doesn't answer, then it does.
	r.c.set(1, "b")
	v = r.ask("STREAM.LIST", "")
	if list, _ := v["missing"].([]any); len(list) != 2 || v["total"] != 2.0 {
		t.Error(v)
	}
	asked := 0
	r.c.mu.Lock()
	r.c.answers[callStreams] = func(node string, body []byte) ([]byte, error) {
		var q streamsQuery
		if err := json.Unmarshal(body, &q); err != nil || node != "b" {
			return nil, errors.New("not a query")
		}
		asked++ // one stream an answer
		return json.Marshal(streamsAnswer{Done: 1, Infos: []streamPart{{ID: q.IDs[0], State: jsapi.StreamState{Messages: 7}, Cluster: &jsapi.ClusterInfo{Leader: "b"}}}})
	}
	r.c.answers[callUsage] = func(node string, _ []byte) ([]byte, error) {
		if node != "b" {
			return nil, errors.New("no answer")
		}
		return json.Marshal(usageAnswer{Usage: jsapi.Usage{Storage: 100, Consumers: 3}, API: jsapi.APIStats{Total: 1000}})
	}
	r.c.mu.Unlock()
	b, _ := json.Marshal(r.ask("STREAM.LIST", "")["streams"])
	if s := string(b); asked != 2 || strings.Count(s, `"messages":7`) != 2 || strings.Count(s, `"leader":"b"`) != 2 {
		t.Errorf("asked %d times: %s", asked, s)
	}
	v = r.ask("INFO", "")
	api, _ := v["api"].(map[string]any)
	if total, _ := api["total"].(float64); v["storage"] != 100.0 || v["consumers"] != 3.0 || v["streams"] != 2.0 || total < 1000 {
		t.Error(v)
	}
}

func TestStepDownMovesTheGroup(t *testing.T) {
	r := newRig(t)
	r.ask("STREAM.CREATE.S", `{"name":"S"}`)
	r.ask("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C"}}`)
	for _, tt := range []struct {
		subject, body string
		code          any
		moved         string
	}{
		{"STREAM.LEADER.STEPDOWN.S", "", nil, "1 to "},
		{"STREAM.LEADER.STEPDOWN.S", `{"placement":{"preferred":"c"}}`, nil, "1 to c"},
		{"STREAM.LEADER.STEPDOWN.S", `{"placement":{"preferred":"a"}}`, nil, ""},
		{"STREAM.LEADER.STEPDOWN.S", `{"placement":{"preferred":"x"}}`, 10005.0, ""},
		{"STREAM.LEADER.STEPDOWN.X", "", 10059.0, ""},
		{"CONSUMER.LEADER.STEPDOWN.S.C", `{"placement":{"preferred":"b"}}`, nil, "1 to b"},
		{"CONSUMER.LEADER.STEPDOWN.S.X", "", 10014.0, ""},
		{"STREAM.PEER.REMOVE.S", `{"peer":"b"}`, 10036.0, ""},
		{"STREAM.CREATE.BIG", `{"name":"BIG","num_replicas":5}`, 10023.0, ""},
	} {
		r.c.moved = nil
		v := r.ask(tt.subject, tt.body)
		if got := strings.Join(r.c.moved, ","); r.code(v) != tt.code || got != tt.moved {
			t.Errorf("%s %s: moved %q, answered %v", tt.subject, tt.body, got, v)
		}
	}
}
