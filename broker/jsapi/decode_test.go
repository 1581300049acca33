package jsapi

import (
	"errors"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

func TestDecodeRefusesWithTheTextsClientsKnow(t *testing.T) {
	for _, tt := range []struct {
		body string
		into any
		want string // "" is no fault
	}{
		{`{"name":"A","pedantic":true,"allow_batched":true}`, &StreamRequest{}, ""},
		{`{"name":"A","x":1}`, &StreamRequest{}, `invalid JSON: json: unknown field "x"`},
		{`{"name":"A","retention":"x"}`, &StreamRequest{}, `invalid JSON: can not unmarshal "\"x\""`},
		{`{"name":"A","discard":"x"}`, &StreamRequest{}, `invalid JSON: can not unmarshal "\"x\""`},
		{`{"name":"A","storage":"tape"}`, &StreamRequest{}, `invalid JSON: can not unmarshal "\"tape\""`},
		{`{"name":"A","persist_mode":"x"}`, &StreamRequest{}, `invalid JSON: can not unmarshal "\"x\""`},
		{`{"name":"A","compression":"gzip"}`, &StreamRequest{}, "invalid JSON: unknown compression algorithm"},
		{`nope`, &StreamRequest{}, "invalid JSON: invalid character 'o' in literal null (expecting 'u') at offset 2"},
		{`{"name":"A"} {}`, &StreamRequest{}, "invalid JSON: more follows the value at offset 14"},
		{`{"stream_name":"A","config":{"durable_name":"d","name":"d","pause_until":"0001-01-01T00:00:00Z"},"action":"create"}`, &ConsumerRequest{}, ""},
		{`{"stream_name":"A","config":{"deliver_policy":"undefined"}}`, &ConsumerRequest{}, ""},
		{`{"stream_name":"A","action":"zz"}`, &ConsumerRequest{}, `invalid JSON: unknown consumer action: "zz"`},
		{`{"config":{"ack_policy":"nah"}}`, &ConsumerRequest{}, `invalid JSON: can not unmarshal "\"nah\""`},
		{`{"config":{"deliver_policy":"nah"}}`, &ConsumerRequest{}, `invalid JSON: can not unmarshal "\"nah\""`},
		{`{"config":{"replay_policy":"nah"}}`, &ConsumerRequest{}, `invalid JSON: can not unmarshal "\"nah\""`},
		{`{"config":{"priority_policy":"nah"}}`, &ConsumerRequest{}, `invalid JSON: can not unmarshal "\"nah\""`},
		{`{"seq":1,"no_hdr":true,"multi_last":["a"],"up_to_time":"2026-01-01T00:00:00Z"}`, &MsgGetRequest{}, ""},
		{`{"config":{"name":"A"},"state":{"messages":1,"first_ts":"2026-01-01T00:00:00Z"}}`, &RestoreRequest{}, ""},
	} {
		err := Decode([]byte(tt.body), tt.into, true)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.body, err)
			}
			continue
		}
		var f *topics.Fault
		if !errors.As(err, &f) || f.ErrCode != 10025 || f.Status != 400 || f.Text != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.body, err, tt.want)
		}
	}
}

// allStreamFields and allConsumerFields name every field of 2.15: a server that
// lacks one refuses newer clients.
const (
	allStreamFields = `{"name":"A","description":"d","subjects":["a"],"retention":"limits","max_consumers":1,"max_msgs":1,
"max_bytes":1,"max_age":1,"max_msgs_per_subject":1,"max_msg_size":1,"discard":"new","discard_new_per_subject":true,
"storage":"file","num_replicas":1,"no_ack":true,"duplicate_window":1,"placement":{"cluster":"c","tags":["t"],"preferred":"p"},
"mirror":{"name":"m","opt_start_seq":1,"opt_start_time":"2026-01-01T00:00:00Z","filter_subject":"f","subject_transforms":[{"src":"a","dest":"b"}],
"external":{"api":"a","deliver":"d"},"consumer":{"name":"n","deliver_subject":"s"}},"sources":[{"name":"s"}],"compression":"s2",
"first_seq":1,"subject_transform":{"src":"a","dest":"b"},"republish":{"src":"a","dest":"b","headers_only":true},"allow_direct":true,
"mirror_direct":true,"sealed":true,"deny_delete":true,"deny_purge":true,"allow_rollup_hdrs":true,
"consumer_limits":{"inactive_threshold":1,"max_ack_pending":1},"allow_msg_ttl":true,"subject_delete_marker_ttl":1,
"allow_msg_counter":true,"allow_atomic":true,"allow_msg_schedules":true,"persist_mode":"async","allow_batched":true,
"metadata":{"k":"v"},"pedantic":true}`
	allConsumerFields = `{"stream_name":"A","action":"update","pedantic":true,"config":{"durable_name":"d","name":"d","description":"x",
"metadata":{"k":"v"},"deliver_policy":"all","opt_start_seq":1,"opt_start_time":"2026-01-01T00:00:00Z","ack_policy":"flow_control",
"ack_wait":1,"max_deliver":1,"backoff":[1],"filter_subject":"a","filter_subjects":["a"],"replay_policy":"original","rate_limit_bps":1,
"sample_freq":"1%","max_waiting":1,"max_ack_pending":1,"headers_only":true,"max_batch":1,"max_expires":1,"max_bytes":1,
"deliver_subject":"s","deliver_group":"g","flow_control":true,"idle_heartbeat":1,"inactive_threshold":1,"num_replicas":1,
"mem_storage":true,"direct":true,"sourcing":true,"pause_until":"2026-01-01T00:00:00Z","priority_groups":["g"],
"priority_policy":"prioritized","priority_timeout":1}}`
)

