package web_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/web"
)

// asked makes a request of the console and returns status, headers and body.
func (r *running) asked(method, where, body string, change func(*http.Request)) (int, http.Header, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, "http://"+r.http+"/console/"+where, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func ask(subject string) string { return "ask/" + url.PathEscape(subject) }

func TestTheConsoleReadsAndNothingElse(t *testing.T) {
	r := run(t, t.TempDir(), "")
	r.topic("ORDERS", "orders.>")
	for subject, want := range map[string]string{
		"$JS.API.INFO":                 `"streams":1`,
		"$JS.API.STREAM.LIST":          `"name":"ORDERS"`,
		"$JS.API.STREAM.INFO.ORDERS":   `"name":"ORDERS"`,
		"$JS.API.STREAM.INFO.OTHER":    `"err_code":10059`, // the broker's answer, as it is
		"$JS.API.CONSUMER.LIST.ORDERS": `"consumers":[]`,
		"$HERALD.ADV.LIST":             `"total":0`,
		"$HERALD.OP.LIST":              `"operators":[]`,
		"$SYS.REQ.USER.INFO":           `"account":"$G"`,
		"$SYS.REQ.ACCOUNT.PING.CONNZ":  `[{"server":`,
	} {
		if code, _, body := r.asked("POST", ask(subject), "", nil); code != 200 || !strings.Contains(strings.ReplaceAll(body, " ", ""), want) {
			t.Errorf("%s: %d %.300s, want %s", subject, code, body, want)
		}
	}
	for _, subject := range []string{
		"$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.UPDATE.ORDERS", "$JS.API.STREAM.DELETE.ORDERS", "$JS.API.STREAM.PURGE.ORDERS",
		"$JS.API.STREAM.MSG.DELETE.ORDERS", "$JS.API.CONSUMER.CREATE.ORDERS", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.INFO.a.b", "$JS.API.STREAM.LIST.x",
		"$JS.API.STREAM.INFO.a b", "$HERALD.ADV.PUT", "$HERALD.ADV.WITHDRAW", "$HERALD.OP.DEPLOY", "$HERALD.OP.REMOVE", "$HERALD.CLUSTER.REMOVE", "orders.1", ">",
	} {
		if code, _, body := r.asked("POST", ask(subject), "{}", nil); code != 403 || !strings.Contains(body, "only reads") {
			t.Errorf("%s: %d %s", subject, code, body)
		}
	}
	// /subscribe and /publish stay off: they were not asked for.
	for _, where := range []string{"../subscribe?subject=x", "../publish/orders.1"} {
		method := map[bool]string{true: "POST", false: "GET"}[strings.Contains(where, "publish")]
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://"+r.http+strings.TrimPrefix(where, ".."), nil)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 && resp.StatusCode != 405 {
			t.Errorf("%s: %s", where, resp.Status)
		}
	}
	if code, _, body := r.asked("POST", ask("$JS.API.STREAM.LIST"), strings.Repeat(" ", 20<<10), nil); code != 413 {
		t.Errorf("a question of 20 KiB: %d %s", code, body)
	}
	off := run(t, t.TempDir(), "console: disabled")
	for _, where := range []string{"", "app.js", "about"} {
		if code, _, _ := off.asked("GET", where, "", nil); code != 404 {
			t.Errorf("disabled, %q: %d", where, code)
		}
	}
}

func TestTheConsoleAsksAsItsUser(t *testing.T) {
	r := run(t, t.TempDir(), `accounts {
		A { users: [{user: a, password: pa}, {user: few, password: pf, permissions { publish { allow: ["$JS.API.INFO"] }, subscribe: "_INBOX.>" }}], jetstream: enabled }
		B { users: [{user: b, password: pb}], jetstream: enabled } }`, nats.UserInfo("a", "pa"))
	r.topic("OFA", "a.>")
	as := func(user, pass string) func(*http.Request) {
		return func(q *http.Request) { q.SetBasicAuth(user, pass) }
	}
	for name, c := range map[string]struct {
		who     func(*http.Request)
		subject string
		code    int
		has     string
	}{
		"nobody":         {nil, "$JS.API.STREAM.LIST", 401, "credentials"},
		"a stranger":     {as("a", "wrong"), "$JS.API.STREAM.LIST", 401, "credentials"},
		"a user":         {as("a", "pa"), "$JS.API.STREAM.LIST", 200, `"OFA"`},
		"another one":    {as("b", "pb"), "$JS.API.STREAM.LIST", 200, `"streams":[]`},
		"may not":        {as("few", "pf"), "$JS.API.STREAM.LIST", 403, "Permissions Violation"},
		"may this":       {as("few", "pf"), "$JS.API.INFO", 200, `"streams":1`},
		"may not gather": {as("few", "pf"), "$SYS.REQ.ACCOUNT.PING.CONNZ", 403, "Permissions Violation"},
	} {
		code, head, body := r.asked("POST", ask(c.subject), "", c.who)
		if code != c.code || !strings.Contains(body, c.has) {
			t.Errorf("%s: %d %.200s, want %d with %s", name, code, body, c.code, c.has)
		}
		if head.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: the browser is told to ask for credentials, which the page does", name)
		}
	}
	if code, _, _ := r.asked("GET", "subscribe?subject=a.>", "", nil); code != 401 {
		t.Errorf("a subscriber without credentials: %d", code)
	}
}

