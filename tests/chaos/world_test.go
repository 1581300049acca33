package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "`seed` of a run to repeat")
	targetFlag  = flag.String("target", herald, "`server` to test: brokerd or nats-server")
	syncFlag    = flag.String("sync", "default", "sync_interval of nats-server: default or always")
	shareFlag   = flag.Float64("share", 1, "`part` of a full form's rounds and times, more than 0 and at most 1")
	resultsFlag = flag.String("results", os.Getenv("HERALD_RESULTS"), "`file` to append a line of JSON per check to")
)

const (
	herald     = "brokerd"
	natsServer = "nats-server"
	natsModule = "github.com/nats-io/nats-server/v2@v2.15.2"
)

// long tells whether the full form of a check was asked for.
func long() bool { return os.Getenv("HERALD_LONG") != "" }

// always are the checks that run when nobody asks for any: they fit into a few
// minutes, and each breaks something else.
var always = []string{"Test01PowerCut", "Test05LostFiles", "Test08PartitionsByProxy", "Test11Retries", "Test14HungDisk", "Test18Transfers"}

// asked tells whether a check is to run: one of a few, or by name, or all.
func asked(t *testing.T) bool {
	name, _, _ := strings.Cut(t.Name(), "/")
	return long() || os.Getenv("HERALD_CHAOS") != "" || flag.Lookup("test.run").Value.String() != "" || slices.Contains(always, name)
}

// pick returns what a check does in its short and in its full form.
func pick[T any](short, full T) T {
	if long() {
		return full
	}
	return short
}

// some returns how much of a full form's rounds or time is asked for by -share: at
// least one round.
func some[T int | time.Duration](full T) T {
	if *shareFlag <= 0 || *shareFlag >= 1 {
		return full
	}
	return max(1, T(float64(full)**shareFlag))
}

// lower is the subject that a stream of a name captures the messages under.
func lower(stream string) string { return strings.ToLower(stream) }

func pause(d time.Duration) { <-time.After(max(d, 0)) }

// result is a line of the results file.
type result struct {
	Check  int       `json:"check"` // number on the scoreboard
	Test   string    `json:"test"`
	Target string    `json:"target"`
	Sync   string    `json:"sync,omitempty"`
	Long   bool      `json:"long"`
	Share  float64   `json:"share,omitempty"` // of the full form, where it wasn't all of it
	OK     bool      `json:"ok"`
	Skip   bool      `json:"skip,omitempty"`
	Figure string    `json:"figure"`
	Seed   uint64    `json:"seed"`
	Took   string    `json:"took"`
	Date   time.Time `json:"date"`
}

// world is a cluster, the load on it and what was found wrong.
type world struct {
	*harness.Cluster
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	target string
	began  time.Time

	publishers []*publisher
	damages    bool // the check damages files: replicas may differ for a while
	counts     bool // what is broken is counted only: a test of the checkers themselves

	mu      sync.Mutex
	faults  map[string]int
	figures []string
	own     map[string]map[uint64]bool // by stream: sequences that no publisher's messages have
	before  map[*harness.Node]use      // what the processes held before there was a load
}

// newWorld begins a check: seed, target, and a cluster that isn't started.
func newWorld(t *testing.T, check int, o harness.ClusterOptions) *world {
	t.Helper()
	if !asked(t) {
		t.Skip("SKIPPED: not one of the few; -run names it, HERALD_CHAOS=1 runs all in their short form, HERALD_LONG=1 in full")
	}
	if !long() && os.Getenv("HERALD_CHAOS") == "" {
		t.Parallel() // the few wait more than they work
	}
	w := &world{t: t, seed: *seedFlag, target: *targetFlag, began: time.Now(), faults: map[string]int{}}
	if w.seed == 0 {
		w.seed = uint64(time.Now().UnixNano())
	}
	w.rng = w.random("world")
	t.Cleanup(func() { w.record(check) })
	t.Logf("repeat with: %sgo test -count=1 ./tests/chaos -run '^%s$' -target %s -sync %s -seed %d",
		pick("", "HERALD_LONG=1 "), strings.ReplaceAll(t.Name(), "/", "$/^"), *targetFlag, *syncFlag, w.seed)
	switch w.target {
	case herald:
	case natsServer:
		o.Program = natsProgram(t)
		if *syncFlag != "default" {
			o.JetStream += "  sync_interval: " + *syncFlag + "\n"
		}
	default:
		t.Fatalf("no target %q: brokerd or nats-server", w.target)
	}
	w.Cluster = harness.NewCluster(t, o)
	return w
}

