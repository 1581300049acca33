package jetstream

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// testEnvironment is an account without limits on a single node.
func testEnvironment() *environment {
	return &environment{limits: jsapi.Unlimited(), apiPrefixes: []string{"$JS.API"}}
}

func parseStream(t *testing.T, body string) jsapi.StreamRequest {
	t.Helper()
	var r jsapi.StreamRequest
	if err := jsapi.Decode([]byte(body), &r, true); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// expectFault compares a fault with a code and text; code 0 wants none.
func expectFault(t *testing.T, what string, got *topics.Fault, code uint16, text string) {
	t.Helper()
	switch {
	case code == 0 && got != nil:
		t.Errorf("%s: refused with %v", what, got)
	case code != 0 && got == nil:
		t.Errorf("%s: accepted, want %q (%d)", what, text, code)
	case code != 0 && (got.ErrCode != code || got.Text != text):
		t.Errorf("%s:\n got %v\nwant %s (%d)", what, got, text, code)
	}
}

// The codes and texts below are what nats-server 2.15.2 answered to the same
// requests.
func TestStreamConfigRules(t *testing.T) {
	for _, tt := range []struct {
		config string
		code   uint16
		text   string
	}{
		{`{}`, 0, ""},
		{`{"subjects":["a..b"]}`, 10052, "invalid subject"},
		{`{"subjects":[""]}`, 10052, "invalid subject"},
		{`{"subjects":["x","x"]}`, 10052, `subject "x" overlaps with "x"`},
		{`{"subjects":["x.*","x.y"]}`, 10052, `subject "x.*" overlaps with "x.y"`},
		{`{"subjects":["$JS.API.foo"]}`, 10052, "subjects that overlap with jetstream api require no-ack to be true"},
		{`{"subjects":["$JS.API.>"]}`, 10052, "subjects that overlap with jetstream api require no-ack to be true"},
		{`{"subjects":["$JS.API.>"],"no_ack":true}`, 0, ""},
		{`{"subjects":["$JSC.x"]}`, 10052, "subjects that overlap with jetstream api require no-ack to be true"},
		{`{"subjects":["$NRG.x"]}`, 10052, "subjects that overlap with jetstream api require no-ack to be true"},
		{`{"subjects":["$SYS.x"]}`, 10052, "subjects that overlap with system api require no-ack to be true"},
		{`{"subjects":["$SYS.ACCOUNT.x"]}`, 0, ""},
		{`{"subjects":[">"]}`, 10052, "capturing all subjects requires no-ack to be true"},
		{`{"subjects":[">"],"no_ack":true}`, 0, ""},
		{`{"subjects":["*.b"]}`, 10052, "subjects that overlap with jetstream api require no-ack to be true"},
		{`{"subjects":["*"]}`, 0, ""},
		{`{"subjects":["$JS.EVENT.ADVISORY.>"]}`, 0, ""},
		{`{"name":"X/1"}`, 10128, "Stream name can not contain path separators"},
		{`{"name":"X\\1"}`, 10128, "Stream name can not contain path separators"},
		{`{"name":"X 1"}`, 10052, "stream name is required and can not contain '.', '*', '>'"},
		{`{"name":"` + long(256) + `"}`, 10052, "stream name is too long, maximum allowed is 255"},
		{`{"name":"` + long(255) + `"}`, 0, ""},
		{`{"description":"` + long(4097) + `"}`, 10052, "stream description is too long, maximum allowed is 4096"},
		{`{"metadata":{"k":"` + long(128<<10) + `"}}`, 10052, "stream metadata exceeds maximum size of 131072 bytes"},
		{`{"max_age":1000}`, 10052, "max age needs to be >= 100ms"},
		{`{"max_age":-1000}`, 10052, "max age can not be negative"},
		{`{"max_age":1000000000,"duplicate_window":2000000000}`, 10052, "duplicates window can not be larger then max age"},
		{`{"duplicate_window":-2000000000}`, 10052, "duplicates window can not be negative"},
		{`{"duplicate_window":1000000}`, 10052, "duplicates window needs to be >= 100ms"},
		{`{"num_replicas":3}`, 10074, "replicas > 1 not supported in non-clustered mode"},
		{`{"num_replicas":6}`, 10052, "maximum replicas is 5"},
		{`{"num_replicas":-1}`, 10133, "replicas count cannot be negative"},
		{`{"discard_new_per_subject":true}`, 10052, "discard new per subject requires discard new policy to be set"},
		{`{"discard_new_per_subject":true,"discard":"new"}`, 10052, "discard new per subject requires max msgs per subject > 0"},
		{`{"discard_new_per_subject":true,"discard":"new","max_msgs_per_subject":1}`, 0, ""},
		{`{"deny_purge":true,"allow_rollup_hdrs":true}`, 10052, "roll-ups require the purge permission"},
		{`{"allow_msg_counter":true,"discard":"new"}`, 10052, "counter stream cannot use discard new"},
		{`{"allow_msg_counter":true,"allow_msg_ttl":true}`, 10052, "counter stream cannot use message TTLs"},
		{`{"allow_msg_counter":true,"retention":"workqueue"}`, 10052, "counter stream can only use limits retention"},
		{`{"allow_msg_counter":true,"allow_msg_schedules":true}`, 10052, "counter stream cannot use message schedules"},
		{`{"allow_msg_counter":true}`, 0, ""},
		{`{"subject_delete_marker_ttl":1000}`, 10052, "subject delete marker TTL must be at least 1 second"},
		{`{"subject_delete_marker_ttl":-1000}`, 10052, "subject delete marker TTL must not be negative"},
		{`{"subject_delete_marker_ttl":1000000000,"deny_purge":true}`, 0, ""},
		{`{"allow_msg_schedules":true,"discard":"new"}`, 10052, "message scheduling cannot use discard new"},
		{`{"allow_msg_schedules":true,"sources":[{"name":"A"}]}`, 10187, "stream source can not also schedule messages"},
		{`{"allow_msg_schedules":true,"mirror":{"name":"A"}}`, 10186, "stream mirrors can not also schedule messages"},
		{`{"persist_mode":"async","allow_atomic":true}`, 10052, "async persist mode is not supported with atomic batch publish"},
		{`{"persist_mode":"async","storage":"memory"}`, 10052, "async persist mode is only supported on file storage"},
		{`{"allow_atomic":true,"allow_batched":true}`, 0, ""},
		{`{"subject_transform":{"src":"x..","dest":"y"}}`, 10155, "stream transform source: invalid subject x.."},
		{`{"subject_transform":{"src":"x.*","dest":"y.{{wildcard(3)}}"}}`, 10156, "stream transform: invalid mapping destination: wildcard index out of range in {{wildcard(3)}}: [3]"},
		{`{"subject_transform":{"src":"x.*","dest":"y.$1"}}`, 0, ""},
		{`{"subject_transform":{"src":"","dest":"y.>"}}`, 0, ""},
		{`{"subjects":["x.*"],"republish":{"src":">","dest":"x.>"}}`, 10052, "stream configuration for republish destination forms a cycle"},
		{`{"subjects":["x.*"],"republish":{"src":"z.>","dest":"y.>"}}`, 0, ""},
		{`{"subjects":["x.*"],"republish":{"src":"z..","dest":"y.>"}}`, 10052, "stream configuration for republish with transform from 'z..' to 'y.>' not valid"},
		{`{"subjects":["x.*"],"republish":{"src":"x.>","dest":"y.*"}}`, 10052, "stream configuration for republish with transform from 'x.>' to 'y.*' not valid"},
		{`{"subjects":["x.*"],"republish":{"src":"x.*","dest":"y"}}`, 0, ""},
		{`{"subjects":["x.*"],"republish":{"dest":"$JS.API.x"}}`, 10052, "stream configuration for republish with transform from '>' to '$JS.API.x' not valid"},
		{`{"subjects":["x.*"],"mirror":{"name":"A"}}`, 10034, "stream mirrors can not contain subjects"},
		{`{"mirror":{"name":"A"},"first_seq":4}`, 10143, "stream mirrors can not have first sequence configured"},
		{`{"mirror":{"name":"A"},"sources":[{"name":"B"}]}`, 10031, "stream mirrors can not also contain other sources"},
		{`{"mirror":{"name":"A","opt_start_seq":3,"opt_start_time":"2020-01-01T00:00:00Z"}}`, 10032, "stream mirrors can not have both start seq and start time configured"},
		{`{"mirror":{"name":"A.b"}}`, 10142, "mirrored stream name is invalid"},
		{`{"mirror":{"name":"A"},"allow_msg_counter":true}`, 10173, "stream mirrors can not also calculate counters"},
		{`{"mirror":{"name":"A"},"allow_atomic":true}`, 10198, "stream mirrors can not also use atomic publishing"},
		{`{"mirror":{"name":"A"},"allow_batched":true}`, 10209, "stream mirrors can not also use batch publishing"},
		{`{"mirror":{"name":"A"},"subject_delete_marker_ttl":1000000000}`, 10052, "subject delete markers forbidden on mirrors"},
		{`{"mirror_direct":true}`, 10052, "stream has no mirror but does have mirror direct"},
		{`{"sources":[{"name":"A"},{"name":"A"}]}`, 10140, "duplicate source configuration detected"},
		{`{"sources":[{"name":"A"},{"name":"A","filter_subject":"b"}]}`, 0, ""},
		{`{"sources":[{"name":"X1"}]}`, 10052, "detected cycle"},
		{`{"sources":[{"name":"A","filter_subject":"a.."}]}`, 10049, "subject filter 'a..' for the source: invalid subject"},
		{`{"mirror":{"name":"A","filter_subject":"a.."}}`, 10049, "subject filter 'a..' for the mirror invalid subject"},
		{`{"mirror":{"name":"A","filter_subject":"a.b","subject_transforms":[{"src":"a.*","dest":"b.*"}]}}`, 10150, "mirror with multiple subject transforms cannot also have a single subject filter"},
		{`{"sources":[{"name":"A","filter_subject":"a.b","subject_transforms":[{"src":"a.*","dest":"b.*"}]}]}`, 10144, "source with multiple subject transforms cannot also have a single subject filter"},
		{`{"mirror":{"name":"A","subject_transforms":[{"src":"a..","dest":"b"}]}}`, 10151, "mirror transform source: invalid subject a.."},
		{`{"sources":[{"name":"A","subject_transforms":[{"src":"a..","dest":"b"}]}]}`, 10145, "source transform source: invalid subject a.."},
		{`{"mirror":{"name":"A","subject_transforms":[{"src":"a.*","dest":"b.{{wildcard(2)}}"}]}}`, 10154, "mirror transform: invalid mapping destination: wildcard index out of range in {{wildcard(2)}}: [2]"},
		{`{"sources":[{"name":"A","subject_transforms":[{"src":"a.*","dest":"b.{{wildcard(2)}}"}]}]}`, 10146, "source transform: invalid mapping destination: wildcard index out of range in {{wildcard(2)}}: [2]"},
		{`{"mirror":{"name":"A","subject_transforms":[{"src":"a.*","dest":"b.{{wildcard(1)}}"},{"src":"a.x","dest":"c"}]}}`, 10152, "mirror subject filters can not overlap"},
		{`{"sources":[{"name":"A","subject_transforms":[{"src":"a.*","dest":"b.{{wildcard(1)}}"},{"src":"a.x","dest":"c"}]}]}`, 10147, "source filters can not overlap"},
		{`{"mirror":{"name":"A","external":{"api":"$JS.API"}}}`, 10021, "stream external api prefix $JS.API must not overlap with $JS.API"},
		{`{"sources":[{"name":"A","external":{"api":"$JS.foo.API","deliver":"x.*"}}]}`, 10024, "stream external delivery prefix x.* must not contain wildcards"},
		{`{"sources":[{"name":"X1","external":{"api":"$JS.foo.API","deliver":"x"}}]}`, 0, ""},
		{`{"mirror":{"name":"A","consumer":{"name":"a.b","deliver_subject":"q"}}}`, 10213, "stream mirror consumer config is invalid"},
	} {
		r := parseStream(t, tt.config)
		if r.Name == "" {
			r.Name = "X1"
		}
		expectFault(t, tt.config, completeStream(&r.Config, testEnvironment(), false), tt.code, tt.text)
	}
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'd'
	}
	return string(b)
}

