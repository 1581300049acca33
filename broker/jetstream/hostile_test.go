package jetstream_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/backup"
)

// TestAHostileBackupIsRefused: what an archive calls a subject ends up in lines
// of the protocol, so it is held to what a client could publish to.
func TestAHostileBackupIsRefused(t *testing.T) {
	nc, _ := start(t, nil)
	const request = `{"config":{"name":"S","subjects":["s.>"]},"state":{"messages":1,"first_seq":1,"last_seq":1}}`
	state := &backup.Entry{Name: backup.StateName, Payload: []byte(`{"messages":1,"first_seq":1,"last_seq":1}`)}
	archive := func(entries ...*backup.Entry) []byte {
		var b bytes.Buffer
		w := backup.NewWriter(&b)
		for _, e := range append([]*backup.Entry{state}, entries...) {
			if err := w.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	consumer := func(config string) *backup.Entry {
		return &backup.Entry{Name: backup.ConsumerPrefix + "C", Payload: []byte(`{"config":` + config + `,"state":{}}`)}
	}
	for _, e := range []*backup.Entry{
		{Name: "s.x 1 0\r\n\r\nMSG evil", Sequence: 1},
		{Name: "s.\n", Sequence: 1},
		{Name: "s.*", Sequence: 1},
		{Name: "", Sequence: 1},
		{Name: "s..x", Sequence: 1},
		{Name: "s.\x00", Sequence: 1},
		consumer(`{"deliver_subject":"d\r\nMSG evil","ack_policy":"none"}`), consumer(`{"deliver_subject":"d.*","ack_policy":"none"}`), consumer(`{"filter_subject":"a b"}`),
		{Name: backup.ConsumerPrefix + "a\r\nb", Payload: []byte(`{"config":{},"state":{}}`)},
		{Name: backup.ConsumerPrefix + "../x", Payload: []byte(`{"config":{},"state":{}}`)},
	} {
		if r := giveBack(t, nc, "S", request, archive(e)); errCode(r) != 10062 {
			t.Errorf("%q %s: %v", e.Name, e.Payload, r)
		}
	}
	if r := giveBack(t, nc, "S", request, archive(&backup.Entry{Name: "s.x", Sequence: 1})); errCode(r) != 0 {
		t.Errorf("a harmless one: %v", r)
	}
	// An update doesn't mark the stream for deletion.
	r := raw(t, nc, "STREAM.UPDATE.S", `{"name":"S","subjects":["s.>"],"metadata":{"_herald.restoring":"true"}}`)
	if text := string(must[[]byte](t)(json.Marshal(r))); errCode(r) != 0 || strings.Contains(text, "restoring") {
		t.Errorf("%s", text)
	}
}
