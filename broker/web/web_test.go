package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

const patience = 15 * time.Second

// running is a broker with web subscribers.
type running struct {
	*testing.T
	b    *broker.Broker
	http string // host:port
	nc   *nats.Conn
	js   jetstream.JetStream
}

// run starts a broker with what text adds to the configuration, until the test ends.
func run(t *testing.T, dir, text string, o ...nats.Option) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "broker.conf")
	if err := os.WriteFile(file, []byte("port: -1\nhttp: \"127.0.0.1:-1\"\njetstream { store_dir: "+fmt.Sprintf("%q", dir)+" }\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := config.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(broker.Config{Options: opts})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = b.Close()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-b.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("run: %v", err)
	}
	r := &running{T: t, b: b, http: strings.TrimPrefix(b.MonitorURL(), "http://")}
	if r.nc, err = nats.Connect(b.ClientURL(), o...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	return r
}

// topic makes a topic.
func (r *running) topic(name string, subjects ...string) {
	r.Helper()
	if _, err := r.js.CreateStream(context.Background(), jetstream.StreamConfig{Name: name, Subjects: subjects}); err != nil {
		r.Fatal(err)
	}
}

func (r *running) pub(subject, payload string) {
	r.Helper()
	if err := r.nc.Publish(subject, []byte(payload)); err != nil {
		r.Fatal(err)
	}
}

func (r *running) flush() {
	r.Helper()
	if err := r.nc.FlushTimeout(patience); err != nil {
		r.Fatal(err)
	}
}

// frame is what subscribers get.
type frame struct {
	Op        string              `json:"op"`
	N         uint64              `json:"n"`
	Subject   string              `json:"subject"`
	Topic     string              `json:"topic"`
	Seq       uint64              `json:"seq"`
	Delivered uint64              `json:"delivered"`
	Headers   map[string][]string `json:"headers"`
	Data      json.RawMessage     `json:"data"`
	Text      *string             `json:"text"`
	Base64    string              `json:"base64"`
}

// ws is a websocket subscriber.
type ws struct {
	*testing.T
	*websocket.Conn
}

func (r *running) ws(query string, header http.Header) (*ws, *http.Response, error) {
	r.Helper()
	c, resp, err := websocket.DefaultDialer.Dial("ws://"+r.http+"/subscribe?"+query, header)
	if err != nil {
		return nil, resp, err
	}
	r.Cleanup(func() { _ = c.Close() })
	return &ws{r.T, c}, resp, nil
}

// open subscribes and waits for the answer.
func (r *running) open(query string) *ws {
	r.Helper()
	w, resp, err := r.ws(query, nil)
	if err != nil {
		body := []byte{}
		if resp != nil {
			body, _ = io.ReadAll(resp.Body)
		}
		r.Fatalf("%s: %v %s", query, err, body)
	}
	if f, _ := w.next(); f.Op != "open" {
		r.Fatalf("%s: the first frame is %+v", query, f)
	}
	return w
}

// next returns the next frame that isn't a sign of life.
func (w *ws) next() (f frame, raw string) {
	w.Helper()
	for {
		_ = w.SetReadDeadline(time.Now().Add(patience))
		_, b, err := w.ReadMessage()
		if err != nil {
			w.Fatalf("read: %v", err)
		}
		f = frame{}
		if err := json.Unmarshal(b, &f); err != nil {
			w.Fatalf("%v in %s", err, b)
		}
		if f.Op != "ping" {
			return f, string(b)
		}
	}
}

// closed waits for the end and returns its code and reason.
func (w *ws) closed() (int, string) {
	w.Helper()
	for {
		_ = w.SetReadDeadline(time.Now().Add(patience))
		if _, _, err := w.ReadMessage(); err != nil {
			if c, ok := err.(*websocket.CloseError); ok {
				return c.Code, c.Text
			}
			w.Fatalf("no close frame: %v", err)
		}
	}
}

// event is one Server-Sent Event.
type event struct{ name, id, data string }

// sse subscribes to events and returns a function that gives the next.
func (r *running) sse(query, last string) func() event {
	r.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+r.http+"/subscribe?"+query, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := http.DefaultTransport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		r.Fatalf("%s: %s %s", query, resp.Status, b)
	}
	lines := bufio.NewReader(resp.Body)
	return func() (e event) {
		r.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				r.Fatalf("read events: %v", err)
			}
			switch k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); k {
			case "event":
				e.name = v
			case "id":
				e.id = v
			case "data":
				e.data += v
			case "":
				if e.name == "message" || e.name == "end" {
					return e
				}
				e = event{}
			}
		}
	}
}

