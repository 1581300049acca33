package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

// TestMain checks that no test leaves a goroutine.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

const patience = 10 * time.Second

// start runs a broker until the test ends.
func start(t *testing.T, cfg broker.Config) *broker.Broker {
	t.Helper()
	b, err := broker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-b.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(patience):
		t.Fatal("the broker did not get ready")
	}
	return b
}

// options reads a configuration text; port, http and store_dir are added.
func options(t *testing.T, text string) *config.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(path, []byte("port: -1\nhttp: \"127.0.0.1:-1\"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := config.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o.JetStream.StoreDir = t.TempDir()
	return o
}

func connect(t *testing.T, url string, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.Timeout(patience), nats.NoReconnect()}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// page gets a monitoring page.
func page(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestZeroConfig(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if u := b.ClientURL(); u != "" {
		t.Errorf("a broker that doesn't run is at %q", u)
	}
	before := temporary(t)
	ended := make(chan error, 1)
	go func() { ended <- b.Run(t.Context()) }()
	<-b.Ready()
	nc := connect(t, b.ClientURL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	if ack, err := js.Publish(ctx, "s.a", []byte("x")); err != nil || ack.Sequence != 1 {
		t.Fatalf("ack %+v, %v", ack, err)
	}
	nc.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after := temporary(t); len(after) > len(before) {
		t.Errorf("left behind in the temporary directory: %v", after)
	}
	if err := b.Run(t.Context()); !errors.Is(err, broker.ErrRunning) {
		t.Errorf("a second run: %v", err)
	}
}

// temporary lists the temporary store directories there are.
func temporary(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "herald-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestNewStartsNothingAndCloseBeforeRun(t *testing.T) {
	b, err := broker.New(broker.Config{StoreDir: filepath.Join(t.TempDir(), "store")})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(t.Context()); err != nil {
		t.Errorf("run after close: %v", err)
	}
}

func TestTopicsOutliveTheBroker(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	run := func(f func(js jetstream.JetStream)) {
		b, err := broker.New(broker.Config{StoreDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		select {
		case <-b.Ready():
		case err := <-ended:
			t.Fatalf("run: %v", err)
		}
		nc := connect(t, b.ClientURL())
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		f(js)
		nc.Close()
		if err := errors.Join(b.Close(), <-ended); err != nil {
			t.Fatal(err)
		}
	}
	run(func(js jetstream.JetStream) {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
			t.Fatal(err)
		}
	})
	run(func(js jetstream.JetStream) {
		s, err := js.Stream(ctx, "S")
		if err != nil {
			t.Fatal(err)
		}
		if m, err := s.GetMsg(ctx, 1); err != nil || string(m.Data) != "kept" {
			t.Errorf("message %v, %v", m, err)
		}
		// The topic captures again.
		if ack, err := js.Publish(ctx, "s", nil); err != nil || ack.Sequence != 2 {
			t.Errorf("ack %+v, %v", ack, err)
		}
	})
}

func TestTwoBrokersCannotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	start(t, broker.Config{StoreDir: dir})
	b, err := broker.New(broker.Config{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Run(ctx); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("a second broker on one directory: %v", err)
	}
}

func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("port: -1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("accounts { A { users: [{user: a, password: one}] } }\n")
	o, err := config.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, broker.Config{Options: o, Reload: func() (*config.Options, error) { return config.ParseFile(path) }})
	connect(t, b.ClientURL(), nats.UserInfo("a", "one"))

	write("accounts { A { users: [{user: a, password: two}] }, B { users: [{user: b, password: b}] } }\nmax_payload: 1KB\n")
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(b.ClientURL(), nats.UserInfo("a", "one"), nats.NoReconnect()); err == nil {
		nc.Close()
		t.Error("the old password is still good")
	}
	nc := connect(t, b.ClientURL(), nats.UserInfo("b", "b"))
	if nc.MaxPayload() != 1024 {
		t.Errorf("max_payload is %d", nc.MaxPayload())
	}
	// The account that came with the reload is served.
	if _, err := nc.Request("$SYS.REQ.USER.INFO", nil, patience); err != nil {
		t.Errorf("USER.INFO in a new account: %v", err)
	}

	write("listen: \"127.0.0.1:1\"\n")
	if err := b.Reload(); err == nil || !strings.Contains(err.Error(), "need a restart: port changed from -1 to 1") {
		t.Errorf("a change of the port: %v", err)
	}
	write("nonsense: 1\n")
	if err := b.Reload(); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("a bad file: %v", err)
	}
}

func TestReloadWithoutSource(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "")})
	if err := b.Reload(); !errors.Is(err, broker.ErrNoReload) {
		t.Errorf("%v", err)
	}
}

func TestLameDuck(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "lame_duck_duration: 1s\nlame_duck_grace_period: 10ms\n")})
	told, closed := make(chan struct{}), make(chan struct{})
	connect(t, b.ClientURL(), nats.LameDuckModeHandler(func(*nats.Conn) { close(told) }), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.LameDuck(ctx)
	for what, c := range map[string]chan struct{}{"told": told, "closed": closed} {
		select {
		case <-c:
		case <-time.After(patience):
			t.Errorf("the client was not %s", what)
		}
	}
	if status, text := page(t, b.MonitorURL()+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, "lame duck") {
		t.Errorf("readyz: %d %s", status, text)
	}
}

func TestServerInfo(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, "server_name: n1\njetstream: true\ncluster { name: c }\n")})
	nc := connect(t, b.ClientURL())
	if v := nc.ConnectedServerVersion(); v != broker.NATSVersion {
		t.Errorf("version %q", v)
	}
	if n := nc.ConnectedServerName(); n != "n1" {
		t.Errorf("name %q", n)
	}
	if c := nc.ConnectedClusterName(); c != "c" {
		t.Errorf("cluster %q", c)
	}
	if id := nc.ConnectedServerId(); id != b.ID() || len(id) != 56 || id[0] != 'N' {
		t.Errorf("id %q", id)
	}
	m, err := nc.Request("$SYS.REQ.USER.INFO", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Server struct{ Name, Ver string }
		Data   struct{ Account string }
	}
	if err := json.Unmarshal(m.Data, &v); err != nil || v.Data.Account != "$G" || v.Server.Name != "n1" {
		t.Errorf("USER.INFO %s, %v", m.Data, err)
	}
}
