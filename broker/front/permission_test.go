package front

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/heraldmq/herald/broker/auth"
)

func subjects(allow, deny []string) *auth.SubjectPermission {
	return &auth.SubjectPermission{Allow: allow, Deny: deny}
}

func TestPermissionViolationsKeepTheConnection(t *testing.T) {
	s := startServer(t, Options{Auth: auth.Config{Users: []auth.User{{
		Name: "u", Password: "p", Permissions: &auth.Permissions{
			Publish:   subjects([]string{"ok.>"}, nil),
			Subscribe: subjects([]string{"in.>"}, []string{"in.secret", "in.q bad"}),
		},
	}, {Name: "root", Password: "p"}}}})
	c := connect(t, s, `"user":"u","pass":"p"`)
	c.send("PUB no 1\r\nx\r\nSUB no 1\r\nSUB in.secret 2\r\nSUB in.q bad 3\r\nSUB in.> 4\r\nSUB .bad 5\r\nPING\r\n")
	c.expect(
		`-ERR 'Permissions Violation for Publish to "no"'`,
		`-ERR 'Permissions Violation for Subscription to "no"'`,
		`-ERR 'Permissions Violation for Subscription to "in.secret"'`,
		`-ERR 'Permissions Violation for Subscription to "in.q" using queue "bad"'`,
		`-ERR 'Invalid Subject'`,
		"PONG")
	root := connect(t, s, `"user":"root","pass":"p"`)
	for _, subj := range []string{"in.a", "in.secret", "in.a", "in.secret", "in.b"} {
		root.send("PUB %s 1\r\nx\r\n", subj)
	}
	root.sync()
	c.expect("MSG in.a 4 1", "x", "MSG in.a 4 1", "x", "MSG in.b 4 1", "x")
}

func TestReservedSubjects(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, "")
	c.send("SUB > 1\r\n")
	c.send("PUB a $JS.ACK.S.C.1 0\r\n\r\nPUB a _R_.x 0\r\n\r\nPUB $NRG.a 0\r\n\r\nPUB a _INBOX.x 0\r\n\r\nPING\r\n")
	c.expect(
		`-ERR 'Permissions Violation for Publish with Reply of "$JS.ACK.S.C.1"'`,
		`-ERR 'Permissions Violation for Publish with Reply of "_R_.x"'`,
		`-ERR 'Permissions Violation for Publish to "$NRG.a"'`,
		"MSG a 1 _INBOX.x 0", "", "PONG")
}

func TestAllowResponses(t *testing.T) {
	s := startServer(t, Options{Auth: auth.Config{Users: []auth.User{
		{Name: "svc", Password: "p", Permissions: &auth.Permissions{
			Subscribe: subjects([]string{"ask"}, nil), Responses: &auth.ResponsePermission{Max: 2},
		}},
		{Name: "root", Password: "p"},
	}}})
	svc := connect(t, s, `"user":"svc","pass":"p"`)
	svc.send("SUB ask 1\r\n")
	svc.sync()
	root := connect(t, s, `"user":"root","pass":"p"`)
	root.send("SUB inbox.* 9\r\nPUB ask inbox.1 0\r\n\r\n")
	root.sync()
	svc.expect("MSG ask 1 inbox.1 0", "")
	svc.send("PUB inbox.1 1\r\na\r\nPUB inbox.1 1\r\nb\r\nPUB inbox.1 1\r\nc\r\nPUB inbox.2 1\r\nd\r\nPING\r\n")
	svc.expect(`-ERR 'Permissions Violation for Publish to "inbox.1"'`, `-ERR 'Permissions Violation for Publish to "inbox.2"'`, "PONG")
	root.expect("MSG inbox.1 9 1", "a", "MSG inbox.1 9 1", "b")
	root.sync()
}

