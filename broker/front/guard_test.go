package front

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/auth"
)

func TestRequestInfoIsStrippedInEveryForm(t *testing.T) {
	const end = "\r\n\r\n"
	for _, c := range []struct{ in, out string }{
		{"NATS/1.0\r\nNats-Request-Info: x" + end, ""},
		{"NATS/1.0\r\nnats-request-info: x" + end, ""},
		{"NATS/1.0\r\nNATS-REQUEST-INFO : x\r\nA: b" + end, "NATS/1.0\r\nA: b" + end},
		{"NATS/1.0\r\nA: b\nNats-Request-Info: x" + end, "NATS/1.0\r\nA: b\n\r\n"},
		{"NATS/1.0\r\nA: b\rNats-Request-Info: x" + end, "NATS/1.0\r\nA: b\r\r\n"},
		{"NATS/1.0\r\n\tNats-Request-Info: x\r\nA: b" + end, "NATS/1.0\r\nA: b" + end},
		{"NATS/1.0 503\r\nNats-Request-Info: x" + end, "NATS/1.0 503\r\n\r\n"},
		{"NATS/1.0\r\nNats-Request-Info", "NATS/1.0\r\n"},
		{"NATS/1.0\r\nX: Nats-Request-Info" + end, "NATS/1.0\r\nX: Nats-Request-Info" + end},
		{"NATS/1.0\r\nX-Nats-Request-Info: y" + end, "NATS/1.0\r\nX-Nats-Request-Info: y" + end},
	} {
		if !mentions([]byte(c.in), requestInfo) {
			t.Errorf("%q isn't seen", c.in)
		}
		if got := string(withoutKey([]byte(c.in), requestInfo)); got != c.out {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.out)
		}
	}
	for _, in := range []string{"", "NATS/1.0\r\n\r\n", "NATS/1.0\r\nNats-Msg-Id: 1-2\r\n\r\n", "-", "Nats-Request-Inf"} {
		if mentions([]byte(in), requestInfo) {
			t.Errorf("%q is seen", in)
		}
	}
}

func FuzzWithoutKey(f *testing.F) {
	f.Add([]byte("NATS/1.0\r\nA: b\nNats-Request-Info: x\r\n\r\n"))
	f.Add([]byte("NATS/1.0\r\nnats-request-info"))
	f.Fuzz(func(t *testing.T, block []byte) {
		out := withoutKey(block, requestInfo)
		if len(out) > len(block) {
			t.Fatal("it grew")
		}
		lines := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\r' || r == '\n' })
		for i, l := range lines {
			name, _, _ := strings.Cut(l, ":")
			if i > 0 && strings.EqualFold(strings.TrimSpace(name), "Nats-Request-Info") {
				t.Fatalf("%q keeps %q", block, l)
			}
		}
	})
}

// restricted is a server with one user with permissions.
func restricted(t *testing.T, p *auth.Permissions) *rawConn {
	s := startServer(t, Options{Auth: auth.Config{Users: []auth.User{{Name: "u", Password: "p", Permissions: p}}}})
	return connect(t, s, `"user":"u","pass":"p","headers":true`)
}

// TestReplyIsNoWayToAsk: whoever answers must not make a request to the broker
// that the asker may not make.
func TestReplyIsNoWayToAsk(t *testing.T) {
	c := restricted(t, &auth.Permissions{Publish: subjects([]string{"a", "$JS.API.INFO"}, nil)})
	for reply, denied := range map[string]bool{
		"$JS.API.STREAM.DELETE.S": true, "$SYS.REQ.USER.INFO": true, "$HERALD.ADV.PUT": true, "$JS.dom.API.INFO": true,
		"$JS.API.INFO": false, "_INBOX.x": false, "$JS": false, "b": false,
	} {
		c.send("PUB a %s 0\r\n\r\nPING\r\n", reply)
		if denied {
			c.expect(fmt.Sprintf("-ERR 'Permissions Violation for Publish with Reply of %q'", reply))
		}
		c.expect("PONG")
	}
}

// TestControlsInSubjects: a subject with a control character never
// gets to another client.
func TestControlsInSubjects(t *testing.T) {
	s := startServer(t, Options{})
	for _, line := range []string{"PUB a\vb 0\r\n\r\n", "PUB a\x00 0\r\n\r\n", "PUB a b\fc 0\r\n\r\n", "PUB a\rMSG 0\r\n\r\n", "HPUB a\x1f 12 12\r\nNATS/1.0\r\n\r\n\r\n"} {
		c := connect(t, s, `"headers":true`)
		c.send("%s", line)
		c.expectClosed()
	}
	c := connect(t, s, "")
	for _, subj := range []string{"a\vb", "a\x00", "\x7f", "a.\x01"} {
		c.send("SUB %s 1\r\n", subj)
		c.expect("-ERR 'Invalid Subject'")
	}
}

// TestReloadMeetsSubscribe: a subscription that is made while its permission is
// taken away doesn't stay.
func TestReloadMeetsSubscribe(t *testing.T) {
	options := func(deny ...string) Options {
		return Options{Auth: auth.Config{Users: []auth.User{{Name: "u", Password: "p", Permissions: &auth.Permissions{Subscribe: subjects(nil, deny)}}}}}
	}
	s := startServer(t, options())
	c := connect(t, s, `"user":"u","pass":"p"`)
	for i := range 100 {
		if err := s.Reload(options()); err != nil {
			t.Fatal(err)
		}
		reloaded := make(chan error)
		go func() { reloaded <- s.Reload(options("x")) }()
		c.send("SUB x %d\r\nPING\r\n", i)
		for !strings.HasPrefix(c.line(), "PONG") { // perhaps after -ERR
		}
		if err := <-reloaded; err != nil {
			t.Fatal(err)
		}
		if s.GlobalAccount().HasInterest("x") {
			t.Fatalf("round %d: the subscription stayed", i)
		}
	}
}