// ask makes a request and returns status and body.
func (r *running) ask(method, path, body string, header http.Header) (*http.Response, string) {
	r.Helper()
	req, err := http.NewRequest(method, "http://"+r.http+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp, string(b)
}

func TestOffUnlessEnabled(t *testing.T) {
	r := run(t, t.TempDir(), "")
	for _, path := range []string{"/subscribe?subject=a", "/publish/a"} {
		if resp, _ := r.ask("GET", path, "", nil); resp.StatusCode != 404 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if resp, _ := r.ask("POST", "/publish/a", "x", nil); resp.StatusCode != 404 {
		t.Errorf("POST: %s", resp.Status)
	}
}

func TestLive(t *testing.T) {
	r := run(t, t.TempDir(), "web: enabled")
	w, e := r.open("subject=a.*"), r.sse("subject=a.*", "")
	m := nats.NewMsg("a.b")
	m.Data = []byte(`{"n":12345678901234567890, "s":"x"}`)
	m.Header["X-Case"] = []string{"1", "2"}
	if err := r.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	r.pub("a.c", "no JSON")
	r.pub("a.d", "\xff\x00")
	r.pub("a.e", "")
	f, raw := w.next()
	if f.Subject != "a.b" || string(f.Data) != string(m.Data) || len(f.Headers["X-Case"]) != 2 || f.N != 1 {
		t.Errorf("%s", raw)
	}
	if f, raw := w.next(); f.Text == nil || *f.Text != "no JSON" {
		t.Errorf("%s", raw)
	}
	if f, raw := w.next(); f.Base64 != "/wA=" {
		t.Errorf("%s", raw)
	}
	if f, raw := w.next(); f.Text == nil || *f.Text != "" {
		t.Errorf("%s", raw)
	}
	if ev := e(); ev.id != "" || ev.data != raw {
		t.Errorf("%+v, want %s", ev, raw)
	}
	if resp, body := r.ask("GET", "/metrics", "", nil); resp.StatusCode != 200 || !strings.Contains(body, `herald_web_subscribers{kind="sse"} 1`) {
		t.Errorf("metrics: %s", resp.Status)
	}
}

func TestResumeByLastEventID(t *testing.T) {
	r := run(t, t.TempDir(), "web { heartbeat: 100ms }")
	r.topic("A", "a.>")
	for i := range 5 {
		r.pub("a.b", fmt.Sprintf(`{"n":%d}`, i))
	}
	r.flush()
	e := r.sse("subject=a.>&from=first", "")
	for i := 1; i <= 3; i++ {
		if ev := e(); ev.id != fmt.Sprint(i) {
			t.Fatalf("%+v", ev)
		}
	}
	e = r.sse("subject=a.>&from=first", "3") // a browser that connects again
	if ev := e(); ev.id != "4" {
		t.Errorf("%+v", ev)
	}
	w := r.open("subject=a.>&from=2")
	if f, raw := w.next(); f.Seq != 2 || f.Topic != "A" {
		t.Error(raw)
	}
	w = r.open("subject=a.>&from=1h&last_event_id=5")
	r.pub("a.c", "6")
	if f, raw := w.next(); f.Seq != 6 || f.Subject != "a.c" {
		t.Error(raw)
	}
}

func TestDurableWithAcks(t *testing.T) {
	r := run(t, t.TempDir(), "web: enabled")
	r.topic("A", "a.>")
	for i := range 6 {
		r.pub("a.b", fmt.Sprint(i))
	}
	r.flush()
	query := "subject=a.>&durable=me&ack=client&window=3"
	w := r.open(query)
	for want := uint64(1); want <= 3; want++ {
		if f, raw := w.next(); f.Seq != want {
			t.Fatal(raw)
		}
	}
	send := func(s string) {
		if err := w.WriteMessage(websocket.TextMessage, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"op":"ack","upto":2}`)
	if f, raw := w.next(); f.Seq != 4 { // the window let it through
		t.Fatal(raw)
	}
	send(`{"op":"nak","n":3,"delay":"1ms"}`)
	seen := map[uint64]uint64{}
	for range 2 {
		f, _ := w.next()
		seen[f.Seq] = f.Delivered
	}
	if seen[3] != 2 && seen[5] != 1 {
		t.Errorf("after a nak came %v", seen)
	}
	_ = w.Close()
	c, err := r.js.Consumer(context.Background(), "A", "me")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ack floor", func() bool { i, err := c.Info(context.Background()); return err == nil && i.AckFloor.Stream == 2 })
	w = r.open(query)
	other, _, err := r.ws("subject=a.b&durable=me", nil)
	if err != nil {
		t.Fatal(err)
	}
	if code, reason := other.closed(); code != 4409 {
		t.Errorf("another subject under the same name: %d %s", code, reason)
	}
	if err := r.js.DeleteConsumer(context.Background(), "A", "me"); err != nil {
		t.Fatal(err)
	}
	if code, reason := w.closed(); code != 4410 {
		t.Errorf("a reader that is deleted: %d %s", code, reason)
	}
	// Without ack=client what was written is acknowledged.
	w = r.open("subject=a.>&durable=auto")
	for range 6 {
		w.next()
	}
	c, _ = r.js.Consumer(context.Background(), "A", "auto")
	eventually(t, "acknowledged by itself", func() bool { i, err := c.Info(context.Background()); return err == nil && i.AckFloor.Stream == 6 })
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestPublish(t *testing.T) {
	r := run(t, t.TempDir(), "web: enabled\nmax_payload: 1000")
	r.topic("A", "a.>")
	sub, err := r.nc.SubscribeSync("live.x")
	if err != nil {
		t.Fatal(err)
	}
	r.flush()
	resp, body := r.ask("POST", "/publish/a.b", `{"n":1}`, http.Header{"Nats-Msg-Id": {"1"}, "Herald-Key": {"k"}, "X-Other": {"no"}})
	if resp.StatusCode != 200 || !strings.Contains(body, `"stream":"A"`) || !strings.Contains(body, `"seq":1`) {
		t.Errorf("%s %s", resp.Status, body)
	}
	if _, body := r.ask("POST", "/publish/a.b", `{"n":1}`, http.Header{"Nats-Msg-Id": {"1"}}); !strings.Contains(body, `"duplicate":true`) {
		t.Errorf("again: %s", body)
	}
	st, _ := r.js.Stream(context.Background(), "A")
	m, err := st.GetMsg(context.Background(), 1)
	if err != nil || m.Header.Get("Herald-Key") != "k" || m.Header.Get("X-Other") != "" {
		t.Errorf("%v %v", m, err)
	}
	if resp, body := r.ask("POST", "/publish?subject=live.x", "hi", nil); resp.StatusCode != 202 {
		t.Errorf("live: %s %s", resp.Status, body)
	}
	if m, err := sub.NextMsg(patience); err != nil || string(m.Data) != "hi" {
		t.Errorf("%v %v", m, err)
	}
	for path, want := range map[string]int{"/publish/a.*": 400, "/publish": 400, "/publish/a..b": 400} {
		if resp, body := r.ask("POST", path, "x", nil); resp.StatusCode != want {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if resp, _ := r.ask("POST", "/publish/a.b", strings.Repeat("x", 2000), nil); resp.StatusCode != 413 {
		t.Errorf("too large: %s", resp.Status)
	}
	if resp, body := r.ask("POST", "/publish/a.b", "x", http.Header{"Nats-Expected-Last-Sequence": {"7"}}); resp.StatusCode != 400 || !strings.Contains(body, "wrong last sequence") {
		t.Errorf("refused by the topic: %s %s", resp.Status, body)
	}
}

func TestWhoMay(t *testing.T) {
	r := run(t, t.TempDir(), `
web { token_cookie: t, user_cookie: u, pass_cookie: p, allowed_origins: ["https://app.example"] }
accounts { A { jetstream: enabled, users: [
  {user: all, password: "s3cret"}
  {user: little, password: x, permissions: { subscribe: ["ok.>", "_INBOX.>"], publish: ["ok.>"] }}
] } }`, nats.UserInfo("all", "s3cret"))
	for _, c := range []struct {
		query  string
		header http.Header
		status int // of the handshake
		code   int // of the close
	}{
		{"subject=a", nil, 401, 0},
		{"subject=a", http.Header{"Authorization": {"Basic YWxsOnMzY3JldA=="}}, 101, 0},
		{"subject=a", http.Header{"Authorization": {"Basic YWxsOndyb25n"}}, 401, 0},
		{"subject=a&token=wrong", nil, 401, 0},
		{"subject=a", http.Header{"Cookie": {"u=all; p=s3cret"}}, 101, 0},
		{"subject=a", http.Header{"Cookie": {"u=all; p=no"}}, 401, 0},
		{"subject=a", http.Header{"Cookie": {"u=all; p=s3cret"}, "Origin": {"https://evil.example"}}, 403, 0},
		{"subject=a", http.Header{"Cookie": {"u=all; p=s3cret"}, "Origin": {"https://app.example"}}, 101, 0},
		{"subject=a", http.Header{"Cookie": {"u=all; p=s3cret"}, "Origin": {"http://" + r.http}}, 101, 0},
		{"subject=a", http.Header{"Cookie": {"u=all; p=s3cret"}, "Origin": {"http://rebound.example"}, "Host": {"rebound.example"}}, 403, 0},
		{"subject=secret", http.Header{"Cookie": {"u=little; p=x"}}, 101, 4403},
		{"subject=ok.1", http.Header{"Cookie": {"u=little; p=x"}}, 101, 0},
		{"subject=ok.1&where=true", http.Header{"Cookie": {"u=little; p=x"}}, 101, 4403},
		{"subject=a&wher=true", http.Header{"Cookie": {"u=all; p=s3cret"}}, 101, 4400},
		{"subject=a&where=n+%3E", http.Header{"Cookie": {"u=all; p=s3cret"}}, 101, 4400},
		{"subject=a&from=first", http.Header{"Cookie": {"u=all; p=s3cret"}}, 101, 4404},
		{"subject=a&ack=client", http.Header{"Cookie": {"u=all; p=s3cret"}}, 101, 4400},
	} {
		w, resp, err := r.ws(c.query, c.header)
		if resp == nil || resp.StatusCode != c.status {
			t.Errorf("%s %v: %v, want %d", c.query, c.header, err, c.status)
			continue
		}
		if w == nil {
			continue
		}
		if c.code == 0 {
			if f, raw := w.next(); f.Op != "open" {
				t.Errorf("%s %v: %s", c.query, c.header, raw)
			}
			continue
		}
		if code, reason := w.closed(); code != c.code || reason == "" {
			t.Errorf("%s %v: closed with %d %q, want %d", c.query, c.header, code, reason, c.code)
		}
	}
	basic := http.Header{"Authorization": {"Basic bGl0dGxlOng="}}
	if resp, body := r.ask("POST", "/publish/secret", "x", basic); resp.StatusCode != 403 {
		t.Errorf("publish what one may not: %s %s", resp.Status, body)
	}
	if resp, body := r.ask("POST", "/publish/ok.1", "x", basic); resp.StatusCode != 202 {
		t.Errorf("%s %s", resp.Status, body)
	}
	resp, _ := r.ask("OPTIONS", "/publish/a", "", http.Header{"Origin": {"https://app.example"}})
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || resp.Header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("preflight: %s %v", resp.Status, resp.Header)
	}
	if resp, _ := r.ask("POST", "/publish/ok.1", "x", http.Header{"Authorization": basic["Authorization"], "Origin": {"https://evil.example"}}); resp.StatusCode != 403 {
		t.Errorf("a foreign page: %s", resp.Status)
	}
}

// TestSameFilterSameResult: live, durable, over websocket and events, and after a
// restart, one condition lets the same messages through.
func TestSameFilterSameResult(t *testing.T) {
	dir := t.TempDir()
	const where = `has(n) && n % 3 == 0 && header["Region"] == "eu" || tokens[1] == "always"`
	payloads := []string{`{"n":3}`, `{"n":4}`, `{"n":6}`, `broken`, `{"n":"3"}`, `{}`, `{"n":9007199254740993}`, `{"n":null}`, `{"n":0}`, `[]`, ``}
	var want []string
	part := func(t *testing.T, r *running) {
		live, err := r.nc.Request("$HERALD.FILTER.SUBSCRIBE", fmt.Appendf(nil, `{"subject":"f.>","where":%q}`, where), patience)
		if err != nil {
			t.Fatal(err)
		}
		var a struct{ Subject string }
		if err := json.Unmarshal(live.Data, &a); err != nil || a.Subject == "" {
			t.Fatalf("%s", live.Data)
		}
		sub, err := r.nc.SubscribeSync(a.Subject)
		if err != nil {
			t.Fatal(err)
		}
		r.flush()
		q := "subject=f.>&where=" + url.QueryEscape(where)
		liveWS, liveSSE := r.open(q), r.sse(q, "")
		for i := range 40 {
			m := nats.NewMsg([]string{"f.a", "f.always"}[i%7/6])
			m.Data = []byte(payloads[i%len(payloads)])
			m.Header.Set("I", fmt.Sprint(len(want)+i))
			if i%5 != 4 {
				m.Header.Set("Region", "eu")
			}
			if _, err := r.js.PublishMsg(context.Background(), m); err != nil {
				t.Fatal(err)
			}
		}
		m := nats.NewMsg("f.always")
		m.Data = []byte("{}") // a payload that can't be read is an error whatever the subject says
		m.Header.Set("I", "end")
		if _, err := r.js.PublishMsg(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := ""; i != "end"; {
			m, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			i = m.Header.Get("I")
			got = append(got, i)
		}
		if len(got) < 6 || len(got) > 30 {
			t.Fatalf("%d of 41 match: the test is too easy", len(got))
		}
		for k, i := range got {
			f, _ := liveWS.next()
			var e frame
			_ = json.Unmarshal([]byte(liveSSE().data), &e)
			if f.Headers["I"][0] != i || e.Headers["I"][0] != i {
				t.Fatalf("live message %d is %s, over websocket %v, over events %v", k, i, f.Headers["I"], e.Headers["I"])
			}
		}
		want = append(want, got...)
		stored := r.open(q + "&from=first")
		durable := r.open(q + "&durable=web" + fmt.Sprint(len(want)))
		c, err := r.js.CreateOrUpdateConsumer(context.Background(), "F", jetstream.ConsumerConfig{
			Durable: fmt.Sprint("d", len(want)), AckPolicy: jetstream.AckExplicitPolicy, Metadata: map[string]string{"herald.where": where},
		})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(len(want), jetstream.FetchMaxWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		k := 0
		for m := range batch.Messages() {
			x, y := m.Headers().Get("I"), ""
			f, _ := stored.next()
			d, _ := durable.next()
			if y = f.Headers["I"][0]; x != want[k] || y != want[k] || d.Headers["I"][0] != want[k] {
				t.Fatalf("stored message %d is %s by a consumer, %s over websocket, %v by a name, want %s", k, x, y, d.Headers["I"], want[k])
			}
			_ = m.Ack()
			k++
		}
		if k != len(want) {
			t.Fatalf("%d stored messages, want %d", k, len(want))
		}
		eventually(t, "nothing is pending", func() bool {
			i, err := c.Info(context.Background())
			return err == nil && i.NumPending == 0 && i.NumAckPending == 0 && strings.Contains(i.Config.Metadata["_herald.filter"], `"scanned":`)
		})
	}
	t.Run("before", func(t *testing.T) {
		r := run(t, dir, "web: enabled")
		r.topic("F", "f.>")
		part(t, r)
	})
	t.Run("after a restart", func(t *testing.T) { part(t, run(t, dir, "web: enabled")) })
}

func TestAWrongFrameIsAnsweredWithWhy(t *testing.T) {
	r := run(t, t.TempDir(), "web: enabled")
	for range 50 { // what ends the connection must not overtake the last word
		for said, want := range map[string]string{`{"op":"bogus"}`: "op: ack, nak, term, wip or pong", `nonsense`: "a frame is JSON", `{"op":"nak","n":1,"delay":"soon"}`: "delay: a duration"} {
			w := r.open("subject=a")
			if err := w.WriteMessage(websocket.TextMessage, []byte(said)); err != nil {
				t.Fatal(err)
			}
			if code, reason := w.closed(); code != 4400 || !strings.HasPrefix(reason, want) {
				t.Errorf("%s: %d %s", said, code, reason)
			}
			_ = w.Close()
		}
	}
}

func TestAStopIsSaid(t *testing.T) {
	r := run(t, t.TempDir(), "web: enabled")
	w := r.open("subject=a")
	go func() { _ = r.b.Close() }()
	if code, reason := w.closed(); code != websocket.CloseGoingAway {
		t.Errorf("%d %s", code, reason)
	}
}

func TestTooMany(t *testing.T) {
	r := run(t, t.TempDir(), "web { max_connections: 1 }")
	r.open("subject=a")
	if _, resp, _ := r.ws("subject=a", nil); resp == nil || resp.StatusCode != 503 {
		t.Errorf("%v", resp)
	}
}