func TestStreamDefaults(t *testing.T) {
	const head = `{"name":"X1",`
	const limits = `"max_consumers":-1,"max_msgs":-1,"max_bytes":-1,`
	const rest = `"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,`
	const flags = `"sealed":false,"deny_delete":false,"deny_purge":false,`
	for _, tt := range []struct{ config, want string }{
		{`{}`, head + `"subjects":["X1"],"retention":"limits",` + limits + `"max_age":0,` + rest + `"duplicate_window":120000000000,"compression":"none",` + flags + `"allow_rollup_hdrs":false,"allow_direct":false,"mirror_direct":false,"metadata":{"_nats.req.level":"0"}}`},
		{`{"max_msgs":-5,"max_bytes":-4,"max_consumers":-3,"max_msgs_per_subject":-2,"max_msg_size":-7,"persist_mode":"default"}`, head + `"subjects":["X1"],"retention":"limits",` + limits + `"max_age":0,` + rest + `"duplicate_window":120000000000,"compression":"none",` + flags + `"allow_rollup_hdrs":false,"allow_direct":false,"mirror_direct":false,"metadata":{"_nats.req.level":"0"}}`},
		{`{"max_age":1000000000}`, head + `"subjects":["X1"],"retention":"limits",` + limits + `"max_age":1000000000,` + rest + `"duplicate_window":1000000000,"compression":"none",` + flags + `"allow_rollup_hdrs":false,"allow_direct":false,"mirror_direct":false,"metadata":{"_nats.req.level":"0"}}`},
		{`{"mirror":{"name":"A"}}`, head + `"retention":"limits",` + limits + `"max_age":0,` + rest + `"mirror":{"name":"A"},"compression":"none",` + flags + `"allow_rollup_hdrs":false,"allow_direct":false,"mirror_direct":false,"metadata":{"_nats.req.level":"0"}}`},
		{`{"subject_delete_marker_ttl":1000000000,"deny_purge":true}`, head + `"subjects":["X1"],"retention":"limits",` + limits + `"max_age":0,` + rest + `"duplicate_window":120000000000,"compression":"none",` + flags + `"allow_rollup_hdrs":true,"allow_direct":false,"mirror_direct":false,"allow_msg_ttl":true,"subject_delete_marker_ttl":1000000000,"metadata":{"_nats.req.level":"1"}}`},
	} {
		r := parseStream(t, tt.config)
		r.Name = "X1"
		if f := completeStream(&r.Config, testEnvironment(), false); f != nil {
			t.Errorf("%s: %v", tt.config, f)
			continue
		}
		got, err := json.Marshal(r.Config)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.config, got, tt.want)
		}
	}
}

