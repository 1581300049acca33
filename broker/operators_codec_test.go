package broker_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
)

const fromAvro = `
operator: from_avro
errors: skip
time: {event: at}
inputs:
  - topic: READINGS
    codec:
      avro:
        type: record
        name: Reading
        fields:
          - {name: sensor, type: string}
          - {name: celsius, type: double}
          - {name: at, type: {type: long, logicalType: timestamp-millis}}
      framing: raw
steps: [{filter: celsius > 30.0}]
outputs:
  - topic: HOT
    codec:
      protobuf: |
        syntax = "proto3";
        package sensors;
        message Hot { string sensor = 1; double celsius = 2; string at = 3; }
      message: sensors.Hot
`

const fromProtobuf = `
operator: from_protobuf
errors: skip
inputs:
  - topic: HOT
    codec:
      protobuf: |
        syntax = "proto3";
        package sensors;
        message Hot { string sensor = 1; double celsius = 2; string at = 3; }
      message: sensors.Hot
steps:
  - key: sensor
  - aggregate: {n: count(), hottest: max(celsius)}
outputs: [{topic: HOTTEST}]
`

// reading is a record in Avro, as the schema above says.
func reading(sensor string, celsius float64, at time.Time) []byte {
	b := append(binary.AppendVarint(nil, int64(len(sensor))), sensor...)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(celsius))
	return binary.AppendVarint(b, at.UnixMilli())
}

// hot is a message in Protobuf, as the schema above says.
func hot(sensor string, celsius float64, at string) []byte {
	b := append([]byte{1<<3 | 2, byte(len(sensor))}, sensor...)
	b = binary.LittleEndian.AppendUint64(append(b, 2<<3|1), math.Float64bits(celsius))
	return append(append(b, 3<<3|2, byte(len(at))), at...)
}

// Avro goes in, Protobuf comes out, and is read by another operator; what the schema can't
// read is treated by the policy.
func TestOperatorsOfAvroAndProtobuf(t *testing.T) {
	b := start(t, broker.Config{StoreDir: t.TempDir()})
	nc := connect(t, b.ClientURL())
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"READINGS", "HOT", "HOTTEST"} {
		if _, err := js.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}}); err != nil {
			t.Fatal(err)
		}
	}
	ask := operatorAsker(t, nc)
	for _, spec := range []string{fromAvro, fromProtobuf} {
		if got := ask("DEPLOY", map[string]any{"spec": spec}); !strings.Contains(got, `"created":true`) {
			t.Fatalf("deployed: %s", got)
		}
	}
	at := time.Date(2026, 1, 31, 8, 0, 0, 500e6, time.UTC)
	for _, r := range [][]byte{reading("a", 31.5, at), {0x80}, reading("b", 12, at), reading("a", 30.25, at), reading("a", 40, at)} {
		if _, err := js.Publish("readings", r); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(subject string, want ...[]byte) {
		t.Helper()
		sub, err := js.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			m, err := sub.NextMsg(20 * time.Second)
			if err != nil {
				t.Fatalf("message %d of %s: %v", i, subject, err)
			}
			if !bytes.Equal(m.Data, w) {
				t.Errorf("message %d of %s is %q, wanted %q", i, subject, m.Data, w)
			}
		}
	}
	when := "2026-01-31T08:00:00.5Z"
	expect("hot", hot("a", 31.5, when), hot("a", 30.25, when), hot("a", 40, when))
	expect("hottest", []byte(`{"sensor":"a","n":1,"hottest":31.5}`), []byte(`{"sensor":"a","n":2,"hottest":31.5}`), []byte(`{"sensor":"a","n":3,"hottest":40}`))
	for end := time.Now().Add(10 * time.Second); ; {
		got := ask("INFO", map[string]any{"name": "from_avro"})
		if strings.Contains(got, `"Step":"READINGS","Name":"error","N":1`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("what can't be read is not counted: %s", got)
		}
	}
}
