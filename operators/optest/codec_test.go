package optest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
)

// readings reads Avro, windows by the event time that its schema has, and writes Protobuf,
// Avro and JSON.
const readings = `
operator: readings
time: {event: at, disorder: 0s, max_future: 0s}
errors: skip
inputs:
  - name: raw
    topic: RAW
    where: value > 0.0
    codec:
      avro:
        type: record
        name: Reading
        fields:
          - {name: sensor, type: string}
          - {name: value, type: double}
          - {name: at, type: {type: long, logicalType: timestamp-millis}}
          - {name: big, type: long, default: 9007199254740993}
          - {name: note, type: ['null', string], default: null}
steps:
  - key: sensor
  - window: {tumble: 1m}
  - name: minute
    aggregate: {n: count(), most: max(value), big: max(big)}
outputs:
  - topic: MINUTES
    codec: {protobuf: 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Minute { string sensor = 1; google.protobuf.Timestamp window_start = 2; string window_end = 3; uint32 n = 4; double most = 5; int64 big = 6; }'}
  - topic: COPY
    from: raw
    codec: {avro: {type: record, name: Copy, fields: [{name: sensor, type: string}, {name: value, type: double}, {name: at, type: {type: long, logicalType: timestamp-micros}}, {name: big, type: long}, {name: note, type: ['null', string]}]}, framing: raw}
  - {topic: JSON, from: raw}
tests:
  - name: two of one minute
    clock: 2026-01-31T08:00:00Z
    input:
      - raw: {sensor: a, value: 1.5, at: '2026-01-31T08:00:01Z'}
      - raw: {sensor: a, value: 2.5, at: '2026-01-31T08:00:02Z', note: x}
      - raw: {sensor: a, value: -1.0, at: '2026-01-31T08:00:03Z'}
    expect:
      MINUTES:
        - {sensor: a, window_start: '2026-01-31T08:00:00Z', window_end: '2026-01-31T08:01:00Z', n: 2, most: 2.5, big: 9007199254740993}
      COPY:
        - {sensor: a, value: 1.5, at: '2026-01-31T08:00:01Z', big: 9007199254740993, note: null}
        - {sensor: a, value: 2.5, at: '2026-01-31T08:00:02Z', big: 9007199254740993, note: x}
      JSON:
        - {sensor: a, value: 1.5, at: '2026-01-31T08:00:01Z', big: 9007199254740993, note: null}
        - {sensor: a, value: 2.5, at: '2026-01-31T08:00:02Z', big: 9007199254740993, note: x}
`

func TestCodecsWithSchemas(t *testing.T) {
	s, g := compile(t, readings)
	for _, o := range optest.Examples(s, g) {
		if !o.Passed() {
			t.Errorf("%s: %v\n%s", o.Name, o.Err, o.Diff)
		}
	}
	again, err := spec.Parse("canonical", s.JSON())
	if err != nil || again.Digest() != s.Digest() {
		t.Errorf("the canonical form says something else: %v\n%s", err, s.JSON())
	}
	other, _ := compile(t, strings.ReplaceAll(readings, "default: 9007199254740993", "default: 0"))
	if other.Digest() == s.Digest() {
		t.Error("another schema has the same digest")
	}
	good, err := optest.Payload(g, "raw", []byte(`{"sensor":"a","value":1.0,"at":"2026-01-31T08:00:01Z"}`))
	if err != nil {
		t.Fatal(err)
	}
	// What the schema doesn't read goes as what isn't JSON does: here it is skipped.
	r, err := optest.Run(g, optest.Options{}, optest.Record{Input: "raw", Payload: []byte(`{"sensor":"a"}`)}, optest.Record{Input: "raw", Payload: good})
	if err != nil || len(r.Of("COPY")) != 1 {
		t.Errorf("%v, copies: %v", err, r.Of("COPY"))
	}
	_, g = compile(t, strings.Replace(readings, "errors: skip", "errors: stop", 1))
	_, err = optest.Run(g, optest.Options{}, optest.Record{Input: "raw", Payload: []byte(`{"sensor":"a"}`)})
	var stopped *engine.StoppedError
	if !errors.As(err, &stopped) || !strings.Contains(err.Error(), "avro schema") {
		t.Errorf("a payload that can't be read: %v", err)
	}
}

// TestWhatASchemaCannotWrite is an error of the record, with the output's policy.
func TestWhatASchemaCannotWrite(t *testing.T) {
	const text = `
operator: o
inputs: [{topic: A}]
outputs: [{topic: B, key: k, codec: {protobuf: 'syntax = "proto3"; message M { int32 n = 1; string k = 2; }'}}]
`
	_, g := compile(t, text)
	for payload, want := range map[string]string{
		`{"n":1,"k":"a"}`: "", `{"n":1.5,"k":"a"}`: "/n", `{"n":1,"k":"a","more":1}`: `"more" is not in M`, `{"n":0,"k":""}`: "only defaults",
	} {
		r, err := optest.Run(g, optest.Options{}, optest.Record{Input: "A", Payload: []byte(payload)})
		if want == "" && (err != nil || len(r.Of("B")) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", payload, err, want)
		}
	}
}