func TestEveryFieldOf215Decodes(t *testing.T) {
	if err := Decode([]byte(allStreamFields), &StreamRequest{}, true); err != nil {
		t.Error(err)
	}
	if err := Decode([]byte(allConsumerFields), &ConsumerRequest{}, true); err != nil {
		t.Error(err)
	}
}

func TestLenientDecodingLetsUnknownFieldsPass(t *testing.T) {
	var r StreamRequest
	if err := Decode([]byte(`{"name":"A","x":1}`), &r, false); err != nil || r.Name != "A" {
		t.Fatalf("got %v, name %q", err, r.Name)
	}
}

func TestEmptyTakesWhatOldClientsSend(t *testing.T) {
	for body, ok := range map[string]bool{"": true, "{}": true, " {}\n": true, "null": true, `{"a":1}`: false, "x": false} {
		if got := Empty([]byte(body)) == nil; got != ok {
			t.Errorf("Empty(%q) = %t", body, got)
		}
	}
}

func TestRequiredLevelHeader(t *testing.T) {
	block := func(h string) []byte { return []byte("NATS/1.0\r\n" + h + "\r\n\r\n") }
	for h, want := range map[string]bool{
		"Nats-Required-Api-Level: 5":            true,
		"Nats-Required-Api-Level: 0":            true,
		"Nats-Required-Api-Level:6":             false,
		"Nats-Required-Api-Level: x":            false,
		"A: b\r\nNats-Required-Api-Level: 9":    false,
		"X-Nats-Required-Api-Level: 9":          true,
		"nats-required-api-level: 9":            true,
		"A: Nats-Required-Api-Level: 9\r\nB: c": true,
	} {
		if got := LevelMet(block(h)); got != want {
			t.Errorf("LevelMet(%q) = %t", h, got)
		}
	}
	if !LevelMet(nil) {
		t.Error("no header asks for nothing")
	}
}

func TestMetadataKeysOfTheServer(t *testing.T) {
	sent := map[string]string{"a": "b", MetaVersion: "1", MetaLevel: "2", MetaRequiredLevel: "9", "_nats.foo": "kept"}
	stored := StoredMetadata(sent, 1)
	if len(stored) != 3 || stored["a"] != "b" || stored["_nats.foo"] != "kept" || stored[MetaRequiredLevel] != "1" {
		t.Errorf("stored %v", stored)
	}
	shown := ReplyMetadata(stored)
	if len(shown) != 5 || shown[MetaVersion] != Version || shown[MetaLevel] != "5" {
		t.Errorf("shown %v", shown)
	}
	if UserMetadata(map[string]string{MetaVersion: "1"}) != nil {
		t.Error("nothing of the user's must give nil")
	}
}

func TestLevelsOfConfigs(t *testing.T) {
	for _, tt := range []struct {
		want int
		c    topics.Config
	}{
		{0, topics.Config{}},
		{1, topics.Config{AllowMsgTTL: true}},
		{1, topics.Config{SubjectDeleteMarkerTTL: time.Second}},
		{2, topics.Config{AllowMsgCounter: true}},
		{2, topics.Config{AllowAtomic: true}},
		{2, topics.Config{AllowMsgSchedules: true}},
		{2, topics.Config{PersistMode: "async"}},
		{4, topics.Config{AllowBatched: true, AllowAtomic: true}},
		{4, topics.Config{Mirror: &topics.StreamSource{Consumer: &topics.SourceConsumer{}}}},
		{4, topics.Config{Sources: []*topics.StreamSource{{Consumer: &topics.SourceConsumer{}}}}},
	} {
		if got := StreamLevel(&tt.c); got != tt.want {
			t.Errorf("StreamLevel(%+v) = %d, want %d", tt.c, got, tt.want)
		}
	}
	later := time.Now()
	for _, tt := range []struct {
		want int
		c    topics.ConsumerConfig
	}{
		{0, topics.ConsumerConfig{}},
		{0, topics.ConsumerConfig{PauseUntil: &time.Time{}}},
		{1, topics.ConsumerConfig{PauseUntil: &later}},
		{1, topics.ConsumerConfig{PriorityGroups: []string{"a"}}},
		{1, topics.ConsumerConfig{PriorityPolicy: "overflow"}},
		{4, topics.ConsumerConfig{AckPolicy: topics.AckFlowControl}},
	} {
		if got := ConsumerLevel(&tt.c); got != tt.want {
			t.Errorf("ConsumerLevel(%+v) = %d, want %d", tt.c, got, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(allStreamFields))
	f.Add([]byte(allConsumerFields))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, v := range []any{&StreamRequest{}, &ConsumerRequest{}, &MsgGetRequest{}, &RestoreRequest{}} {
			var fault *topics.Fault
			if err := Decode(body, v, true); err != nil && !errors.As(err, &fault) {
				t.Fatalf("error that is no fault: %v", err)
			}
		}
		LevelMet(body)
	})
}
