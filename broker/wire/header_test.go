package wire

import (
	"bytes"
	"testing"
)

func TestHeader(t *testing.T) {
	h := NewHeader("A", "1", "B", "two words", "A", "3")
	if string(h) != "NATS/1.0\r\nA: 1\r\nB: two words\r\nA: 3\r\n\r\n" || !ValidHeader(h) {
		t.Fatalf("%q", h)
	}
	if string(HeaderGet(h, "A")) != "1" || string(HeaderGet(h, "B")) != "two words" || HeaderGet(h, "a") != nil {
		t.Fatal("HeaderGet")
	}
	if got := HeaderSet(h, "A", "9"); string(got) != "NATS/1.0\r\nB: two words\r\nA: 9\r\n\r\n" {
		t.Fatalf("HeaderSet: %q", got)
	}
	if got := HeaderSet(nil, "A", "9"); string(got) != "NATS/1.0\r\nA: 9\r\n\r\n" {
		t.Fatalf("HeaderSet on nothing: %q", got)
	}
	if got := HeaderRemove(h, func(k []byte) bool { return true }); got != nil {
		t.Fatalf("HeaderRemove of all: %q", got)
	}
	if got := HeaderRemove(h, func(k []byte) bool { return false }); !bytes.Equal(got, h) {
		t.Fatalf("HeaderRemove of none: %q", got)
	}
	if !HeaderHas([]byte("NATS/1.0\r\nEmpty:\r\n\r\n"), "Empty") {
		t.Fatal("an empty value is a value")
	}
}

func TestHeaderStatus(t *testing.T) {
	for in, want := range map[string]struct {
		code int
		text string
	}{
		"NATS/1.0 503\r\n\r\n":                {503, ""},
		"NATS/1.0 100 Idle Heartbeat\r\n\r\n": {100, "Idle Heartbeat"},
		"NATS/1.0\r\nA: 503\r\n\r\n":          {0, ""},
		"NATS/1.0 no\r\n\r\n":                 {0, ""},
		"HTTP/1.1 200 OK\r\n\r\n":             {0, ""},
		"":                                    {0, ""},
	} {
		if code, text := HeaderStatus([]byte(in)); code != want.code || text != want.text {
			t.Errorf("%q: %d %q", in, code, text)
		}
	}
	if h := NewStatus(404, "No Messages", "A", "b"); string(h) != "NATS/1.0 404 No Messages\r\nA: b\r\n\r\n" {
		t.Fatalf("%q", h)
	}
	if h := HeaderRemove(NewStatus(404, "", "A", "b"), func([]byte) bool { return true }); string(h) != "NATS/1.0 404\r\n\r\n" {
		t.Fatalf("a status must stay: %q", h)
	}
}

func TestValidHeaderRefuses(t *testing.T) {
	for _, in := range []string{
		"", "NATS/1.0", "NATS/1.0\r\n", "NATS/1.0\r\nA\r\n\r\n", "NATS/1.0\r\n: b\r\n\r\n",
		"NATS/1.0\r\n\r\nA: b\r\n\r\n", "HTTP/1.0\r\n\r\n",
	} {
		if ValidHeader([]byte(in)) {
			t.Errorf("%q is accepted", in)
		}
	}
}

// FuzzHeader takes any block: no panic, and what is set can be read back.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("NATS/1.0 503 x\r\nA: b\r\n\r\n"), "A", "c")
	f.Add([]byte("NATS/1.0\r\n:\r\nA\r\n"), "B", "")
	f.Fuzz(func(t *testing.T, block []byte, key, value string) {
		ValidHeader(block)
		HeaderStatus(block)
		HeaderGet(block, key)
		stripped := HeaderRemove(block, func(k []byte) bool { return string(k) == key })
		if key != "" && HeaderGet(stripped, key) != nil {
			t.Fatalf("%q is still in %q", key, stripped)
		}
		plain := func(s string) bool { return !bytes.ContainsAny([]byte(s), ":\r\n \t\v\f\u0085\u00a0") }
		if ValidHeader(block) && key != "" && plain(key) && plain(value) {
			set := HeaderSet(block, key, value)
			if !ValidHeader(set) {
				t.Fatalf("set %q=%q in %q made %q", key, value, block, set)
			}
		}
	})
}

func TestHeaderOpen(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "NATS/1.0\r\n",
		"NATS/1.0\r\n\r\n":         "NATS/1.0\r\n",
		"NATS/1.0\r\nA: b\r\n\r\n": "NATS/1.0\r\nA: b\r\n",
		"NATS/1.0\r\nA: bc":        "NATS/1.0\r\nA: bc\r\n",
		"NATS/1.0\r\nNats-Sequence: 9\r\nNats-Stream: x\r\nNats-Msg-Id: 1\r\n\r\n": "NATS/1.0\r\nNats-Msg-Id: 1\r\n",
		"NATS/1.0\r\nNats-Sequence: 9\r\n\r\n":                                     "NATS/1.0\r\n",
	} {
		if got := string(HeaderOpen(nil, []byte(in), OriginKey)); got != want {
			t.Errorf("%q opens as %q, want %q", in, got, want)
		}
	}
}
