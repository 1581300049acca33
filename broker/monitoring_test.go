package broker_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/logline"
)

// decode reads a page as JSON.
func decode(t *testing.T, url string) map[string]any {
	t.Helper()
	status, text := page(t, url)
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d, %v: %s", url, status, err, text)
	}
	return v
}

func TestPages(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "server_name: n1\njetstream: true\nhttp_base_path: /mon\nwebsocket { port: -1, no_tls: true }\n")})
	nc := connect(t, b.ClientURL(), nats.Name("one"))
	if _, err := nc.SubscribeSync("a.b"); err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddConsumer("S", &nats.ConsumerConfig{Durable: "C", AckPolicy: nats.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	url := b.MonitorURL()
	if !strings.HasSuffix(url, "/mon") {
		t.Fatalf("monitoring is at %s", url)
	}
	for path, want := range map[string]map[string]any{
		"/varz":                         {"server_name": "n1", "version": broker.NATSVersion, "herald": broker.Version, "connections": 1.0, "proto": 1.0},
		"/connz":                        {"num_connections": 1.0, "total": 1.0, "limit": 1024.0},
		"/connz?limit=5&offset=3":       {"num_connections": 0.0, "total": 1.0, "limit": 5.0, "offset": 3.0},
		"/connz?cid=77":                 {"num_connections": 0.0},
		"/connz?filter_subject=a.b":     {"num_connections": 1.0},
		"/connz?filter_subject=a.nope":  {"num_connections": 0.0},
		"/subsz?test=a.b":               {"total": 1.0},
		"/subscriptionsz?subs=1":        {"offset": 0.0},
		"/routez":                       {"num_routes": 0.0},
		"/gatewayz":                     {},
		"/leafz":                        {"leafnodes": 0.0},
		"/accountz":                     {"system_account": "$SYS"},
		"/accstatz":                     {},
		"/jsz":                          {"streams": 1.0, "consumers": 1.0, "messages": 1.0},
		"/healthz":                      {"status": "ok"},
		"/healthz?js-enabled-only=true": {"status": "ok"},
		"/healthz?account=$G&stream=S&consumer=C&js-server-only=": {"status": "ok"},
		"/livez":    {"status": "ok"},
		"/readyz":   {"ready": true},
		"/startupz": {"started": true},
	} {
		got := decode(t, url+path)
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s is %v, want %v", path, k, got[k], v)
			}
		}
	}
	var z struct {
		Accounts []struct {
			Name   string `json:"name"`
			Detail []struct {
				Name     string `json:"name"`
				Consumer []struct {
					Name string `json:"name"`
				} `json:"consumer_detail"`
				Config map[string]any `json:"config"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	_, text := page(t, url+"/jsz?accounts=1&streams=1&consumers=1&config=1")
	if err := json.Unmarshal([]byte(text), &z); err != nil || len(z.Accounts) != 1 || len(z.Accounts[0].Detail) != 1 ||
		len(z.Accounts[0].Detail[0].Consumer) != 1 || z.Accounts[0].Detail[0].Config == nil {
		t.Errorf("jsz details: %v %s", err, text)
	}
	if _, text := page(t, url+"/varz?callback=cb.x"); !strings.HasPrefix(text, "cb.x({") || !strings.HasSuffix(text, "})") {
		t.Errorf("JSONP: %.40s…", text)
	}
	if _, text := page(t, url+"/metrics"); !strings.Contains(text, `herald_topic_messages{account="$G",topic="S"} 1`) || !strings.Contains(text, "herald_connections 1") {
		t.Errorf("metrics: %s", text)
	}
	if _, text := page(t, url+"/"); !strings.Contains(text, `href="/mon/varz"`) {
		t.Errorf("index: %s", text)
	}
	for path, want := range map[string]int{
		"/connz?sort=nope": 400, "/connz?sort=stop": 400, "/connz?limit=x": 400, "/connz?offset=-1": 400, "/connz?state=bored": 400,
		"/connz?limit=99999999999999999999": 400, "/connz?offset=9223372036854775807&limit=9223372036854775807": 200,
		"/jsz?acc=NOPE": 400, "/accountz?acc=NOPE": 400, "/subsz?test=a.*": 400, "/varz?callback=alert(1)": 400, "/nope": 404,
		"/healthz?stream=S": 400, "/healthz?account=$G&stream=NOPE": 404, "/healthz?account=NOPE": 404,
		"/healthz?account=$G&stream=S&consumer=NOPE": 404, "/healthz?account=$G&stream=S&consumer=C": 200,
	} {
		if status, text := page(t, url+path); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, text)
		}
	}
}

func TestClosedConnections(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "")})
	connect(t, b.ClientURL(), nats.Name("gone")).Close()
	nc := connect(t, b.ClientURL(), nats.Name("here"))
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{"state=closed&sort=reason": "gone", "state=open": "here"} {
		eventually(t, query, func() bool { // the end of a connection is noticed a moment later
			list, _ := decode(t, b.MonitorURL()+"/connz?"+query)["connections"].([]any)
			return len(list) == 1 && list[0].(map[string]any)["name"] == want
		})
	}
	if v := decode(t, b.MonitorURL()+"/connz?state=any"); v["total"] != 2.0 {
		t.Errorf("any: %v", v)
	}
}

// eventually polls what another goroutine of the broker brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestSystemRequests asks what the CLI asks, as the system account and as
// others.
func TestSystemRequests(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, `
server_name: n1
server_tags: [red]
jetstream: true
accounts {
  A { users: [{user: a, password: a, permissions: { publish: ["x", ">"], subscribe: ">" }}], jetstream: true }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS`)})
	a := connect(t, b.ClientURL(), nats.UserInfo("a", "a"))
	s := connect(t, b.ClientURL(), nats.UserInfo("s", "s"))
	if _, err := a.SubscribeSync("one.*"); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		nc                  *nats.Conn
		subject, body, want string
	}{
		{s, "$SYS.REQ.SERVER.PING", "", `"statsz":{`},
		{s, "$SYS.REQ.SERVER.PING", `{"server_name":"n1","exact_match":true}`, `"statsz":{`},
		{s, "$SYS.REQ.SERVER.PING", `{"tags":["red"]}`, `"statsz":{`},
		{s, "$SYS.REQ.SERVER.PING.IDZ", "", `"data":{"name":"n1"`},
		{s, "$SYS.REQ.SERVER.PING.VARZ", "", `"server_name":"n1"`},
		{s, "$SYS.REQ.SERVER.PING.CONNZ", `{"auth":true}`, `"account":"A"`},
		{s, "$SYS.REQ.SERVER.PING.CONNZ", `{"state":"all","sort":"nope"}`, `"error":{"code":400`},
		{s, "$SYS.REQ.SERVER.PING.SUBSZ", `{"subscriptions":true}`, `"num_subscriptions"`},
		{s, "$SYS.REQ.SERVER.PING.JSZ", `{"account":"A"}`, `"account_details"`},
		{s, "$SYS.REQ.SERVER.PING.HEALTHZ", "", `"status":"ok"`},
		{s, "$SYS.REQ.SERVER.PING.ROUTEZ", "", `"num_routes":0`},
		{s, "$SYS.REQ.SERVER.PING.GATEWAYZ", "", `"outbound_gateways"`},
		{s, "$SYS.REQ.SERVER.PING.LEAFZ", "", `"leafnodes":0`},
		{s, "$SYS.REQ.SERVER.PING.ACCOUNTZ", "", `"accounts":["`},
		{s, "$SYS.REQ.SERVER.PING.NOPEZ", "", `"error":{"code":404`},
		{s, "$SYS.REQ.SERVER." + b.ID() + ".VARZ", "", `"server_name":"n1"`},
		{s, "$SYS.REQ.SERVER." + b.ID() + ".STATSZ", "", `"statsz":{`},
		{s, "$SYS.REQ.SERVER." + b.ID() + ".RELOAD", "", `"error":{`},
		{s, "$SYS.REQ.SERVER." + b.ID() + ".KICK", `{"cid":999}`, `"error":{`},
		{s, "$SYS.REQ.ACCOUNT.A.INFO", "", `"account_name":"A"`},
		{s, "$SYS.REQ.ACCOUNT.A.CONNZ", "", `"num_connections":1`},
		{s, "$SYS.REQ.ACCOUNT.A.SUBSZ", `{"subscriptions":true}`, `"one.*"`},
		{s, "$SYS.REQ.ACCOUNT.A.JSZ", "", `"account_details"`},
		{s, "$SYS.REQ.ACCOUNT.A.STATZ", "", `"acc":"A"`},
		{s, "$SYS.REQ.ACCOUNT.A.CONNS", "", `"conns":1`},
		{s, "$SYS.REQ.ACCOUNT.NOPE.INFO", "", `"error":{"code":404`},
		{s, "$SYS.REQ.ACCOUNT.PING.STATZ", "", `"account_statz"`},
		{a, "$SYS.REQ.USER.INFO", "", `"permissions":{"publish":{"allow":["x"`},
		{a, "$SYS.REQ.ACCOUNT.PING.STATZ", "", `"acc":"A"`},
		{a, "$SYS.REQ.SERVER.PING.CONNZ", "", `"num_connections":1`},
		{a, "$SYS.DEBUG.SUBSCRIBERS", "one.two", "1"},
	} {
		m, err := c.nc.Request(c.subject, []byte(c.body), patience)
		switch {
		case err != nil:
			t.Errorf("%s %s: %v", c.subject, c.body, err)
		case !strings.Contains(string(m.Data), c.want):
			t.Errorf("%s %s: %s\nhas no %s", c.subject, c.body, m.Data, c.want)
		}
	}
	// What belongs to the system account is not answered elsewhere.
	for _, subject := range []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.SYS.CONNZ", "$SYS.REQ.SERVER." + b.ID() + ".KICK"} {
		if m, err := a.Request(subject, nil, patience); err == nil {
			t.Errorf("%s was answered to an ordinary account: %s", subject, m.Data)
		}
	}
	// Another account's connections are not shown.
	m, err := a.Request("$SYS.REQ.SERVER.PING.CONNZ", []byte(`{"acc":"SYS"}`), patience)
	if err != nil || strings.Contains(string(m.Data), `"num_connections":2`) || !strings.Contains(string(m.Data), `"num_connections":1`) {
		t.Errorf("CONNZ of another account: %v %v", m, err)
	}
}

func TestEvents(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "accounts { A { users: [{user: a, password: a}] }, SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS")})
	s := connect(t, b.ClientURL(), nats.UserInfo("s", "s"))
	subs := map[string]*nats.Subscription{}
	for _, subject := range []string{"$SYS.ACCOUNT.A.CONNECT", "$SYS.ACCOUNT.A.DISCONNECT", "$SYS.ACCOUNT.A.SERVER.CONNS", "$SYS.SERVER.*.CLIENT.AUTH.ERR", "$SYS.SERVER.*.SHUTDOWN"} {
		sub, err := s.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		subs[subject] = sub
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	expect := func(subject, want string) {
		t.Helper()
		m, err := subs[subject].NextMsg(patience)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("%s: %v %v, want %s", subject, m, err, want)
		}
	}
	a := connect(t, b.ClientURL(), nats.UserInfo("a", "a"), nats.Name("me"))
	expect("$SYS.ACCOUNT.A.CONNECT", `"type":"io.nats.server.advisory.v1.client_connect"`)
	expect("$SYS.ACCOUNT.A.SERVER.CONNS", `"conns":1`)
	a.Close()
	expect("$SYS.ACCOUNT.A.DISCONNECT", `"reason":"Client Closed"`)
	if nc, err := nats.Connect(b.ClientURL(), nats.UserInfo("a", "wr0ng-secret"), nats.NoReconnect()); err == nil {
		nc.Close()
		t.Error("a wrong password was taken")
	}
	expect("$SYS.SERVER.*.CLIENT.AUTH.ERR", `"reason":"Authentication Failure"`)
}

// locked is a buffer for log lines.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestNoSecretIsShown plants secrets in every place that takes one, connects
// rightly and wrongly, and looks for them in the log and on every page.
func TestNoSecretIsShown(t *testing.T) {
	const planted = "PL4NT3D"
	var log locked
	b := start(t, broker.Config{
		Log: slog.New(logline.New(&log, logline.Options{Level: logline.LevelTrace})),
		Options: options(t, `
debug: true
trace: true
jetstream: true
websocket { port: -1, no_tls: true, token_cookie: tok }
authorization { users: [{user: u, password: PL4NT3D-password}] }
accounts { A { users: [{user: a, password: PL4NT3D-account}], jetstream: true }, SYS { users: [{user: s, password: PL4NT3D-system}] } }
system_account: SYS`),
	})
	for _, how := range []nats.Option{
		nats.UserInfo("u", planted+"-password"), nats.UserInfo("a", planted+"-account"), nats.UserInfo("a", planted+"-wrong"),
		nats.Token(planted + "-token"),
	} {
		for _, url := range []string{b.ClientURL(), b.WebsocketURL()} {
			if nc, err := nats.Connect(url, how, nats.NoReconnect()); err == nil {
				if err := nc.Flush(); err != nil {
					t.Error(err)
				}
				nc.Close()
			}
		}
	}
	s := connect(t, b.ClientURL(), nats.UserInfo("s", planted+"-system"))
	for _, path := range []string{
		"/varz", "/connz?state=any&auth=1&subs=detail", "/subsz?subs=1", "/routez", "/gatewayz", "/leafz", "/accountz", "/accountz?acc=A",
		"/accstatz?unused=1", "/jsz?accounts=1&streams=1&consumers=1&config=1&raft=1", "/healthz?details=1", "/livez", "/startupz", "/readyz", "/metrics", "/",
		"/debug/vars", "/debug/pprof/cmdline", "/stacksz",
	} {
		if _, text := page(t, b.MonitorURL()+path); strings.Contains(text, planted) {
			t.Errorf("%s shows a secret: %s", path, text)
		}
	}
	for _, subject := range []string{"VARZ", "CONNZ", "ACCOUNTZ", "STATSZ", "SUBSZ"} {
		m, err := s.Request("$SYS.REQ.SERVER.PING."+subject, []byte(`{"auth":true,"state":2}`), patience)
		if err != nil || strings.Contains(string(m.Data), planted) {
			t.Errorf("%s: %v %v", subject, m, err)
		}
	}
	if text := log.String(); strings.Contains(text, planted) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, planted) {
				t.Errorf("the log shows a secret: %s", line)
			}
		}
	}
}