func TestCompletingTwiceChangesNothing(t *testing.T) {
	r := parseStream(t, `{"name":"X1","subject_delete_marker_ttl":1000000000,"max_age":5000000000}`)
	for range 2 {
		if f := completeStream(&r.Config, testEnvironment(), false); f != nil {
			t.Fatal(f)
		}
	}
	first, _ := json.Marshal(r.Config)
	again := r.Config
	if f := completeStream(&again, testEnvironment(), true); f != nil {
		t.Fatal("a completed config must pass pedantically: ", f)
	}
	second, _ := json.Marshal(again)
	if string(first) != string(second) {
		t.Errorf("got %s, then %s", first, second)
	}
}

func TestPedanticRefusesSilentDefaults(t *testing.T) {
	for _, config := range []string{
		`{"max_age":1000000000}`, `{"subject_delete_marker_ttl":1000000000}`, `{"allow_msg_schedules":true}`,
	} {
		r := parseStream(t, config)
		r.Name = "X1"
		if f := completeStream(&r.Config, testEnvironment(), true); f == nil || f.ErrCode != 10157 {
			t.Errorf("%s: got %v", config, f)
		}
	}
}

func TestStreamLimitsOfTheAccountAndServer(t *testing.T) {
	env := testEnvironment()
	env.limits.MaxBytesRequired = true
	env.limits.StoreMaxStreamBytes = 1000
	env.maxDuplicates = time.Minute
	try := func(config string, code uint16, text string) topics.Config {
		t.Helper()
		r := parseStream(t, config)
		r.Name = "X1"
		expectFault(t, config, completeStream(&r.Config, env, false), code, text)
		return r.Config
	}
	try(`{}`, 10113, "account requires a stream config to have max bytes set")
	try(`{"max_bytes":1001}`, 10122, "stream max bytes exceeds account limit max stream bytes")
	if c := try(`{"max_bytes":1000}`, 0, ""); c.Duplicates != time.Minute {
		t.Errorf("duplicate window %s", c.Duplicates)
	}
	env.limits.MaxBytesRequired = false
	if c := try(`{}`, 0, ""); c.MaxBytes != 1000 {
		t.Errorf("max bytes %d", c.MaxBytes)
	}
	if c := try(`{"storage":"memory"}`, 0, ""); c.MaxBytes != -1 {
		t.Errorf("memory max bytes %d", c.MaxBytes)
	}
}

