package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	clusterNodes = 3
	clusterReady = 2 * time.Minute // the longest a cluster may take to form
)

// cluster is three broker processes of one program on loopback.
type cluster struct {
	name    string
	servers []*server
}

// startCluster starts three nodes that know each other and waits until they have
// agreed on a stream.
func (p program) startCluster(dir string) (_ *cluster, err error) {
	c := &cluster{name: p.name}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	var ports, routes []int
	for range clusterNodes {
		for _, list := range []*[]int{&ports, &routes} {
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			*list = append(*list, port)
		}
	}
	var known []string
	for _, r := range routes {
		known = append(known, fmt.Sprintf("nats-route://127.0.0.1:%d", r))
	}
	errs := make(chan error, clusterNodes)
	for i := range clusterNodes {
		q := p
		q.name = fmt.Sprintf("%s-n%d", p.name, i+1)
		s, err := q.prepare(dir, ports[i], fmt.Sprintf("cluster { name: %q, listen: \"127.0.0.1:%d\", routes: [%s] }\n",
			p.name, routes[i], strings.Join(known, ", ")))
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
		go func() { errs <- s.run() }()
	}
	for range clusterNodes {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	for end := time.Now().Add(clusterReady); ; {
		if _, err = c.setup(); err == nil {
			return c, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the cluster %s did not form: %w", c.name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *cluster) stop() {
	var wg sync.WaitGroup
	for _, s := range c.servers {
		wg.Go(s.stop)
	}
	wg.Wait()
}

func (c *cluster) urls() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.url)
	}
	return strings.Join(all, ",")
}

// setup makes the stream anew with three replicas and returns where the node that
// leads it takes clients.
func (c *cluster) setup() (url string, err error) {
	nc, js, err := dial(c.urls())
	if err != nil {
		return "", err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = js.DeleteStream(ctx, stream)
	st, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"bench.js"}, Replicas: clusterNodes})
	if err != nil {
		return "", err
	}
	leader, err := c.leader(ctx, st)
	if err != nil {
		return "", err
	}
	return leader.url, nil
}

