package jetstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

const patience = 10 * time.Second

// start runs a broker for the test and connects to it.
func start(t *testing.T, change func(*config.Options)) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	o := config.Defaults()
	o.Port = -1
	o.JetStream.Enabled = true
	o.JetStream.Strict = true
	if change != nil {
		change(o)
	}
	b, err := broker.New(broker.Config{Options: o, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- b.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-b.Ready():
	case err := <-ran:
		ran <- err
		t.Fatal("the broker didn't start: ", err)
	case <-time.After(patience):
		t.Fatal("the broker is not ready")
	}
	nc, err := nats.Connect(b.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// apiError returns the err_code of a refusal, 0 when err is none.
func apiError(err error) jetstream.ErrorCode {
	var e *jetstream.APIError
	if errors.As(err, &e) {
		return e.ErrorCode
	}
	var j jetstream.JetStreamError
	if errors.As(err, &j) && j.APIError() != nil {
		return j.APIError().ErrorCode
	}
	return 0
}

// raw sends an API request and returns the reply's JSON.
func raw(t *testing.T, nc *nats.Conn, subject, body string) map[string]any {
	t.Helper()
	m, err := nc.Request("$JS.API."+subject, []byte(body), patience)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	var out map[string]any
	if err := json.Unmarshal(m.Data, &out); err != nil {
		t.Fatalf("%s: %v in %s", subject, err, m.Data)
	}
	return out
}

func errCode(reply map[string]any) int {
	e, ok := reply["error"].(map[string]any)
	if !ok {
		return 0
	}
	code, _ := e["err_code"].(float64)
	return int(code)
}

func TestStreamsFromCreateToDelete(t *testing.T) {
	_, js := start(t, nil)
	ctx := deadline(t)
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Error("an equal stream must be accepted again: ", err)
	}
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"other"}})
	if apiError(err) != 10058 {
		t.Errorf("another stream of that name: %v", err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"s.x"}})
	if apiError(err) != 10065 {
		t.Errorf("overlapping subjects: %v", err)
	}
	for i := range 5 {
		must[*jetstream.PubAck](t)(js.Publish(ctx, fmt.Sprintf("s.%d", i%2), []byte("x")))
	}
	info := must[*jetstream.StreamInfo](t)(s.Info(ctx, jetstream.WithSubjectFilter("s.0"), jetstream.WithDeletedDetails(true)))
	if info.State.Msgs != 5 || info.State.Subjects["s.0"] != 3 || len(info.State.Subjects) != 1 || info.Cluster.Leader == "" {
		t.Errorf("info %+v", info.State)
	}
	if err := s.DeleteMsg(ctx, 2); err != nil {
		t.Error(err)
	}
	if info := must[*jetstream.StreamInfo](t)(s.Info(ctx, jetstream.WithDeletedDetails(true))); !slices.Equal(info.State.Deleted, []uint64{2}) {
		t.Errorf("deleted %v", info.State.Deleted)
	}
	if _, err := s.GetMsg(ctx, 2); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("deleted message: %v", err)
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSubject("s.0"), jetstream.WithPurgeKeep(1)); err != nil {
		t.Error(err)
	}
	s = must[jetstream.Stream](t)(js.UpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>", "more"}, DenyPurge: true}))
	if st := s.CachedInfo().State; st.Msgs != 2 || st.LastSeq != 5 {
		t.Errorf("after the purge %+v", st)
	}
	if err := s.Purge(ctx); apiError(err) != 10110 {
		t.Errorf("purge that is denied: %v", err)
	}
	_, err = js.UpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: jetstream.MemoryStorage, DenyPurge: true})
	if apiError(err) != 10052 {
		t.Errorf("update of the storage: %v", err)
	}
	if name := must[string](t)(js.StreamNameBySubject(ctx, "more")); name != "S" {
		t.Errorf("stream of the subject: %q", name)
	}
	if err := js.DeleteStream(ctx, "S"); err != nil {
		t.Error(err)
	}
	if _, err := js.Stream(ctx, "S"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("deleted stream: %v", err)
	}
}

