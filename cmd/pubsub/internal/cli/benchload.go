package cli

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/client"
)

// receivers count what comes in on several connections.
type receivers struct {
	all   sync.WaitGroup
	want  int
	n     int
	got   atomic.Int64
	end   atomic.Int64 // UnixNano of the last message
	begin atomic.Int64
	lat   spread
}

// receive subscribes on each connection for want messages.
func (a *app) receive(ctx context.Context, clients []*client.Client, subject string, want int, idle time.Duration) (*receivers, error) {
	r := &receivers{want: want, n: len(clients)}
	for _, c := range clients {
		ended := make(chan struct{})
		seen, mine := 0, make([]time.Duration, 0, min(want, spreadMax))
		sub, err := c.Subscribe(subject, func(m *client.Message) error {
			now := time.Now()
			if seen++; seen > want {
				return nil
			}
			r.begin.CompareAndSwap(0, now.UnixNano())
			r.end.Store(now.UnixNano())
			r.got.Add(1)
			if at, ok := sentAt(m.Payload); ok && len(mine) < spreadMax {
				mine = append(mine, now.Sub(at))
			}
			if seen == want {
				close(ended)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if err := sub.Buffer(-1, -1); err != nil {
			return nil, err
		}
		r.all.Go(func() {
			last := int64(-1)
			for {
				select {
				case <-ended:
				case <-ctx.Done():
				case <-time.After(idle):
					if now := r.got.Load(); now != last {
						last = now
						continue
					}
				}
				_ = sub.Close()
				r.lat.add(mine)
				return
			}
		})
	}
	return r, nil
}

func (r *receivers) result(f *benchFlags, subject string, start time.Time) result {
	r.all.Wait()
	got := r.got.Load()
	end := time.Unix(0, r.end.Load())
	if got == 0 {
		end = time.Now()
	}
	out := f.result("sub "+subject, end.Sub(start), got, &r.lat)
	out.Clients = r.n
	out.Lost = int64(r.want)*int64(r.n) - got
	return out
}

// storeMany publishes n messages and notes how long each receipt took.
func (f *benchFlags) storeMany(ctx context.Context, c *client.Client, subject string, n int, s *spread) error {
	type sent struct {
		future *client.Future
		at     time.Time
	}
	queue := make(chan sent, f.window)
	failed := make(chan error, 1)
	go func() { // ends when the queue is closed, which the return below waits for
		defer close(failed)
		took := make([]time.Duration, 0, min(n, spreadMax))
		var first error
		for p := range queue {
			_, err := p.future.Wait(ctx)
			if err != nil && first == nil {
				first = err
			}
			if len(took) < spreadMax {
				took = append(took, time.Since(p.at))
			}
		}
		s.add(took)
		failed <- first
	}()
	var err error
	for range n {
		at := time.Now()
		payload := make([]byte, f.size) // its own: it must not change until the receipt
		stampNow(payload)
		var future *client.Future
		if future, err = c.PublishAsync(ctx, subject, payload); err != nil {
			break
		}
		queue <- sent{future, at}
	}
	close(queue)
	return errors.Join(err, <-failed)
}
