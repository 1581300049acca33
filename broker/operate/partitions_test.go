package operate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics"
)

const partitioned = `
operator: parted
standby: %s
partitions: %d
errors: {policy: dead-letter, to: dead}
inputs: [{topic: IN}]
steps:
  - {name: good, assert: v != 1}
  - key: k
  - aggregate: { n: count(), total: sum(v) }
outputs:
  - {topic: OUT, subject: 'out.{k}', key: k}
  - {topic: FAR, from: good, subject: 'far.{k}'}
`

// sorted is lines in an order that doesn't depend on that of the instances: those of a
// subject stay as they are.
func sorted(lines []string) []string {
	out := slices.Clone(lines)
	slices.SortStableFunc(out, func(a, b string) int {
		x, _, _ := strings.Cut(a, " ")
		y, _, _ := strings.Cut(b, " ")
		return strings.Compare(x, y)
	})
	return out
}

// manyKeys is a record of one of many keys.
func manyKeys(rng *rand.Rand, i int) string {
	return strings.Replace(record(rng, i), `"k":"k`, fmt.Sprintf(`"k":"%c`, 'a'+rune(rng.IntN(26))), 1)
}

func (p *place) bodies() (all []string) {
	in, ok := p.Topic("A", "IN")
	if !ok || in.Data() == nil {
		return nil
	}
	messages, _, err := in.Data().Read(nil, 1, 1<<20, 0, nil)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		all = append(all, string(m.Payload))
	}
	return all
}

// parted waits until what the instances have given is what one gives for all input.
func (p *place) parted(text string, outputs ...string) {
	p.Helper()
	for _, topic := range outputs {
		wait(p, "the output "+topic, func() (bool, string) {
			want := sorted(batchOf(p, text, topic, p.bodies()))
			if len(want) == 0 {
				return false, "nothing is wanted"
			}
			return same(sorted(p.outputOf(topic)), want)
		})
	}
}

func TestPartitionsGiveWhatOneInstanceGives(t *testing.T) {
	for _, standby := range []string{"delta", "replay"} {
		t.Run(standby, func(t *testing.T) {
			dir := t.TempDir()
			start := func() *place { return openWith(t, dir, nil, compile, groupsOf(4, 0)) }
			p := start()
			defer func() { p.close() }()
			p.spread(1, 1, 1, 1)
			text := fmt.Sprintf(partitioned, standby, 7)
			o := p.deploy(text)
			groups := map[topics.GroupID]bool{}
			for _, g := range o.Homes() {
				groups[g] = true
			}
			if len(o.Homes()) != 7 || len(groups) < 3 {
				t.Fatalf("its instances live in %v", o.Homes())
			}
			one := strings.Replace(text, "partitions: 7", "partitions: 1", 1)
			rng := rand.New(rand.NewPCG(11, 12))
			for i := range 900 {
				p.publish(manyKeys(rng, i))
				if i%400 == 399 {
					p.close()
					p = start()
				}
			}
			p.parted(one, "OUT", "FAR")
			v, err := p.ops.service.info(t.Context(), "A", &Request{Name: "parted"})
			if err != nil || len(v.(Info).Replicas) != 7 {
				t.Errorf("info: %+v, %v", v, err)
			}
			v, err = p.ops.service.state(t.Context(), "A", &Request{Name: "parted"})
			if a, ok := v.(*StateAnswer); err != nil || !ok || len(a.Entries) < 20 {
				t.Errorf("state: %+v, %v", v, err)
			}
		})
	}
}

func TestAFailedInstanceStopsAllAndSkipsForItself(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	text := strings.Replace(fmt.Sprintf(partitioned, "delta", 3), "errors: {policy: dead-letter, to: dead}", "", 1)
	text = strings.Replace(text, "assert: v != 1", "assert: v != 1", 1)
	p.deploy(text)
	bodies := []string{`{"k":"a","v":2}`, `{"k":"b","v":1}`, `{"k":"c","v":"no number"}`, `{"k":"d","v":4}`}
	for _, b := range bodies {
		p.publish(b)
	}
	fails := 0
	want := sorted(batch(t, strings.Replace(text, "partitions: 3", "partitions: 1", 1), []string{bodies[0], bodies[3]}))
	wait(t, "the rest is given", func() (bool, string) {
		if o := p.Operator("A", "parted"); o.State == "failed" {
			fails++
			if _, err := p.ops.service.resume(t.Context(), "A", &Request{Name: "parted", Skip: true}); err != nil {
				return false, err.Error()
			}
		}
		return same(sorted(p.output()), want)
	})
	if fails < 2 {
		t.Errorf("it failed %d times", fails)
	}
}