func TestAccountsAreIsolated(t *testing.T) {
	s := startServer(t, Options{Auth: auth.Config{
		Accounts: []auth.Account{{Name: "A"}, {Name: "B"}},
		Users: []auth.User{
			{Name: "a", Password: "p", Account: "A"},
			{Name: "b", Password: "p", Account: "B"},
			{Name: "sys", Password: "p", Account: "$SYS"},
		},
	}})
	a, b, sys := connect(t, s, `"user":"a","pass":"p"`), connect(t, s, `"user":"b","pass":"p"`), connect(t, s, `"user":"sys","pass":"p"`)
	for _, c := range []*rawConn{a, b, sys} {
		c.send("SUB > 1\r\n")
		c.sync()
	}
	a.send("PUB $SYS.x 1\r\na\r\n")
	a.expect("MSG $SYS.x 1 1", "a")
	s.Account("B").Publish("only.b", "", nil, []byte("b"))
	b.expect("MSG only.b 1 1", "b")
	s.SystemAccount().Publish("only.sys", "", nil, nil)
	sys.expect("MSG only.sys 1 0", "")
	for _, c := range []*rawConn{a, b, sys} {
		c.sync()
	}
}

func TestReconnectingElsewhereDropsSubscriptions(t *testing.T) {
	s := startServer(t, Options{Auth: auth.Config{
		Accounts: []auth.Account{{Name: "A"}, {Name: "B"}},
		Users:    []auth.User{{Name: "a", Password: "p", Account: "A"}, {Name: "b", Password: "p", Account: "B"}},
	}})
	c := connect(t, s, `"user":"a","pass":"p"`)
	c.send("SUB foo 1\r\nCONNECT {\"verbose\":false,\"user\":\"b\",\"pass\":\"p\"}\r\n")
	c.sync()
	s.Account("A").Publish("foo", "", nil, nil)
	if s.Account("A").HasInterest("foo") || s.Account("A").Stats().Connections != 0 || s.Account("B").Stats().Connections != 1 {
		t.Fatal("the old account still has the client")
	}
	c.sync()
}

func TestWhatClosesTheConnection(t *testing.T) {
	users := auth.Config{Users: []auth.User{{Name: "u", Password: "p"}}, Timeout: 50 * time.Millisecond}
	for _, c := range []struct {
		name, send, text string
		reason           Reason
		o                Options
	}{
		{"unknown verb", "HELLO\r\n", "-ERR 'Unknown Protocol Operation'\r\n", ReasonParseError, Options{}},
		{"route verb", "RS+ a b\r\n", "-ERR 'Unknown Protocol Operation'\r\n", ReasonParseError, Options{}},
		{"payload", "PUB a 2000\r\n", "-ERR 'Maximum Payload Violation'\r\n", ReasonMaxPayload, Options{MaxPayload: 1000}},
		{"control line", "SUB " + strings.Repeat("x", 5000), "-ERR 'maximum control line exceeded'\r\n", ReasonMaxControlLine, Options{}},
		{"arguments", "PUB a b c d e\r\n", "", ReasonParseError, Options{}},
		{"connect JSON", "CONNECT {\r\n", "", ReasonParseError, Options{}},
		{"protocol", "CONNECT {\"protocol\":7}\r\n", "-ERR 'invalid client protocol'\r\n", ReasonBadProtocol, Options{}},
		{"no responders", "CONNECT {\"no_responders\":true}\r\n", "-ERR 'no responders requires headers support'\r\n", ReasonNoResponders, Options{}},
		{"headers not asked for", "CONNECT {\"verbose\":false}\r\nHPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n", "", ReasonProtocol, Options{}},
		{"wrong password", "CONNECT {\"user\":\"u\",\"pass\":\"x\"}\r\n", "-ERR 'Authorization Violation'\r\n", ReasonAuthFailure, Options{Auth: users}},
		{"no credentials", "PING\r\n", "-ERR 'Authorization Violation'\r\n", ReasonAuthFailure, Options{Auth: users}},
		{"message before CONNECT", "PUB a 1000000\r\n", "-ERR 'Authorization Violation'\r\n", ReasonAuthFailure, Options{Auth: users}},
		{"no CONNECT in time", "", "-ERR 'Authentication Timeout'\r\n", ReasonAuthTimeout, Options{Auth: users}},
		{"legacy account", "CONNECT {\"account\":\"X\"}\r\n", "-ERR 'Authorization Violation'\r\n", ReasonAuthFailure, Options{}},
		{"no pongs", "", "PING\r\nPING\r\n-ERR 'Stale Connection'\r\n", ReasonStale, Options{PingInterval: 10 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, c.o)
			conn := dial(t, s)
			conn.send("%s", c.send)
			if got := conn.expectClosed(); got != c.text {
				t.Fatalf("got %q, want %q", got, c.text)
			}
			eventually(t, "the connection in the books", func() bool { return len(s.Connections(ConnClosed, false)) == 1 })
			if got := s.Connections(ConnClosed, false)[0].Reason; got != c.reason {
				t.Fatalf("reason %q, want %q", got, c.reason)
			}
			if len(s.Connections(ConnOpen, false)) != 0 {
				t.Fatal("still open")
			}
		})
	}
}

