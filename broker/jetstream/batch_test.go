package jetstream_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker/config"
)

// batchStep publishes one message of a batch and shows what comes back. The
// headers are "Key:value" separated by spaces.
type batchStep struct{ subject, headers, payload, want string }

// play publishes the steps in turn, and returns each answer.
func play(t *testing.T, nc *nats.Conn, steps []batchStep) {
	t.Helper()
	for i, s := range steps {
		m := nats.NewMsg(s.subject)
		m.Data = []byte(s.payload)
		for f := range strings.FieldsSeq(s.headers) {
			k, v, _ := strings.Cut(f, ":")
			m.Header.Add(k, v)
		}
		r, err := nc.RequestMsg(m, patience)
		if err != nil {
			t.Fatalf("step %d %+v: %v", i, s, err)
		}
		if got := plain(string(r.Data)); got != s.want {
			t.Errorf("step %d %s %s:\n got %s\nwant %s", i, s.subject, s.headers, got, s.want)
		}
	}
}

// plain takes out of a PubAck what is the same everywhere.
func plain(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `"stream":"S",`, ""), " ", "")
}

// batched runs a test against a broker, or with HERALD_ORACLE against the server at
// that URL: the answers below are nats-server 2.15.2's.
func batched(t *testing.T, change func(*config.Options)) (*nats.Conn, jetstream.JetStream) {
	if url := os.Getenv("HERALD_ORACLE"); url != "" {
		nc := must[*nats.Conn](t)(nats.Connect(url))
		t.Cleanup(nc.Close)
		js := must[jetstream.JetStream](t)(jetstream.New(nc))
		_ = js.DeleteStream(t.Context(), "S")
		return nc, js
	}
	return start(t, change)
}

func refusal(status, code int, text string) string {
	return plain(fmt.Sprintf(`{"error":{"code":%d,"err_code":%d,"description":"%s"},"stream":"S","seq":0}`, status, code, text))
}

