package broker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
)

// adv is a client of the advertise service.
type adv struct {
	*testing.T
	*nats.Conn
}

func (a adv) ask(verb, body string) map[string]any {
	a.Helper()
	m, err := a.Request("$HERALD.ADV."+verb, []byte(body), patience)
	if err != nil {
		a.Fatalf("%s: %v", verb, err)
	}
	var v map[string]any
	if err := json.Unmarshal(m.Data, &v); err != nil {
		a.Fatalf("%s: %v in %s", verb, err, m.Data)
	}
	return v
}

// must asks for what must not be refused.
func (a adv) must(verb, body string) map[string]any {
	a.Helper()
	v := a.ask(verb, body)
	if v["error"] != nil {
		a.Fatalf("%s %s: %v", verb, body, v["error"])
	}
	return v
}

// refused asks for what must be, with that code.
func (a adv) refused(verb, body string, code float64) string {
	a.Helper()
	v := a.ask(verb, body)
	e, _ := v["error"].(map[string]any)
	if e["err_code"] != code {
		a.Fatalf("%s %s: got %v, wanted error %v", verb, body, v, code)
	}
	text, _ := e["description"].(string)
	return text
}

const quantity = `{"format":"json-schema","version":"3","compat":"backward","inline":{"type":"object","required":["qty"],"properties":{"qty":{"type":"integer","minimum":1}}}}`

func put(name, subject, enforce string) string {
	return fmt.Sprintf(`{"name":%q,"subject":%q,"schema":%s,"enforce":%q,"lease":{"mode":"permanent"}}`, name, subject, quantity, enforce)
}

