package operate

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// The tests of several nodes wait more than they work: more of them run at once than
// there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // a flag that testing has, and a number
	goleak.VerifyTestMain(m)
}

const counting = `
operator: counts
standby: %s
inputs: [{topic: IN}]
steps:
  - filter: v > 2
  - key: k
  - aggregate: { n: count(), total: sum(v) }
outputs: [{topic: OUT, subject: 'out.{k}'}]
`

const windowing = `
operator: windows
standby: %s
time: {event: at, unit: ms, disorder: 5s}
inputs: [{topic: IN}]
steps:
  - key: k
  - window: { tumble: 10s }
  - aggregate: { n: count(), total: sum(v) }
outputs: [{topic: OUT, subject: 'out.{k}'}]
`

func compile(_ string, text []byte, ids map[string]uint16) (*graph.Graph, error) {
	s, err := spec.Parse("test", text)
	if err != nil {
		return nil, err
	}
	g, _, err := spec.Compile(s, spec.Options{IDs: ids})
	return g, err
}

// place is a node with its operators.
type place struct {
	testing.TB
	*state.State
	ops  *Engine
	net  *peer.Network
	deaf atomic.Bool // it gets no state of others
}

func testLog(name string) *slog.Logger {
	if os.Getenv("HERALD_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
}

func open(t testing.TB, dir string, net *peer.Network) *place {
	t.Helper()
	return openWith(t, dir, net, compile)
}

func openWith(t testing.TB, dir string, net *peer.Network, compile func(string, []byte, map[string]uint16) (*graph.Graph, error), change ...func(*state.Options, *Options)) *place {
	t.Helper()
	p := &place{TB: t, net: net}
	o := state.Options{Dir: filepath.Join(dir, "herald"), Network: net, FlushInterval: 100 * time.Millisecond, Fatal: func(err error) { t.Errorf("fatal: %v", err) }}
	oo := Options{
		Dir: filepath.Join(dir, "operators"), Account: func(string) *front.Account { return nil }, Compile: compile,
	}
	if net != nil {
		o.Log = testLog(net.Name())
	}
	oo.Log = o.Log
	oo.Create = func(ctx context.Context, account string, cfg topics.Config) (*state.Topic, error) {
		t, _, err := p.CreateTopic(ctx, account, cfg)
		return t, err
	}
	for _, f := range change {
		f(&o, &oo)
	}
	var err error
	if p.State, err = state.Open(o); err != nil {
		t.Fatal(err)
	}
	if net != nil {
		oo.Peers = nodes{p}
	}
	p.ops = New(oo)
	p.ops.Attach(p.State)
	if net != nil {
		net.Start()
	}
	err = p.Start(state.Hooks{
		OnStep: p.ops.Stepped, OnProducer: p.ops.Declared, OnAdopted: p.ops.Adopted, OnOperator: p.ops.OperatorChanged,
		OnFlush: p.ops.Flush, OnLeader: p.ops.Lead, OnLeaderKnown: p.ops.LeaderKnown, OnGrown: func(_ *state.Group, ids []topics.TopicID) { p.ops.Grown(ids) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) close() {
	p.ops.Stop()
	if err := p.Close(); err != nil {
		p.Errorf("close: %v", err)
	}
	p.ops.Close()
	if p.net != nil {
		if err := p.net.Close(); err != nil {
			p.Errorf("close the network: %v", err)
		}
	}
}

func conf(replicas int, name string, subjects ...string) topics.Config {
	return topics.Config{
		Name: name, Subjects: subjects, Retention: topics.RetainLimits, Discard: topics.DiscardOld, Storage: topics.StoreFile,
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, Replicas: replicas, Duplicates: 2 * time.Minute,
	}
}

func (p *place) topics(replicas int) {
	p.Helper()
	for _, c := range []topics.Config{conf(replicas, "IN", "in.>"), conf(replicas, "OUT", "out.>")} {
		if _, _, err := p.CreateTopic(p.Context(), "A", c); err != nil {
			p.Fatalf("create %s: %v", c.Name, err)
		}
	}
}

func (p *place) deploy(text string) *catalogue.Operator {
	p.Helper()
	v, err := p.ops.service.deploy(p.Context(), "A", &Request{Spec: text})
	if err != nil {
		p.Fatalf("deploy: %v", err)
	}
	return v.(Deployed).Operator
}

// record is a random record of the input.
func record(rng *rand.Rand, i int) string {
	return fmt.Sprintf(`{"k":"k%d","v":%d,"at":%d}`, rng.IntN(5), rng.IntN(10), 1_790_000_000_000+int64(i)*500-rng.Int64N(4000))
}

func (p *place) publish(body string) {
	t, ok := p.Topic("A", "IN")
	if !ok {
		p.Fatal("no topic IN")
	}
	t.Group().Capture([]front.Captured{{Topic: t.ID(), Subject: []byte("in.x"), Payload: []byte(body), Account: &front.Account{}}})
}

// output is what the output topic holds on a node, one message a line.
func (p *place) output() []string { return p.outputOf("OUT") }

func (p *place) outputOf(topic string) []string {
	t, ok := p.Topic("A", topic)
	if !ok || t.Data() == nil {
		return nil
	}
	messages, _, err := t.Data().Read(nil, 1, 1<<20, 0, nil)
	if err != nil {
		p.Fatal(err)
	}
	var lines []string
	for _, m := range messages {
		lines = append(lines, m.Subject+" "+string(m.Payload))
	}
	return lines
}

func wait(t testing.TB, what string, f func() (bool, string)) {
	t.Helper()
	why := ""
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		var ok bool
		if ok, why = f(); ok {
			return
		}
		timer := time.NewTimer(10 * time.Millisecond)
		<-timer.C
	}
	t.Fatalf("waited in vain: %s: %s", what, why)
}

// batch is what the operator gives for all records at once.
func batch(t testing.TB, text string, bodies []string) []string {
	t.Helper()
	return batchOf(t, text, "OUT", bodies)
}

func batchOf(t testing.TB, text, topic string, bodies []string) []string {
	t.Helper()
	g, err := compile("", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	var in []optest.Record
	for _, b := range bodies {
		in = append(in, optest.Record{Input: "IN", Subject: "in.x", Payload: []byte(b)})
	}
	r, err := optest.Run(g, optest.Options{Open: true}, in...)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range r.Of(topic) {
		lines = append(lines, m.Subject+" "+string(m.Payload))
	}
	return lines
}

func same(got, want []string) (bool, string) {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return false, fmt.Sprintf("line %d is %s, wanted %s", i+1, got[i], want[i])
		}
	}
	return len(got) == len(want), fmt.Sprintf("%d lines, wanted %d", len(got), len(want))
}

func TestOutputIsThatOfTheBatchOverRestarts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{counting, windowing} {
		for _, standby := range []string{"delta", "replay", "replay\nstate: {backend: pebble}", "delta\nrecovery: passive\ncheckpoint: 50ms"} {
			text := fmt.Sprintf(text, standby)
			t.Run(strings.Fields(text)[1]+"-"+strings.Fields(standby)[len(strings.Fields(standby))-1], func(t *testing.T) {
				dir := t.TempDir()
				p := open(t, dir, nil)
				p.topics(1)
				p.deploy(text)
				rng := rand.New(rand.NewPCG(1, 2))
				var bodies []string
				for round := range 4 {
					for range 300 {
						bodies = append(bodies, record(rng, len(bodies)))
						p.publish(bodies[len(bodies)-1])
					}
					if round%2 == 0 { // some restarts meet a backlog
						want := batch(t, text, bodies)
						wait(t, "the output", func() (bool, string) { return same(p.output(), want) })
					}
					p.close()
					p = open(t, dir, nil)
				}
				defer p.close()
				want := batch(t, text, bodies)
				wait(t, "the output", func() (bool, string) { return same(p.output(), want) })
			})
		}
	}
}

func TestOperatorStopsAtABadRecordAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, nil)
	defer func() { p.close() }()
	p.topics(1)
	text := fmt.Sprintf(counting, "delta")
	p.deploy(text)
	bodies := []string{`{"k":"a","v":5}`, `{"k":"a","v":"five"}`, `{"k":"b","v":6}`}
	for _, b := range bodies {
		p.publish(b)
	}
	var o *catalogue.Operator
	wait(t, "the failure", func() (bool, string) {
		o = p.Operator("A", "counts")
		return o.State == catalogue.Failed, string(o.State)
	})
	if o.At == nil || o.At.Sequence != 2 {
		t.Errorf("it stopped at %+v: %s", o.At, o.Error)
	}
	p.close()
	p = open(t, dir, nil)
	s := &p.ops.service
	if _, err := s.pause(t.Context(), "A", &Request{Name: "counts"}); err == nil {
		t.Error("an operator that has failed can be paused")
	}
	if _, err := s.resume(t.Context(), "A", &Request{Name: "counts", Skip: true}); err != nil {
		t.Fatal(err)
	}
	want := batch(t, text, []string{bodies[0], bodies[2]})
	wait(t, "the output", func() (bool, string) { return same(p.output(), want) })
	v, err := s.info(t.Context(), "A", &Request{Name: "counts"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(v); err != nil || !strings.Contains(string(b), `"seq":`) {
		t.Errorf("info %s, %v", b, err)
	}

	// Another version, with the state it had.
	changed := strings.Replace(text, "v > 2", "v > 1", 1)
	u, err := s.update(t.Context(), "A", &Request{Spec: changed})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(u.(Deployed).Steps); !strings.Contains(got, "kept") {
		t.Errorf("the update keeps %s", got)
	}
	if skip := u.(Deployed).Operator.Skip; skip == nil || skip.Sequence != 2 {
		t.Errorf("with the update the record that is passed over is %+v", skip) // an update may come in front of it
	}
	p.publish(`{"k":"a","v":2}`)
	want = append(want, `out.a {"k":"a","n":2,"total":7}`)
	wait(t, "the output of the update", func() (bool, string) { return same(p.output(), want) })
	if _, err := s.remove(t.Context(), "A", &Request{Name: "counts"}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the removal", func() (bool, string) {
		top, _ := p.Topic("A", "OUT")
		return top.Group().Store().Place(1, 0).Epoch == 0 && len(p.ops.all()) == 0, ""
	})
}

