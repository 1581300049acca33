package demo

import (
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/client"
)

// watcher notes when results come by at one of the nodes, live.
type watcher struct {
	node string
	c    *client.Client

	mu   sync.Mutex
	when map[string][]time.Time // by operator
}

func watch(node, url string, operators []OperatorResult) (*watcher, error) {
	c, err := connect(url)
	if err != nil {
		return nil, err
	}
	w := &watcher{node: node, c: c, when: map[string][]time.Time{}}
	for _, o := range operators {
		if _, err := c.Subscribe(o.Name, func(*client.Message) error {
			now := time.Now()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.when[o.Name] = append(w.when[o.Name], now)
			return nil
		}); err != nil {
			_ = c.Close() // the error before counts
			return nil, err
		}
	}
	return w, nil
}

// silence is the longest time that an operator gave nothing after a node was killed, seen
// from one that was not, until the events ended; at least until the first result.
func (d *three) silence(killed, operator string, since, until time.Time) (longest time.Duration) {
	i := slices.IndexFunc(d.watchers, func(w *watcher) bool { return w.node != killed })
	w := d.watchers[i]
	w.mu.Lock()
	defer w.mu.Unlock()
	last := since
	for _, at := range w.when[operator] {
		if at.Before(since) {
			continue
		}
		if at.After(until) && last.After(since) {
			break
		}
		longest, last = max(longest, at.Sub(last)), at
	}
	return max(longest, until.Sub(last))
}
