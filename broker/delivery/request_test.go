package delivery

import (
	"encoding/json"
	"testing"
)

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		"", "5", "-1", "x", `{}`, `{"batch":10,"expires":5000000000,"no_wait":true}`, `{"batch": 1, "max_bytes":100}`,
		`{"group":"g","id":"abc","priority":9,"min_pending":1,"min_ack_pending":2}`, `{"batch":01}`, `{"batch":1,}`,
		`{"batch":"1"}`, `{"id":"a\"b"}`, `{"idle_heartbeat":100,"expires":300}`, `{"batch":1e3}`, `{"batch":1 }`, `{"no_wait":falsey}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if w, err := parseRequest(body); err == nil && (w.Batch < 1 || w.Priority < 0 || w.Priority > 9) {
			t.Fatalf("parseRequest(%q) = %+v", body, w)
		}
		var fast, slow wireRequest
		if !fast.parseFlat(body) {
			return
		}
		if err := json.Unmarshal(body, &slow); err != nil {
			t.Fatalf("parseFlat read %q, encoding/json says %v", body, err)
		}
		if fast != slow {
			t.Fatalf("%q: %+v, want %+v", body, fast, slow)
		}
	})
}

func FuzzParseAck(f *testing.F) {
	f.Add([]byte("$JS.ACK.ORDERS.worker.1.123456.123460.1700000000000000000.42"))
	f.Add([]byte("$JS.ACK._.abcdef.ORDERS.worker.1.12.13.1700000000000000000.42.rand"))
	f.Add([]byte("$JS.ACK...1.1.1.1.1"))
	f.Fuzz(func(t *testing.T, subject []byte) {
		if a, ok := parseAck(subject); ok && (len(a.stream) == 0 || len(a.consumer) == 0) {
			t.Fatalf("%q: %+v", subject, a)
		}
	})
}

func TestParseAckForms(t *testing.T) {
	for _, s := range []string{
		"$JS.ACK.S.c.2.30.31.1700000000000000000.42",
		"$JS.ACK._.abcdef.S.c.2.30.31.1700000000000000000.42.rand",
		"$JS.ACK.hub.abcdef.S.c.2.30.31.1700000000000000000.42.rand.more",
	} {
		a, ok := parseAck([]byte(s))
		if !ok || string(a.stream) != "S" || string(a.consumer) != "c" || a.attempt != 2 || a.seq != 30 || a.number != 31 {
			t.Errorf("parseAck(%q) = %+v, %t", s, a, ok)
		}
	}
	for _, s := range []string{"$JS.ACK.S.c.2.30.31.17", "$JS.ACK.S.c.2.x.31.17.4", "$JS.FC.S.c.2.3.31.17.4", "$JS.ACK.S.c.2.99999999999999999999.31.17.4"} {
		if _, ok := parseAck([]byte(s)); ok {
			t.Errorf("parseAck(%q) took it", s)
		}
	}
}