func TestListsComeInPages(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	if r := raw(t, nc, "STREAM.NAMES", ""); r["streams"] != nil {
		t.Errorf("no names are null, got %v", r["streams"])
	}
	if r := raw(t, nc, "STREAM.LIST", ""); r["streams"] == nil {
		t.Error("an empty list is [], got null")
	}
	const n = 300
	for i := range n {
		must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: fmt.Sprintf("S%03d", i)}))
	}
	r := raw(t, nc, "STREAM.LIST", `{"offset":256}`)
	if list, ok := r["streams"].([]any); !ok || len(list) != n-256 || r["total"] != float64(n) || r["limit"] != float64(256) {
		t.Errorf("second page: total %v, limit %v", r["total"], r["limit"])
	}
	seen := 0
	for range js.ListStreams(ctx).Info() {
		seen++
	}
	if seen != n {
		t.Errorf("listed %d of %d", seen, n)
	}
	for i := range 3 {
		must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "S000", jetstream.ConsumerConfig{Durable: fmt.Sprintf("c%d", i)}))
	}
	r = raw(t, nc, "CONSUMER.NAMES.S000", `{"offset":1}`)
	if list, ok := r["consumers"].([]any); !ok || len(list) != 2 || list[0] != "c1" {
		t.Errorf("consumer names %v", r["consumers"])
	}
	if r = raw(t, nc, "CONSUMER.LIST.S001", ""); r["consumers"] == nil {
		t.Error("an empty list is [], got null")
	}
}

func TestConsumersFromCreateToDelete(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}))
	for i := range 10 {
		must[*jetstream.PubAck](t)(js.Publish(ctx, "s.a", fmt.Appendf(nil, "%d", i)))
	}
	cfg := jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "s.a"}
	c := must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "S", cfg))
	if info := c.CachedInfo(); info.NumPending != 10 || info.Config.AckWait != 30*time.Second {
		t.Errorf("info %+v", info)
	}
	batch := must[jetstream.MessageBatch](t)(c.Fetch(4))
	got := 0
	for m := range batch.Messages() {
		if err := m.DoubleAck(ctx); err != nil {
			t.Error(err)
		}
		got++
	}
	info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx))
	if got != 4 || info.AckFloor.Stream != 4 || info.NumPending != 6 || info.NumAckPending != 0 {
		t.Errorf("got %d, info %+v", got, info)
	}
	if _, err := js.CreateConsumer(ctx, "S", cfg); err != nil {
		t.Error("an equal consumer must be accepted again: ", err)
	}
	other := cfg
	other.Description = "x"
	if _, err := js.CreateConsumer(ctx, "S", other); apiError(err) != 10148 {
		t.Errorf("another consumer of that name: %v", err)
	}
	if _, err := js.UpdateConsumer(ctx, "S", other); err != nil {
		t.Error(err)
	}
	other.Durable = "D"
	if _, err := js.UpdateConsumer(ctx, "S", other); apiError(err) != 10149 {
		t.Errorf("update of none: %v", err)
	}
	until := time.Now().Add(time.Hour)
	if p := must[*jetstream.ConsumerPauseResponse](t)(js.PauseConsumer(ctx, "S", "C", until)); !p.Paused || p.PauseRemaining <= 0 {
		t.Errorf("pause %+v", p)
	}
	if info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx)); !info.Paused {
		t.Error("info doesn't say that it is paused")
	}
	if p := must[*jetstream.ConsumerPauseResponse](t)(js.ResumeConsumer(ctx, "S", "C")); p.Paused {
		t.Errorf("resume %+v", p)
	}
	if r := raw(t, nc, "CONSUMER.RESET.S.C", `{"seq":2}`); r["reset_seq"] != float64(2) {
		t.Errorf("reset %v", r)
	}
	if m := must[jetstream.Msg](t)(c.Next()); string(m.Data()) != "1" {
		t.Errorf("after the reset %q", m.Data())
	}
	if err := js.DeleteConsumer(ctx, "S", "C"); err != nil {
		t.Error(err)
	}
	if _, err := js.Consumer(ctx, "S", "C"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("deleted consumer: %v", err)
	}
}

