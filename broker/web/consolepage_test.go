package web_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

// call does one of the browser's own commands and returns its result.
func (b *browser) call(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	b.n++
	err := b.conn.WriteJSON(map[string]any{"id": b.n, "method": method, "params": params})
	for err == nil {
		var answer struct {
			ID     int
			Result json.RawMessage
		}
		if err = b.conn.ReadJSON(&answer); err == nil && answer.ID == b.n {
			return answer.Result
		}
	}
	b.t.Fatal(err)
	return nil
}

// shot keeps a picture of the page in the directory of HERALD_SHOTS, to be looked at.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("HERALD_SHOTS")
	if dir == "" {
		return
	}
	var picture struct{ Data string }
	if err := json.Unmarshal(b.call("Page.captureScreenshot", nil), &picture); err != nil {
		b.t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), raw, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// cell is what a table has, as the number or text that is shown for people in some form.
func cell(table, key, column string) string {
	return fmt.Sprintf(`document.querySelector('#%s tr[data-key="%s"] [data-col="%s"]')?.dataset.value`, table, key, column)
}

// text is how a cell shows it.
func text(table, key, column string) string {
	return fmt.Sprintf(`document.querySelector('#%s tr[data-key="%s"] [data-col="%s"]')?.textContent`, table, key, column)
}

