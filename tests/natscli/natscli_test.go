// Package natscli drives the unmodified `nats` command line tool against
// brokerd: the everyday verbs a NATS user types.
package natscli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

const cliModule = "github.com/nats-io/natscli/nats@v0.5.0"

// cli runs one `nats` command and returns what it printed on both streams.
type cli struct {
	t      *testing.T
	path   string
	url    string
	home   string
	system bool
}

func newCLI(t *testing.T, b *harness.Broker) *cli {
	return &cli{t: t, path: harness.Tool(t, "nats", cliModule), url: b.URL, home: t.TempDir()}
}

func (c *cli) asSystem() *cli {
	s := *c
	s.system = true
	return &s
}

func (c *cli) command(ctx context.Context, args ...string) *exec.Cmd {
	full := append([]string{"--server", c.url, "--timeout", "5s"}, args...)
	if c.system {
		full = append([]string{"--user", "system", "--password", "password"}, full...)
	}
	cmd := exec.CommandContext(ctx, c.path, full...)
	cmd.Env = append(os.Environ(), "HOME="+c.home, "XDG_CONFIG_HOME="+filepath.Join(c.home, ".config"), "NO_COLOR=1")
	cmd.WaitDelay = time.Second
	return cmd
}

// run expects success and returns the output.
func (c *cli) run(args ...string) string {
	c.t.Helper()
	return c.runIn("", args...)
}