func TestWhoIsNotThereIsSaidSo(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S"}))
	for _, subject := range []string{"CONSUMER.MSG.NEXT.S.none", "CONSUMER.MSG.NEXT.none.none", "DIRECT.GET.none", "DIRECT.GET.S"} {
		if _, err := nc.Request("$JS.API."+subject, []byte(`{"seq":1}`), patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	for subject, code := range map[string]int{
		"STREAM.INFO.none": 10059, "STREAM.DELETE.none": 10059, "STREAM.UPDATE.none": 10056, "CONSUMER.INFO.S.none": 10014,
		"CONSUMER.INFO.none.none": 10059, "CONSUMER.LIST.none": 10059, "STREAM.LEADER.STEPDOWN.S": 10010,
		"STREAM.PEER.REMOVE.S": 10010, "CONSUMER.LEADER.STEPDOWN.S.none": 10010, "STREAM.MSG.GET.S": 10003,
		"STREAM.MSG.DELETE.S": 10003, "STREAM.SNAPSHOT.none": 10003, "STREAM.RESTORE.S": 10003,
	} {
		if got := errCode(raw(t, nc, subject, "")); got != code {
			t.Errorf("%s: err_code %d, want %d", subject, got, code)
		}
	}
	if got := errCode(raw(t, nc, "STREAM.SNAPSHOT.none", `{"deliver_subject":"d"}`)); got != 10059 {
		t.Errorf("a backup of what isn't there: %d", got)
	}
	if got := errCode(raw(t, nc, "STREAM.RESTORE.S", `{"config":{"name":"S"}}`)); got != 10130 {
		t.Errorf("a restore of what is there: %d", got)
	}
	m := nats.NewMsg("$JS.API.STREAM.INFO.S")
	m.Header.Set("Nats-Required-Api-Level", "6")
	reply := must[*nats.Msg](t)(nc.RequestMsg(m, patience))
	var r map[string]any
	if err := json.Unmarshal(reply.Data, &r); err != nil || errCode(r) != 10185 {
		t.Errorf("level 6: %s", reply.Data)
	}
}

func TestWhatWasPublishedBeforeIsThere(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))
	for i := 1; i <= 50; i++ {
		if err := nc.Publish("s", nil); err != nil {
			t.Fatal(err)
		}
		if info := must[*jetstream.StreamInfo](t)(s.Info(ctx)); info.State.Msgs != uint64(i) {
			t.Fatalf("%d messages after %d publishes", info.State.Msgs, i)
		}
	}
}

func TestDirectGetThroughTheClient(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	s := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowDirect: true}))
	for i := range 6 {
		must[*jetstream.PubAck](t)(js.Publish(ctx, fmt.Sprintf("s.%d", i%2), fmt.Appendf(nil, "%d", i)))
	}
	if m := must[*jetstream.RawStreamMsg](t)(s.GetLastMsgForSubject(ctx, "s.0")); string(m.Data) != "4" || m.Sequence != 5 {
		t.Errorf("last of s.0: %+v", m)
	}
	if m := must[*jetstream.RawStreamMsg](t)(s.GetMsg(ctx, 2, jetstream.WithGetMsgSubject("s.0"))); m.Sequence != 3 {
		t.Errorf("next of s.0: %+v", m)
	}
	sub := must[*nats.Subscription](t)(nc.SubscribeSync(nc.NewInbox()))
	if err := nc.PublishRequest("$JS.API.DIRECT.GET.S", sub.Subject, []byte(`{"multi_last":["s.>"]}`)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4", "5", ""} {
		m := must[*nats.Msg](t)(sub.NextMsg(patience))
		if string(m.Data) != want || want == "" && m.Header.Get("Status") != "204" {
			t.Errorf("got %q %v, want %q", m.Data, m.Header, want)
		}
	}
}

