package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/client"
)

// limit is what kept a benchmark from being faster.
type limit struct {
	What string `json:"what"` // client processors, machine processors, broker processors, disk sync, window, network, unclear
	Why  string `json:"why"`
	Try  string `json:"try"`
}

// facts are what the limit is found out from. Unknown ones are 0.
type facts struct {
	over            time.Duration // how long it took
	durable         bool
	clients, window int
	cores           float64 // of this machine
	client          float64 // processors that this process kept busy
	machine         float64 // that everything on this machine did
	broker          float64 // the busiest broker's, with --monitor
	brokerCores     float64
	sync            float64       // share of the time in which the busiest log was syncing
	syncs           float64       // of it, a second
	rtt             time.Duration // with nothing to do
	lone            time.Duration // until one durable message alone is stored
	p50             time.Duration
}

// diagnose says what was the limit. The first that fits counts: what is above is a limit
// whatever is below.
func (f facts) diagnose() limit {
	switch {
	case f.over < shortest: // processor time is counted in hundredths of a second
		return limit{"unclear", fmt.Sprintf("it was over after %s, too soon to tell", round(f.over)), "a larger --msgs"}
	case f.client > 0.8*f.cores:
		return limit{
			"client processors", fmt.Sprintf("this process kept %.1f of %.0f processors busy", f.client, f.cores),
			"run several of it, on other machines than the broker's",
		}
	case f.broker > 0.8*f.brokerCores && f.broker > 0:
		return limit{
			"broker processors", fmt.Sprintf("a broker kept %.1f of its %.0f processors busy", f.broker, f.brokerCores),
			"larger messages, fewer subscribers of each, or more processors for the broker",
		}
	case f.machine > 0.85*f.cores:
		return limit{
			"machine processors", fmt.Sprintf("this machine kept %.1f of %.0f processors busy, this process %.1f of them", f.machine, f.cores, f.client),
			"run it on another machine than the broker, and nothing else beside",
		}
	case f.clients == 1 && f.client > 0.85:
		return limit{
			"client processors", fmt.Sprintf("one connection is worked for by about one processor, and this process kept %.1f busy", f.client),
			"--clients 2 and more",
		}
	case f.durable && f.sync > 0.6:
		return limit{
			"disk sync", fmt.Sprintf("the log was being synced %.0f %% of the time, %.0f times a second", 100*f.sync, f.syncs),
			"a larger --window or more --clients put more messages into each sync; a disk with a faster fsync helps all (pubsub doctor --dir DIR)",
		}
	case f.durable && f.lone > 0 && f.p50 > 0 && f.p50 < 2*f.lone && f.lone > 2*f.rtt && f.window*f.clients <= 4:
		return limit{
			"disk sync", fmt.Sprintf("each message waits for its own sync: one alone takes %s, of which the way there and back is %s", round(f.lone), round(f.rtt)),
			"messages that don't wait for each other: a larger --window, or more --clients",
		}
	case f.durable && f.lone > 0 && f.p50 > 0 && f.p50 < 2*f.lone:
		return limit{
			"window", fmt.Sprintf("a message takes %s, hardly more than one alone (%s): nothing waits for anything", round(f.p50), round(f.lone)),
			"a larger --window, or more --clients",
		}
	case f.rtt > time.Millisecond:
		return limit{
			"network", fmt.Sprintf("the way to the broker and back takes %s, and no processor that is known was busy", round(f.rtt)),
			"more --clients; larger messages; a client that is nearer",
		}
	}
	return limit{"unclear", "nothing that this client sees was busy", "--monitor URL of each broker's HTTP port tells its processors and its disk"}
}

// shortest is what figures are believed of.
const shortest = 200 * time.Millisecond

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// gauge looks at client, machine and brokers before and after a benchmark.
type gauge struct {
	urls    []string
	start   time.Time
	client  time.Duration
	machine time.Duration
	brokers []map[string]float64
	rtt     time.Duration
	lone    time.Duration
}

// probes is how many messages are timed alone before a benchmark; their median counts.
const probes = 9

// gaugeFrom measures what one message alone takes, and notes where everything stands. A
// durable subject is one that a topic captures already.
func (a *app) gaugeFrom(ctx context.Context, c *client.Client, f *benchFlags, durable string) (*gauge, error) {
	g := &gauge{urls: f.monitor}
	var err error
	g.rtt, err = median(func() error { return c.Flush(ctx) })
	if err == nil && durable != "" {
		payload := make([]byte, f.size)
		g.lone, err = median(func() error {
			_, err := c.PublishDurable(ctx, durable, payload)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	for _, url := range g.urls {
		m, err := scrape(ctx, url, a.timeout)
		if err != nil {
			return nil, &problem{code: exitUnhealthy, what: fmt.Sprintf("--monitor %s: %v", url, err), next: "the broker's http_port, as http://HOST:8222", err: err}
		}
		g.brokers = append(g.brokers, m)
	}
	g.machine, g.client, g.start = machineTime(), cpuTime(), time.Now()
	return g, nil
}

func median(do func() error) (time.Duration, error) {
	var took []time.Duration
	for range probes {
		at := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// into finds out what the limit of a result was, which has just been measured.
func (g *gauge) into(ctx context.Context, r result, f *benchFlags, durable bool) result {
	over := time.Since(g.start).Seconds()
	x := facts{
		over: time.Duration(over * float64(time.Second)), durable: durable, clients: f.clients, window: max(f.window, 1), cores: float64(runtime.NumCPU()),
		client: (cpuTime() - g.client).Seconds() / over, rtt: g.rtt, lone: g.lone,
	}
	if now := machineTime(); now > 0 {
		x.machine = (now - g.machine).Seconds() / over
	}
	if r.Latency != nil {
		x.p50 = time.Duration(r.Latency.P50 * float64(time.Millisecond))
	}
	for i, url := range g.urls {
		now, err := scrape(ctx, url, 5*time.Second)
		if err != nil {
			continue // it was there before: the rest still says something
		}
		grown := func(name string) float64 { return (now[name] - g.brokers[i][name]) / over }
		if busy := grown("process_cpu_seconds_total"); busy > x.broker {
			x.broker, x.brokerCores = busy, now["go_sched_gomaxprocs_threads"]
		}
		if share := grown("herald_log_sync_seconds_sum"); share > x.sync {
			x.sync, x.syncs = share, grown("herald_log_sync_seconds_count")
		}
	}
	r.Processors, r.BrokerProcessors, r.SyncShare = x.client, x.broker, x.sync
	r.RTT, r.Lone = float64(g.rtt.Microseconds())/1000, float64(g.lone.Microseconds())/1000
	l := x.diagnose()
	r.Limit = &l
	return r
}

// scrape reads a broker's metrics that have no labels.
func scrape(ctx context.Context, url string, timeout time.Duration) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	m := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.Contains(name, "{") && name != "#" {
			m[name] = v
		}
	}
	if m["process_cpu_seconds_total"] == 0 {
		return nil, errors.New("these are no metrics of a broker")
	}
	return m, lines.Err()
}

// machineTime is the processor time that everything on this machine has used; 0 where it
// isn't known.
func machineTime() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	var ticks uint64
	for i, v := range f[1:9] {
		if i == 3 || i == 4 { // idle, and waiting for disks
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100) // USER_HZ, 100 on all that Linux runs on
}
