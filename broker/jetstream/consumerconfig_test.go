package jetstream

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

func parseConsumer(t *testing.T, body string) topics.ConsumerConfig {
	t.Helper()
	var r jsapi.ConsumerRequest
	if err := jsapi.Decode([]byte(`{"config":`+body+`}`), &r, true); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r.Config
}

func stream(t *testing.T, body string) *topics.Config {
	t.Helper()
	r := parseStream(t, body)
	if f := completeStream(&r.Config, testEnvironment(), false); f != nil {
		t.Fatal(f)
	}
	return &r.Config
}

// The codes and texts below are what nats-server 2.15.2 answered to the same
// requests.
func TestConsumerConfigRules(t *testing.T) {
	limits := `{"name":"C","subjects":["c.>"]}`
	queue := `{"name":"W","subjects":["w.>"],"retention":"workqueue"}`
	interest := `{"name":"I","subjects":["i.>"],"retention":"interest"}`
	capped := `{"name":"L","subjects":["l.>"],"consumer_limits":{"max_ack_pending":10,"inactive_threshold":10000000000}}`
	for _, tt := range []struct {
		stream, config string
		code           uint16
		text           string
	}{
		{limits, `{"durable_name":"x"}`, 0, ""},
		{limits, `{"name":"a.b"}`, 10052, `consumer name can not contain '.', '*', '>', '\', '/'`},
		{limits, `{"name":"a b"}`, 10052, `consumer name can not contain '.', '*', '>', '\', '/'`},
		{limits, `{"name":"a/b"}`, 10127, "Consumer name can not contain path separators"},
		{limits, `{"durable_name":"` + long(256) + `"}`, 10102, "consumer name is too long, maximum allowed is 255"},
		{limits, `{"description":"` + long(4097) + `"}`, 10107, "consumer description is too long, maximum allowed is 4096"},
		{limits, `{"metadata":{"k":"` + long(128<<10) + `"}}`, 10135, "consumer metadata exceeds maximum size of 128KB"},
		{limits, `{"opt_start_seq":3}`, 10094, "consumer delivery policy is deliver all, but optional start sequence is also set"},
		{limits, `{"opt_start_time":"2020-01-01T00:00:00Z"}`, 10094, "consumer delivery policy is deliver all, but optional start time is also set"},
		{limits, `{"deliver_policy":"new","opt_start_seq":3}`, 10094, "consumer delivery policy is deliver new, but optional start sequence is also set"},
		{limits, `{"deliver_policy":"last","opt_start_seq":3}`, 10094, "consumer delivery policy is deliver last, but optional start sequence is also set"},
		{limits, `{"deliver_policy":"by_start_sequence"}`, 10094, "consumer delivery policy is deliver by start sequence, but optional start sequence is not set"},
		{limits, `{"deliver_policy":"by_start_sequence","opt_start_seq":1,"opt_start_time":"2020-01-01T00:00:00Z"}`, 10094, "consumer delivery policy is deliver by start sequence, but optional start time is also set"},
		{limits, `{"deliver_policy":"by_start_time"}`, 10094, "consumer delivery policy is deliver by start time, but optional start time is not set"},
		{limits, `{"deliver_policy":"by_start_time","opt_start_seq":1,"opt_start_time":"2020-01-01T00:00:00Z"}`, 10094, "consumer delivery policy is deliver by start time, but optional start start sequence is also set"},
		{limits, `{"deliver_policy":"by_start_time","opt_start_time":"0001-01-01T00:00:00Z"}`, 0, ""},
		{limits, `{"opt_start_time":"0001-01-01T00:00:00Z"}`, 0, ""},
		{limits, `{"deliver_policy":"last_per_subject"}`, 10094, "consumer delivery policy is deliver last per subject, but optional filter subject is not set"},
		{limits, `{"deliver_policy":"last_per_subject","opt_start_seq":4,"filter_subject":"c.>"}`, 10094, "consumer delivery policy is deliver last per subject, but optional start sequence is also set"},
		{limits, `{"deliver_policy":"last_per_subject","filter_subjects":["c.1"]}`, 0, ""},
		{limits, `{"ack_policy":"none","max_ack_pending":5}`, 0, ""},
		{limits, `{"ack_policy":"explicit","ack_wait":-5}`, 10183, "consumer ack wait needs to be positive"},
		{limits, `{"ack_policy":"explicit","backoff":[-5]}`, 10184, "consumer backoff needs to be positive"},
		{limits, `{"ack_policy":"explicit","backoff":[5,6],"max_deliver":1}`, 10116, "max deliver is required to be > length of backoff values"},
		{limits, `{"ack_policy":"explicit","backoff":[5,6],"max_deliver":2}`, 0, ""},
		{limits, `{"filter_subject":"zz"}`, 0, ""},
		{limits, `{"filter_subject":"c..x"}`, 10052, "invalid subject"},
		{limits, `{"filter_subject":"c.x","filter_subjects":["c.x"]}`, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified"},
		{limits, `{"filter_subjects":["c.x","c.*"]}`, 10138, "consumer subject filters cannot overlap"},
		{limits, `{"filter_subjects":["c.x",""]}`, 10139, "consumer filter in FilterSubjects cannot be empty"},
		{limits, `{"idle_heartbeat":1000000000}`, 10088, "consumer idle heartbeat requires a push based consumer"},
		{limits, `{"flow_control":true}`, 10089, "consumer flow control requires a push based consumer"},
		{limits, `{"rate_limit_bps":5}`, 10086, "consumer in pull mode can not have rate limit set"},
		{limits, `{"deliver_group":"g"}`, 0, ""},
		{limits, `{"max_waiting":-5,"max_batch":-5,"max_bytes":-5}`, 0, ""},
		{limits, `{"max_expires":5}`, 10115, "consumer max request expires needs to be >= 1ms"},
		{limits, `{"sample_freq":"foo"}`, 10095, `failed to parse consumer sampling configuration: strconv.Atoi: parsing "foo": invalid syntax`},
		{limits, `{"sample_freq":"50%"}`, 0, ""},
		{limits, `{"num_replicas":3}`, 10074, "replicas > 1 not supported in non-clustered mode"},
		{limits, `{"num_replicas":-3}`, 10133, "replicas count cannot be negative"},
		{limits, `{"deliver_subject":"x.*"}`, 10079, "consumer deliver subject has wildcards"},
		{limits, `{"deliver_subject":"c.7"}`, 10081, "consumer deliver subject forms a cycle"},
		{limits, `{"deliver_subject":"c..7"}`, 10112, "invalid push consumer deliver subject"},
		{limits, `{"deliver_subject":"x y"}`, 10112, "invalid push consumer deliver subject"},
		{limits, `{"deliver_subject":"dd","max_waiting":5}`, 10080, "consumer in push mode can not set max waiting"},
		{limits, `{"deliver_subject":"dd","idle_heartbeat":5}`, 10083, "consumer idle heartbeat needs to be >= 100ms"},
		{limits, `{"deliver_subject":"dd","flow_control":true}`, 10108, "consumer with flow control also needs heartbeats"},
		{limits, `{"durable_name":"x","deliver_subject":"dd","direct":true}`, 10091, "consumer direct requires an ephemeral consumer"},
		{limits, `{"direct":true}`, 10090, "consumer direct requires a push based consumer"},
		{limits, `{"deliver_subject":"dd","priority_groups":["a"],"priority_policy":"overflow"}`, 10178, "priority groups can not be used with push consumers"},
		{limits, `{"priority_groups":["a"]}`, 10196, "consumer can not have priority groups when policy is none"},
		{limits, `{"priority_policy":"overflow"}`, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"},
		{limits, `{"priority_groups":[""],"priority_policy":"overflow"}`, 10161, "Group name cannot be an empty string"},
		{limits, `{"priority_groups":["a b"],"priority_policy":"overflow"}`, 10162, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"},
		{limits, `{"priority_timeout":5000000000}`, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"},
		{limits, `{"priority_groups":["a"],"priority_policy":"pinned_client"}`, 0, ""},
		{limits, `{"ack_policy":"flow_control"}`, 10218, "flow control ack policy requires a push based consumer"},
		{limits, `{"ack_policy":"flow_control","deliver_subject":"dd"}`, 0, ""},
		{limits, `{"ack_policy":"flow_control","deliver_subject":"dd","flow_control":true,"max_ack_pending":-1}`, 10220, "flow control ack policy requires max ack pending"},
		{limits, `{"ack_policy":"flow_control","deliver_subject":"dd","flow_control":true,"max_ack_pending":5,"ack_wait":1000000000}`, 10221, "flow control ack policy requires unset ack wait"},
		{limits, `{"ack_policy":"flow_control","deliver_subject":"dd","flow_control":true,"max_ack_pending":5,"max_deliver":5}`, 10222, "flow control ack policy requires unset max deliver"},
		{queue, `{"ack_policy":"none"}`, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"},
		{queue, `{"ack_policy":"all"}`, 10098, "workqueue stream requires explicit ack"},
		{queue, `{"ack_policy":"none","deliver_subject":"dd"}`, 10098, "workqueue stream requires explicit ack"},
		{queue, `{"ack_policy":"explicit","deliver_policy":"new"}`, 10101, "consumer must be deliver all on workqueue stream"},
		{interest, `{"ack_policy":"none"}`, 0, ""},
		{interest, `{"ack_policy":"explicit","deliver_policy":"new"}`, 0, ""},
		{capped, `{"ack_policy":"explicit"}`, 0, ""},
		{capped, `{"ack_policy":"explicit","max_ack_pending":11}`, 10121, "consumer max ack pending exceeds system limit of 10"},
		{capped, `{"ack_policy":"explicit","inactive_threshold":11000000000}`, 10153, "consumer inactive threshold exceeds system limit of 10s"},
	} {
		c := parseConsumer(t, tt.config)
		expectFault(t, tt.config, completeConsumer(&c, stream(t, tt.stream), testEnvironment(), false), tt.code, tt.text)
	}
}

func TestConsumerDefaults(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{`{}`, `{"deliver_policy":"all","ack_policy":"none","max_deliver":-1,"replay_policy":"instant","max_waiting":512,"inactive_threshold":5000000000,"num_replicas":0,"metadata":{"_nats.req.level":"0"}}`},
		{`{"durable_name":"d","ack_policy":"explicit","pause_until":"0001-01-01T00:00:00Z"}`, `{"durable_name":"d","name":"d","deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","max_waiting":512,"max_ack_pending":1000,"num_replicas":0,"metadata":{"_nats.req.level":"0"}}`},
		{`{"durable_name":"p","ack_policy":"explicit","deliver_subject":"dlv"}`, `{"durable_name":"p","name":"p","deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","max_ack_pending":1000,"deliver_subject":"dlv","num_replicas":0,"metadata":{"_nats.req.level":"0"}}`},
		{`{"name":"n","ack_policy":"explicit","backoff":[5000000000,1000000000],"max_deliver":5,"ack_wait":9000000000}`, `{"name":"n","deliver_policy":"all","ack_policy":"explicit","ack_wait":5000000000,"max_deliver":5,"backoff":[5000000000,1000000000],"replay_policy":"instant","max_waiting":512,"max_ack_pending":1000,"inactive_threshold":5000000000,"num_replicas":0,"metadata":{"_nats.req.level":"0"}}`},
		{`{"name":"h","max_deliver":-7,"ack_policy":"explicit","max_ack_pending":-5,"ack_wait":1}`, `{"name":"h","deliver_policy":"all","ack_policy":"explicit","ack_wait":1,"max_deliver":-1,"replay_policy":"instant","max_waiting":512,"max_ack_pending":-1,"inactive_threshold":5000000000,"num_replicas":0,"metadata":{"_nats.req.level":"0"}}`},
		{`{"durable_name":"x","ack_policy":"flow_control","deliver_policy":"undefined","deliver_subject":"dd"}`, `{"durable_name":"x","name":"x","deliver_policy":"all","ack_policy":"flow_control","max_deliver":-1,"replay_policy":"instant","max_ack_pending":1000,"flow_control":true,"deliver_subject":"dd","idle_heartbeat":1000000000,"num_replicas":0,"metadata":{"_nats.req.level":"4"}}`},
		{`{"durable_name":"x","ack_policy":"explicit","priority_groups":["a"],"priority_policy":"pinned_client"}`, `{"durable_name":"x","name":"x","deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","max_waiting":512,"max_ack_pending":1000,"num_replicas":0,"metadata":{"_nats.req.level":"1"},"priority_groups":["a"],"priority_policy":"pinned_client","priority_timeout":120000000000}`},
	} {
		c := parseConsumer(t, tt.config)
		if f := completeConsumer(&c, stream(t, `{"name":"C","subjects":["c.>"]}`), testEnvironment(), false); f != nil {
			t.Errorf("%s: %v", tt.config, f)
			continue
		}
		got, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.config, got, tt.want)
		}
	}
}

func TestConsumerTakesDefaultsFromStreamAndAccount(t *testing.T) {
	s := stream(t, `{"name":"L","subjects":["l.>"],"consumer_limits":{"max_ack_pending":10,"inactive_threshold":10000000000}}`)
	c := parseConsumer(t, `{"durable_name":"c","ack_policy":"explicit"}`)
	if f := completeConsumer(&c, s, testEnvironment(), false); f != nil {
		t.Fatal(f)
	}
	if c.MaxAckPending != 10 || c.InactiveThreshold != 10*time.Second {
		t.Errorf("got %d, %s", c.MaxAckPending, c.InactiveThreshold)
	}
	env := testEnvironment()
	env.limits.MaxAckPending = 100
	c = parseConsumer(t, `{"durable_name":"c","ack_policy":"explicit"}`)
	if f := completeConsumer(&c, stream(t, `{"name":"C"}`), env, false); f != nil || c.MaxAckPending != 100 {
		t.Errorf("got %v, %d", f, c.MaxAckPending)
	}
	c = parseConsumer(t, `{"durable_name":"c","ack_policy":"explicit","max_ack_pending":101}`)
	expectFault(t, "above the account's", completeConsumer(&c, stream(t, `{"name":"C"}`), env, false),
		10121, "consumer max ack pending exceeds system limit of 100")
}

func TestConsumerUpdateRules(t *testing.T) {
	pull, push := `{"durable_name":"d","ack_policy":"explicit"}`, `{"durable_name":"d","ack_policy":"explicit","deliver_subject":"dlv"}`
	for _, tt := range []struct {
		now, next string
		active    bool
		code      uint16
		text      string
	}{
		{pull, `{"durable_name":"d","ack_policy":"all"}`, false, 10012, "ack policy can not be updated"},
		{pull, `{"durable_name":"d","ack_policy":"explicit","deliver_policy":"new"}`, false, 10012, "deliver policy can not be updated"},
		{pull, `{"durable_name":"d","ack_policy":"explicit","replay_policy":"original"}`, false, 10012, "replay policy can not be updated"},
		{pull, `{"durable_name":"d","ack_policy":"explicit","mem_storage":true}`, false, 10012, "storage type can not be updated"},
		{pull, `{"durable_name":"d","ack_policy":"explicit","max_waiting":10}`, false, 10012, "max waiting can not be updated"},
		{pull, push, false, 10012, "can not update pull consumer to push based"},
		{push, pull, false, 10012, "can not update push consumer to pull based"},
		{push, `{"durable_name":"d","ack_policy":"explicit","deliver_subject":"dlv","idle_heartbeat":1000000000}`, false, 10012, "heart beats can not be updated"},
		{push, `{"durable_name":"d","ack_policy":"explicit","deliver_subject":"other"}`, false, 0, ""},
		{push, `{"durable_name":"d","ack_policy":"explicit","deliver_subject":"other"}`, true, 10013, "consumer name already in use"},
		{pull, `{"durable_name":"d","ack_policy":"explicit","filter_subject":"c.1","max_ack_pending":5,"ack_wait":1000000000,"max_deliver":3,"backoff":[1000000],"sample_freq":"50%","headers_only":true,"max_batch":3,"max_expires":5000000000,"max_bytes":5,"inactive_threshold":1000000000}`, false, 0, ""},
	} {
		s := stream(t, `{"name":"C","subjects":["c.>"]}`)
		now, next := parseConsumer(t, tt.now), parseConsumer(t, tt.next)
		for _, c := range []*topics.ConsumerConfig{&now, &next} {
			if f := completeConsumer(c, s, testEnvironment(), false); f != nil {
				t.Fatal(f)
			}
		}
		expectFault(t, tt.now+" -> "+tt.next, updateConsumer(&now, &next, tt.active), tt.code, tt.text)
	}
}

func TestWorkQueueConsumersMayNotOverlap(t *testing.T) {
	s := stream(t, `{"name":"W","subjects":["w.>"],"retention":"workqueue"}`)
	one := parseConsumer(t, `{"filter_subject":"w.1"}`)
	two := parseConsumer(t, `{"filter_subjects":["w.2","w.3"]}`)
	all := parseConsumer(t, `{}`)
	for _, tt := range []struct {
		config string
		others []topics.ConsumerConfig
		code   uint16
		text   string
	}{
		{`{"filter_subject":"w.*"}`, []topics.ConsumerConfig{one}, 10100, "filtered consumer not unique on workqueue stream"},
		{`{}`, []topics.ConsumerConfig{one}, 10099, "multiple non-filtered consumers not allowed on workqueue stream"},
		{`{"filter_subjects":["w.2","w.3"]}`, []topics.ConsumerConfig{one}, 0, ""},
		{`{"filter_subjects":["w.3","w.4"]}`, []topics.ConsumerConfig{one, two}, 10100, "filtered consumer not unique on workqueue stream"},
		{`{"filter_subject":"w.1"}`, []topics.ConsumerConfig{all}, 10100, "filtered consumer not unique on workqueue stream"},
		{`{}`, nil, 0, ""},
	} {
		c := parseConsumer(t, tt.config)
		expectFault(t, tt.config, checkAmongOthers(&c, s, tt.others), tt.code, tt.text)
	}
}

func TestSameConsumerLooksPastWhatTheServerAdds(t *testing.T) {
	a := parseConsumer(t, `{"durable_name":"d","filter_subject":"x","metadata":{"a":"b"}}`)
	b := parseConsumer(t, `{"durable_name":"d","name":"d","filter_subjects":["x"],"metadata":{"a":"b","_nats.ver":"2.15.2"},"backoff":[]}`)
	if !sameConsumer(a, b) {
		t.Error("they ask for the same")
	}
	b.Description = "x"
	if sameConsumer(a, b) {
		t.Error("the description differs")
	}
}