func TestAdvisoriesTellWhatHappened(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	sub := must[*nats.Subscription](t)(nc.SubscribeSync("$JS.EVENT.ADVISORY.>"))
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S"}))
	must[jetstream.Stream](t)(js.UpdateStream(ctx, jetstream.StreamConfig{Name: "S", Description: "d"}))
	must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "C"}))
	if err := js.DeleteConsumer(ctx, "S", "C"); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(ctx, "S"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"$JS.EVENT.ADVISORY.STREAM.CREATED.S":     "io.nats.jetstream.advisory.v1.stream_action",
		"$JS.EVENT.ADVISORY.STREAM.UPDATED.S":     "io.nats.jetstream.advisory.v1.stream_action",
		"$JS.EVENT.ADVISORY.STREAM.DELETED.S":     "io.nats.jetstream.advisory.v1.stream_action",
		"$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.C": "io.nats.jetstream.advisory.v1.consumer_action",
		"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.C": "io.nats.jetstream.advisory.v1.consumer_action",
		"$JS.EVENT.ADVISORY.API":                  "io.nats.jetstream.advisory.v1.api_audit",
	}
	for len(want) > 0 {
		m := must[*nats.Msg](t)(sub.NextMsg(patience))
		var a struct{ Type, ID string }
		if err := json.Unmarshal(m.Data, &a); err != nil || a.ID == "" {
			t.Fatalf("%s: %s", m.Subject, m.Data)
		}
		if want[m.Subject] != "" && want[m.Subject] != a.Type {
			t.Errorf("%s has type %s", m.Subject, a.Type)
		}
		delete(want, m.Subject)
	}
}

func TestAccountsHaveLimitsOrNoJetStream(t *testing.T) {
	nc, js := start(t, func(o *config.Options) {
		limits := &config.AccountLimits{
			MaxMemory: -1, MaxStore: 1000, MaxStreams: 2, MaxConsumers: 1, MaxAckPending: 10,
			MemoryMaxStream: -1, StoreMaxStream: 600, MaxBytesRequired: true,
		}
		o.Accounts = []*config.Account{
			{Name: "LIMITED", Users: []config.User{{Name: "u", Password: "p"}}, JetStream: limits, MaxConnections: -1, MaxSubscriptions: -1, MaxPayload: -1},
			{Name: "WITHOUT", Users: []config.User{{Name: "w", Password: "p"}}, MaxConnections: -1, MaxSubscriptions: -1, MaxPayload: -1},
		}
		o.NoAuthUser = "u"
	})
	ctx := deadline(t)
	create := func(name string, bytes int64) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, MaxBytes: bytes})
		return err
	}
	if err := create("A", -1); apiError(err) != 10113 {
		t.Errorf("without max_bytes: %v", err)
	}
	if err := create("A", 700); apiError(err) != 10122 {
		t.Errorf("above the largest stream: %v", err)
	}
	if err := create("A", 600); err != nil {
		t.Fatal(err)
	}
	if err := create("B", 600); apiError(err) != 10047 {
		t.Errorf("above the account's storage: %v", err)
	}
	if err := create("B", 100); err != nil {
		t.Fatal(err)
	}
	if err := create("C", 100); apiError(err) != 10027 {
		t.Errorf("above the account's streams: %v", err)
	}
	consumer := func(name string, pending int) error {
		_, err := js.CreateConsumer(ctx, "A", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: pending})
		return err
	}
	if err := consumer("c", 11); apiError(err) != 10121 {
		t.Errorf("above the account's ack pending: %v", err)
	}
	if err := consumer("c", 0); err != nil {
		t.Fatal(err)
	}
	if err := consumer("d", 0); apiError(err) != 10026 {
		t.Errorf("above the account's consumers: %v", err)
	}
	info := must[*jetstream.AccountInfo](t)(js.AccountInfo(ctx))
	if info.Streams != 2 || info.Consumers != 1 || info.Limits.MaxStreams != 2 || info.API.Errors == 0 || info.ReservedStore != 700 {
		t.Errorf("account %+v", info)
	}
	other := must[*nats.Conn](t)(nats.Connect(nc.ConnectedUrl(), nats.UserInfo("w", "p")))
	defer other.Close()
	if got := errCode(raw(t, other, "INFO", "")); got != 10039 {
		t.Errorf("an account without JetStream: err_code %d", got)
	}
}

