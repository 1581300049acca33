package operate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/front"
)

const withLate = `
operator: windows
time: {event: at, unit: ms, disorder: 0s, max_future: 0s, idle_after: 0s}
inputs: [{topic: IN}]
errors: {policy: dead-letter, to: 'out.dead.{record.k}'}
steps:
  - key: k
  - window: { tumble: 10s, late: {to: far.late} }
  - aggregate: { n: count(), total: sum(v) }
outputs: [{topic: OUT, subject: 'out.{k}'}]
`

// Late records and dead letters are in the topics that keep their subjects, in the operator's
// group or another one, each once: live they would be nowhere here, where there is no account to
// publish them in.
func TestLateRecordsAndDeadLettersAreKept(t *testing.T) {
	dir := t.TempDir()
	start := func() *place { return openWith(t, dir, nil, compile, groupsOf(4, 0)) }
	p := start()
	defer func() { p.close() }()
	p.spread(1, 1, 1, 1)
	in, _ := p.Topic("A", "IN")
	out, _ := p.Topic("A", "OUT")
	far, _ := p.Topic("A", "FAR")
	if out.Group() == far.Group() {
		t.Fatal("the topics are in one group")
	}
	p.deploy(withLate)
	publish := func(id int, k, v string, at int) {
		in.Group().Capture([]front.Captured{{
			Topic: in.ID(), Subject: []byte("in.x"), Account: &front.Account{},
			Header:  fmt.Appendf(nil, "NATS/1.0\r\nNats-Msg-Id: %d\r\nSource: x\r\n\r\n", id),
			Payload: fmt.Appendf(nil, `{"k":%q,"v":%s,"at":%d}`, k, v, 1_790_000_000_000+at),
		}})
	}
	var late, dead []string
	for i := range 10 {
		publish(3*i, "a", "1", i*20_000)
		publish(3*i+1, "a", fmt.Sprint(i), 0)
		publish(3*i+2, fmt.Sprint("b", i), `"no number"`, i*20_000)
		if i > 0 { // the first comes in time
			late = append(late, fmt.Sprintf(`far.late {"k":"a","v":%d,"at":1790000000000}`, i))
		}
		dead = append(dead, fmt.Sprintf(`out.dead.b%d`, i))
	}
	check := func() {
		t.Helper()
		wait(t, "the late records", func() (bool, string) { return same(p.outputOf("FAR"), late) })
		wait(t, "the dead letters", func() (bool, string) {
			var got []string
			for _, line := range p.output() {
				if strings.HasPrefix(line, "out.dead.") {
					got = append(got, strings.Fields(line)[0])
				}
			}
			return same(got, dead)
		})
	}
	check()
	far, _ = p.Topic("A", "FAR")
	messages, _, err := far.Data().Read(nil, 1, 1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h := messages[0].Header; header(h, "Nats-Msg-Id") != "" || header(h, "Source") != "x" || header(h, headerOrigin) == "" {
		t.Errorf("a late record has the header %q", h)
	}
	p.close()
	p = start()
	check()
	p.publish(`{"k":"c","v":1,"at":1790001000000}`)
	p.publish(`{"k":"c","v":2,"at":1790000000000}`)
	late = append(late, `far.late {"k":"c","v":2,"at":1790000000000}`)
	check()
}

func TestStorableHeaders(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"NATS/1.0\r\nSource: x\r\n\r\n": "NATS/1.0\r\nSource: x\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: 7\r\nSource: Nats-x\r\nNats-Rollup: all\r\n\r\n": "NATS/1.0\r\nSource: Nats-x\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n":                                       "NATS/1.0\r\n\r\n",
	} {
		if got := string(storable([]byte(in))); got != want {
			t.Errorf("%q is %q, not %q", in, got, want)
		}
	}
}
