package jetstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/backup"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// takeBackup receives a stream's backup as clients do: they subscribe once they have
// the reply, and answer every chunk. It returns the request that restores it, and
// its archive.
func takeBackup(t *testing.T, nc *nats.Conn, stream, extra string) (restore string, archive []byte) {
	t.Helper()
	inbox := nc.NewRespInbox()
	r := raw(t, nc, "STREAM.SNAPSHOT."+stream, fmt.Sprintf(`{"deliver_subject":%q%s}`, inbox, extra))
	if errCode(r) != 0 {
		t.Fatal(r)
	}
	sub := must[*nats.Subscription](t)(nc.SubscribeSync(inbox))
	defer func() { _ = sub.Unsubscribe() }()
	for {
		m := must[*nats.Msg](t)(sub.NextMsg(patience))
		if len(m.Data) == 0 {
			if m.Header.Get("Status") != "204" {
				t.Fatalf("the backup ended with %v", m.Header)
			}
			break
		}
		archive = append(archive, m.Data...)
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
	body, err := json.Marshal(map[string]any{"config": r["config"], "state": r["state"]})
	if err != nil {
		t.Fatal(err)
	}
	return string(body), archive
}

// giveBack sends a backup and returns the last answer.
func giveBack(t *testing.T, nc *nats.Conn, stream, request string, archive []byte) map[string]any {
	t.Helper()
	r := raw(t, nc, "STREAM.RESTORE."+stream, request)
	to, _ := r["deliver_subject"].(string)
	if to == "" {
		return r
	}
	for at := 0; ; at += 10_000 {
		chunk := archive[min(at, len(archive)):min(at+10_000, len(archive))]
		m := must[*nats.Msg](t)(nc.Request(to, chunk, patience))
		if len(m.Data) > 0 {
			var out map[string]any
			if err := json.Unmarshal(m.Data, &out); err != nil {
				t.Fatal(err)
			}
			return out
		}
		if len(chunk) == 0 {
			t.Fatal("the end of the restore has an empty answer")
		}
	}
}

// everything is what can be seen of a stream and its consumers, but for when they
// were made.
func everything(t *testing.T, nc *nats.Conn, js jetstream.JetStream, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	s := must[jetstream.Stream](t)(js.Stream(ctx, name))
	info := raw(t, nc, "STREAM.INFO."+name, `{"deleted_details":true,"subjects_filter":">"}`)
	var b strings.Builder
	fmt.Fprintln(&b, info["config"], info["state"])
	for seq := uint64(0); seq <= s.CachedInfo().State.LastSeq; seq++ {
		if m, err := s.GetMsg(ctx, seq); err == nil {
			fmt.Fprintln(&b, m.Sequence, m.Time.UTC(), m.Subject, m.Header, string(m.Data))
		}
	}
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		c.Delivered.Last, c.AckFloor.Last = nil, nil
		fmt.Fprintln(&b, c.Name, c.Config, c.Delivered, c.AckFloor, c.NumAckPending, c.NumRedelivered, c.NumPending)
	}
	return b.String()
}

func TestABackupBringsEverythingBack(t *testing.T) {
	t.Parallel()
	nc, js := start(t, nil)
	for _, tt := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		extra  string
	}{
		{"limits", func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 450, jetstream.DiscardNew }, ``},
		{"interest", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, `,"chunk_size":1024,"window_size":2048`},
		{"workqueue", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, `,"chunk_size":1024`},
		{"memory", func(c *jetstream.StreamConfig) {
			c.Storage, c.MaxMsgsPerSubject, c.FirstSeq = jetstream.MemoryStorage, 300, 1000
		}, ``},
		{"sealed", func(*jetstream.StreamConfig) {}, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowMsgTTL: true, Metadata: map[string]string{"a": "b"}}
			tt.change(&cfg)
			s := must[jetstream.Stream](t)(js.CreateStream(ctx, cfg))
			c := must[jetstream.Consumer](t)(s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckWait: time.Hour, FilterSubject: "s.>"}))
			for i := range 400 {
				m := nats.NewMsg(fmt.Sprintf("s.%d", i%3))
				m.Data = bytes.Repeat([]byte{byte(i)}, i)
				if i%7 == 0 {
					m.Header.Set("Nats-Msg-Id", fmt.Sprint("id", i))
					m.Header.Set("Nats-TTL", "1h")
				}
				if _, err := js.PublishMsg(ctx, m); err != nil {
					t.Fatal(err)
				}
			}
			batch := must[jetstream.MessageBatch](t)(c.Fetch(20))
			n := 0
			for m := range batch.Messages() {
				if n++; n%2 == 0 {
					if err := m.DoubleAck(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			first := s.CachedInfo().State.FirstSeq
			for _, seq := range []uint64{50, 51, 300} {
				if err := s.DeleteMsg(ctx, max(first, 1)-1+seq); err != nil {
					t.Fatal(err)
				}
			}
			if tt.name == "sealed" {
				cfg.Sealed = true
				must[jetstream.Stream](t)(js.UpdateStream(ctx, cfg))
			}
			want := everything(t, nc, js, "S")
			request, archive := takeBackup(t, nc, "S", tt.extra)
			if r := giveBack(t, nc, "S", request, archive); errCode(r) != 10130 {
				t.Errorf("restored over the stream: %v", r)
			}
			if err := js.DeleteStream(ctx, "S"); err != nil {
				t.Fatal(err)
			}
			if r := giveBack(t, nc, "S", request, archive); errCode(r) != 0 {
				t.Fatalf("restore: %v", r)
			}
			if got := everything(t, nc, js, "S"); got != want {
				t.Errorf("it was\n%s\nand is\n%s", want, got)
			}
			if tt.name != "sealed" {
				m := nats.NewMsg("s.0")
				m.Header.Set("Nats-Msg-Id", "id398")
				if a, err := js.PublishMsg(ctx, m); err != nil || a.Duplicate {
					t.Errorf("a new id: %+v, %v", a, err)
				}
				m.Header.Set("Nats-Msg-Id", "id392")
				if a, err := js.PublishMsg(ctx, m); err != nil || !a.Duplicate {
					t.Errorf("a known id: %+v, %v", a, err)
				}
			}
			if err := js.DeleteStream(ctx, "S"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestABrokenRestoreLeavesNothing(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))
	for i := range 50 {
		if _, err := js.Publish(ctx, "s", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = s
	request, archive := takeBackup(t, nc, "S", "")
	if err := js.DeleteStream(ctx, "S"); err != nil {
		t.Fatal(err)
	}
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"s"}}))
	if r := giveBack(t, nc, "S", request, archive); errCode(r) != 10065 {
		t.Errorf("subjects that another stream has: %v", r)
	}
	if err := js.DeleteStream(ctx, "OTHER"); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(archive)
	flipped[len(flipped)/2] ^= 1
	for what, b := range map[string][]byte{
		"cut": archive[:len(archive)/2], "empty": nil, "no archive": []byte("x"), "flipped": flipped,
	} {
		if r := giveBack(t, nc, "S", request, b); errCode(r) != 10062 {
			t.Errorf("%s: %v", what, r)
		}
		if _, err := js.Stream(ctx, "S"); apiError(err) != 10059 {
			t.Errorf("%s: the stream is there, %v", what, err)
		}
	}
	if r := giveBack(t, nc, "S", request, archive); errCode(r) != 0 {
		t.Errorf("the right one after all: %v", r)
	}
}

