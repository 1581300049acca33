package web_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestSameCodecSameResult: a codec with a schema lets the same messages through live, over
// websocket, by a consumer, and after a restart.
func TestSameCodecSameResult(t *testing.T) {
	dir := t.TempDir()
	const where, codec = `n > 10`, `{"avro":{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}}`
	payloads := []string{"\x16", "\x02", `{"n":11}`, "\x18", ""} // 11, 1, no Avro, 12, no Avro
	q := "subject=f.>&where=" + url.QueryEscape(where) + "&codec=" + url.QueryEscape(codec)
	stored := func(t *testing.T, r *running, name string) {
		w := r.open(q + "&from=first")
		c, err := r.js.CreateOrUpdateConsumer(context.Background(), "F", jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, Metadata: map[string]string{"herald.where": where, "herald.codec": codec},
		})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := c.Fetch(2, jetstream.FetchMaxWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for m := range batch.Messages() {
			f, _ := w.next()
			got = append(got, m.Subject(), f.Subject)
			_ = m.Ack()
		}
		if want := "[f.0 f.0 f.3 f.3]"; fmt.Sprint(got) != want {
			t.Errorf("by a consumer and over websocket came %v, want %s", got, want)
		}
		eventually(t, "what can't be read is counted", func() bool {
			i, err := c.Info(context.Background())
			return err == nil && i.NumPending == 0 && strings.Contains(i.Config.Metadata["_herald.filter"], `"errors_by_reason":{"payload":2}`)
		})
	}
	t.Run("before", func(t *testing.T) {
		r := run(t, dir, "web: enabled")
		r.topic("F", "f.>")
		live := r.open(q)
		for i, p := range payloads {
			if _, err := r.js.Publish(context.Background(), fmt.Sprint("f.", i), []byte(p)); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"f.0", "f.3"} {
			if f, _ := live.next(); f.Subject != want {
				t.Errorf("live came %s, want %s", f.Subject, want)
			}
		}
		stored(t, r, "one")
		if _, err := r.js.CreateConsumer(context.Background(), "F", jetstream.ConsumerConfig{
			Durable: "bad", Metadata: map[string]string{"herald.where": where, "herald.codec": `{"avro":"nothing"}`},
		}); err == nil || !strings.Contains(err.Error(), "nothing") {
			t.Errorf("a wrong schema: %v", err)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		r := run(t, dir, "web: enabled")
		stored(t, r, "two")
	})
}