func (c *cli) runIn(stdin string, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := c.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// fail expects the command to end with an error.
func (c *cli) fail(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	out, err := c.command(ctx, args...).CombinedOutput()
	if err == nil {
		c.t.Fatalf("nats %s: succeeded\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}

// background starts a command that goes on, and waits until its output holds
// ready; the returned function ends it and gives all that it printed.
func (c *cli) background(ready string, args ...string) (finish func() string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	cmd := c.command(ctx, args...)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		cancel()
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	c.t.Cleanup(func() { cancel(); <-done })
	waitFor(c.t, "output of nats "+strings.Join(args, " "), func() bool { return strings.Contains(out.String(), ready) })
	return func() string {
		c.t.Helper()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			c.t.Fatalf("nats %s did not end\n%s", strings.Join(args, " "), out.String())
		}
		cancel()
		return out.String()
	}
}

func (c *cli) json(v any, args ...string) {
	c.t.Helper()
	out := c.run(args...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		c.t.Fatalf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func expect(t *testing.T, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestCorePublishSubscribeRequest(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	sub := c.background("Subscribing on", "sub", "greet.>", "--count", "2")
	c.run("pub", "greet.joe", "hello joe")
	c.run("pub", "greet.sue", "hello sue", "-H", "Lang:en")
	expect(t, sub(), "hello joe", "hello sue")

	reply := c.background("Listening on", "reply", "help.please", "on my way", "--count", "1")
	expect(t, c.run("request", "help.please", "fire"), "on my way")
	reply()

	expect(t, c.run("request", "nobody.home", "x"), "(?i)no responders")
	expect(t, c.run("rtt"), `127\.0\.0\.1`)
}

func TestAccountInfo(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	expect(t, c.run("account", "info"), "user1", "USERS1", "JetStream Account Information")
}

type streamInfo struct {
	Config struct {
		Name     string   `json:"name"`
		Subjects []string `json:"subjects"`
		MaxMsgs  int64    `json:"max_msgs"`
	} `json:"config"`
	State struct {
		Messages uint64 `json:"messages"`
		First    uint64 `json:"first_seq"`
		Last     uint64 `json:"last_seq"`
		Deleted  int    `json:"num_deleted"`
	} `json:"state"`
}

func TestStreams(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	c.run("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
	expect(t, c.run("stream", "ls"), "ORDERS")
	expect(t, c.run("stream", "ls", "--names"), "ORDERS")
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		c.run("pub", "--jetstream", "orders.new", "order "+n)
	}
	var info streamInfo
	c.json(&info, "stream", "info", "ORDERS", "--json")
	if info.State.Messages != 5 || info.State.First != 1 || info.State.Last != 5 {
		t.Fatalf("state %+v", info.State)
	}
	expect(t, c.run("stream", "get", "ORDERS", "3"), "order 3")
	expect(t, c.run("stream", "subjects", "ORDERS"), `orders\.new`)
	c.run("stream", "rmm", "ORDERS", "3", "--force")
	expect(t, c.fail("stream", "get", "ORDERS", "3"), "no message found")
	c.run("stream", "edit", "ORDERS", "--max-msgs", "3", "--force")
	c.json(&info, "stream", "info", "ORDERS", "--json")
	if info.State.Messages != 3 || info.Config.MaxMsgs != 3 {
		t.Fatalf("after edit: %+v", info)
	}
	expect(t, c.run("stream", "report"), "ORDERS")
	expect(t, c.run("sub", "--stream", "ORDERS", "--all", "--count", "3", "--raw"), "order 2", "order 4", "order 5")
	c.run("stream", "purge", "ORDERS", "--force")
	c.json(&info, "stream", "info", "ORDERS", "--json")
	if info.State.Messages != 0 || info.State.Last != 5 {
		t.Fatalf("after purge: %+v", info.State)
	}
	c.run("stream", "rm", "ORDERS", "--force")
	expect(t, c.fail("stream", "info", "ORDERS"), "(?i)not found|unknown stream|could not")
}

func TestConsumers(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	c.run("stream", "add", "WORK", "--subjects", "work.>", "--defaults")
	for _, n := range []string{"one", "two", "three"} {
		c.run("pub", "--jetstream", "work."+n, "job "+n)
	}
	c.run("consumer", "add", "WORK", "puller", "--pull", "--ack", "explicit", "--deliver", "all", "--defaults")
	expect(t, c.run("consumer", "ls", "WORK"), "puller")
	expect(t, c.run("consumer", "next", "WORK", "puller", "--ack"), "job one")
	expect(t, c.run("consumer", "next", "WORK", "puller", "--count", "2", "--ack"), "job two", "job three")
	var info struct {
		AckFloor struct {
			Stream uint64 `json:"stream_seq"`
		} `json:"ack_floor"`
		Pending uint64 `json:"num_pending"`
	}
	c.json(&info, "consumer", "info", "WORK", "puller", "--json")
	if info.AckFloor.Stream != 3 || info.Pending != 0 {
		t.Fatalf("%+v", info)
	}
	c.run("consumer", "edit", "WORK", "puller", "--description", "reads jobs", "--force")
	expect(t, c.run("consumer", "info", "WORK", "puller"), "reads jobs")
	expect(t, c.run("consumer", "report", "WORK"), "puller")
	c.run("consumer", "add", "WORK", "filtered", "--pull", "--filter", "work.two", "--deliver", "all", "--defaults")
	expect(t, c.run("consumer", "next", "WORK", "filtered"), "job two")
	c.run("consumer", "pause", "WORK", "filtered", "1h", "--force")
	expect(t, c.run("consumer", "info", "WORK", "filtered"), "(?i)paused")
	c.run("consumer", "resume", "WORK", "filtered", "--force")
	c.run("consumer", "rm", "WORK", "puller", "--force")
	expect(t, c.run("consumer", "ls", "WORK", "--names"), "^\\s*filtered\\s*$")
}

func TestKeyValue(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	c.run("kv", "add", "CONFIG", "--history", "5")
	c.run("kv", "put", "CONFIG", "db.host", "alpha")
	c.run("kv", "put", "CONFIG", "db.host", "beta")
	c.run("kv", "put", "CONFIG", "db.port", "5432")
	expect(t, c.run("kv", "get", "CONFIG", "db.host", "--raw"), "^beta")
	expect(t, c.run("kv", "ls", "CONFIG"), `db\.host`, `db\.port`)
	expect(t, c.run("kv", "ls"), "CONFIG")
	expect(t, c.run("kv", "history", "CONFIG", "db.host"), "alpha", "beta")
	c.run("kv", "create", "CONFIG", "once", "1")
	expect(t, c.fail("kv", "create", "CONFIG", "once", "2"), "(?i)key exists|wrong last sequence")
	c.run("kv", "update", "CONFIG", "once", "3", "4")
	c.run("kv", "del", "CONFIG", "db.port", "--force")
	expect(t, c.fail("kv", "get", "CONFIG", "db.port"), "(?i)not found")
	c.run("kv", "purge", "CONFIG", "db.host", "--force")
	watch := c.background("once", "kv", "watch", "CONFIG")
	_ = watch
	expect(t, c.run("kv", "status", "CONFIG"), "CONFIG")
	c.run("kv", "rm", "CONFIG", "--force")
}

func TestObjects(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	c.run("object", "add", "FILES")
	file := filepath.Join(t.TempDir(), "big.bin")
	data := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c.run("object", "put", "FILES", file, "--name", "big", "--no-progress", "--force")
	expect(t, c.run("object", "ls", "FILES"), "big")
	out := filepath.Join(t.TempDir(), "copy.bin")
	c.run("object", "get", "FILES", "big", "--output", out, "--no-progress", "--force")
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("object came back with %d bytes, %v", len(got), err)
	}
	c.run("object", "rm", "FILES", "big", "--force")
}

func TestBench(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	expect(t, c.run("bench", "pub", "b.live", "--msgs", "20000", "--no-progress"), "msgs/sec")
	expect(t, c.run("bench", "js", "pub", "async", "b.js", "--create", "--msgs", "20000", "--batch", "500", "--no-progress"), "msgs/sec")
	expect(t, c.run("bench", "js", "ordered", "--msgs", "20000", "--no-progress"), "msgs/sec")
	expect(t, c.run("bench", "js", "consume", "--msgs", "20000", "--no-progress"), "msgs/sec")
	c.run("consumer", "add", "benchstream", "fetcher", "--pull", "--ack", "explicit", "--deliver", "all", "--max-pending", "20000", "--defaults")
	expect(t, c.run("bench", "js", "fetch", "--consumer", "fetcher", "--msgs", "20000", "--no-progress"), "msgs/sec")
	expect(t, c.run("bench", "kv", "put", "--msgs", "2000", "--no-progress"), "msgs/sec")
}

func TestServerVerbs(t *testing.T) {
	b := harness.Start(t, "")
	c, sys := newCLI(t, b), newCLI(t, b).asSystem()
	c.run("stream", "add", "CHECKED", "--subjects", "checked", "--defaults")
	c.run("pub", "--jetstream", "checked", "x")
	expect(t, c.run("server", "check", "connection"), "OK")
	expect(t, c.run("server", "check", "stream", "--stream", "CHECKED", "--msgs-critical", "0"), "OK")
	expect(t, c.run("server", "check", "jetstream"), "OK")
	expect(t, sys.run("server", "ls", "1"), "herald-test")
	expect(t, sys.run("server", "ping", "1"), "herald-test")
	expect(t, sys.run("server", "info", "herald-test"), "herald-test")
	expect(t, sys.run("server", "report", "connections"), "(?i)connections")
	expect(t, sys.run("server", "report", "jetstream"), "herald-test")
	expect(t, sys.run("server", "report", "accounts"), "SYS")
}