func TestKeyValueAndObjects(t *testing.T) {
	_, js := start(t, nil)
	ctx := deadline(t)
	kv := must[jetstream.KeyValue](t)(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b", History: 3}))
	first := must[uint64](t)(kv.Create(ctx, "k", []byte("1")))
	if _, err := kv.Create(ctx, "k", []byte("1")); !errors.Is(err, jetstream.ErrKeyExists) {
		t.Errorf("second create: %v", err)
	}
	must[uint64](t)(kv.Update(ctx, "k", []byte("2"), first))
	if _, err := kv.Update(ctx, "k", []byte("3"), first); apiError(err) != 10071 {
		t.Errorf("update of an old revision: %v", err)
	}
	if e := must[jetstream.KeyValueEntry](t)(kv.Get(ctx, "k")); string(e.Value()) != "2" {
		t.Errorf("got %q", e.Value())
	}
	if keys := must[[]string](t)(kv.Keys(ctx)); !slices.Equal(keys, []string{"k"}) {
		t.Errorf("keys %v", keys)
	}
	if err := kv.Purge(ctx, "k"); err != nil {
		t.Error(err)
	}
	if _, err := kv.Get(ctx, "k"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("purged key: %v", err)
	}
	obj := must[jetstream.ObjectStore](t)(js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "o"}))
	must[*jetstream.ObjectInfo](t)(obj.PutBytes(ctx, "x", make([]byte, 300_000)))
	if data := must[[]byte](t)(obj.GetBytes(ctx, "x")); len(data) != 300_000 {
		t.Errorf("object of %d bytes", len(data))
	}
	if err := obj.Seal(ctx); err != nil {
		t.Error(err)
	}
	if _, err := obj.PutBytes(ctx, "y", nil); err == nil {
		t.Error("a sealed store took an object")
	}
}

func TestThePushConsumersAnswerComesFirst(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))
	for range 100 {
		must[*jetstream.PubAck](t)(js.Publish(ctx, "s", nil))
	}
	for i := range 20 {
		sub := must[*nats.Subscription](t)(nc.SubscribeSync(fmt.Sprintf("in.%d.>", i)))
		body := fmt.Sprintf(`{"stream_name":"S","config":{"name":"c%d","deliver_subject":"in.%d.messages"}}`, i, i)
		if err := nc.PublishRequest(fmt.Sprintf("$JS.API.CONSUMER.CREATE.S.c%d", i), fmt.Sprintf("in.%d.answer", i), []byte(body)); err != nil {
			t.Fatal(err)
		}
		for n := range 101 {
			m := must[*nats.Msg](t)(sub.NextMsg(patience))
			if isAnswer := strings.HasSuffix(m.Subject, ".answer"); isAnswer != (n == 0) {
				t.Fatalf("message %d is on %s", n, m.Subject)
			}
			var info struct {
				NumPending int `json:"num_pending"`
			}
			if n == 0 && (json.Unmarshal(m.Data, &info) != nil || info.NumPending != 100) {
				t.Fatalf("answer %s", m.Data)
			}
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestResetsStayWhereTheDeliverPolicyAllows(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}))
	for range 3 {
		must[*jetstream.PubAck](t)(js.Publish(ctx, "s", nil))
	}
	for name, tt := range map[string]struct {
		config, body string
		code         int
		text         string
	}{
		"a": {`"deliver_policy":"all"`, `{"seq":50}`, 0, ""},
		"b": {`"deliver_policy":"by_start_sequence","opt_start_seq":2`, `{"seq":1}`, 10204, "invalid reset: below start seq"},
		"c": {`"deliver_policy":"by_start_sequence","opt_start_seq":2`, `{"seq":2}`, 0, ""},
		"d": {`"deliver_policy":"by_start_time","opt_start_time":"2220-01-01T00:00:00Z"`, `{"seq":1}`, 10204, "invalid reset: below start time"},
		"e": {`"deliver_policy":"new"`, `{"seq":1}`, 10204, "invalid reset: not allowed"},
		"f": {`"deliver_policy":"new"`, ``, 0, ""},
		"g": {`"deliver_policy":"last_per_subject","filter_subject":"s"`, `{"seq":1}`, 10204, "invalid reset: not allowed"},
	} {
		raw(t, nc, "CONSUMER.CREATE.S."+name, `{"stream_name":"S","config":{"durable_name":"`+name+`",`+tt.config+`}}`)
		r := raw(t, nc, "CONSUMER.RESET.S."+name, tt.body)
		text := ""
		if e, ok := r["error"].(map[string]any); ok {
			text, _ = e["description"].(string)
		}
		if errCode(r) != tt.code || text != tt.text {
			t.Errorf("%s %s: got %v", tt.config, tt.body, r)
		}
	}
}
