package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
)

// outputs is a broker whose operators' advertisements are looked at.
type outputs struct {
	adv
	op func(verb string, body map[string]any) string
}

func outputsOf(t *testing.T, url string, o ...nats.Option) outputs {
	t.Helper()
	nc := connect(t, url, o...)
	return outputs{adv{t, nc}, operatorAsker(t, nc)}
}

func (o outputs) deploy(verb, spec string) {
	o.Helper()
	if got := o.op(verb, map[string]any{"spec": spec}); strings.Contains(got, `"error":{`) {
		o.Fatalf("%s: %s", verb, got)
	}
}

// there is what is advertised: name, owner, and the summary.
func (o outputs) there() (all []string, revision float64) {
	o.Helper()
	v := o.must("LIST", "")
	list, _ := v["advertisements"].([]any)
	for _, a := range list {
		ad, _ := a.(map[string]any)
		owner, _ := ad["owner"].(map[string]any)
		all = append(all, fmt.Sprint(ad["name"], " of ", owner["service"], ": ", ad["summary"]))
	}
	revision, _ = v["revision"].(float64)
	return all, revision
}

// until waits until exactly these are advertised.
func (o outputs) until(what string, want ...string) {
	o.Helper()
	o.eventually(what, func() (bool, string) {
		got, _ := o.there()
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprintf("%q", got)
	})
}

func (o outputs) eventually(what string, f func() (bool, string)) {
	o.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		ok, is := f()
		if ok {
			return
		}
		if time.Now().After(end) {
			o.Fatalf("%s: %s", what, is)
		}
	}
}

// why waits until an operator's information says why its output isn't advertised.
func (o outputs) why(operator, want string) {
	o.Helper()
	o.eventually("it is said why it isn't advertised", func() (bool, string) {
		var info struct {
			Outputs []struct {
				Advertised bool
				Why        string
			}
		}
		got := o.op("INFO", map[string]any{"name": operator})
		if err := json.Unmarshal([]byte(got), &info); err != nil || len(info.Outputs) == 0 {
			return false, got
		}
		return !info.Outputs[0].Advertised && strings.Contains(info.Outputs[0].Why, want), got
	})
}

func (o outputs) streams(names ...string) nats.JetStreamContext {
	o.Helper()
	js, err := o.JetStream()
	if err != nil {
		o.Fatal(err)
	}
	for _, name := range names {
		if _, err := js.AddStream(&nats.StreamConfig{Name: strings.ToUpper(name), Subjects: []string{name + ".>"}}); err != nil {
			o.Fatal(err)
		}
	}
	return js
}

const sums = "operator: sums\ninputs: [{topic: IN}]\nsteps: [{key: k}, {name: sums, aggregate: {n: count()}}]\noutputs:\n  - {topic: OUT, subject: 'out.{k}', key: k}\n"

const reader = "operator: reader\nadvertise: false\ninputs: [{topic: OUT}]\noutputs: [{topic: END, subject: end.x}]\n"

func TestOutputsAreAdvertisedByDefaultAndDemandNothing(t *testing.T) {
	dir := t.TempDir()
	b := start(t, broker.Config{StoreDir: dir})
	o := outputsOf(t, b.ClientURL())
	js := o.streams("in", "out", "end")
	o.must("PUT", put("all", "out.>", "reject"))
	mayNot := func(when string) {
		t.Helper()
		if _, err := js.Publish("out.a", []byte(`{"qty":0}`)); err == nil || !strings.Contains(err.Error(), "minimum") {
			t.Errorf("%s a message that isn't as somebody advertised: %v", when, err)
		}
	}
	mayNot("before")
	o.deploy("DEPLOY", sums)
	o.deploy("DEPLOY", reader)
	const all = "all of <nil>: <nil>"
	o.until("its output is advertised", "OUT of sums: output OUT of operator sums", all)
	mayNot("beside an operator's output") // which is more specific, and says nothing of messages
	if _, err := js.Publish("in.a", []byte(`{"k":"a"}`)); err != nil {
		t.Fatal(err)
	}
	o.eventually("its own output is stored", func() (bool, string) {
		i, err := js.StreamInfo("OUT")
		return err == nil && i.State.Msgs == 1, fmt.Sprintf("%+v, %v", i, err)
	})
	got := o.must("GET", `{"name":"OUT"}`)
	ad, _ := got["advertisement"].(map[string]any)
	if text := fmt.Sprintln(ad["derived_schema"], ad["lineage"], ad["operator"], ad["pattern"], ad["schema"]); !strings.Contains(text, "[IN] sums out.* <nil>") || !strings.Contains(text, "minimum:0") {
		t.Errorf("it says %s", text)
	}

	// The same again makes no commands, nor does another start.
	_, before := o.there()
	o.deploy("UPDATE", sums)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = start(t, broker.Config{StoreDir: dir})
	o = outputsOf(t, b.ClientURL())
	o.deploy("DEPLOY", "operator: z\ninputs: [{topic: IN}]\noutputs: [{live: z.x}]\n")
	o.until("another one's is there", "OUT of sums: output OUT of operator sums", all, "z.x of z: output z.x of operator z")
	if _, after := o.there(); after != before+1 {
		t.Errorf("revision %v, and %v after a restart and one more operator", before, after)
	}

	if text := fmt.Sprint(o.must("WITHDRAW", `{"name":"OUT"}`)); !strings.Contains(text, "1 operator reads this: reader") || !strings.Contains(text, "operator sums advertises it again") {
		t.Errorf("withdrawn: %s", text)
	}
	o.op("REMOVE", map[string]any{"name": "z"})
	o.until("it comes again", "OUT of sums: output OUT of operator sums", all)
	o.deploy("UPDATE", strings.Replace(sums, "key: k}\n", "key: k, advertise: false}\n", 1))
	o.until("it is turned off", all)
	o.deploy("UPDATE", strings.Replace(sums, "key: k}\n", "key: k, advertise: {summary: told}}\n", 1))
	o.until("it is said", "OUT of sums: told", all)
	o.op("REMOVE", map[string]any{"name": "sums"})
	o.until("it goes with the operator", all)
}

