package optest_test

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// cpu is the time the process has had a processor for.
func cpu() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkKinds runs each kind of step on bids in JSON, in steps of a thousand that are
// committed: what a core does without a network and a log.
func BenchmarkKinds(b *testing.B) {
	const n = 20_000
	arrivals := make([]engine.Arrival, n)
	for i := range arrivals {
		p := fmt.Appendf(nil, `{"auction":%d,"bidder":%d,"price":%d,"channel":"Google","url":"https://www.nexmark.com/item.htm?query=1","date_time":%d,"extra":"abcdefghijklmnopqrstuvwxyz"}`, 1000+i%97, i%1013, 100+i*7919%9973, 1_700_000_000_000+i*10)
		arrivals[i].Message = &topics.Message{Sequence: topics.Sequence(i + 1), Subject: "bids", Payload: p}
	}
	// A yardstick of how fast the machine is now: compare with it, not over time.
	b.Run("stdlib json alone", func(b *testing.B) {
		before, done := cpu(), 0
		for b.Loop() {
			for i := range arrivals {
				var bid struct {
					Auction, Bidder, Price int64
					Channel, URL, Extra    string
					At                     int64 `json:"date_time"`
				}
				if err := json.Unmarshal(arrivals[i].Message.Payload, &bid); err != nil {
					b.Fatal(err)
				}
			}
			done += n
		}
		b.ReportMetric(float64(cpu()-before)/float64(done), "cpu-ns/record")
	})
	for _, k := range []struct{ name, steps string }{
		{"pass", "[]"},
		{"filter", "[{filter: auction % 123 == 0}]"},
		{"filter compare", "[{filter: price > 100}]"},
		{"map", "[{map: {a: auction, p: price * 2}}]"},
		{"key", "[{key: auction}]"},
		{"tumble count", "[{key: auction}, {window: {tumble: 10s}}, {aggregate: {n: count()}}]"},
		{"tumble five", "[{key: auction}, {window: {tumble: 10s}}, {aggregate: {n: count(), total: sum(price), mean: avg(price), most: max(price), spread: stddev(price)}}]"},
		{"hop count", "[{key: auction}, {window: {hop: 10s, every: 2s}}, {aggregate: {n: count()}}]"},
		{"session", "[{key: bidder}, {window: {session: 5s}}, {aggregate: {n: count()}}]"},
		{"running", "[{key: auction}, {aggregate: {n: count()}}]"},
		{"deduplicate", "[{deduplicate: {by: bidder, within: 10s}}]"},
		{"top", "[{key: auction}, {top: {n: 3, by: price}}]"},
	} {
		b.Run(k.name, func(b *testing.B) {
			_, g := compile(b, "operator: bench\ntime: {event: date_time, unit: ms, disorder: 1s, max_future: 0s}\ninputs: [{topic: BIDS}]\nsteps: "+k.steps+"\noutputs: [{topic: OUT}]\n")
			b.ReportAllocs()
			done := 0
			before := cpu()
			for b.Loop() {
				i := open(b, g, state.NewMemory())
				for at := 0; at < n; {
					s, taken, err := i.Run(engine.Batch{Clock: 5e9, Arrivals: arrivals[at:min(at+1000, n)]})
					if err != nil {
						b.Fatal(err)
					}
					at += taken
					if err := i.Commit(s.Seq); err != nil {
						b.Fatal(err)
					}
				}
				done += n
			}
			// Of the processor, garbage collection included: the clock says how busy others
			// are.
			spent := cpu() - before
			b.ReportMetric(float64(spent)/float64(done), "cpu-ns/record")
			b.ReportMetric(float64(done)*1e9/float64(spent), "records/cpu-s")
		})
	}
}