func TestABackupWithoutReceiverEnds(t *testing.T) {
	t.Parallel()
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))
	for range 20 {
		if _, err := js.Publish(ctx, "s", make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	done := must[*nats.Subscription](t)(nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S"))
	raw(t, nc, "STREAM.SNAPSHOT.S", `{"deliver_subject":"nobody"}`)
	if m := must[*nats.Msg](t)(done.NextMsg(patience)); !strings.Contains(string(m.Data), `"error":"no interest"`) {
		t.Errorf("%s", m.Data)
	}
	if r := raw(t, nc, "STREAM.SNAPSHOT.S", `{"deliver_subject":"some.*"}`); errCode(r) != 10015 {
		t.Errorf("a pattern: %v", r)
	}
}

// TestAnUnfinishedRestoreIsDeletedAtTheNextStart leaves what a crash in the middle of
// a restore leaves, and starts a broker on it.
func TestAnUnfinishedRestoreIsDeletedAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	s := must[*state.State](t)(state.Open(state.Options{Dir: filepath.Join(dir, "herald")}))
	if err := s.Start(state.Hooks{}); err != nil {
		t.Fatal(err)
	}
	for name, mark := range map[string]map[string]string{"HALF": {"_herald.restoring": "true"}, "WHOLE": nil} {
		cfg := topics.Config{Name: name, Retention: topics.RetainLimits, Discard: topics.DiscardOld, Storage: topics.StoreFile, Metadata: mark}
		if _, _, err := s.CreateTopic(t.Context(), "$G", cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := config.Defaults()
	o.Port, o.JetStream.Enabled = -1, true
	b := must[*broker.Broker](t)(broker.New(broker.Config{Options: o, StoreDir: dir}))
	ran := make(chan error, 1)
	go func() { ran <- b.Run(context.Background()) }()
	<-b.Ready()
	nc := must[*nats.Conn](t)(nats.Connect(b.ClientURL()))
	js := must[jetstream.JetStream](t)(jetstream.New(nc))
	ctx := deadline(t)
	for {
		_, err := js.Stream(ctx, "HALF")
		if apiError(err) == 10059 {
			break
		}
		if ctx.Err() != nil {
			t.Error("the stream is still there")
			break
		}
	}
	if _, err := js.Stream(ctx, "WHOLE"); err != nil {
		t.Error("the other stream: ", err)
	}
	nc.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
}

func TestABackupGoesOnBehindWhatIsThere(t *testing.T) {
	nc, js := start(t, nil)
	must[jetstream.Stream](t)(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
	for i := range 20 {
		must[*jetstream.PubAck](t)(js.Publish(t.Context(), "s.a", []byte{byte(i)}))
	}
	for first, want := range map[uint64]int{1: 20, 15: 6, 21: 0, 1 << 40: 0} {
		_, archive := takeBackup(t, nc, "S", fmt.Sprintf(`,"herald_first_seq":%d`, first))
		in, got := backup.NewReader(bytes.NewReader(archive), 1<<20), 0
		for {
			e, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Sequence > 0 {
				if got++; e.Sequence < first {
					t.Errorf("from %d: message %d", first, e.Sequence)
				}
			}
		}
		if got != want {
			t.Errorf("from %d: %d messages, want %d", first, got, want)
		}
	}
}