func TestLimits(t *testing.T) {
	s := startServer(t, Options{
		MaxConnections: 2, MaxSubscriptions: 2, MaxSubTokens: 3,
		Auth: auth.Config{
			Accounts: []auth.Account{{Name: "A", Limits: auth.Limits{MaxConnections: 1, MaxPayload: 10}}},
			Users:    []auth.User{{Name: "a", Password: "p", Account: "A"}},
		},
	})
	a := dial(t, s)
	a.send("CONNECT {\"verbose\":false,\"user\":\"a\",\"pass\":\"p\",\"protocol\":1}\r\nPING\r\n")
	a.expect("PONG")
	if info := a.line(); !strings.Contains(info, `"max_payload":10,`) || !strings.Contains(info, `"connect_info":true`) || !strings.Contains(info, `"remote_account":"A"`) {
		t.Fatal(info)
	}
	a.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB a.b.c.d 4\r\nPING\r\n")
	a.expect("-ERR 'maximum subscriptions exceeded'", `-ERR 'Permissions Violation for Subscription to "a.b.c.d", too many tokens'`, "PONG")
	second := dial(t, s)
	second.send("CONNECT {\"verbose\":false,\"user\":\"a\",\"pass\":\"p\"}\r\n")
	third := dial(t, s)
	if got := second.expectClosed(); got != "-ERR 'maximum account active connections exceeded'\r\n" {
		t.Fatalf("second: %q", got)
	}
	if got := third.expectClosed(); got != "-ERR 'maximum connections exceeded'\r\n" {
		t.Fatalf("third: %q", got)
	}
	a.send("PUB x 11\r\n")
	if got := a.expectClosed(); got != "-ERR 'Maximum Payload Violation'\r\n" {
		t.Fatalf("payload: %q", got)
	}
}

func TestPedantic(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, "")
	c.send("CONNECT {\"verbose\":false,\"pedantic\":true}\r\nSUB > 1\r\nPUB a.* 1\r\nx\r\nPING\r\n")
	c.expect("-ERR 'Invalid Publish Subject'", "MSG a.* 1 1", "x", "PONG")
}

func TestNoEcho(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, `"echo":false,"headers":true,"no_responders":true`)
	other := connect(t, s, "")
	other.send("SUB foo 1\r\n")
	other.sync()
	c.send("SUB foo 1\r\nPUB foo 1\r\nx\r\nPING\r\n")
	c.expect("PONG")
	other.expect("MSG foo 1 1", "x")
}

func TestNkeyAndToken(t *testing.T) {
	pair, _ := nkeys.CreateUser()
	public, _ := pair.PublicKey()
	s := startServer(t, Options{Auth: auth.Config{Users: []auth.User{{Nkey: public}}}})
	nc := natsConnect(t, s, nats.Nkey(public, pair.Sign))
	if _, err := nc.RTT(); err != nil {
		t.Fatal(err)
	}
	if _, err := nats.Connect("nats://" + s.Addr().String()); !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrNkeysNotSupported) {
		t.Fatal(err)
	}
	tok := startServer(t, Options{Auth: auth.Config{Token: "hush"}})
	natsConnect(t, tok, nats.Token("hush"))
	if _, err := nats.Connect("nats://"+tok.Addr().String(), nats.Token("hash")); !errors.Is(err, nats.ErrAuthorization) {
		t.Fatal(err)
	}
	if tok.Connections(ConnOpen, false)[0].AuthorizedUser != "" {
		t.Fatal("the token is shown")
	}
}

