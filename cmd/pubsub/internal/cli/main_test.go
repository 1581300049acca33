package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/client"
)

// TestMain also lets the test's executable stand in for pubsub, because the demo and
// the cluster for developers start child processes of their own executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "demo" || os.Args[1] == "cluster") {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := Main(ctx, Env{Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv})
		stop()
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// world is a broker and a home of the test's own.
type world struct {
	t    testing.TB
	url  string
	home string
	env  map[string]string

	monitor string // the broker's HTTP port, if it has one
}

func newWorld(t testing.TB) *world { return newWorldOf(t, broker.Config{}) }

func newWorldOf(t testing.TB, cfg broker.Config) *world {
	t.Helper()
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-b.Ready():
	case err := <-ended:
		t.Fatalf("the broker ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("the broker does not get ready")
	}
	return &world{t: t, url: b.ClientURL(), home: t.TempDir(), monitor: b.MonitorURL()}
}

// nowhere is a world without a broker.
func nowhere(t testing.TB) *world { return &world{t: t, url: "nats://127.0.0.1:1", home: t.TempDir()} }

func (w *world) getenv(name string) string {
	if v, ok := w.env[name]; ok {
		return v
	}
	switch name {
	case "NATS_URL":
		return w.url
	case "HOME":
		return w.home
	}
	return ""
}

// result of a command.
type outcome struct {
	out, err string
	code     int
}

func (w *world) with(ctx context.Context, stdin string, args ...string) outcome {
	var out, errs bytes.Buffer
	code := Main(ctx, Env{Args: args, In: strings.NewReader(stdin), Out: &out, Err: &errs, Getenv: w.getenv})
	return outcome{out.String(), errs.String(), code}
}

func (w *world) run(args ...string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return w.with(ctx, "", args...)
}

// must runs a command that has to succeed and returns its output.
func (w *world) must(args ...string) string {
	w.t.Helper()
	o := w.run(args...)
	if o.code != 0 {
		w.t.Fatalf("pubsub %s: exit code %d: %s%s", strings.Join(args, " "), o.code, o.out, o.err)
	}
	return o.out
}

// background is a command that runs on.
type background struct {
	w       *world
	cancel  context.CancelFunc
	done    chan struct{}
	outcome outcome

	out, err tail
}

// tail is output that can be waited for.
type tail struct {
	mu     sync.Mutex
	b      bytes.Buffer
	signal chan struct{}
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.signal <- struct{}{}:
	default:
	}
	return t.b.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func (w *world) start(args ...string) *background {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &background{w: w, cancel: cancel, done: make(chan struct{})}
	b.out.signal, b.err.signal = make(chan struct{}, 1), make(chan struct{}, 1)
	go func() {
		defer close(b.done)
		b.outcome.code = Main(ctx, Env{Args: args, In: strings.NewReader(""), Out: &b.out, Err: &b.err, Getenv: w.getenv})
	}()
	w.t.Cleanup(func() { cancel(); <-b.done })
	return b
}

func (b *background) until(which *tail, text string) {
	b.w.t.Helper()
	deadline := time.After(10 * time.Second)
	for !strings.Contains(which.String(), text) {
		select {
		case <-which.signal:
		case <-b.done:
			if !strings.Contains(which.String(), text) {
				b.w.t.Fatalf("ended without saying %q: %s%s", text, b.out.String(), b.err.String())
			}
		case <-deadline:
			b.w.t.Fatalf("did not say %q: %s%s", text, b.out.String(), b.err.String())
		}
	}
}

func (b *background) wait() outcome {
	b.w.t.Helper()
	select {
	case <-b.done:
	case <-time.After(15 * time.Second):
		b.w.t.Fatalf("does not end: %s%s", b.out.String(), b.err.String())
	}
	b.outcome.out, b.outcome.err = b.out.String(), b.err.String()
	return b.outcome
}

// store publishes n durable messages orders.<i> with body <i>.
func (w *world) store(n int) {
	w.t.Helper()
	w.must("topic", "create", "orders")
	w.must("pub", "--durable", "orders.{{.Count}}", "{{.Count}}", "--expand", "--count", fmt.Sprint(n))
}

func (w *world) client() *client.Client {
	w.t.Helper()
	c, err := client.Connect(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

var _ io.Writer = (*tail)(nil)
