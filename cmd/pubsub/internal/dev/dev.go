// Package dev runs a cluster on one machine for a developer: each node a process of
// its own, which can be killed to see what happens.
//
// [Run] writes a configuration file for each node, starts this executable once per
// node as "cluster node" (which calls [Node]), and starts again whatever ends. The
// nodes end with the process that started them: each reads from a pipe that closes
// then.
package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/heraldmq/herald/broker/daemon"
)

// Options say what cluster to run.
type Options struct {
	Nodes     int
	Directory string // of configurations, logs and data; made if it is missing
	Port      int    // of the first node's clients; 0: any free ones. Monitoring is 4000 above, the cluster 2000
	Note      func(format string, args ...any)
	// Executable is run for each node; "" is this one.
	Executable string
	// Pause is how long a node that ended stays down, so that what that does can be seen;
	// 0: three seconds.
	Pause time.Duration
	// Started is told of each process that was started, by any goroutine; nil: nobody is.
	Started func(Member)
}

// Member is a node that runs.
type Member struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Monitor string `json:"monitoring"`
	PID     int    `json:"pid"`
	Conf    string `json:"configuration"`
	Log     string `json:"log"`
}

// readyMax is how long the cluster may take to form.
const readyMax = time.Minute

// node is one process and what it is started with.
type node struct {
	mu sync.Mutex // guards PID
	Member
	cluster, client, monitor int
	hold                     io.Closer
	ended                    chan error
}

// Run runs the cluster until ctx ends. When all nodes serve, ready is called once.
func Run(ctx context.Context, o Options, ready func([]Member) error) error {
	if o.Executable == "" {
		var err error
		if o.Executable, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program's file: %w", err)
		}
	}
	if o.Pause <= 0 {
		o.Pause = 3 * time.Second
	}
	nodes, err := plan(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	faults := make(chan error, len(nodes))
	for _, n := range nodes {
		if err := n.start(o); err != nil {
			faults <- err
			break
		}
		wg.Go(func() { n.keep(ctx, o) })
	}
	if len(faults) == 0 {
		err = await(ctx, nodes)
		if err == nil {
			var all []Member
			for _, n := range nodes {
				n.mu.Lock()
				all = append(all, n.Member)
				n.mu.Unlock()
			}
			err = ready(all)
		}
		if err == nil {
			<-ctx.Done()
		}
	} else {
		err = <-faults
	}
	cancel()
	wg.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// plan writes what every node is configured with.
func plan(o Options) ([]*node, error) {
	dir, err := filepath.Abs(o.Directory)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", o.Directory, err)
	}
	var nodes []*node
	var routes []string
	secret := rand.Text()
	var free []int
	if o.Port == 0 {
		if free, err = freePorts(3 * o.Nodes); err != nil {
			return nil, err
		}
	}
	for i := range o.Nodes {
		n := &node{client: o.Port + i, cluster: o.Port + 2000 + i, monitor: o.Port + 4000 + i}
		if o.Port == 0 {
			n.client, n.cluster, n.monitor = free[3*i], free[3*i+1], free[3*i+2]
		}
		n.Name = fmt.Sprintf("n%d", i+1)
		n.URL, n.Monitor = fmt.Sprintf("nats://127.0.0.1:%d", n.client), fmt.Sprintf("http://127.0.0.1:%d", n.monitor)
		n.Conf, n.Log = filepath.Join(dir, n.Name, "node.conf"), filepath.Join(dir, n.Name, "log")
		routes = append(routes, fmt.Sprintf("    nats-route://127.0.0.1:%d", n.cluster))
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := os.MkdirAll(filepath.Dir(n.Conf), 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of %s: %w", n.Name, err)
		}
		text := fmt.Sprintf(`# A node of a cluster for development, written anew at every start.
server_name: %s
listen: "127.0.0.1:%d"
http: "127.0.0.1:%d"
jetstream { store_dir: %q }
cluster {
  name: dev
  listen: "127.0.0.1:%d"
  authorization { user: dev, password: %q }
  routes: [
%s
  ]
}
`, n.Name, n.client, n.monitor, filepath.Join(dir, n.Name, "data"), n.cluster, secret, strings.Join(routes, "\n"))
		if err := os.WriteFile(n.Conf, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("configure %s: %w", n.Name, err)
		}
	}
	return nodes, nil
}

// freePorts finds ports that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // all are held until the last is found: so no two are the same
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// start starts the node's process.
func (n *node) start(o Options) error {
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", n.Name, err)
	}
	defer log.Close() // the process has it
	cmd := exec.Command(o.Executable, "cluster", "node", "-c", n.Conf)
	cmd.Stdout, cmd.Stderr = log, log
	// An interrupt at the terminal is for us alone: we end the nodes in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if n.hold, err = cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	n.mu.Lock()
	n.PID = cmd.Process.Pid
	started := n.Member
	n.mu.Unlock()
	if o.Started != nil {
		o.Started(started)
	}
	ended := make(chan error, 1)
	n.ended = ended
	go func() { ended <- cmd.Wait() }() // received by keep
	return nil
}

// keep starts the node again whenever it ends, until ctx does; then it ends it.
func (n *node) keep(ctx context.Context, o Options) {
	for {
		select {
		case <-ctx.Done():
			_ = n.hold.Close() // gone already when the process is
			<-n.ended
			return
		case err := <-n.ended:
			o.Note("%s ended (%v); starting it again in %s (its log: %s)", n.Name, err, o.Pause, n.Log)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(o.Pause):
		}
		if err := n.start(o); err != nil {
			o.Note("%s stays down: %v", n.Name, err)
			return
		}
		o.Note("%s runs again, process %d", n.Name, n.PID)
	}
}

// await waits until every node says that it serves.
func await(ctx context.Context, nodes []*node) error {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(readyMax)
	for _, n := range nodes {
		for {
			why, ok := ask(ctx, &client, n.Monitor)
			if ok {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s is not ready within %s: %s; see %s", n.Name, readyMax, why, n.Log)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func ask(ctx context.Context, c *http.Client, monitor string) (why string, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, monitor+"/readyz", nil)
	if err != nil {
		return err.Error(), false
	}
	r, err := c.Do(req)
	if err != nil {
		return err.Error(), false
	}
	defer r.Body.Close() // it has been read
	b, err := io.ReadAll(io.LimitReader(r.Body, 4096))
	if err != nil {
		return err.Error(), false
	}
	return strings.TrimSpace(string(b)), r.StatusCode == http.StatusOK
}

// Node runs one broker as brokerd would with these arguments, and ends it when
// standard input ends. It returns the exit code.
func Node(args []string, out, errs io.Writer) int {
	go func() { // ends with the process: nothing can wait for a read of standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	return daemon.Main(append([]string{"brokerd"}, args...), out, errs)
}
