package broker_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
)

// pair starts two nodes that know each other; text is appended to the configuration
// of both.
func pair(t *testing.T, text string) (a, b *broker.Broker) {
	t.Helper()
	a = start(t, broker.Config{Options: options(t, "server_name: a\ncluster { name: two, port: -1, authorization { user: u, password: PL4NT3D } }\n"+text)})
	u, err := url.Parse(a.ClusterURL())
	if err != nil {
		t.Fatal(err)
	}
	b = start(t, broker.Config{Options: options(t, fmt.Sprintf(
		"server_name: b\ncluster { name: two, port: -1, routes: [ \"nats-route://u:PL4NT3D@%s\" ] }\n", u.Host)+text)})
	for _, n := range []*broker.Broker{a, b} {
		eventually(t, "the other node", func() bool { return decode(t, n.MonitorURL()+"/routez")["num_routes"] == 1.0 })
	}
	return a, b
}

func TestTwoNodesAnswerAsOne(t *testing.T) {
	a, b := pair(t, "accounts { A { users: [{user: a, password: a}] }, SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS\n")
	s := connect(t, a.ClientURL(), nats.UserInfo("s", "s"))
	ask := func(subject, body string) map[string]string { // answers by server
		t.Helper()
		inbox := nats.NewInbox()
		sub, err := s.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := s.PublishRequest(subject, inbox, []byte(body)); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for len(out) < 2 {
			m, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatalf("%s: after %d answers: %v", subject, len(out), err)
			}
			var v struct {
				Server struct{ Name, Cluster string }
			}
			if err := json.Unmarshal(m.Data, &v); err != nil || v.Server.Cluster != "two" {
				t.Fatalf("%s: %v: %s", subject, err, m.Data)
			}
			out[v.Server.Name] = string(m.Data)
		}
		return out
	}
	eventually(t, "interest to be told", func() bool {
		m, err := s.Request("$SYS.REQ.SERVER."+b.ID()+".VARZ", nil, patience)
		return err == nil && strings.Contains(string(m.Data), `"server_name":"b"`)
	})
	for _, text := range ask("$SYS.REQ.SERVER.PING", "") {
		if !strings.Contains(text, `"active_servers":2`) || !strings.Contains(text, `"routes":[{"rid":1`) {
			t.Errorf("STATSZ: %s", text)
		}
	}
	ask("$SYS.REQ.SERVER.PING.VARZ", "")
	ask("$SYS.REQ.SERVER.PING.CONNZ", `{"auth":true}`)
	// A client of one node is told by events on the other, and asks about itself there.
	events, err := connect(t, b.ClientURL(), nats.UserInfo("s", "s")).SubscribeSync("$SYS.ACCOUNT.A.CONNECT")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an event from the other node", func() bool {
		connect(t, a.ClientURL(), nats.UserInfo("a", "a"))
		m, err := events.NextMsg(patience / 100)
		return err == nil && strings.Contains(string(m.Data), `"name":"a"`)
	})
	m, err := connect(t, b.ClientURL(), nats.UserInfo("a", "a")).Request("$SYS.REQ.USER.INFO", nil, patience)
	if err != nil || !strings.Contains(string(m.Data), `"name":"b"`) {
		t.Errorf("USER.INFO: %v %v", m, err)
	}
}

func TestClusterSubjectsAreForOperators(t *testing.T) {
	a, _ := pair(t, "accounts { A { users: [{user: a, password: a}] }, SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS\n")
	m, err := connect(t, a.ClientURL(), nats.UserInfo("s", "s")).Request("$HERALD.CLUSTER.STATUS", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	var st struct {
		Healthy bool
		Nodes   []struct{ Name, State string }
	}
	if err := json.Unmarshal(m.Data, &st); err != nil || !st.Healthy || len(st.Nodes) != 2 || st.Nodes[1].State != "live" {
		t.Errorf("%v: %s", err, m.Data)
	}
	for _, verb := range []string{"STATUS", "ADD", "REMOVE", "DRAIN", "TRANSFER", "SCRUB"} {
		if m, err := connect(t, a.ClientURL(), nats.UserInfo("a", "a")).Request("$HERALD.CLUSTER."+verb, []byte(`{"node":"b"}`), patience); err == nil {
			t.Errorf("%s was answered to an ordinary account: %s", verb, m.Data)
		}
	}
	for _, path := range []string{"/varz", "/routez", "/readyz", "/metrics", "/jsz"} {
		if _, text := page(t, a.MonitorURL()+path); strings.Contains(text, "PL4NT3D") {
			t.Errorf("%s shows the secret: %s", path, text)
		}
	}
}
