package operate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/state"
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
	t.Parallel()
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
	p.deploy(text)
	bodies := []string{`{"k":"a","v":2}`, `{"k":"b","v":1}`, `{"k":"c","v":"no number"}`, `{"k":"d","v":4}`}
	for _, b := range bodies {
		p.publish(b)
	}
	fails := 0
	want := sorted(batch(t, strings.Replace(text, "partitions: 3", "partitions: 1", 1), []string{bodies[0], bodies[3]}))
	// Both records stop it: one before the key, one behind it, whose instance may be the last.
	wait(t, "the rest is given", func() (bool, string) {
		if o := p.Operator("A", "parted"); o.State == "failed" {
			fails++
			if _, err := p.ops.service.resume(t.Context(), "A", &Request{Name: "parted", Skip: true}); err != nil {
				return false, err.Error()
			}
		}
		if ok, why := same(sorted(p.output()), want); !ok {
			return false, why
		}
		return fails >= 2, fmt.Sprintf("it failed %d times", fails)
	})
}

// rescale asks for a number of instances, and waits until it has them.
func (p *place) rescale(n int) {
	p.Helper()
	wait(p, fmt.Sprint("rescale to ", n), func() (bool, string) {
		_, err := p.ops.service.rescale(p.Context(), "A", &Request{Name: "parted", Partitions: n})
		return err == nil, fmt.Sprint(err)
	})
}

func (p *place) rescaledTo(n int) {
	p.Helper()
	wait(p, fmt.Sprint("it has ", n, " instances"), func() (bool, string) {
		o := p.Operator("A", "parted")
		return o.Next == nil && len(o.Homes()) == n, fmt.Sprintf("%d, next %+v", len(o.Homes()), o.Next)
	})
}

func TestRescalingUnderLoadAndOverRestartsLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, standby := range []string{"delta", "replay"} {
		t.Run(standby, func(t *testing.T) {
			dir := t.TempDir()
			start := func() *place { return openWith(t, dir, nil, compile, groupsOf(4, 0)) }
			p := start()
			defer func() { p.close() }()
			p.spread(1, 1, 1, 1)
			text := fmt.Sprintf(partitioned, standby, 3)
			one := strings.Replace(text, "partitions: 3", "partitions: 1", 1)
			p.deploy(text)
			rng := rand.New(rand.NewPCG(13, 14))
			sent := 0
			publish := func(n int) {
				for range n {
					p.publish(manyKeys(rng, sent))
					sent++
				}
			}
			for _, n := range []int{7, 2, 1, 5} {
				publish(300)
				p.rescale(n)
				publish(300)
				for range rng.IntN(3) { // in the middle of it
					p.close()
					p = start()
					publish(50)
				}
				p.rescaledTo(n)
			}
			p.parted(one, "OUT", "FAR")
			// What instances left behind that went while the node was down is removed.
			p.close()
			left := filepath.Join(dir, "operators", "1-99999")
			if err := os.MkdirAll(left, 0o700); err != nil {
				t.Fatal(err)
			}
			p = start()
			wait(t, "the files are removed", func() (bool, string) {
				_, err := os.Stat(left)
				return errors.Is(err, os.ErrNotExist), fmt.Sprint(err)
			})
			wait(t, "those before are gone", func() (bool, string) {
				return len(p.ops.all()) == 5, fmt.Sprint(len(p.ops.all()), " units")
			})
			v, err := p.ops.service.info(t.Context(), "A", &Request{Name: "parted"})
			if err != nil {
				t.Fatal(err)
			}
			good := uint64(0)
			wait(t, "all is counted", func() (bool, string) {
				v, err = p.ops.service.info(t.Context(), "A", &Request{Name: "parted"})
				good = 0
				for _, r := range v.(Info).Replicas {
					for _, c := range r.Counts {
						if c.Step == "good" && c.Name == "in" {
							good += c.N
						}
					}
				}
				return good == uint64(sent), fmt.Sprint(good, " of ", sent)
			})
			// By an update, with another step.
			changed := strings.Replace(fmt.Sprintf(partitioned, standby, 4), "v != 1", "v != 2", 1)
			if _, err := p.ops.service.update(t.Context(), "A", &Request{Spec: changed}); err != nil {
				t.Fatal(err)
			}
			p.rescaledTo(4)
			before := len(p.output())
			p.publish(`{"k":"new","v":1}`)
			p.publish(`{"k":"new","v":2}`)
			wait(t, "the update's output", func() (bool, string) {
				lines := p.output()
				return len(lines) == before+1 && strings.HasSuffix(lines[before], `"n":1,"total":1}`), fmt.Sprint(lines[before:])
			})
		})
	}
}

func TestAnOperatorFollowsItsFirstOutputAndRescalesWhilePrimariesAreKilled(t *testing.T) {
	t.Parallel()
	// Each flush writes a file for each instance on each node: seldom, for the disk's sake.
	f := startFleetWith(t, func(o *state.Options, _ *Options) { o.FlushInterval = 2 * time.Second })
	f.any().spread(3, 3, 1, 1)
	for name, p := range f.nodes {
		wait(t, name+" knows the topics", func() (bool, string) {
			in, _ := p.Topic("A", "IN")
			out, _ := p.Topic("A", "OUT")
			far, _ := p.Topic("A", "FAR")
			return in != nil && out != nil && far != nil && in.Data() != nil && out.Data() != nil, ""
		})
	}
	text := fmt.Sprintf(partitioned, "delta", 1)
	f.any().deploy(text)
	rng := rand.New(rand.NewPCG(15, 16))
	sent := 0
	publish := func(n int) {
		for range n {
			f.any().publish(manyKeys(rng, sent))
			sent++
		}
	}
	kill := func() {
		wait(t, "a leader", func() (bool, string) { return f.leader() != nil, "" })
		dead := f.leader().net.Name()
		f.kill(dead)
		publish(50)
		f.join(dead)
		f.ready()
	}
	numbers := []int{3, 7, 2}
	if testing.Short() {
		numbers = numbers[:1]
	}
	for _, n := range numbers {
		publish(200)
		f.any().rescale(n)
		publish(100)
		kill()
		publish(100)
		f.any().rescaledTo(n)
	}
	home := f.any().Operator("A", "parted").Group
	wait(t, "resize", func() (bool, string) {
		_, err := f.any().UpdateTopic(t.Context(), "A", conf(1, "OUT", "out.>"))
		return err == nil, fmt.Sprint(err)
	})
	publish(200)
	wait(t, "it follows", func() (bool, string) {
		o := f.any().Operator("A", "parted")
		top, _ := f.any().Topic("A", "OUT")
		return o.Next == nil && o.Group != home && o.Group == top.Group().ID(), fmt.Sprintf("%+v", o)
	})
	publish(200)
	for _, name := range []string{"OUT", "FAR"} {
		wait(t, "the output "+name, func() (bool, string) {
			var bodies, got []string
			for _, p := range f.nodes {
				if b := p.bodies(); len(b) > len(bodies) {
					bodies = b
				}
				if b := p.outputOf(name); len(b) > len(got) {
					got = b
				}
			}
			return same(sorted(got), sorted(batchOf(t, text, name, bodies)))
		})
	}
}
