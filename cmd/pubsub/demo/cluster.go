package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/heraldmq/herald/cmd/pubsub/internal/dev"
)

// cluster is three nodes, each a process of its own, which start again when they end.
type cluster struct {
	cancel  context.CancelFunc
	ended   chan error
	members []dev.Member

	mu     sync.Mutex
	pids   map[string]int
	starts map[string]int // how often each was started
}

// startCluster returns when all nodes serve.
func startCluster(ctx context.Context, o Options) (*cluster, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &cluster{cancel: cancel, ended: make(chan error, 1), pids: map[string]int{}, starts: map[string]int{}}
	ready := make(chan []dev.Member, 1)
	go func() { // stop receives its end
		c.ended <- dev.Run(ctx, dev.Options{
			Nodes: 3, Directory: o.Directory, Executable: o.Executable, Pause: 300 * time.Millisecond,
			Note: func(string, ...any) {}, // what the demo does to them it says itself
			Started: func(m dev.Member) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.pids[m.Name] = m.PID
				c.starts[m.Name]++
			},
		}, func(all []dev.Member) error {
			ready <- all
			return nil
		})
	}()
	select {
	case c.members = <-ready:
		return c, nil
	case err := <-c.ended:
		cancel()
		return nil, errors.Join(fmt.Errorf("the nodes did not start: %w", err), ctx.Err())
	}
}

// stop ends the nodes and waits for them.
func (c *cluster) stop() error {
	c.cancel()
	return <-c.ended
}

// urls are all nodes', for clients.
func (c *cluster) urls() string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.URL)
	}
	return strings.Join(all, ",")
}

// kill is kill -9 of a node: no goodbye, no flush. It starts again by itself; back says
// that it has, and serves.
func (c *cluster) kill(name string) (back func(ctx context.Context) error, err error) {
	c.mu.Lock()
	pid, starts := c.pids[name], c.starts[name]
	c.mu.Unlock()
	if pid == 0 {
		return nil, fmt.Errorf("there is no node %q to kill", name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("kill %s: %w", name, err)
	}
	return func(ctx context.Context) error {
		return until(ctx, name+" to be back", func() (bool, error) {
			c.mu.Lock()
			again := c.starts[name] > starts
			c.mu.Unlock()
			return again && c.serves(ctx, name), nil
		})
	}, nil
}

// serves tells whether a node says that it is ready.
func (c *cluster) serves(ctx context.Context, name string) bool {
	for _, m := range c.members {
		if m.Name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Monitor+"/readyz", nil)
		if err != nil {
			return false
		}
		r.Close = true
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, answer.Body) // only the status counts
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	return false
}

// until asks again and again until it is so; an error is the last one's.
func until(ctx context.Context, what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; {
		is, err := ok()
		if is {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("waited %s in vain for %s", patience, what), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