// natsProgram returns the path of nats-server.
func natsProgram(t *testing.T) string {
	if p := os.Getenv("HERALD_NATS_SERVER"); p != "" {
		return p
	}
	if p, err := exec.LookPath(natsServer); err == nil {
		if out, err := exec.Command(p, "--version").Output(); err == nil && strings.Contains(string(out), "2.15.2") {
			return p
		}
	}
	return harness.Tool(t, natsServer, natsModule)
}

// begin makes a world whose cluster takes durable topics.
func begin(t *testing.T, check int, o harness.ClusterOptions) *world {
	t.Helper()
	w := newWorld(t, check, o)
	w.must(w.Start())
	w.waitJetStream()
	w.weigh()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// needDisks skips the check, with the reason, where nodes have no own disks.
func (w *world) needDisks() {
	w.t.Helper()
	if w.Nodes[0].Disk == nil {
		w.t.Skip("SKIPPED: cutting power and filling disks needs loop devices, and those need root")
	}
}

// random returns an actor's own source of randomness.
func (w *world) random(actor string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(actor))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// broken reports a broken promise; of a kind that comes often only the first few.
func (w *world) broken(kind, format string, args ...any) {
	w.mu.Lock()
	w.faults[kind]++
	n := w.faults[kind]
	w.mu.Unlock()
	if w.counts {
		return
	}
	if n <= 5 {
		w.t.Errorf("%6.2fs %s: %s", time.Since(w.began).Seconds(), kind, fmt.Sprintf(format, args...))
	} else {
		w.t.Fail()
	}
}

// note logs an event of the run.
func (w *world) note(format string, args ...any) {
	w.t.Logf("%6.2fs %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// figure adds to what the scoreboard says about this run.
func (w *world) figure(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures = append(w.figures, fmt.Sprintf(format, args...))
}

// record prints the result and appends it to the results file.
func (w *world) record(check int) {
	r := result{
		Check: check, Test: w.t.Name(), Target: w.target, Long: long(), OK: !w.t.Failed(), Skip: w.t.Skipped(), Seed: w.seed,
		Figure: strings.Join(w.figures, "; "), Took: time.Since(w.began).Round(100 * time.Millisecond).String(), Date: time.Now().UTC(),
	}
	if w.target == natsServer {
		r.Sync = *syncFlag
	}
	if long() && *shareFlag > 0 && *shareFlag < 1 {
		r.Share = *shareFlag
	}
	for kind, n := range w.faults {
		w.t.Logf("%s: %d times", kind, n)
	}
	line, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("RESULT %s", line)
	if *resultsFlag == "" {
		return
	}
	f, err := os.OpenFile(*resultsFlag, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n'))
}

// connect returns a connection to some nodes, or all, that comes back whenever
// one of them does. A client of all learns of nodes that join: those it was given may
// all be replaced. What is published while there is none fails at once.
func (w *world) connect(name string, nodes ...*harness.Node) *nats.Conn {
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 0), nats.ReconnectBufSize(-1), nats.Timeout(2 * time.Second), nats.RetryOnFailedConnect(true),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.NoCallbacksAfterClientClose(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if len(nodes) > 0 {
		options = append(options, nats.IgnoreDiscoveredServers())
	}
	nc, err := nats.Connect(w.URLs(nodes...), options...)
	w.must(err)
	w.t.Cleanup(nc.Close)
	return nc
}

// ask sends a request to the JetStream API until it is answered with something
// other than "not now", for at most a patience, and decodes the answer.
func (w *world) ask(nc *nats.Conn, patience time.Duration, subject string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var last error
	for deadline := time.Now().Add(patience); ; {
		m, err := nc.Request("$JS.API."+subject, text, min(3*time.Second, patience))
		var r struct {
			Error *jetstream.APIError `json:"error"`
		}
		switch {
		case err != nil:
			last = err
		case json.Unmarshal(m.Data, &r) != nil:
			last = fmt.Errorf("answer %q", m.Data)
		case r.Error == nil:
			if answer == nil {
				return nil
			}
			return json.Unmarshal(m.Data, answer)
		default:
			last = r.Error
			if r.Error.Code != 503 && (r.Error.Code != 500 || r.Error.ErrorCode == 10074) {
				return last
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", subject, last)
		}
		pause(50 * time.Millisecond)
	}
}

// waitJetStream waits until every node that runs answers the JetStream API.
func (w *world) waitJetStream() {
	w.t.Helper()
	for _, n := range w.Nodes {
		if !n.Running() {
			continue
		}
		nc := w.connect("ready", n)
		if err := w.ask(nc, time.Minute, "INFO", nil, nil); err != nil {
			w.t.Fatalf("JetStream isn't ready on %s: %v", n.Name, err)
		}
		nc.Close()
	}
}

// create makes a topic of some replicas from what is particular about it.
func (w *world) create(name string, replicas int, with map[string]any) {
	w.t.Helper()
	cfg := map[string]any{
		"name": name, "subjects": []string{lower(name) + ".>"}, "retention": "limits", "storage": "file", "num_replicas": replicas,
		"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1, "discard": "old", "duplicate_window": 10 * time.Minute,
	}
	for k, v := range with {
		cfg[k] = v
	}
	nc := w.connect("create")
	defer nc.Close()
	err := w.ask(nc, time.Minute, "STREAM.CREATE."+name, cfg, nil)
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNameInUse {
		err = nil // an earlier try went through
	}
	if err != nil {
		w.t.Fatalf("create %s: %v", name, err)
	}
	w.leader(name)
}

// info is what a stream says about itself.
type info struct {
	Config struct {
		Replicas int `json:"num_replicas"`
	} `json:"config"`
	State   jetstream.StreamState  `json:"state"`
	Cluster *jetstream.ClusterInfo `json:"cluster"`
}

func (w *world) info(nc *nats.Conn, stream string, patience time.Duration) (info, error) {
	var i info
	err := w.ask(nc, patience, "STREAM.INFO."+stream, nil, &i)
	return i, err
}

// leader waits until a stream has a leader and returns it.
func (w *world) leader(stream string) *harness.Node {
	w.t.Helper()
	nc := w.connect("leader")
	defer nc.Close()
	for deadline := time.Now().Add(time.Minute); ; pause(30 * time.Millisecond) {
		i, err := w.info(nc, stream, 2*time.Second)
		if err == nil && i.Cluster != nil && w.Node(i.Cluster.Leader) != nil {
			return w.Node(i.Cluster.Leader)
		}
		if time.Now().After(deadline) {
			w.figure("%s: acked %d, unavailable: %v", stream, w.acked(), err)
			w.t.Fatalf("%s has no leader after a minute: %v", stream, err)
		}
	}
}

// others returns the nodes but the given ones.
func (w *world) others(not ...*harness.Node) []*harness.Node {
	var out []*harness.Node
	for _, n := range w.Nodes {
		keep := true
		for _, x := range not {
			keep = keep && n != x
		}
		if keep {
			out = append(out, n)
		}
	}
	return out
}

// lead makes a node the leader of a stream.
func (w *world) lead(stream string, n *harness.Node, patience time.Duration) error {
	nc := w.connect("lead")
	defer nc.Close()
	var last error
	began, asked, tries := time.Now(), time.Time{}, 0
	for deadline := began.Add(patience); time.Now().Before(deadline); pause(50 * time.Millisecond) {
		i, err := w.info(nc, stream, 2*time.Second)
		if err == nil && i.Cluster != nil && i.Cluster.Leader == n.Name {
			if took := time.Since(began); took > 3*time.Second {
				w.note("%s leads %s, asked for %d times in %s (last: %v)", n.Name, stream, tries, took.Round(10*time.Millisecond), last)
			}
			return nil
		}
		if err != nil {
			last = err
		}
		if time.Since(asked) < 3*time.Second {
			continue
		}
		asked = time.Now()
		tries++
		body := map[string]any{"placement": map[string]any{"preferred": n.Name}}
		if err := w.ask(nc, 2*time.Second, "STREAM.LEADER.STEPDOWN."+stream, body, nil); err != nil {
			last = fmt.Errorf("step down: %w", err)
		}
	}
	return fmt.Errorf("%s does not lead %s after %s: %w", n.Name, stream, patience, last)
}

// within runs f with a context that ends after d.
func within(d time.Duration, f func(ctx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}

// ctx is short for what every call takes.
type ctx = context.Context