func TestForeignPagesCannotUseTheConsole(t *testing.T) {
	r := run(t, t.TempDir(), "")
	for _, where := range []string{"", "about", "subscribe?subject=x", ask("$JS.API.INFO")} {
		method := map[bool]string{true: "POST", false: "GET"}[strings.HasPrefix(where, "ask")]
		if code, _, _ := r.asked(method, where, "", func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") }); code != 403 {
			t.Errorf("%q from a foreign page: %d", where, code)
		}
		if code, _, _ := r.asked(method, where, "", func(q *http.Request) { q.Host = "evil.example" }); code != 403 {
			t.Errorf("%q by a foreign name: %d", where, code)
		}
	}
	if code, _, body := r.asked("POST", ask("$JS.API.INFO"), "", func(q *http.Request) { q.Header.Set("Origin", "http://"+r.http) }); code != 200 {
		t.Errorf("its own page: %d %s", code, body)
	}
}

func TestAnOpenConsoleIsForThisMachineOnly(t *testing.T) {
	for _, c := range []struct {
		open bool
		at   string
		code int
	}{
		{true, "127.0.0.1", 200}, {true, "::1", 200}, {true, "10.1.2.3", 403}, {true, "fe80::1", 403}, {false, "10.1.2.3", 200},
	} {
		s := web.New(web.Options{Closed: true, Console: web.Console{Enabled: true, Open: func() bool { return c.open }}})
		for _, where := range []string{"/console/", "/console/about"} {
			q := httptest.NewRequest("GET", where, nil)
			q = q.WithContext(context.WithValue(q.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(c.at), Port: 8222}))
			q.Host = net.JoinHostPort(c.at, "8222")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, q)
			if w.Code != c.code {
				t.Errorf("open %v, %s reached at %s: %d, want %d", c.open, where, c.at, w.Code, c.code)
			}
		}
		s.Close()
	}
}

// The page is its own files and nothing else: with the network off, and with scripts and
// styles only from files, as its policy demands.
func TestTheConsoleIsSelfContained(t *testing.T) {
	r := run(t, t.TempDir(), "")
	size := 0
	files, err := os.ReadDir("console")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range files {
		names[f.Name()] = true
	}
	elsewhere := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`)
	refers := regexp.MustCompile(`(?:from "\./|src="|href=")([\w.-]+)"`)
	for name := range names {
		code, head, body := r.asked("GET", name, "", nil)
		if code != 200 || head.Get("Content-Type") == "" || !strings.Contains(head.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", name, code, head)
		}
		size += len(body)
		for _, found := range elsewhere.FindAllString(body, -1) {
			if found != "http://www.w3.org" {
				t.Errorf("%s refers to %s", name, found)
			}
		}
		for _, m := range refers.FindAllStringSubmatch(body, -1) {
			if !names[m[1]] {
				t.Errorf("%s refers to %s, which is not there", name, m[1])
			}
		}
		if strings.Contains(body, "innerHTML") || path.Ext(name) == ".html" && regexp.MustCompile(`style="|onclick="|<script>`).MatchString(body) {
			t.Errorf("%s has what the policy forbids", name)
		}
		tag := head.Get("ETag")
		if code, _, _ := r.asked("GET", name, "", func(q *http.Request) { q.Header.Set("If-None-Match", tag) }); code != 304 {
			t.Errorf("%s, unchanged: %d", name, code)
		}
	}
	if size > 100<<10 {
		t.Errorf("%d bytes, want at most 100 KiB", size)
	}
	if code, _, _ := r.asked("GET", "..%2fconsole.go", "", nil); code != 404 {
		t.Errorf("a file beside it: %d", code)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.http+"/", nil)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), `href="/console/"`) {
		t.Errorf("the start page has no link to the console: %s", b)
	}
	var about struct{ Server, Version, Acknowledged string }
	_, _, body := r.asked("GET", "about", "", nil)
	if err := json.Unmarshal([]byte(body), &about); err != nil || about.Server == "" || about.Version == "" || !strings.Contains(about.Acknowledged, "fsync") {
		t.Errorf("about: %s %v", body, err)
	}
}
