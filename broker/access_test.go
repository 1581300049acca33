package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/heraldmq/herald/broker"
)

// TestAccessMatrix tries every way to say who may connect, on every listener,
// with every kind of credentials, nobody's included. A door that is open where
// the table says closed is a hole.
func TestAccessMatrix(t *testing.T) {
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	sign := func(nonce []byte) ([]byte, error) { return key.Sign(nonce) }
	credentials := map[string][]nats.Option{
		"nobody":   nil,
		"token":    {nats.Token("t0k3n")},
		"bad":      {nats.Token("wrong")},
		"user":     {nats.UserInfo("u", "p")},
		"badpass":  {nats.UserInfo("u", "q")},
		"nopass":   {nats.UserInfo("u", "")},
		"stranger": {nats.UserInfo("x", "p")},
		"system":   {nats.UserInfo("s", "s")},
		"nkey":     {nats.Nkey(public, sign)},
	}
	const user = `{user: u, password: p}`
	const bcrypted = `{user: u, password: "$2a$04$WS1cOTrSM0R.JgSXB7ISlu1lQDF2I3b5j8nEjRnIUyMsIJrh5DbMe"}` // another password
	const sys = "accounts { SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS\n"
	for _, c := range []struct{ text, in string }{
		{"", "nobody token bad user badpass nopass stranger system"},
		{"authorization { token: t0k3n }", "token"},
		{"authorization { user: u, password: p }", "user"},
		{"authorization { user: u }", "nopass"},
		{"accounts { A { users: [{user: u}] } }", "nopass"},
		{"authorization { users: [" + user + "] }", "user"},
		{"authorization { users: [" + bcrypted + "] }", ""},
		{"authorization { users: [{nkey: " + public + "}] }", "nkey"},
		{"authorization { users: [" + user + ", {nkey: " + public + "}] }", "user nkey"},
		{"authorization { users: [" + user + "] }\nno_auth_user: u", "user nobody"},
		{"accounts { A { users: [" + user + "] } }", "user"},
		{"accounts { A { users: [" + user + "] } }\nno_auth_user: u", "user nobody"},
		{"accounts { A { users: [" + user + "] }, SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS", "user system"},
		{sys, "system nobody"},
		{sys + "authorization { timeout: 1 }", "system"},
		{sys + "authorization { token: t0k3n }", "system token"},
		{"authorization { users: [{user: u, password: p, allowed_connection_types: [WEBSOCKET]}] }", "user@ws"},
		{"authorization { users: [{user: u, password: p, allowed_connection_types: [STANDARD]}] }", "user@tcp"},
		{"authorization { users: [{user: u, password: p, allowed_connection_types: [WEBSOCKET]}] }\nno_auth_user: u", "user@ws nobody@ws"},
		{"authorization { users: [{user: u, password: p, allowed_connection_types: [MQTT]}] }\nno_auth_user: u", ""},
	} {
		b := start(t, broker.Config{Options: options(t, "websocket { port: -1, no_tls: true }\n"+c.text)})
		for listener, url := range map[string]string{"tcp": b.ClientURL(), "ws": b.WebsocketURL()} {
			for who, how := range credentials {
				want := false
				for w := range strings.FieldsSeq(c.in) {
					want = want || w == who || w == who+"@"+listener
				}
				nc, err := nats.Connect(url, append(how, nats.NoReconnect(), nats.Timeout(patience))...)
				if err == nil {
					nc.Close()
				}
				if got := err == nil; got != want {
					t.Errorf("%s\n%s on %s: let in %t, want %t (%v)", c.text, who, listener, got, want, err)
				}
			}
		}
	}
}

func TestAccountsAreIsolated(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, `
jetstream: enabled
accounts {
  A { users: [{user: a, password: a}], jetstream: true }
  B { users: [{user: b, password: b}], jetstream: true }
  C { users: [{user: c, password: c}] }
}`)})
	url := func(user string) *nats.Conn { return connect(t, b.ClientURL(), nats.UserInfo(user, user)) }
	a, other := url("a"), url("b")
	sub, err := other.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	js, err := a.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("s", nil); err != nil {
		t.Fatal(err)
	}
	jsB, err := other.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jsB.StreamInfo("S"); err == nil {
		t.Error("one account sees another's topic")
	}
	if n, _, err := sub.Pending(); err != nil || n > 4 { // what the API told its own account
		t.Errorf("%d messages crossed accounts (%v)", n, err)
	}
	jsC, err := url("c").JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jsC.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err == nil {
		t.Error("an account without durable topics made one")
	}
}

func TestAccountLimits(t *testing.T) {
	b := start(t, broker.Config{Options: options(t, `
jetstream: enabled
accounts { A { users: [{user: a, password: a}], jetstream: { max_streams: 1, max_consumers: 1 }, limits: { max_connections: 1 } } }`)})
	nc := connect(t, b.ClientURL(), nats.UserInfo("a", "a"))
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		_, err := js.AddStream(&nats.StreamConfig{Name: fmt.Sprintf("S%d", i), Subjects: []string{fmt.Sprintf("s%d", i)}})
		if got := err == nil; got != want {
			t.Errorf("topic %d: %v", i, err)
		}
	}
	if nc, err := nats.Connect(b.ClientURL(), nats.UserInfo("a", "a"), nats.NoReconnect()); err == nil {
		nc.Close()
		t.Error("a second connection was let in")
	}
}