// leader waits until the stream has a leader and all its replicas are current.
func (c *cluster) leader(ctx context.Context, st jetstream.Stream) (*server, error) {
	for {
		info, err := st.Info(ctx)
		if err == nil && info.Cluster != nil && info.Cluster.Leader != "" {
			lagging := slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
			for _, s := range c.servers {
				if s.name == info.Cluster.Leader && !lagging {
					return s, nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("stream %s has no leader with current replicas: %w", stream, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// resident sums up what the nodes use.
func (c *cluster) resident() (bytes int64, cpu time.Duration) {
	for _, s := range c.servers {
		b, t := s.resident()
		bytes += b
		cpu += t
	}
	return bytes, cpu
}

// clusterRow is work done against the node that leads the stream.
func clusterRows() []row {
	var out []row
	add := func(name, driver string, target float64, work func(string) (float64, error)) {
		out = append(out, row{name: name + ", three nodes", driver: driver, target: target, unit: "msg/s", work: work})
	}
	const size = 128
	add("durable, window 500, 128 B", "raw", 0, func(u string) (float64, error) { return rawDurable(u, "bench.js", size, 500, 60_000) })
	add("durable, window 5000, 128 B", "raw", 6, func(u string) (float64, error) { return rawDurable(u, "bench.js", size, 5000, 150_000) })
	add("durable async, window 500, 128 B", "nats.go", 1.8, func(u string) (float64, error) { return goDurable(u, size, 500, 40_000) })
	add("durable, one at a time, 128 B", "nats.go", 0, func(u string) (float64, error) { return goDurable(u, size, 1, 500) })
	filled := func(ack jetstream.AckPolicy, f func(string) (float64, error)) func(string) (float64, error) {
		return func(u string) (float64, error) {
			if _, err := rawDurable(u, "bench.js", size, 1000, 50_000); err != nil {
				return 0, err
			}
			if err := addConsumer(u, "c", ack); err != nil {
				return 0, err
			}
			return f(u)
		}
	}
	add("consume, explicit ack, 128 B", "raw", 4, filled(jetstream.AckExplicitPolicy, func(u string) (float64, error) { return rawConsume(u, stream, "c", true, size, 50_000) }))
	add("consume, explicit ack, 128 B", "nats.go", 1.5, filled(jetstream.AckExplicitPolicy, func(u string) (float64, error) { return goConsume(u, "c", size, 50_000) }))
	add("fetch, explicit ack, 128 B", "nats.go", 1.5, filled(jetstream.AckExplicitPolicy, func(u string) (float64, error) { return goFetch(u, size, 50_000) }))
	add("ordered, 128 B", "nats.go", 1.5, filled(jetstream.AckNonePolicy, func(u string) (float64, error) { return goConsume(u, "ordered", size, 50_000) }))
	return out
}

// clusterFacts are what only a cluster can be asked.
var clusterFacts = []struct {
	name    string
	measure func(herald, peer, dir string) (string, error)
}{
	{"one publish at a time", clusterLone},
	{"failover", failover},
	{"1,000 topics", thousandTopics},
	{"100,000 topics", manyClusterTopics},
}

// runCluster does the rows of three nodes, and the facts whose name holds wanted.
func runCluster(herald, peer, dir, only, wanted string, reps int, scale bool) (results []*result, facts []string, err error) {
	both := map[string]*cluster{}
	for _, p := range []program{{"herald", herald, ""}, {"nats", peer, ""}} {
		c, err := p.startCluster(filepath.Join(dir, "cluster"))
		if err != nil {
			return nil, nil, err
		}
		defer func() { c.stop() }()
		both[p.name] = c
	}
	once := func(r row, c *cluster) (float64, error) {
		url, err := c.setup()
		if err != nil {
			return 0, err
		}
		return r.work(url)
	}
	for _, r := range clusterRows() {
		if only != "" && !strings.Contains(r.name, only) && !strings.Contains(r.driver, only) {
			continue
		}
		res := &result{row: r}
		results = append(results, res)
		for range reps {
			a, err := once(r, both["herald"])
			if err != nil {
				res.err = fmt.Errorf("herald: %w", err)
				break
			}
			b, err := once(r, both["nats"])
			if err != nil {
				res.err = fmt.Errorf("nats-server: %w", err)
				break
			}
			res.herald, res.peer, res.ratio = append(res.herald, a), append(res.peer, b), append(res.ratio, a/b)
		}
		fmt.Fprintln(os.Stderr, res)
	}
	if !scale {
		return results, nil, nil
	}
	for _, c := range both {
		c.stop()
	}
	for _, m := range clusterFacts {
		if !strings.Contains(m.name, wanted) {
			continue
		}
		fact, err := m.measure(herald, peer, dir)
		if err != nil {
			fact = fmt.Sprintf("failed: %v", err)
		}
		fmt.Fprintln(os.Stderr, fact)
		facts = append(facts, fact)
	}
	return results, facts, nil
}

// clusterLone compares one synchronous publish on three nodes with a bare fdatasync.
func clusterLone(herald, _, dir string) (string, error) {
	c, err := program{"lone3", herald, ""}.startCluster(dir)
	if err != nil {
		return "", err
	}
	defer c.stop()
	url, err := c.setup()
	if err != nil {
		return "", err
	}
	return againstSync(url, dir, 700, "one publish at a time on three nodes, 128 B, through nats.go", 2.5)
}

// failover kills the leader of a stream and times the first new acknowledgement,
// the two programs in turn.
func failover(herald, peer, dir string) (string, error) {
	const trials = 10
	took := map[string][]time.Duration{}
	for _, p := range []program{{"failover-herald", herald, ""}, {"failover-nats", peer, ""}} {
		c, err := p.startCluster(dir)
		if err != nil {
			return "", err
		}
		for range trials {
			d, err := c.failOnce()
			if err != nil {
				c.stop()
				return "", fmt.Errorf("%s: %w", p.name, err)
			}
			took[p.name] = append(took[p.name], d)
		}
		c.stop()
	}
	show := func(name string) string {
		v := took[name]
		slices.Sort(v)
		return fmt.Sprintf("p50 %v, worst %v", v[len(v)/2].Round(time.Millisecond), v[len(v)-1].Round(time.Millisecond))
	}
	return fmt.Sprintf("kill -9 of a stream's leader to the first new acknowledgement, %d times: %s (wanted p50 ≤ 1.5 s, p99 ≤ 3 s); nats-server: %s",
		trials, show("failover-herald"), show("failover-nats")), nil
}

// failOnce kills the leader, times the first acknowledgement by another, and
// brings the node back.
func (c *cluster) failOnce() (time.Duration, error) {
	url, err := c.setup()
	if err != nil {
		return 0, err
	}
	var others []string
	var leader *server
	for _, s := range c.servers {
		if s.url == url {
			leader = s
			continue
		}
		others = append(others, s.url)
	}
	nc, err := nats.Connect(strings.Join(others, ","))
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	if m, err := nc.Request("bench.js", []byte("before"), 5*time.Second); err != nil {
		return 0, err
	} else if !strings.Contains(string(m.Data), `"seq"`) {
		return 0, fmt.Errorf("not stored: %s", m.Data)
	}
	if err := leader.cmd.Process.Kill(); err != nil {
		return 0, err
	}
	began := time.Now()
	<-leader.done
	for {
		m, err := nc.Request("bench.js", []byte("after"), 150*time.Millisecond)
		if err == nil && strings.Contains(string(m.Data), `"seq"`) && !strings.Contains(string(m.Data), `"error"`) {
			break
		}
		if time.Since(began) > time.Minute {
			return 0, fmt.Errorf("no acknowledgement within a minute: %w", err)
		}
		if err != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
	took := time.Since(began)
	return took, leader.run()
}
