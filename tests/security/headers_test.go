package security

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestHeadersOfTheBrokerCannotBeForged goes through the headers that the broker
// or its peers set and readers trust.
func TestHeadersOfTheBrokerCannotBeForged(t *testing.T) {
	s := start(t, `
websocket { port: -1, no_tls: true }
`)
	nc, err := nats.Connect(s.ClientURL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	web, err := nats.Connect(s.WebsocketURL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	sub, err := nc.SubscribeSync("plain.>")
	if err != nil {
		t.Fatal(err)
	}
	again, err := nc.SubscribeSync("again.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	must(t, nc, "$JS.API.STREAM.CREATE.S", `{"name":"S","subjects":["s.>"],"allow_direct":true,"republish":{"src":"s.*","dest":"again.{{wildcard(1)}}"}}`)

	// The identity of who asks, in all ways in and all spellings.
	for i, from := range []*nats.Conn{nc, web} {
		for j, key := range []string{"Nats-Request-Info", "nats-request-info", "NATS-REQUEST-INFO"} {
			m := &nats.Msg{Subject: fmt.Sprintf("plain.%d.%d", i, j), Header: nats.Header{key: {`{"acc":"SYS"}`}, "Mine": {"x"}}}
			if err := from.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
			got, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Header) != 1 || got.Header.Get("Mine") != "x" {
				t.Errorf("%s arrives: %v", key, got.Header)
			}
			m.Subject, m.Reply = "s.info", nats.NewInbox()
			if _, err := from.RequestMsg(m, patience); err != nil {
				t.Fatal(err)
			}
			got, err = again.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			for k := range got.Header {
				if strings.EqualFold(k, "Nats-Request-Info") {
					t.Errorf("%s is kept and republished: %v", key, got.Header)
				}
			}
		}
	}

	// Where a message is from: only mirrors and sources may say.
	m := &nats.Msg{Subject: "s.x", Header: nats.Header{"Nats-Stream-Source": {"OTHER 99 > > x"}}}
	ack, err := nc.RequestMsg(m, patience)
	if err != nil {
		t.Fatal(err)
	}
	if errCode(t, string(ack.Data)) == 0 {
		t.Errorf("a message claims to be sourced: %s", ack.Data)
	}

	// Where a message is stored: the broker's word comes over the publisher's.
	forged := nats.Header{
		"Nats-Stream": {"OTHER"}, "Nats-Subject": {"other"}, "Nats-Sequence": {"999"}, "Nats-Last-Sequence": {"998"},
		"Nats-Time-Stamp": {"2000-01-01T00:00:00Z"}, "Nats-Num-Pending": {"7"}, "Nats-Msg-Id": {"mine"},
	}
	if ack, err = nc.RequestMsg(&nats.Msg{Subject: "s.y", Header: forged}, patience); err != nil || errCode(t, string(ack.Data)) != 0 {
		t.Fatalf("%v %+v", err, ack)
	}
	got, err := nc.Request("$JS.API.DIRECT.GET.S.s.y", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	told, err := again.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	for how, h := range map[string]nats.Header{"direct get": got.Header, "republish": told.Header} {
		for _, key := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
			if v := h[key]; len(v) != 1 || v[0] == forged.Get(key) {
				t.Errorf("%s: %s is %q", how, key, v)
			}
		}
		if h.Get("Nats-Msg-Id") != "mine" {
			t.Errorf("%s: the publisher's own headers are gone: %v", how, h)
		}
	}

	// A header block without its end, or with several, doesn't swallow the
	// broker's.
	c := s.dial(t, "x")
	for i, block := range []string{"NATS/1.0\r\nA: b", "NATS/1.0\r\n\r\n\r\n\r\n", "NATS/1.0", "garbage", "\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\nNats-Sequence: 5\r\n\r\n"} {
		c.send("HPUB s.block%d %d %d\r\n%s\r\n", i, len(block), len(block), block)
		if lines := c.sync(); len(lines) > 0 {
			t.Fatalf("%q: %q", block, lines)
		}
		must(t, nc, "$JS.API.STREAM.INFO.S", "")
		c.send("SUB got %d\r\nPUB $JS.API.DIRECT.GET.S.s.block%d got 0\r\n\r\n", i+1, i)
		var lines []string
		for deadline := time.Now().Add(patience); len(lines) == 0 && time.Now().Before(deadline); {
			lines = c.sync()
		}
		c.send("UNSUB %d\r\n", i+1)
		if text := strings.Join(lines, "\n"); strings.Count(text, "\nNats-Sequence: ") != 1 || strings.Contains(text, "Nats-Sequence: 5\n") {
			t.Errorf("%q is read back as %q", block, text)
		}
	}
}
