package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

// measureScale measures what has no peer: each line says what was done, what
// came out, and what was wanted.
func measureScale(bin, dir string) []string {
	var facts []string
	for _, m := range []func(bin, dir string) (string, error){lonePublish, restart, manyTopics} {
		fact, err := m(bin, dir)
		if err != nil {
			fact = fmt.Sprintf("failed: %v", err)
		}
		fmt.Fprintln(os.Stderr, fact)
		facts = append(facts, fact)
	}
	return facts
}

// lonePublish compares one synchronous publish with a bare write and fdatasync
// of as many bytes, in turn.
func lonePublish(bin, dir string) (string, error) {
	s, err := program{"lone", bin, ""}.start(dir)
	if err != nil {
		return "", err
	}
	defer s.stop()
	if err := setup(s.url); err != nil {
		return "", err
	}
	return againstSync(s.url, dir, 1500, "one publish at a time, 128 B, through nats.go", 1.3)
}

// againstSync publishes one message at a time, in turn with a bare write and
// fdatasync of as many bytes.
func againstSync(url, dir string, count int, what string, wanted float64) (string, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	f, err := os.Create(filepath.Join(dir, "fdatasync"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	// The log writes into recycled, preallocated files; so does the yardstick.
	if _, err := f.Write(make([]byte, 8<<20)); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	data := bytes.Repeat([]byte("x"), 128)
	block := bytes.Repeat([]byte("y"), 256)
	var pub, sync []time.Duration
	for i := range count {
		began := time.Now()
		if _, err := nc.Request("bench.js", data, 5*time.Second); err != nil {
			return "", err
		}
		pub = append(pub, time.Since(began))
		began = time.Now()
		if _, err := f.WriteAt(block, int64(i)*256); err != nil {
			return "", err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return "", err
		}
		sync = append(sync, time.Since(began))
	}
	slices.Sort(pub)
	slices.Sort(sync)
	p, q := pub[len(pub)/2], sync[len(sync)/2]
	return fmt.Sprintf("%s: p50 %v against %v for a bare write and fdatasync of as many bytes: %.2f× (wanted ≤ %g×); p99 %v against %v",
		what, p.Round(time.Microsecond), q.Round(time.Microsecond), float64(p)/float64(q), wanted, pub[len(pub)*99/100].Round(time.Microsecond), sync[len(sync)*99/100].Round(time.Microsecond)), nil
}

// restart times a start on a store of ten million messages.
func restart(bin, dir string) (string, error) {
	const total = 10_000_000
	s, err := program{"restart", bin, ""}.start(dir)
	if err != nil {
		return "", err
	}
	defer func() { s.stop() }()
	if err := setup(s.url); err != nil {
		return "", err
	}
	if _, err := rawDurable(s.url, "bench.js", 128, 10_000, total); err != nil {
		return "", err
	}
	timed := func(how string) (time.Duration, error) {
		began := time.Now()
		if err := s.run(); err != nil {
			return 0, err
		}
		nc, js, err := dial(s.url)
		if err != nil {
			return 0, err
		}
		defer nc.Close()
		st, err := js.Stream(context.Background(), stream)
		if err != nil {
			return 0, err
		}
		took := time.Since(began)
		if n := st.CachedInfo().State.Msgs; n != total {
			return 0, fmt.Errorf("after %s: %d of %d messages", how, n, total)
		}
		return took, nil
	}
	s.stop()
	clean, err := timed("a clean stop")
	if err != nil {
		return "", err
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	killed, err := timed("a kill")
	if err != nil {
		return "", err
	}
	mem, _ := s.resident()
	return fmt.Sprintf("start with 10 million messages of 128 B until a client has their count: %v after a clean stop, %v after kill -9 (wanted ≤ 3 s); %d MiB resident",
		clean.Round(time.Millisecond), killed.Round(time.Millisecond), mem>>20), nil
}

// manyTopics makes 100,000 topics with a consumer each, and looks at what they
// cost while nothing happens.
func manyTopics(bin, dir string) (string, error) {
	const total, workers = 100_000, 64
	s, err := program{"many", bin, ""}.start(dir)
	if err != nil {
		return "", err
	}
	defer func() { s.stop() }()
	nc, js, err := dial(s.url)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	began := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < total; i += workers {
				name := fmt.Sprintf("T%d", i)
				if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"many." + name}}); err != nil {
					errs <- fmt.Errorf("topic %d: %w", i, err)
					return
				}
				if _, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
					errs <- fmt.Errorf("consumer %d: %w", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return "", err
	default:
	}
	took := time.Since(began)
	<-time.After(10 * time.Second)
	mem, cpu := s.resident()
	<-time.After(10 * time.Second)
	_, later := s.resident()
	began = time.Now()
	if _, err := nc.Request("$JS.API.STREAM.NAMES", nil, time.Minute); err != nil {
		return "", err
	}
	listed := time.Since(began)
	nc.Close()
	s.stop()
	began = time.Now()
	if err := s.run(); err != nil {
		return "", err
	}
	return fmt.Sprintf("100,000 topics with a consumer each: made in %v (%.0f pairs/s), %d MiB resident (wanted ≤ 1 GiB), %.2f %% of a processor when idle (wanted near 0), the first page of names in %v (wanted < 100 ms), started again in %v",
		took.Round(time.Second), total/took.Seconds(), mem>>20, 100*float64(later-cpu)/float64(10*time.Second),
		listed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond)), nil
}
