package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

func TestWhereTheLimitWas(t *testing.T) {
	const ms = time.Millisecond
	for want, f := range map[string]facts{
		"client processors":  {cores: 2, client: 1.9, machine: 2, broker: 0.1, brokerCores: 8},
		"broker processors":  {cores: 8, client: 1, machine: 3, broker: 3.9, brokerCores: 4, sync: 0.9, durable: true},
		"machine processors": {cores: 2, client: 0.9, machine: 1.95, clients: 1},
		"disk sync":          {cores: 8, client: 0.2, machine: 1, durable: true, sync: 0.8, syncs: 300, clients: 1},
		"window":             {cores: 8, client: 0.2, machine: 1, durable: true, sync: 0.2, lone: 3 * ms, p50: 4 * ms, rtt: ms / 10, window: 100, clients: 1},
		"network":            {cores: 8, client: 0.2, machine: 1, rtt: 20 * ms, clients: 4},
		"unclear":            {cores: 8, client: 0.2, machine: 1, rtt: ms / 10, clients: 4},
	} {
		f.over = time.Second
		if got := f.diagnose(); got.What != want || got.Why == "" || got.Try == "" {
			t.Errorf("%s: %+v", want, got)
		}
	}
	// One publisher that can't keep more than a processor busy; one message at a time.
	if got := (facts{over: time.Second, cores: 8, client: 0.95, machine: 1.5, clients: 1}).diagnose(); got.What != "client processors" || got.Try != "--clients 2 and more" {
		t.Errorf("one connection: %+v", got)
	}
	if got := (facts{over: time.Second, cores: 8, client: 0.1, durable: true, lone: 3 * ms, p50: 3 * ms, rtt: ms / 10, window: 1, clients: 1}).diagnose(); got.What != "disk sync" {
		t.Errorf("one at a time: %+v", got)
	}
	if got := (facts{over: time.Second, cores: 8, client: 0.1, durable: true, lone: 21 * ms, p50: 22 * ms, rtt: 20 * ms, window: 1, clients: 1}).diagnose(); got.What != "window" {
		t.Errorf("one at a time, far away: %+v", got)
	}
}

func TestAShortBenchSaysNothingOfLimits(t *testing.T) {
	got := facts{over: time.Millisecond, cores: 2, client: 9, machine: 9}.diagnose()
	if got.What != "unclear" || got.Try != "a larger --msgs" {
		t.Errorf("%+v", got)
	}
}

func TestBenchSaysWhereTheLimitWas(t *testing.T) {
	o := config.Defaults()
	o.Port, o.HTTP.Port, o.JetStream.Enabled = -1, -1, true
	w := newWorldOf(t, broker.Config{Options: o})
	var results []result
	if err := json.Unmarshal([]byte(w.must("bench", "durable", "--msgs", "40000", "--monitor", w.monitor, "-o", "json")), &results); err != nil {
		t.Fatal(err)
	}
	r := results[0]
	if r.Limit == nil || r.Limit.What == "" || r.Lone <= 0 || r.RTT <= 0 || r.Processors <= 0 || r.SyncShare <= 0 || r.BrokerProcessors <= 0 {
		t.Errorf("%+v, limit %+v", r, r.Limit)
	}
	if got := w.run("bench", "pub", "--msgs", "300"); got.code != 0 || !strings.Contains(got.err, "limit: ") || !strings.Contains(got.err, "try: ") || strings.Contains(got.out, "limit") {
		t.Errorf("%+v", got)
	}
	if got := w.run("bench", "pub", "--msgs", "300", "--monitor", "http://127.0.0.1:1"); got.code != exitUnhealthy || !strings.Contains(got.err, "http_port") {
		t.Errorf("a wrong --monitor: %+v", got)
	}
}