func TestDeployRefusesWithAdvice(t *testing.T) {
	p := open(t, t.TempDir(), nil)
	defer p.close()
	for text, want := range map[string]string{
		fmt.Sprintf(counting, "delta"): "there is no topic IN",
		strings.Replace(fmt.Sprintf(counting, "delta"), "filter: v", "filter: (", 1): "test:",
	} {
		if _, err := p.ops.service.deploy(t.Context(), "A", &Request{Spec: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %s", err, want)
		}
	}
}

// A spec that makes no graph any more stops its operator; what others run is taken in, and
// nothing waits for it.
func TestAnOperatorWithoutAGraphFailsAlone(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, nil)
	p.topics(1)
	p.deploy(fmt.Sprintf(counting, "delta"))
	p.publish(`{"k":"a","v":5}`)
	wait(t, "the output", func() (bool, string) { return len(p.output()) == 1, "" })
	p.close()
	p = openWith(t, dir, nil, func(string, []byte, map[string]uint16) (*graph.Graph, error) {
		return nil, errors.New("not today")
	})
	defer func() { p.close() }()
	wait(t, "the failure", func() (bool, string) {
		o := p.Operator("A", "counts")
		return o.State == catalogue.Failed && strings.Contains(o.Error, "not today"), o.Error
	})
	top, _ := p.Topic("A", "OUT")
	if err := top.Group().Store().Flush(); err != nil {
		t.Fatal(err)
	}
	p.close()
	p = open(t, dir, nil)
	if _, err := p.ops.service.resume(t.Context(), "A", &Request{Name: "counts"}); err != nil {
		t.Fatal(err)
	}
	p.publish(`{"k":"a","v":6}`)
	wait(t, "the output", func() (bool, string) {
		lines := p.output()
		return len(lines) == 2 && strings.HasSuffix(lines[1], `"n":2,"total":11}`), fmt.Sprint(lines)
	})
}