func TestAtomicBatches(t *testing.T) {
	nc, js := batched(t, nil)
	ctx := deadline(t)
	cfg := jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, AllowAtomicPublish: true, AllowRollup: true, AllowDirect: true,
		MaxMsgSize: 1000, AllowMsgTTL: true,
	}
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, cfg))
	const id = "Nats-Batch-Id:"
	const at = " Nats-Batch-Sequence:"
	const commit = " Nats-Batch-Commit:1"
	incomplete := refusal(400, 10176, "atomic publish batch is incomplete")
	play(t, nc, []batchStep{
		{"s.a", id + "1" + at + "1", "one", ""},
		{"s.b", id + "1" + at + "2", "two", ""},
		{"s.c", "", "between", `{"seq":1}`},
		{"s.a", id + "1" + at + "3" + commit, "three", `{"seq":4,"batch":"1","count":3}`},
		// The marker that ends a batch is not of it.
		{"s.a", id + "2" + at + "1", "five", ""},
		{"s.a", id + "2" + at + "2 Nats-Batch-Commit:eob", "not stored", `{"seq":5,"batch":"2","count":1}`},
		{"s.a", id + "3" + at + "1" + commit, "six", `{"seq":6,"batch":"3","count":1}`},
		// What is no batch.
		{"s.a", id + strings.Repeat("x", 65) + at + "1", "", refusal(400, 10179, "atomic publish batch ID is invalid")},
		{"s.a", id + "4", "", refusal(400, 10175, "atomic publish sequence is missing")},
		{"s.a", id + "4" + at + "2", "", incomplete},
		{"s.a", id + "4" + at + "1001", "", refusal(400, 10199, "atomic publish batch is too large: 1000")},
		{"s.a", id + "4" + at + "1 Nats-Batch-Commit:eob", "", incomplete},
		{"s.a", id + "4" + at + "1", "", ""},
		{"s.a", id + "4" + at + "3", "", incomplete},
		{"s.a", id + "4" + at + "2", "", incomplete},
		{"s.a", id + "5" + at + "1", "", ""},
		{"s.a", id + "5" + at + "2 Nats-Batch-Commit:yes", "", refusal(400, 10200, "atomic publish batch commit is invalid")},
		{"s.a", id + "5" + at + "1", "", ""},
		{"s.a", id + "5" + at + "2 Nats-Required-Api-Level:99", "", refusal(412, 10185, "JetStream minimum api level required")},
		{"s.a", id + "5" + at + "3", "", incomplete},
		{"s.a", id + "6" + at + "1", strings.Repeat("x", 1001), refusal(400, 10054, "message size exceeds maximum allowed")},
		// What is refused at the commit, with all of the batch.
		{"s.a", id + "7" + at + "1", "", ""},
		{"s.a", id + "7" + at + "2 Nats-Expected-Last-Sequence:6" + commit, "", refusal(400, 10071, "wrong last sequence: 7")},
		{"s.a", id + "7" + at + "1 Nats-Expected-Last-Sequence:5" + commit, "", refusal(400, 10071, "wrong last sequence: 6")},
		{"s.a", id + "8" + at + "1", "", ""},
		{"s.a", id + "8" + at + "2 Nats-Expected-Last-Msg-Id:x" + commit, "", refusal(400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id")},
		{"s.a", "Nats-Msg-Id:known", "seven", `{"seq":7}`},
		{"s.a", id + "9" + at + "1 Nats-Msg-Id:new", "", ""},
		{"s.a", id + "9" + at + "2 Nats-Msg-Id:known" + commit, "", refusal(400, 10201, "atomic publish batch contains duplicate message id")},
		{"s.a", id + "9" + at + "1 Nats-Msg-Id:new", "", ""},
		{"s.a", id + "9" + at + "2 Nats-Msg-Id:new" + commit, "", refusal(400, 10201, "atomic publish batch contains duplicate message id")},
		{"s.a", id + "10" + at + "1", "", ""},
		{"s.a", id + "10" + at + "2 Nats-Expected-Last-Subject-Sequence:7" + commit, "", refusal(400, 10164, "wrong last sequence")},
		{"s.a", id + "11" + at + "1", "", ""},
		{"s.b", id + "11" + at + "2 Nats-Expected-Last-Subject-Sequence:7" + commit, "", refusal(400, 10071, "wrong last sequence: 3")},
		{"s.a", id + "12" + at + "1", "", ""},
		{"s.a", id + "12" + at + "2 Nats-Rollup:sub" + commit, "", refusal(500, 10111, "batch rollup sub invalid")},
		{"s.a", id + "13" + at + "1", "", ""},
		{"s.a", id + "13" + at + "2 Nats-Rollup:all" + commit, "", refusal(500, 10111, "batch rollup all invalid")},
		{"s.a", id + "14" + at + "1", "", ""},
		{"s.a", id + "14" + at + "2 Nats-TTL:x" + commit, "", refusal(400, 10165, "invalid per-message TTL")},
		{"s.a", id + "15" + at + "1", "", ""},
		{"s.a", id + "15" + at + "2 Nats-Expected-Stream:other" + commit, "", refusal(400, 10060, "expected stream does not match")},
		// All of it was refused, and what is right still is.
		{"s.a", id + "16" + at + "1 Nats-Expected-Last-Sequence:7 Nats-Rollup:sub Nats-Msg-Id:new", "eight", ""},
		{"s.b", id + "16" + at + "2 Nats-Expected-Last-Subject-Sequence:3", "nine", ""},
		{"s.a", id + "16" + at + "3" + commit, "ten", `{"seq":10,"batch":"16","count":3}`},
	})
	var got []string
	for seq := range uint64(11) {
		if m, err := s.GetMsg(ctx, seq); err == nil {
			got = append(got, fmt.Sprintf("%d %s %s %s", seq, m.Subject, m.Data, m.Header.Get("Nats-Batch-Commit")))
		}
	}
	if want := "1 s.c between |3 s.b two |8 s.a eight |9 s.b nine |10 s.a ten 1"; strings.Join(got, "|") != want {
		t.Errorf("the stream holds %s\nwant %s", strings.Join(got, "|"), want)
	}

	// A full stream takes all of a batch or nothing.
	cfg.Discard, cfg.MaxMsgs, cfg.MaxMsgsPerSubject, cfg.DiscardNewPerSubject = jetstream.DiscardNew, 7, 3, true
	must[jetstream.Stream](t)(js.UpdateStream(ctx, cfg))
	play(t, nc, []batchStep{
		{"s.x", id + "1" + at + "1", "", ""},
		{"s.y", id + "1" + at + "2", "", ""},
		{"s.z", id + "1" + at + "3" + commit, "", refusal(503, 10077, "maximum messages exceeded")},
		{"s.a", id + "1" + at + "1", "", ""},
		{"s.a", id + "1" + at + "2" + commit, "", refusal(503, 10077, "maximum messages per subject exceeded")},
		{"s.x", id + "1" + at + "1", "", ""},
		{"s.y", id + "1" + at + "2" + commit, "", `{"seq":12,"batch":"1","count":2}`},
	})
	// None is open at the end.
	for i := range 50 {
		play(t, nc, []batchStep{{"s.x", id + fmt.Sprint("open", i) + at + "1", "", ""}})
	}
	play(t, nc, []batchStep{{"s.x", id + "more" + at + "1", "", refusal(429, 10210, "atomic publish too many inflight")}})
	cfg.AllowAtomicPublish = false
	must[jetstream.Stream](t)(js.UpdateStream(ctx, cfg))
	play(t, nc, []batchStep{{"s.x", id + "1" + at + "1", "", refusal(400, 10174, "atomic publish is disabled")}})
}

func TestBatchesOfCounters(t *testing.T) {
	nc, js := batched(t, nil)
	ctx := deadline(t)
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, AllowAtomicPublish: true, AllowMsgCounter: true,
	}))
	play(t, nc, []batchStep{
		{"s.a", "Nats-Incr:5", "", `{"seq":1,"val":"5"}`},
		{"s.a", "Nats-Batch-Id:1 Nats-Batch-Sequence:1 Nats-Incr:2", "", ""},
		{"s.b", "Nats-Batch-Id:1 Nats-Batch-Sequence:2 Nats-Incr:1", "", ""},
		{"s.a", "Nats-Batch-Id:1 Nats-Batch-Sequence:3 Nats-Incr:-3", "", ""},
		{"s.a", "Nats-Batch-Id:1 Nats-Batch-Sequence:4 Nats-Batch-Commit:eob", "", `{"seq":4,"batch":"1","count":3}`},
		{"s.a", "Nats-Batch-Id:2 Nats-Batch-Sequence:1 Nats-Incr:2", "", ""},
		{"s.a", "Nats-Batch-Id:2 Nats-Batch-Sequence:2 Nats-Batch-Commit:1", "", refusal(400, 10169, "message counter increment is missing")},
	})
	if m := must[*jetstream.RawStreamMsg](t)(s.GetLastMsgForSubject(ctx, "s.a")); plain(string(m.Data)) != `{"val":"4"}` {
		t.Errorf("the counter is at %s", m.Data)
	}
}