func TestWhatIsNotAsAdvertisedIsNeitherStoredNorDelivered(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "jetstream { }")})
	errs := make(chan error, 10)
	nc := connect(t, b.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }))
	a := adv{t, nc}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	sub, err := nc.SubscribeSync("orders.>")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("orders.eu", []byte(`{"qty":0}`)); err != nil {
		t.Fatalf("before it was advertised: %v", err)
	}
	a.must("PUT", put("orders", "orders.{region}", "reject"))
	_, err = js.Publish("orders.eu", []byte(`{"qty":0}`))
	var api *nats.APIError
	if !errors.As(err, &api) || api.ErrorCode != 20031 {
		t.Fatalf("got %v, wanted error 20031", err)
	}
	for _, want := range []string{"/qty", "minimum", "orders", "schema version 3"} {
		if !strings.Contains(api.Description, want) {
			t.Errorf("%q does not say %s", api.Description, want)
		}
	}
	if _, err := js.Publish("orders.eu", []byte(`{"qty":1}`)); err != nil {
		t.Fatalf("a valid one: %v", err)
	}
	// Without anybody to answer: an error on the connection, which stays.
	for range 20 {
		if err := nc.Publish("orders.eu", []byte(`nonsense`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Publish("orders.eu", []byte(`{"qty":2}`)); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil || !nc.IsConnected() {
		t.Fatalf("the connection did not stay: %v", err)
	}
	select {
	case err := <-errs:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "orders") {
			t.Errorf("told %v", err)
		}
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}
	if len(errs) > 1 {
		t.Errorf("told %d times in a moment", len(errs)+1)
	}
	for _, want := range []string{`{"qty":0}`, `{"qty":1}`, `{"qty":2}`} {
		if m, err := sub.NextMsg(patience); err != nil || string(m.Data) != want {
			t.Fatalf("delivered %v, %v, wanted %s", m, err, want)
		}
	}
	if i, err := js.StreamInfo("ORDERS"); err != nil || i.State.Msgs != 3 {
		t.Fatalf("stored %+v, %v, wanted 3", i, err)
	}
	v := a.must("LIST", `{"observed":true}`)
	seen, _ := v["observed"].([]any)
	o, _ := seen[0].(map[string]any)
	if o["checked_1h"] != 23.0 || o["failed_1h"] != 21.0 || o["subscribers"] != 1.0 {
		t.Errorf("observed %v", o)
	}
	if text := page2(t, b.MonitorURL()+"/metrics"); !strings.Contains(text, `herald_advertise_checked_total{enforce="reject",result="violation"} 21`) {
		t.Error("the metrics do not count violations")
	}
	// A more specific one decides.
	a.must("PUT", `{"name":"free","subject":"orders.free","schema":{"format":"json-schema","inline":true},"lease":{"mode":"permanent"}}`)
	if _, err := js.Publish("orders.free", []byte(`{"qty":0}`)); err != nil {
		t.Errorf("where a more specific advertisement allows it: %v", err)
	}
	a.must("WITHDRAW", `{"name":"orders"}`)
	if _, err := js.Publish("orders.eu", []byte(`{"qty":0}`)); err != nil {
		t.Errorf("after the advertisement was withdrawn: %v", err)
	}
}

func page2(t *testing.T, url string) string {
	t.Helper()
	_, text := page(t, url)
	return text
}

func TestWarnDeliversAndQuarantineKeepsBeside(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	nc := connect(t, b.ClientURL())
	a := adv{t, nc}
	events, err := nc.SubscribeSync("$HERALD.ADV.EVENT.violation.>")
	if err != nil {
		t.Fatal(err)
	}
	live, err := nc.SubscribeSync("things.*")
	if err != nil {
		t.Fatal(err)
	}
	a.must("PUT", strings.TrimSuffix(put("things", "things.{id}", "warn"), "}")+`,"durable":{}}`)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("things.1", []byte(`{"qty":-1}`)); err != nil {
		t.Fatalf("warn: %v", err)
	}
	if m, err := live.NextMsg(patience); err != nil || string(m.Data) != `{"qty":-1}` {
		t.Fatalf("warn delivered %v, %v", m, err)
	}
	m, err := events.NextMsg(patience)
	if err != nil || !strings.Contains(string(m.Data), `"pointer":"/qty"`) || m.Subject != "$HERALD.ADV.EVENT.violation.things" {
		t.Fatalf("event %v, %v", m, err)
	}
	a.must("PUT", strings.TrimSuffix(put("things", "things.{id}", "quarantine"), "}")+`,"durable":{}}`)
	bad := nats.NewMsg("things.2")
	bad.Data = []byte(`{"qty":-2}`)
	bad.Header.Set("Trace", "t1")
	bad.Header.Set("Nats-Expected-Last-Sequence", "77")
	ack, err := js.PublishMsg(bad)
	if err != nil || ack.Stream != "QUARANTINE_things" {
		t.Fatalf("quarantine: %+v, %v", ack, err)
	}
	raw, err := js.GetMsg("QUARANTINE_things", ack.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		"Trace": "t1", "Herald-Dead-Subject": "things.2", "Herald-Dead-Pointer": "/qty", "Herald-Dead-Keyword": "minimum",
		"Herald-Dead-Reason": "schema", "Herald-Dead-Advertisement": "things", "Herald-Dead-Schema-Version": "3", "Nats-Expected-Last-Sequence": "",
	} {
		if got := raw.Header.Get(k); got != want {
			t.Errorf("header %s is %q, wanted %q", k, got, want)
		}
	}
	if string(raw.Data) != `{"qty":-2}` || raw.Subject != "$HERALD.QUARANTINE.things.things.2" {
		t.Errorf("kept %s on %s", raw.Data, raw.Subject)
	}
	if i, err := js.StreamInfo("things"); err != nil || i.State.Msgs != 1 {
		t.Errorf("the topic itself has %+v, %v", i, err)
	}
	// Without the place to keep it, it is refused rather than lost.
	if err := js.DeleteStream("QUARANTINE_things"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("things.3", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "required") {
		t.Errorf("without quarantine: %v", err)
	}
	// The dry run says how many would fail.
	v := a.must("CHECK", `{"name":"things","last":"1h"}`)
	if v["checked"] != 1.0 || v["failed"] != 1.0 || v["source"] != "stored" {
		t.Errorf("check: %v", v)
	}
	v = a.must("CHECK", `{"subject":"things.*","schema":{"format":"json-schema","inline":{"type":"object"}}}`)
	if v["checked"] != 1.0 || v["failed"] != 0.0 {
		t.Errorf("check by another schema: %v", v)
	}
}

func TestConflictsAndCompatibility(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	nc := connect(t, b.ClientURL())
	a := adv{t, nc}
	events, err := nc.SubscribeSync("$HERALD.ADV.EVENT.conflict.>")
	if err != nil {
		t.Fatal(err)
	}
	a.must("PUT", put("one", "a.*.c", "off"))
	other := `"schema":{"format":"json-schema","inline":{"type":"string"}},"lease":{"mode":"permanent"}}`
	text := a.refused("PUT", `{"name":"two","subject":"a.b.*",`+other, 20016)
	if !strings.Contains(text, "one") {
		t.Errorf("the conflict is not named: %s", text)
	}
	if m, err := events.NextMsg(patience); err != nil || m.Subject != "$HERALD.ADV.EVENT.conflict.two" {
		t.Fatalf("event: %v, %v", m, err)
	}
	a.must("PUT", `{"name":"two","subject":"a.b.c",`+other) // more specific
	a.must("PUT", put("same", "a.b.*", "off"))              // the same digest
	a.must("PUT", `{"name":"reader","subject":"a.*.c","role":"consumes",`+other)

	narrower := strings.Replace(put("one", "a.*.c", "off"), `["qty"]`, `["qty","id"]`, 1)
	text = a.refused("PUT", narrower, 20021)
	if !strings.Contains(text, "backward") {
		t.Errorf("incompatible: %s", text)
	}
	a.must("WITHDRAW", `{"name":"same"}`)
	a.must("PUT", strings.TrimSuffix(narrower, "}")+`,"force":true}`)
	if v := a.must("GET", `{"name":"one"}`); strings.Contains(fmt.Sprint(v), " force:") {
		t.Errorf("force is kept: %v", v)
	}
	a.refused("PUT", `{"name":"x","subject":"x","schema":{"format":"json-schema","inline":{"type":7}}}`, 20001)
	a.refused("PUT", `{"name":"x","subject":"x","enforce":"reject"}`, 20001)
	a.refused("PUT", strings.TrimSuffix(put("x", "x", "off"), "}")+`,"examples":[{"qty":0}]}`, 20001)
	v := a.must("PUT", `{"name":"x","subject":"x","examples":[{"password":"hunter22"}]}`)
	if w := fmt.Sprint(v["warnings"]); !strings.Contains(w, "password") {
		t.Errorf("warnings: %s", w)
	}
}

func TestWhatARegistrysSerializersWriteIsChecked(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	nc := connect(t, b.ClientURL())
	a := adv{t, nc}
	a.must("PUT", `{"name":"framed","subject":"framed.*","enforce":"reject","durable":{"topic":"FRAMED"},"lease":{"mode":"permanent"},
		"schema":{"format":"avro","framing":"confluent","id":"7","inline":{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}}}`)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("framed.a", []byte{0, 0, 0, 0, 7, 6}); err != nil {
		t.Errorf("a payload of id 7: %v", err)
	}
	for payload, want := range map[string]string{"\x00\x00\x00\x00\x08\x06": "id 8; known are 7", "\x06": "begin with 0", "\x00\x00\x00\x00\x07": "number"} {
		if _, err := js.Publish("framed.a", []byte(payload)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, wanted %q", payload, err, want)
		}
	}
	a.refused("PUT", `{"name":"x","subject":"x","schema":{"format":"json-schema","framing":"confluent","inline":{}}}`, 20001)
	// Who writes with an older schema is read as the advertised one says, when it is named.
	older := `{"type":"record","name":"R","fields":[{"name":"old","type":"string"},{"name":"n","type":"int"}]}`
	a.must("PUT", `{"name":"framed","subject":"framed.*","enforce":"reject","durable":{"topic":"FRAMED"},"lease":{"mode":"permanent"},
		"schema":{"format":"avro","framing":"confluent","id":"7","writers":{"8":`+older+`},"inline":{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}}}`)
	if _, err := js.Publish("framed.a", []byte("\x00\x00\x00\x00\x08\x02x\x06")); err != nil {
		t.Errorf("a payload of id 8: %v", err)
	}
	if _, err := js.Publish("framed.a", []byte("\x00\x00\x00\x00\x09\x06")); err == nil || !strings.Contains(err.Error(), "id 9; known are 7, 8") {
		t.Errorf("of an id that isn't named: %v", err)
	}
	if got := a.must("GET", `{"name":"framed"}`); !strings.Contains(fmt.Sprint(got), "writers:map[8:") {
		t.Errorf("given back: %v", got)
	}
	for _, writers := range []string{`{"8":"string"}`, `[]`, `{"x":"int"}`} {
		a.refused("PUT", `{"name":"y","subject":"y","schema":{"format":"avro","framing":"confluent","writers":`+writers+`,"inline":"int"}}`, 20001)
	}
}

func TestExclusiveSubjectsAreForHolders(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	errs := make(chan error, 10)
	owner := adv{t, connect(t, b.ClientURL())}
	other := adv{t, connect(t, b.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }))}
	sub, err := owner.SubscribeSync("mine.>")
	if err != nil {
		t.Fatal(err)
	}
	ad := `{"name":"mine","subject":"mine.>","exclusive":true,"owner":{"team":"us"},"lease":{"mode":"permanent"}}`
	owner.must("PUT", ad)
	say := func(a adv, text string) {
		t.Helper()
		if err := a.Publish("mine.x", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	say(owner, "1")
	say(other, "not")
	select {
	case err := <-errs:
		if !strings.Contains(err.Error(), "exclusive") {
			t.Errorf("told %v", err)
		}
	case <-time.After(patience):
		t.Fatal("refused in silence")
	}
	other.refused("PUT", `{"name":"theirs","subject":"mine.x","owner":{"team":"them"}}`, 20016)
	other.must("RENEW", `{"name":"mine"}`) // the same (nameless) user becomes a holder
	say(other, "2")
	other.must("WITHDRAW", `{"name":"mine"}`)
	say(other, "3")
	for _, want := range []string{"1", "2", "3"} {
		if m, err := sub.NextMsg(patience); err != nil || string(m.Data) != want {
			t.Fatalf("got %v, %v, wanted %s", m, err, want)
		}
	}
	owner.refused("PUT", `{"name":"y","subject":"y","exclusive":true}`, 20001)
	owner.refused("PUT", `{"name":"y","subject":">","exclusive":true,"owner":{"team":"us"}}`, 20001)
}

func TestPermissionsOnAdvertisements(t *testing.T) {
	text := `jetstream { }
	authorization { users: [
		{user: admin, password: a}
		{user: maker, password: m, permissions: {publish: ["orders.>", "$HERALD.>", "$JS.>"], subscribe: ["_INBOX.>"], enforce: "orders.>"}}
		{user: reader, password: r, permissions: {publish: "$HERALD.>", subscribe: ["_INBOX.>", "open.>"], discover: "orders.shown"}}
	] }`
	b := start(t, broker.Config{Options: options(t, text)})
	as := func(user string) adv { return adv{t, connect(t, b.ClientURL(), nats.UserInfo(user, user[:1]))} }
	admin, maker, reader := as("admin"), as("maker"), as("reader")
	maker.must("PUT", put("shown", "orders.shown", "reject"))
	maker.must("PUT", put("hidden", "orders.hidden", "off"))
	maker.refused("PUT", put("no", "other", "off"), 20022)
	admin.must("PUT", put("open", "open.a", "off"))
	reader.refused("PUT", `{"name":"no","subject":"orders.x"}`, 20022)
	reader.must("PUT", `{"name":"reads","subject":"open.a","role":"consumes","lease":{"mode":"permanent"}}`)
	reader.refused("PUT", strings.Replace(put("e", "open.b", "warn"), `"lease"`, `"role":"responds","lease"`, 1), 20022)

	list := func(a adv) string {
		var names []string
		v := a.must("LIST", "")
		all, _ := v["advertisements"].([]any)
		for _, x := range all {
			m, _ := x.(map[string]any)
			names = append(names, fmt.Sprint(m["name"]))
		}
		return strings.Join(names, " ")
	}
	for _, c := range []struct {
		who  adv
		want string
	}{{admin, "hidden open reads shown"}, {maker, "hidden shown"}, {reader, "open reads shown"}} {
		if got := list(c.who); got != c.want {
			t.Errorf("sees %q, wanted %q", got, c.want)
		}
	}
	reader.refused("GET", `{"name":"hidden"}`, 20002)
	reader.refused("SAMPLE", `{"subject":"orders.hidden"}`, 20022)
	// What may be discovered may not be looked at for that. An empty answer would say that nothing is there.
	admin.must("PUT", `{"name":"kept","subject":"orders.shown","durable":{},"lease":{"mode":"permanent"}}`)
	if got := reader.must("SAMPLE", `{"name":"kept"}`); fmt.Sprint(got["messages"]) != "[]" {
		t.Errorf("a sample of nothing is %v", got)
	}
	js, err := admin.JetStream()
	if err == nil {
		_, err = js.Publish("orders.shown", []byte(`{"qty":1}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	reader.refused("SAMPLE", `{"name":"kept"}`, 20022)
	if got := admin.must("SAMPLE", `{"name":"kept"}`); strings.Count(fmt.Sprint(got["messages"]), "subject") != 1 {
		t.Errorf("the admin's sample is %v", got)
	}
	admin.must("WITHDRAW", `{"name":"kept"}`)
	// What a user advertised is not for another one with permissions to change.
	reader.refused("WITHDRAW", `{"name":"shown"}`, 20022)
	if v := admin.must("GET", `{"name":"shown"}`); !strings.Contains(fmt.Sprint(v), "by:maker") {
		t.Errorf("by whom: %v", v)
	}
	admin.refused("PUT", strings.TrimSuffix(put("shown", "orders.shown", "off"), "}")+`,"force":true}`, 20019)
	admin.must("WITHDRAW", `{"name":"shown"}`)
}

func TestReadersComeAndGo(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	nc, reader := connect(t, b.ClientURL()), connect(t, b.ClientURL())
	a := adv{t, nc}
	a.must("PUT", `{"name":"r","subject":"r.{x}","lease":{"mode":"permanent"}}`)
	inbox := nats.NewInbox()
	told, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$HERALD.ADV.GET", inbox, []byte(`{"name":"r","subscribers":true}`)); err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		m, err := told.NextMsg(patience)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Fatalf("told %v, %v, wanted %s", m, err, want)
		}
	}
	expect(`"subscribers":0`)
	s, err := reader.SubscribeSync("r.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Flush(); err != nil {
		t.Fatal(err)
	}
	expect(`{"event":"subscribers","subscribers":1}`)
	if err := s.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	expect(`{"event":"subscribers","subscribers":0}`)
}