func TestReload(t *testing.T) {
	user := func(name, pass string, p *auth.Permissions) auth.User {
		return auth.User{Name: name, Password: pass, Permissions: p}
	}
	s := startServer(t, Options{Auth: auth.Config{Users: []auth.User{user("a", "p", nil), user("b", "p", nil), user("c", "p", nil)}}})
	a, b, c := connect(t, s, `"user":"a","pass":"p"`), connect(t, s, `"user":"b","pass":"p"`), connect(t, s, `"user":"c","pass":"p"`)
	c.send("SUB ok 1\r\nSUB no 2\r\nSUB wild.* 3\r\nPUB pub 0\r\n\r\n")
	c.sync()
	limited := &auth.Permissions{Publish: subjects(nil, []string{"pub"}), Subscribe: subjects(nil, []string{"no", "wild.x"})}
	if err := s.Reload(Options{Auth: auth.Config{Users: []auth.User{user("a", "p", nil), user("c", "p", limited)}}}); err != nil {
		t.Fatal(err)
	}
	if got := b.expectClosed(); got != "-ERR 'Authorization Violation'\r\n" {
		t.Fatalf("b: %q", got)
	}
	c.expect(`-ERR 'Permissions Violation for Subscription to "no" (sid "2")'`)
	c.send("PUB pub 0\r\n\r\n")
	c.expect(`-ERR 'Permissions Violation for Publish to "pub"'`)
	a.send("PUB no 0\r\n\r\nPUB wild.x 0\r\n\r\nPUB wild.y 0\r\n\r\nPUB ok 0\r\n\r\n")
	a.sync()
	c.expect("MSG wild.y 3 0", "", "MSG ok 1 0", "")
	if err := s.Reload(Options{Port: 1}); err == nil {
		t.Fatal("the address changed")
	}
}

func TestLameDuck(t *testing.T) {
	s := startServer(t, Options{LameDuckGrace: time.Millisecond, LameDuckDuration: 20 * time.Millisecond})
	lame := make(chan bool, 1)
	gone := make(chan bool, 1)
	natsConnect(t, s, nats.NoReconnect(), nats.LameDuckModeHandler(func(*nats.Conn) { lame <- true }),
		nats.ClosedHandler(func(*nats.Conn) { gone <- true }))
	c := connect(t, s, "")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	s.LameDuck(ctx)
	<-lame
	<-gone
	c.expectClosed()
}

func TestKickAndLDM(t *testing.T) {
	s := startServer(t, Options{})
	c := dial(t, s)
	c.send("CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n")
	c.expect("PONG", "INFO")
	cid := s.Connections(ConnOpen, false)[0].ID
	if !s.LDM(cid) || s.LDM(99) || s.Kick(99) {
		t.Fatal("wrong connection")
	}
	if l := c.line(); !strings.Contains(l, `"ldm":true`) {
		t.Fatal(l)
	}
	s.Kick(cid)
	c.expectClosed()
	eventually(t, "the kick in the books", func() bool {
		closed := s.Connections(ConnClosed, false)
		return len(closed) == 1 && closed[0].Reason == ReasonKicked
	})
}

func TestForgedIdentityIsStripped(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, `"headers":true`)
	c.send("SUB foo 1\r\n")
	c.send("HPUB foo 40 41\r\nNATS/1.0\r\nNats-Request-Info: {}\r\nA: \r\n\r\nx\r\n")
	c.expect("HMSG foo 1 17 18", "NATS/1.0", "A:", "", "x")
	c.send("HPUB foo 35 36\r\nNATS/1.0\r\nNats-Request-Info: {}\r\n\r\nx\r\n")
	c.expect("MSG foo 1 1", "x")
}

// TestMemoryBeforeLogin: what a stranger sends isn't kept beyond a line.
func TestMemoryBeforeLogin(t *testing.T) {
	s := startServer(t, Options{MaxPayload: 8 << 20, Auth: auth.Config{Users: []auth.User{{Name: "u", Password: "p"}}, Timeout: time.Minute}})
	for _, send := range []string{"CONNECT {", "PUB a 8000000\r\n", "SUB "} {
		c := dial(t, s)
		c.send("%s", send)
		chunk := []byte(strings.Repeat("x", 64<<10))
		sent := 0
		for sent < 16<<20 {
			n, err := c.Write(chunk)
			sent += n
			if err != nil {
				break
			}
		}
		if sent >= 16<<20 {
			t.Errorf("%q and %d bytes were taken", send, sent)
		}
	}
}