func TestAnIdleBatchIsAbandoned(t *testing.T) {
	nc, js := start(t, func(o *config.Options) { o.JetStream.Limits.BatchTimeout = 300 * time.Millisecond })
	must[jetstream.Stream](t)(js.CreateStream(deadline(t), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, AllowAtomicPublish: true,
	}))
	sub := must[*nats.Subscription](t)(nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"))
	play(t, nc, []batchStep{{"s", "Nats-Batch-Id:left Nats-Batch-Sequence:1", "", ""}})
	for _, want := range []string{`"batch":"left","reason":"timeout"`, `"batch":"gap","reason":"incomplete"`} {
		m := must[*nats.Msg](t)(sub.NextMsg(patience))
		if s := string(m.Data); !strings.Contains(s, want) || !strings.Contains(s, `"type":"io.nats.jetstream.advisory.v1.stream_batch_abandoned"`) {
			t.Errorf("advisory %s, want %s", s, want)
		}
		play(t, nc, []batchStep{
			{"s", "Nats-Batch-Id:left Nats-Batch-Sequence:2", "", refusal(400, 10176, "atomic publish batch is incomplete")},
			{"s", "Nats-Batch-Id:gap Nats-Batch-Sequence:1", "", ""},
			{"s", "Nats-Batch-Id:gap Nats-Batch-Sequence:3", "", refusal(400, 10176, "atomic publish batch is incomplete")},
		})
	}
}

