package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// double is a process function: it doubles a number, and panics at 13.
func double(value.Value) (steps.Function, error) {
	return steps.Function{Process: func(c stream.Context, r *stream.Record) error {
		n, _ := r.Value.Int()
		if n == 13 {
			panic("unlucky")
		}
		out := *r
		out.Value = value.OfInt(2 * n)
		c.Emit(0, &out)
		return nil
	}}, nil
}

// operatorAsker returns what asks the operator service of a broker, as any client does.
func operatorAsker(t *testing.T, nc *nats.Conn) func(verb string, body map[string]any) string {
	return func(verb string, body map[string]any) string {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.Request("$HERALD.OP."+verb, raw, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		return string(m.Data)
	}
}

func TestOperatorsOfAnyClient(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir(), Functions: map[string]steps.Factory{"double": double}})
	nc := connect(t, b.ClientURL())
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"in", "out"} {
		if _, err := js.AddStream(&nats.StreamConfig{Name: strings.ToUpper(name), Subjects: []string{name}}); err != nil {
			t.Fatal(err)
		}
	}
	ask := operatorAsker(t, nc)
	spec := "operator: twice\ninputs: [{topic: IN}]\nsteps: [{process: double}]\noutputs: [{topic: OUT}]\n"
	if got := ask("DEPLOY", map[string]any{"spec": spec}); !strings.Contains(got, `"created":true`) {
		t.Fatalf("deployed: %s", got)
	}
	sub, err := js.SubscribeSync("out")
	if err != nil {
		t.Fatal(err)
	}
	live, err := nc.SubscribeSync("out") // hears what the topic gets, as of any publisher
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 13, 3} {
		if _, err := js.Publish("in", fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
	}
	next := func(want, origin string) {
		t.Helper()
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil || string(m.Data) != want || m.Header.Get("Herald-Operator") != "twice" || m.Header.Get("Herald-Origin") != origin {
			t.Fatalf("got %+v, %v, wanted %s", m, err, want)
		}
		m, err = live.NextMsg(10 * time.Second)
		if err != nil || string(m.Data) != want || m.Header.Get("Herald-Origin") != origin {
			t.Fatalf("live: got %+v, %v, wanted %s", m, err, want)
		}
	}
	next("2", "1:1:0")
	wait := func(what, verb, want string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; {
			got := ask(verb, map[string]any{"name": "twice"})
			if strings.Contains(got, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %s", what, got)
			}
		}
	}
	wait("the panic stops it", "INFO", `"state":"failed"`)
	wait("its stack is told", "LOGS", "operators_test.go")
	if got := ask("RESUME", map[string]any{"name": "twice", "skip": true}); !strings.Contains(got, `"running"`) {
		t.Errorf("resumed: %s", got)
	}
	next("6", "1:2:0")
	if i, err := js.StreamInfo("OUT"); err != nil || i.State.Msgs != 2 {
		t.Errorf("what is told live is not stored again: %+v, %v", i, err)
	}
	if got := ask("SAVEPOINT.CREATE", map[string]any{"name": "twice", "savepoint": "now"}); !strings.Contains(got, `"now"`) {
		t.Errorf("savepoint: %s", got)
	}
	if got := ask("REMOVE", map[string]any{"name": "twice"}); !strings.Contains(got, "twice") {
		t.Errorf("removed: %s", got)
	}
	if got := ask("LIST", nil); got != `{"operators":[]}` {
		t.Errorf("listed: %s", got)
	}
}

// The keys of an operator are spread over instances, and again while it runs, for any client.
func TestOperatorsAreRescaledByAnyClient(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	nc := connect(t, b.ClientURL())
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "IN", Subjects: []string{"in"}}); err != nil {
		t.Fatal(err)
	}
	ask := operatorAsker(t, nc)
	spec := "operator: sums\npartitions: 3\ninputs: [{topic: IN}]\nsteps: [{key: k}, {aggregate: {total: sum(v)}}]\n" +
		"outputs: [{topic: SUMS, subject: 'sums.{k}', key: k, create: {max_msgs_per_subject: 1}}]\n"
	if got := ask("DEPLOY", map[string]any{"spec": spec}); !strings.Contains(got, `"created":true`) {
		t.Fatalf("deployed: %s", got)
	}
	publish := func() {
		for k := range 20 {
			if _, err := js.Publish("in", fmt.Appendf(nil, `{"k":"k%d","v":%d}`, k, k)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish()
	for i, n := range []int{5, 1} {
		if got := ask("RESCALE", map[string]any{"name": "sums", "partitions": n}); !strings.Contains(got, `"next":{`) {
			t.Fatalf("rescaled: %s", got)
		}
		publish()
		for end := time.Now().Add(30 * time.Second); ; {
			got := ask("INFO", map[string]any{"name": "sums"})
			if !strings.Contains(got, `"next":{`) && strings.Contains(got, fmt.Sprintf(`"layout":%d`, i+1)) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("not rescaled: %s", got)
			}
		}
	}
	if got := ask("RESCALE", map[string]any{"name": "sums", "partitions": 121}); !strings.Contains(got, "1 to 120") {
		t.Errorf("too many: %s", got)
	}
	for k := range 20 {
		want := fmt.Sprintf(`{"k":"k%d","total":%d}`, k, 3*k)
		for end := time.Now().Add(30 * time.Second); ; {
			m, err := js.GetLastMsg("SUMS", fmt.Sprintf("sums.k%d", k))
			if err == nil && string(m.Data) == want {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("sums.k%d is %+v, %v, wanted %s", k, m, err, want)
			}
		}
	}
}
