package security

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/heraldmq/herald/tests/harness"
)

// TestSecretsStayWhereTheyAre plants secrets in the configuration, in CONNECT,
// in cookies and in addresses, right and wrong ones, with everything logged, and
// looks for them in all that the broker says: log, pages, $SYS answers and events,
// errors, arguments, and what a reload tells of its changes.
func TestSecretsStayWhereTheyAre(t *testing.T) {
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{
		"s3cret-user", "s3cret-later", "s3cret-wrong", "s3cret-token", "s3cret-cookie", "s3cret-query", "s3cret-basic", "s3cret-path", "s3cret-sys", "s3cret-jwt", "s3cret-sig",
		"s3cret-header", "$2a$04$WS1cOTrSM0R.JgSXB7ISlu1lQDF2I3b5j8nEjRnIUyMsIJrh5DbMe", "aa%73secret",
	}
	for _, s := range secrets {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte("u:" + s))[4:])
	}
	web, mon := harness.FreePort(t), harness.FreePort(t)
	conf := func(password string) string {
		return fmt.Sprintf(`
debug: true, trace: true, trace_verbose: true, logtime: true
jetstream { enabled: true, store_dir: "store" }
websocket { host: "127.0.0.1", port: %d, no_tls: true, compression: true, user_cookie: "uc", pass_cookie: "pc", token_cookie: "tc" }
http: "127.0.0.1:%d"
accounts {
  A { jetstream: true, users: [{user: u, password: %q}, {user: h, password: "$2a$04$WS1cOTrSM0R.JgSXB7ISlu1lQDF2I3b5j8nEjRnIUyMsIJrh5DbMe"}, {nkey: %s}] }
  SYS { users: [{user: s, password: "s3cret-sys"}] }
}
system_account: SYS
`, web, mon, password, public)
	}
	b := harness.New(t, conf("s3cret-user"))
	if err := b.Run(); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder // all that anybody is told
	sys, err := nats.Connect(b.URL, nats.UserInfo("s", "s3cret-sys"), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	events, err := sys.SubscribeSync("$SYS.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Flush(); err != nil {
		t.Fatal(err)
	}
	note := func(err error) {
		if err != nil {
			seen.WriteString("error: " + err.Error() + "\n")
		}
	}
	// Right and wrong, by every way in.
	for _, o := range [][]nats.Option{
		{nats.UserInfo("u", "s3cret-user")},
		{nats.UserInfo("u", "s3cret-wrong")},
		{nats.UserInfo("h", "s3cret-wrong")},
		{nats.UserInfo("ghost", "s3cret-wrong")},
		{nats.Token("s3cret-token")},
		{nats.Nkey(public, func(nonce []byte) ([]byte, error) { return key.Sign(nonce) })},
		{nats.Nkey(public, func([]byte) ([]byte, error) { return []byte("s3cret-sig"), nil })},
		{nats.UserJWT(func() (string, error) { return "s3cret-jwt", nil }, func([]byte) ([]byte, error) { return []byte("s3cret-sig"), nil })},
	} {
		nc, err := nats.Connect(b.URL, append(o, nats.NoReconnect())...)
		if err != nil {
			seen.WriteString("client: " + err.Error() + "\n")
			continue
		}
		defer nc.Close()
		if m, err := nc.Request("$SYS.REQ.USER.INFO", nil, patience); err == nil {
			seen.Write(m.Data)
		}
	}
	for i, h := range []http.Header{
		{"Cookie": {"uc=u; pc=s3cret-user; tc=s3cret-token"}},
		{"Cookie": {"uc=u; pc=s3cret-cookie; other=s3cret-cookie"}},
		{"Authorization": {"Bearer s3cret-header"}},
		{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("u:s3cret-basic"))}},
	} {
		c, r, err := websocket.DefaultDialer.Dial(fmt.Sprintf("ws://127.0.0.1:%d/s3cret-path?jwt=s3cret-query&x=aa%%73secret", web), h)
		if err != nil {
			seen.WriteString(err.Error())
			continue
		}
		seen.WriteString(fmt.Sprint(r.Header))
		note(c.WriteMessage(websocket.BinaryMessage, []byte("CONNECT {\"verbose\":true}\r\nPING\r\nSUB a 1\r\n")))
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		for range 2 {
			_, text, err := c.ReadMessage()
			if err != nil {
				break
			}
			seen.Write(text)
		}
		if i > 0 {
			_ = c.Close()
		} else {
			defer c.Close()
		}
	}
	for _, page := range []string{"/varz", "/connz?subs=detail&auth=1&state=any", "/subsz?subs=1", "/jsz?accounts=1&streams=1&consumers=1&config=1", "/accountz?acc=A", "/accstatz?unused=1", "/healthz", "/metrics", "/", "/debug/vars", "/stacksz", "/debug/pprof/cmdline", "/routez", "/s3cret-none"} {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", mon, strings.Replace(page, "s3cret-none", "none", 1)))
		if err != nil {
			t.Fatal(err)
		}
		text := new(strings.Builder)
		note(r.Write(text))
		seen.WriteString(text.String())
		if r.StatusCode == http.StatusOK && (strings.HasPrefix(page, "/debug") || page == "/stacksz") {
			t.Errorf("%s is served", page)
		}
	}
	// A reload that changes a password tells what changed, but not to what.
	text, err := os.ReadFile(b.Conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.Conf, []byte(strings.ReplaceAll(string(text), "s3cret-user", "s3cret-later")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(b.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		nc, err := nats.Connect(b.URL, nats.UserInfo("u", "s3cret-later"), nats.NoReconnect())
		if err == nil {
			nc.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the reload did not come into force: %v", err)
		}
	}
	// One that can't be read is told with its place, not its words.
	if err := os.WriteFile(b.Conf, []byte(string(text)+"\nauthorization { password: [\"s3cret-later\"], user: \"u\", token: {x: \"s3cret-token\"} }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(b.Output())
	if err := syscall.Kill(b.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !strings.Contains(b.Output()[before:], "nothing was changed"); {
		if time.Now().After(deadline) {
			t.Fatalf("the reload was not refused:\n%s", b.Output()[before:])
		}
	}
	for r, answer := range answers(t, sys, 300*time.Millisecond, systemRequests("PING")...) {
		fmt.Fprintf(&seen, "%s %s: %s\n", r.subject, r.body, answer)
	}
	for {
		m, err := events.NextMsg(10 * time.Millisecond)
		if err != nil {
			break
		}
		fmt.Fprintf(&seen, "event %s: %s\n", m.Subject, m.Data)
	}
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", b.PID())); err == nil {
		seen.Write(args)
	}
	all := b.Output() + "\n" + seen.String()
	for _, want := range []string{"trace", "USER.INFO", "CLIENT.AUTH.ERR", "server_id", "authorized_user"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q isn't in what was gathered: the test looks in the wrong place", want)
		}
	}
	for _, s := range secrets {
		for line := range strings.Lines(all) {
			if len(s) > 5 && strings.Contains(line, s) {
				t.Errorf("%s is told: %.400s", s, line)
			}
		}
	}
}
