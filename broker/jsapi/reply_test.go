package jsapi

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// golden pairs replies with what nats-server 2.15.2 writes for them.
func TestRepliesAreWhatClientsRead(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 46, 6, 894456381, time.UTC)
	cfg := &topics.Config{
		Name: "A", Subjects: []string{"A"}, Retention: topics.RetainLimits, MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1,
		MaxMsgsPer: -1, MaxMsgSize: -1, Discard: topics.DiscardOld, Storage: topics.StoreFile, Replicas: 1,
		Duplicates: 2 * time.Minute, Compression: "none", Metadata: ReplyMetadata(StoredMetadata(nil, 0)),
	}
	ccfg := &topics.ConsumerConfig{
		Durable: "c", Name: "c", DeliverPolicy: topics.DeliverAll, AckPolicy: topics.AckExplicit, AckWait: 30 * time.Second,
		MaxDeliver: -1, ReplayPolicy: topics.ReplayInstant, MaxWaiting: 512, MaxAckPending: 1000,
		Metadata: map[string]string{MetaRequiredLevel: "0"},
	}
	const cfgJSON = `{"name":"A","subjects":["A"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,` +
		`"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":120000000000,` +
		`"compression":"none","sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,"allow_direct":false,` +
		`"mirror_direct":false,"metadata":{"_nats.level":"5","_nats.req.level":"0","_nats.ver":"2.15.2"}}`
	const stateJSON = `{"messages":0,"bytes":0,"first_seq":0,"first_ts":"0001-01-01T00:00:00Z","last_seq":0,"last_ts":"0001-01-01T00:00:00Z","consumer_count":0}`
	info := &StreamInfo{Config: cfg, Created: at, Time: at}
	for _, tt := range []struct {
		reply any
		want  string
	}{
		{
			&StreamCreateReply{Reply: Head("stream_create_response"), StreamInfo: info, DidCreate: true},
			`{"type":"io.nats.jetstream.api.v1.stream_create_response","config":` + cfgJSON + `,"created":"2026-11-30T12:46:06.894456381Z","state":` + stateJSON + `,"ts":"2026-11-30T12:46:06.894456381Z","did_create":true}`,
		},
		{
			&StreamInfoReply{Reply: Head("stream_info_response"), StreamInfo: info},
			`{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,"offset":0,"limit":0,"config":` + cfgJSON + `,"created":"2026-11-30T12:46:06.894456381Z","state":` + stateJSON + `,"ts":"2026-11-30T12:46:06.894456381Z"}`,
		},
		{
			&StreamNamesReply{Reply: Head("stream_names_response"), Page: Page{Limit: NamesLimit}},
			`{"type":"io.nats.jetstream.api.v1.stream_names_response","total":0,"offset":0,"limit":1024,"streams":null}`,
		},
		{
			&StreamListReply{Reply: Head("stream_list_response"), Page: Page{Limit: ListLimit}, Streams: []*StreamInfo{}},
			`{"type":"io.nats.jetstream.api.v1.stream_list_response","total":0,"offset":0,"limit":256,"streams":[]}`,
		},
		{
			&ConsumerNamesReply{Reply: Head("consumer_names_response"), Page: Page{Limit: NamesLimit}, Consumers: []string{}},
			`{"type":"io.nats.jetstream.api.v1.consumer_names_response","total":0,"offset":0,"limit":1024,"consumers":[]}`,
		},
		{
			&SuccessReply{Reply: Head("stream_delete_response"), Success: true},
			`{"type":"io.nats.jetstream.api.v1.stream_delete_response","success":true}`,
		},
		{
			&PurgeReply{SuccessReply{Head("stream_purge_response"), true}, 0},
			`{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true,"purged":0}`,
		},
		{
			&Reply{Type: TypeOf("stream_info_response"), Error: ErrorOf(ErrStreamNotFound)},
			`{"type":"io.nats.jetstream.api.v1.stream_info_response","error":{"code":404,"err_code":10059,"description":"stream not found"}}`,
		},
		{
			&MsgGetReply{Head("stream_msg_get_response"), &StoredMessage{Subject: "u.1", Sequence: 1, Data: []byte("one"), Time: at}},
			`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"u.1","seq":1,"data":"b25l","time":"2026-11-30T12:46:06.894456381Z"}}`,
		},
		{
			&ConsumerInfoReply{Head("consumer_info_response"), &ConsumerInfo{Stream: "A", Name: "c", Created: at, Config: ccfg, Time: at}},
			`{"type":"io.nats.jetstream.api.v1.consumer_info_response","stream_name":"A","name":"c","created":"2026-11-30T12:46:06.894456381Z",` +
				`"config":{"durable_name":"c","name":"c","deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","max_waiting":512,"max_ack_pending":1000,"num_replicas":0,"metadata":{"_nats.req.level":"0"}},` +
				`"delivered":{"consumer_seq":0,"stream_seq":0},"ack_floor":{"consumer_seq":0,"stream_seq":0},"num_ack_pending":0,"num_redelivered":0,"num_waiting":0,"num_pending":0,"ts":"2026-11-30T12:46:06.894456381Z"}`,
		},
		{
			&PauseReply{Reply: Head("consumer_pause_response")},
			`{"type":"io.nats.jetstream.api.v1.consumer_pause_response","paused":false,"pause_until":"0001-01-01T00:00:00Z"}`,
		},
		{
			&AccountInfoReply{Head("account_info_response"), &AccountInfo{Limits: Unlimited(), API: APIStats{Level: Level}}},
			`{"type":"io.nats.jetstream.api.v1.account_info_response","memory":0,"storage":0,"reserved_memory":0,"reserved_storage":0,"streams":0,"consumers":0,` +
				`"limits":{"max_memory":-1,"max_storage":-1,"max_streams":-1,"max_consumers":-1,"max_ack_pending":-1,"memory_max_stream_bytes":-1,"storage_max_stream_bytes":-1,"max_bytes_required":false},"api":{"level":5,"total":0,"errors":0}}`,
		},
	} {
		if got := string(Marshal(tt.reply)); got != tt.want {
			t.Errorf("%T:\n got %s\nwant %s", tt.reply, got, tt.want)
		}
	}
}