func TestStreamUpdateRules(t *testing.T) {
	for _, tt := range []struct {
		now, next string
		code      uint16
		text      string
	}{
		{`{"subjects":["u.>"]}`, `{"subjects":["u.>","v"],"description":"d","max_msgs":5,"compression":"s2"}`, 0, ""},
		{`{}`, `{"storage":"memory"}`, 10052, "stream configuration update can not change storage type"},
		{`{}`, `{"retention":"workqueue"}`, 10052, "stream configuration update can not change retention policy to/from workqueue"},
		{`{"retention":"workqueue"}`, `{}`, 10052, "stream configuration update can not change retention policy to/from workqueue"},
		{`{}`, `{"retention":"interest"}`, 0, ""},
		{`{}`, `{"mirror":{"name":"A"}}`, 10055, "stream mirror configuration can not be updated"},
		{`{"mirror":{"name":"A"}}`, `{}`, 0, ""},
		{`{}`, `{"allow_msg_counter":true}`, 10052, "stream configuration update can not change message counter setting"},
		{`{}`, `{"persist_mode":"async"}`, 10052, "stream configuration update can not change persist mode"},
		{`{"allow_msg_ttl":true}`, `{}`, 10052, "message TTL status can not be disabled"},
		{`{}`, `{"allow_msg_ttl":true}`, 0, ""},
		{`{"allow_msg_schedules":true}`, `{}`, 10052, "message schedules can not be disabled"},
		{`{"deny_delete":true}`, `{}`, 10052, "stream configuration update can not cancel deny message deletes"},
		{`{"deny_purge":true}`, `{}`, 10052, "stream configuration update can not cancel deny purge"},
		{`{"sealed":true,"deny_delete":true,"deny_purge":true,"discard":"new"}`, `{"deny_delete":true,"deny_purge":true}`, 10052, "stream configuration update can not unseal a sealed stream"},
	} {
		now, next := parseStream(t, tt.now), parseStream(t, tt.next)
		now.Name, next.Name = "U", "U"
		if f := completeStream(&now.Config, testEnvironment(), false); f != nil {
			t.Fatal(tt.now, f)
		}
		f := completeStream(&next.Config, testEnvironment(), false)
		if f == nil {
			f = updateStream(&now.Config, &next.Config)
		}
		expectFault(t, tt.now+" -> "+tt.next, f, tt.code, tt.text)
	}
}