// fastStep publishes one message of a fast batch; the answers that come of it are
// separated by spaces.
type fastStep struct{ reply, headers, want string }

func playFast(t *testing.T, nc *nats.Conn, steps []fastStep) {
	t.Helper()
	sub := must[*nats.Subscription](t)(nc.SubscribeSync("fast.>"))
	for i, s := range steps {
		// What came before has been stored and answered once this is.
		if _, err := nc.Request("t", nil, patience); err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg("s.a")
		m.Reply = "fast." + s.reply + ".$FI"
		for f := range strings.FieldsSeq(s.headers) {
			k, v, _ := strings.Cut(f, ":")
			m.Header.Add(k, v)
		}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		for _, want := range strings.Fields(s.want) {
			r, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatalf("step %d %s: %v instead of %s", i, s.reply, err, want)
			}
			if got := strings.ReplaceAll(plain(string(r.Data)), `"duplicate":true,`, ""); got != want {
				t.Errorf("step %d %s:\n got %s\nwant %s", i, s.reply, got, want)
			}
		}
	}
	if r, err := sub.NextMsg(50 * time.Millisecond); err == nil {
		t.Errorf("one answer too many: %s", r.Data)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
}

func flow(place, every int) string {
	return fmt.Sprintf(`{"type":"ack","seq":%d,"msgs":%d}`, place, every)
}

func gap(expected, got int) string {
	return fmt.Sprintf(`{"type":"gap","last_seq":%d,"seq":%d}`, expected, got)
}

func done(seq int, id string, count int) string {
	return fmt.Sprintf(`{"seq":%d,"batch":"%s","count":%d}`, seq, id, count)
}