func TestErrorsThatAreNoFaultsStayInside(t *testing.T) {
	e := ErrorOf(errors.New("disk on fire"))
	if e.ErrCode != 10008 || e.Code != 503 || e.Description != "JetStream system temporarily unavailable" {
		t.Errorf("got %+v", e)
	}
	if ErrorOf(nil) != nil {
		t.Error("no error is no error")
	}
}

func TestWindowOfAList(t *testing.T) {
	for _, tt := range []struct{ n, offset, limit, total, shown, from, to int }{
		{0, 0, 3, 0, 0, 0, 0}, {5, 0, 3, 5, 0, 0, 3}, {5, 3, 3, 5, 3, 3, 5}, {5, 9, 3, 5, 5, 5, 5}, {5, -2, 3, 5, 0, 0, 3},
	} {
		p, from, to := Window(tt.n, tt.offset, tt.limit)
		if p.Total != tt.total || p.Offset != tt.shown || p.Limit != tt.limit || from != tt.from || to != tt.to {
			t.Errorf("Window(%d, %d, %d) = %+v, %d, %d", tt.n, tt.offset, tt.limit, p, from, to)
		}
	}
}

// TestMarshalSurvives: what a client sends never ends the process.
func TestMarshalSurvives(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)).UTC() // the year 10000
	var got PauseReply
	if err := json.Unmarshal(Marshal(&PauseReply{PauseUntil: late}), &got); err != nil || got.Error == nil || got.Error.Code != 500 {
		t.Errorf("%+v, %v", got, err)
	}
}