func TestSealingBringsTheOtherFlags(t *testing.T) {
	now, next := parseStream(t, `{"name":"U"}`), parseStream(t, `{"name":"U","sealed":true,"max_age":1000000000,"allow_rollup_hdrs":true}`)
	for _, c := range []*topics.Config{&now.Config, &next.Config} {
		if f := completeStream(c, testEnvironment(), false); f != nil {
			t.Fatal(f)
		}
	}
	if f := updateStream(&now.Config, &next.Config); f != nil {
		t.Fatal(f)
	}
	if !next.DenyDelete || !next.DenyPurge || next.AllowRollup || next.MaxAge != 0 || next.Discard != topics.DiscardNew {
		t.Errorf("got %+v", next.Config)
	}
}

// TestDefaultMaxConsumers: what the server says counts where the stream says nothing.
func TestDefaultMaxConsumers(t *testing.T) {
	for asked, want := range map[int]int{0: 7, -1: -1, 3: 3} {
		c := topics.Config{Name: "S", MaxConsumers: asked}
		if f := completeStream(&c, &environment{maxConsumers: 7}, false); f != nil || c.MaxConsumers != want {
			t.Errorf("max_consumers %d became %d, want %d; %v", asked, c.MaxConsumers, want, f)
		}
	}
}

func TestAStreamForAnotherClusterIsRefused(t *testing.T) {
	for _, c := range []struct {
		clustered bool
		cluster   string
		refused   bool
	}{{true, "east", false}, {true, "", false}, {true, "west", true}, {false, "west", false}} {
		cfg := topics.Config{Name: "S", Subjects: []string{"s"}, Placement: &topics.Placement{Cluster: c.cluster}}
		f := completeStream(&cfg, &environment{clustered: c.clustered, cluster: "east", nodes: 3, limits: jsapi.Unlimited()}, false)
		if refused := f != nil && f.ErrCode == 10005; refused != c.refused || f != nil && !refused {
			t.Errorf("%+v: %v", c, f)
		}
	}
}