func TestFastBatches(t *testing.T) {
	nc, js := batched(t, nil)
	ctx := deadline(t)
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowBatchPublish: true}
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, cfg))
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"t"}}))
	pattern := strings.ReplaceAll(refusal(400, 10206, "batch publish pattern is invalid"), " ", "")
	wrong := `{"code":400,"err_code":10071,"description":"wronglastsequence:%d"}`
	playFast(t, nc, []fastStep{
		{"a.2.fail.1.0", "", flow(0, 2)},
		{"a.2.fail.2.1", "", flow(2, 2)},
		{"a.2.fail.3.1", "", ""},
		{"a.2.fail.4.2", "", done(4, "a", 4)},
		{"b.9.fail.1.2", "", done(5, "b", 1)},
		{"c.9.fail.1.0", "", flow(0, 9)},
		{"c.9.fail.2.4", "", gap(2, 3) + " " + done(6, "c", 1)},
		{"d.9.fail.1.0", "", flow(0, 9)},
		{"d.9.fail.1.4", "", flow(0, 9)},
		{"d.9.fail.2.3", "", done(7, "d", 1)},
		// A gap ends one kind of batch.
		{"e.9.fail.1.0", "", flow(0, 9)},
		{"e.9.fail.3.1", "", gap(2, 3) + " " + done(8, "e", 1)},
		{"f.9.ok.1.0", "", flow(0, 9)},
		{"f.9.ok.3.1", "", gap(2, 3)},
		{"f.9.ok.5.4", "", gap(4, 6) + " " + flow(0, 9)},
		{"f.9.ok.6.2", "", done(11, "f", 6)},
		// So does a refusal.
		{"g.9.fail.1.0", "Nats-Expected-Last-Sequence:1", flow(0, 9) + " " + plain(refusal(400, 10071, "wrong last sequence: 11"))},
		{"h.9.fail.1.0", "", flow(0, 9)},
		{"h.9.fail.2.1", "Nats-Expected-Last-Sequence:1", `{"type":"err","seq":2,"error":` + fmt.Sprintf(wrong, 12) + "} " + done(12, "h", 1)},
		{"i.9.ok.1.0", "", flow(0, 9)},
		{"i.9.ok.2.1", "Nats-Expected-Last-Sequence:1", `{"type":"err","seq":2,"error":` + fmt.Sprintf(wrong, 13) + "}"},
		{"i.9.ok.3.2", "", done(14, "i", 3)},
		// What is no fast batch.
		{"x.9.ok.2.1", "", strings.ReplaceAll(refusal(400, 10208, "batch publish ID unknown"), " ", "")},
		{"x.9.ok.1.1", "", pattern},
		{"x.9.ok.2.0", "", pattern},
		{"x.9.maybe.1.0", "", pattern},
		{"x.9.ok.1.5", "", pattern},
		{"x.9.ok.1.3", "", pattern},
		{strings.Repeat("x", 65) + ".9.ok.1.0", "", strings.ReplaceAll(refusal(400, 10207, "batch publish ID is invalid"), " ", "")},
	})
	if info := must[*jetstream.StreamInfo](t)(s.Info(ctx)); info.State.Msgs != 14 {
		t.Errorf("%d messages were stored", info.State.Msgs)
	}
	cfg.AllowBatchPublish = false
	must[jetstream.Stream](t)(js.UpdateStream(ctx, cfg))
	playFast(t, nc, []fastStep{{"x.9.ok.1.0", "", strings.ReplaceAll(refusal(400, 10205, "batch publish is disabled"), " ", "")}})
}

// TestNothingIsStoredBehindARefusal publishes a fast batch as fast as it goes: of
// what comes after a refused message nothing may be stored.
func TestNothingIsStoredBehindARefusal(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"}, AllowBatchPublish: true, Discard: jetstream.DiscardNew, MaxMsgs: 700,
	}))
	sub := must[*nats.Subscription](t)(nc.SubscribeSync("fast.>"))
	for i := 1; i <= 2000; i++ {
		m := nats.NewMsg("s.a")
		op := 1
		if i == 1 {
			op = 0
		}
		m.Reply = fmt.Sprintf("fast.a.100.fail.%d.%d.$FI", i, op)
		m.Data = make([]byte, 500)
		if i == 650 {
			m.Header.Set("Nats-Expected-Last-Sequence", "1")
		}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	acked := 0
	for {
		r := string(must[*nats.Msg](t)(sub.NextMsg(patience)).Data)
		if strings.Contains(r, `"count"`) {
			if !strings.Contains(r, `"seq":649,"batch":"a","count":649}`) {
				t.Errorf("the PubAck is %s", r)
			}
			break
		}
		if strings.Contains(r, `"type":"ack"`) {
			acked++
		} else if !strings.Contains(r, `"type":"err","seq":650,`) {
			t.Fatalf("unexpected %s", r)
		}
	}
	if acked == 0 {
		t.Errorf("%d acknowledgements on the way", acked)
	}
	if info := must[*jetstream.StreamInfo](t)(s.Info(ctx)); info.State.LastSeq != 649 {
		t.Errorf("the last message is %d", info.State.LastSeq)
	}
}