func TestAdvertisementsByHandStay(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	o := outputsOf(t, b.ClientURL())
	o.streams("in", "out")
	const mine = "OUT of sums: by hand"
	o.must("PUT", `{"name":"OUT","subject":"out.x","owner":{"service":"sums"},"summary":"by hand","lease":{"mode":"permanent"}}`)
	o.deploy("DEPLOY", sums)
	o.why("sums", "somebody else advertises OUT")
	o.until("what was there stays", mine)
	o.must("WITHDRAW", `{"name":"OUT"}`)
	// What follows changes the operators, so that nothing has to wait.
	next := func() { o.deploy("DEPLOY", reader2); o.op("REMOVE", map[string]any{"name": "reader2"}) }
	next()
	o.until("the operator's takes its place", "OUT of sums: output OUT of operator sums")

	// Somebody changes the operator's own, with all that it says.
	got := o.must("GET", `{"name":"OUT"}`)
	ad, _ := got["advertisement"].(map[string]any)
	ad["summary"] = "by hand"
	body, err := json.Marshal(ad)
	if err != nil {
		t.Fatal(err)
	}
	o.must("PUT", string(body))
	o.why("sums", "somebody else advertises OUT")
	next()
	o.until("what was changed stays", mine)
	o.op("REMOVE", map[string]any{"name": "sums"})
	next()
	o.until("also when the operator is gone", mine)
	o.must("WITHDRAW", `{"name":"OUT"}`)

	// Who wants the subjects for himself gets them.
	o.deploy("DEPLOY", sums)
	o.until("it is advertised again", "OUT of sums: output OUT of operator sums")
	o.must("PUT", `{"name":"own","subject":"out.>","owner":{"service":"me"},"exclusive":true,"lease":{"mode":"permanent"}}`)
	o.why("sums", "has these subjects for itself")
	o.until("and the operator's is gone", "own of me: <nil>")
}

const reader2 = "operator: reader2\nadvertise: false\ninputs: [{topic: IN}]\noutputs: [{live: x}]\n"

func TestWhoMayNotAdvertiseMayDeploy(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir(), Options: options(t, `
authorization { users: [
  {user: admin, password: p}
  {user: u, password: p, permissions: {publish: ["$HERALD.OP.>", "$HERALD.ADV.>"], subscribe: ">", advertise: "other.>"}}
] }
jetstream { }`)})
	admin, o := outputsOf(t, b.ClientURL(), nats.UserInfo("admin", "p")), outputsOf(t, b.ClientURL(), nats.UserInfo("u", "p"))
	admin.streams("in", "out", "other")
	o.deploy("DEPLOY", sums)
	o.why("sums", "may not advertise out.*")
	o.deploy("DEPLOY", "operator: two\ninputs: [{topic: IN}]\noutputs: [{topic: OTHER, subject: other.x}]\n")
	admin.until("what may be is advertised", "OTHER of two: output OTHER of operator two")
	if got := o.op("UPDATE", map[string]any{"spec": strings.Replace(sums, "key: k}\n", "key: k, advertise: {summary: told}}\n", 1)}); !strings.Contains(got, "to advertise out.* takes the permission to") {
		t.Errorf("what is asked for takes the right: %s", got)
	}
	admin.deploy("UPDATE", strings.Replace(sums, "operator: sums\n", "operator: sums\nversion: b\n", 1))
	admin.until("somebody else may", "OTHER of two: output OTHER of operator two", "OUT of sums: output OUT of operator sums")
}
