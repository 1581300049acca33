package natscli

import (
	"path/filepath"
	"testing"

	"github.com/heraldmq/herald/tests/harness"
)

func TestBatchBenches(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	expect(t, c.run("bench", "js", "pub", "atomic", "a", "--create", "--stream", "A", "--msgs", "1000", "--batch", "100", "--no-progress"), `JetStream atomic batch publisher stats`)
	expect(t, c.run("bench", "js", "pub", "fast", "f", "--create", "--stream", "F", "--msgs", "1000", "--batch", "100", "--no-progress"), `JetStream fast batch publisher stats`)
	for _, stream := range []string{"A", "F"} {
		var info struct{ State struct{ Messages, Last int } }
		c.json(&info, "stream", "info", stream, "--json")
		if info.State.Messages != 1000 {
			t.Errorf("%s holds %d messages", stream, info.State.Messages)
		}
	}
	expect(t, c.run("stream", "get", "A", "100"), `Nats-Batch-Commit: 1`, `Nats-Batch-Sequence: 100`)
}

func TestBackupAndRestore(t *testing.T) {
	c := newCLI(t, harness.Start(t, ""))
	c.run("stream", "add", "S", "--subjects", "s.>", "--defaults")
	c.run("pub", "s.a", "message {{Count}}", "--count", "300", "--jetstream")
	c.run("pub", "s.b", "with a header", "-H", "Some:Header", "--jetstream")
	c.run("stream", "rmm", "S", "200", "-f")
	c.run("consumer", "add", "S", "C", "--pull", "--defaults")
	c.run("consumer", "next", "S", "C", "--count", "10", "--ack")
	c.run("consumer", "next", "S", "C", "--count", "5", "--no-ack")
	dir := filepath.Join(t.TempDir(), "backup")
	type place struct {
		Delivered struct {
			Consumer int `json:"consumer_seq"`
			Stream   int `json:"stream_seq"`
		}
		Floor struct {
			Consumer int `json:"consumer_seq"`
			Stream   int `json:"stream_seq"`
		} `json:"ack_floor"`
		Pending  int `json:"num_ack_pending"`
		Unread   int `json:"num_pending"`
		Repeated int `json:"num_redelivered"`
	}
	var was, is place
	c.json(&was, "consumer", "info", "S", "C", "--json")
	expect(t, c.run("stream", "backup", "S", dir, "--consumers", "--no-progress"), `Received .* compressed data`)
	c.run("stream", "rm", "S", "-f")
	c.run("stream", "restore", dir, "--no-progress")
	c.json(&is, "consumer", "info", "S", "C", "--json")
	if was.Delivered.Stream < 15 || is != was {
		t.Errorf("the consumer was at %+v, is at %+v", was, is)
	}
	var info struct {
		State struct {
			Messages int
			First    int `json:"first_seq"`
			Last     int `json:"last_seq"`
		}
	}
	c.json(&info, "stream", "info", "S", "--json")
	if info.State.Messages != 300 || info.State.First != 1 || info.State.Last != 301 {
		t.Errorf("the state is %+v", info.State)
	}
	expect(t, c.run("stream", "get", "S", "150"), `message 150`)
	expect(t, c.run("stream", "get", "S", "301"), `Some: Header`, `with a header`)
	expect(t, c.fail("stream", "restore", dir, "--no-progress"), `already in use|already exist`)
	c.run("pub", "s.c", "goes on", "--jetstream")
	expect(t, c.run("stream", "get", "S", "302"), `goes on`)
}