// is waits until an expression is exactly this.
func (b *browser) is(expression, want string) {
	b.t.Helper()
	got := ""
	for end := time.After(30 * time.Second); ; {
		if got = b.run(expression); got == want {
			return
		}
		select {
		case <-end:
			b.t.Fatalf("%s is %q, want %q; the status is %q", expression, got, want, b.run(`document.getElementById("status").textContent`))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// to goes to a screen as a person does, and looks at what all screens have.
func (b *browser) to(screen string) {
	b.t.Helper()
	b.run(fmt.Sprintf(`location.hash = %q`, screen))
	b.until(`document.querySelector(".cli code")?.textContent`, "pubsub ")
	b.until(`document.querySelector("nav a[aria-current=page]")?.textContent.length > 0`, "true")
	for _, all := range []string{
		`[...document.querySelectorAll("form:not([hidden]) input")].every(i => i.labels.length === 1)`,
		`[...document.querySelectorAll("table")].every(t => t.caption && t.querySelectorAll("thead th").length === t.querySelectorAll("th[scope=col]").length)`,
		`[...document.querySelectorAll("svg")].every(s => s.ariaHidden === "true" || s.getAttribute("aria-hidden") === "true" || s.getAttribute("aria-label"))`,
		`[...document.querySelectorAll("a, button")].every(e => e.textContent.trim() !== "")`,
		`document.querySelectorAll("h1").length >= 1 && document.title.includes("Herald")`,
	} {
		if got := b.run(all); got != "true" {
			b.t.Errorf("%s: not %s", screen, all)
		}
	}
}

const oneOperator = `operator: totals
inputs:
  - {topic: ORDERS, where: amount >= 1}
steps:
  - key: subject
  - name: sums
    aggregate: {total: sum(amount), n: count()}
outputs:
  - {topic: TOTALS, subject: 'totals', from: sums, key: key, create: {replicas: 1}}
`

// herald makes a request of Herald's own API.
func (r *running) herald(subject string, body any) {
	r.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		r.Fatal(err)
	}
	m, err := r.nc.Request(subject, b, patience)
	if err != nil {
		r.Fatal(err)
	}
	if strings.Contains(string(m.Data), `"error":{`) {
		r.Fatalf("%s: %s", subject, m.Data)
	}
}

// TestTheConsoleInABrowser compares what the screens show with what is there.
func TestTheConsoleInABrowser(t *testing.T) {
	r := run(t, t.TempDir(), "server_name: alone\n"+`accounts { A { users: [{user: "a ü", password: "p:ß"}], jetstream: enabled } }`, nats.UserInfo("a ü", "p:ß"), nats.Name("shop"))
	r.topic("ORDERS", "orders.>")
	for i := range 5 {
		if _, err := r.js.Publish(t.Context(), fmt.Sprintf("orders.%d", i), fmt.Appendf(nil, `{"amount":%d}`, i*100)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := r.js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := c.Fetch(2)
	if err != nil {
		t.Fatal(err)
	}
	first := <-batch.Messages()
	if err := first.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-batch.Messages() // stays unacknowledged
	r.herald("$HERALD.ADV.PUT", map[string]any{"name": "orders", "subject": "orders.{id}", "owner": map[string]string{"team": "shop"}, "summary": "What was ordered"})
	r.herald("$HERALD.OP.DEPLOY", map[string]string{"spec": oneOperator})

	b := openPage(t, "http://"+r.http+"/console/")
	b.until(`document.getElementById("login").hidden`, "false")
	signIn := func(user, pass string) {
		b.run(fmt.Sprintf(`(login.user.value = %q, login.pass.value = %q, login.requestSubmit())`, user, pass))
	}
	signIn("a ü", "wrong")
	b.until(`document.getElementById("status").textContent`, "no user with these credentials")
	b.shot("login")
	signIn("a ü", "p:ß")
	b.until(`document.getElementById("who").textContent`, "a ü in account A")
	b.until(`document.getElementById("facts").textContent`, "after fsync on a majority")
	b.run(`(window.violations = [], addEventListener("securitypolicyviolation", e => violations.push(e.violatedDirective + " " + e.blockedURI)))`)

	info, err := r.js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	size := fmt.Sprint(info.CachedInfo().State.Bytes)
	b.to("topics")
	for column, want := range map[string]string{"messages": "5", "bytes": size, "consumers": "1", "subjects": "orders.>", "leader": "alone", "acked": "1 of 1 on disk", "behind": "0"} {
		b.is(cell("topics", "ORDERS", column), want)
	}
	b.is(text("topics", "ORDERS", "bytes"), size+" B")
	b.until(`document.querySelectorAll("#topics tbody tr").length`, "2")
	b.shot("topics")
	// Rates: one more message shows in the sequence's growth and in the count.
	if _, err := r.js.Publish(t.Context(), "orders.9", []byte(`{"amount":9}`)); err != nil {
		t.Fatal(err)
	}
	b.is(cell("topics", "ORDERS", "messages"), "6")
	b.until(`Number(`+cell("topics", "ORDERS", "in")+`) > 0 || Number(`+cell("topics", "ORDERS", "messages")+`) === 6`, "true")

	b.to("topic/ORDERS")
	b.until(`document.getElementById("facts-of-topic").textContent`, "after fsync on 1 of 1 replicas")
	b.is(text("replicas", "alone", "role"), "leader")

	b.to("consumers")
	for column, want := range map[string]string{"topic": "ORDERS", "lag": "4", "pending": "1", "redelivered": "0", "floor": "1", "filter": "all"} {
		b.is(cell("consumers", "ORDERS/billing", column), want)
	}
	b.shot("consumers")
	b.to("adverts")
	b.until(`document.querySelector("#adverts tbody").textContent`, "orders.{id}")
	row := `[...document.querySelectorAll("#adverts tbody tr")].find(r => r.textContent.includes("orders.{id}")).querySelector('[data-col="%s"]').dataset.value`
	for column, want := range map[string]string{"owner": "shop", "role": "publishes", "messages": "1", "readers": "2", "enforce": "off", "summary": "What was ordered"} {
		b.is(fmt.Sprintf(row, column), want) // readers: the consumer and the operator
	}
	r.pub("nobody.says", "x")
	r.flush()
	b.until(`document.querySelector("#undeclared tbody").textContent`, "nobody.")
	b.shot("adverts")

	b.to("operators")
	for column, want := range map[string]string{"state": "running", "records": "6", "results": "5", "lag": "0", "primary": "alone", "standby": "0"} {
		b.is(cell("operators", "totals", column), want) // it reads all and is for amounts of 1 and more
	}
	b.to("operator/totals")
	b.is(text("steps", "sums", "kind"), "aggregate")
	b.is(text("steps", "sums", "counts"), "in 5, out 5")
	b.is(text("op-replicas", "alone/0", "role"), "primary")
	b.until(`document.querySelectorAll("svg.graph rect").length`, "4") // input, key, sums, output
	b.until(`document.getElementById("log").textContent`, "deployed")
	b.shot("operator")

	b.to("cluster")
	b.until(`document.getElementById("health").textContent`, "One node")
	b.is(cell("nodes", "alone", "state"), "answers")

	b.to("connections")
	b.until(`document.querySelector("#connections tbody").textContent`, "shop")
	mine := `[...document.querySelectorAll("#connections tbody tr")].find(r => r.querySelector('[data-col="name"]').textContent === "shop").querySelector('[data-col="%s"]').dataset.value`
	b.is(fmt.Sprintf(mine, "user"), "a ü")
	b.is(fmt.Sprintf(mine, "node"), "alone")
	b.is(fmt.Sprintf(mine, "received"), fmt.Sprint(r.nc.Stats().OutMsgs))
	b.shot("connections")

	b.to("tail?subject=orders.>&where=amount > 100")
	b.until(`document.getElementById("status").textContent`, "listening to orders.>, live where amount > 100")
	for _, amount := range []string{"50", "120", "700"} {
		r.pub("orders.7", `{"amount":`+amount+`,"n":12345678901234567,"data":"a,\"}"}`)
	}
	r.flush()
	b.is(`[...document.querySelectorAll("#tail li pre")].map(x => x.textContent).join("|")`, `{"amount":700,"n":12345678901234567,"data":"a,\"}"}|{"amount":120,"n":12345678901234567,"data":"a,\"}"}`)
	b.is(`document.querySelector(".cli code").textContent`, `pubsub sub 'orders.>' --where 'amount > 100'`)
	b.shot("tail")
	b.to("tail?subject=orders.>&from=first")
	b.until(`document.querySelectorAll("#tail li").length`, "9")
	b.run(`(document.querySelector("input[name=where]").value = "amount >", document.querySelector("form.ask").requestSubmit())`)
	b.until(`document.getElementById("status").textContent`, "refused: ")

	// On a phone nothing but tables is wider than the screen.
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": true})
	for _, screen := range []string{"topics", "operator/totals", "connections", "tail"} {
		b.to(screen)
		b.until(`document.documentElement.scrollWidth <= 390`, "true")
	}
	b.to("topics")
	b.until(`document.querySelectorAll("#topics tbody tr").length`, "2")
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}})
	b.is(`getComputedStyle(document.body).backgroundColor`, "rgb(20, 22, 27)")
	b.shot("phone-dark")
	b.run(`document.getElementById("theme").click()`)
	b.run(`document.getElementById("theme").click()`)
	b.is(`getComputedStyle(document.body).backgroundColor`, "rgb(255, 255, 255)")
	b.run(`document.getElementById("out").click()`)
	b.until(`document.getElementById("login").hidden`, "false")
	b.is(`sessionStorage.length`, "0")
	b.is(`violations.join()`, "")
	b.is(`performance.getEntriesByType("resource").filter(e => new URL(e.name).host !== location.host).length`, "0")
}

// TestTheConsoleOfAClusterInABrowser looks at three nodes by one of them.
func TestTheConsoleOfAClusterInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster and a browser")
	}
	var routes []string
	var nodes []*broker.Broker
	for _, name := range []string{"n1", "n2", "n3"} {
		file := filepath.Join(t.TempDir(), "broker.conf")
		conf := fmt.Sprintf("port: -1\nhttp: \"127.0.0.1:-1\"\nserver_name: %s\njetstream { store_dir: %q }\ncluster { name: three, port: -1, routes: [%s] }\n", name, t.TempDir(), strings.Join(routes, ", "))
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := config.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := broker.New(broker.Config{Options: o})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- n.Run(context.Background()) }()
		t.Cleanup(func() {
			_ = n.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		<-n.Ready()
		u, err := url.Parse(n.ClusterURL())
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, fmt.Sprintf("%q", "nats-route://"+u.Host))
		nodes = append(nodes, n)
	}
	nc, err := nats.Connect(nodes[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wait(t, time.Minute, "a topic of three replicas", func() bool {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "R3", Subjects: []string{"r3.>"}, Replicas: 3})
		return err == nil
	})
	if _, err := js.Publish(ctx, "r3.x", nil); err != nil {
		t.Fatal(err)
	}
	var status struct {
		Groups []struct {
			ID     int
			Leader string
		}
	}
	leaders := func() string {
		m, err := nc.Request("$HERALD.CLUSTER.STATUS", nil, patience)
		if err != nil || json.Unmarshal(m.Data, &status) != nil {
			return ""
		}
		return status.Groups[0].Leader
	}
	wait(t, time.Minute, "a leader of the catalogue", func() bool { return leaders() != "" })

	b := openPage(t, nodes[2].MonitorURL()+"/console/#cluster")
	b.until(`document.getElementById("health")?.textContent`, "Healthy")
	for _, name := range []string{"n1", "n2", "n3"} {
		b.is(cell("nodes", name, "state"), "active")
		b.is(cell("nodes", name, "online"), "true")
		b.is(text("nodes", name, "ready"), "yes")
	}
	b.until(fmt.Sprintf(`%s === %q`, cell("groups", "0", "leader"), leaders()), "true")
	b.until(cell("groups", "0", "members"), leaders()+" leads")
	b.is(`document.querySelectorAll("#groups tbody tr").length`, fmt.Sprint(len(status.Groups)))
	// The client is connected to one node, the page to another: both are counted.
	b.is(cell("nodes", "n1", "connections"), "1")
	b.shot("cluster")
	b.to("topics")
	b.is(cell("topics", "R3", "messages"), "1")
	b.is(cell("topics", "R3", "acked"), "2 of 3 on disk")
	b.to("topic/R3")
	b.until(`[...document.querySelectorAll("#replicas tbody tr")].map(r => r.dataset.key).sort().join()`, "n1,n2,n3")
	b.is(`[...document.querySelectorAll("#replicas [data-col=role]")].filter(x => x.textContent === "leader").length`, "1")
	// A node goes away: the page, served by another, says so.
	_ = nodes[1].Close()
	b.to("cluster")
	b.is(cell("nodes", "n2", "online"), "false")
	b.until(`document.getElementById("health").className`, "bad")
	b.shot("cluster-without-a-node")
}
