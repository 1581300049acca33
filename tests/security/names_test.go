package security

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// nasty are names that end lines, tokens, strings or buffers for somebody.
var nasty = []string{
	"a\r\nPUB evil 4\r\nevil\r\n", "a\r\n", "a\nb", "a\rb", "\r", "\n", "a\x00b", "\x00", "a b", " a", "a ", " ", "a\tb", "a\vb", "a\fb", "a\x1bb", "a\x7fb",
	"a\u2028b", "a\u0085b", "a\u00a0b", "\ufeffa", "\u202e", "a\"b", `a\b`, `a/b`, "a'b", "a<script>", "a%0d%0a", "*", ">", "a.*", "a.>", ".", "a.", ".a", "a..b", "",
	"{{.}}", "{{wildcard(1)}}", "$1", "../../x", "..", "-ERR 'x'", "+OK", strings.Repeat("x", 256), strings.Repeat("x", 5000), strings.Repeat("a.", 2000) + "a",
	strings.Repeat("\u00e9", 200), "\ud7ff", "🦭",
}

// places are where a client says a name, as JSON with %s for it.
var places = []request{
	{"$JS.API.STREAM.CREATE.N", `{"name":%s,"subjects":["n.a"]}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":[%s]}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"description":%s}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"metadata":{"k":%s}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"metadata":{%s:"v"}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"republish":{"src":%s,"dest":"r.a"}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"republish":{"src":">","dest":%s}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"subject_transform":{"src":"n.a","dest":%s}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"subject_transform":{"src":%s,"dest":"n.b"}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","mirror":{"name":%s}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","mirror":{"name":"S","filter_subject":%s}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","mirror":{"name":"S","external":{"api":%s,"deliver":"x"}}}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","sources":[{"name":"S","external":{"api":"x","deliver":%s}}]}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","sources":[{"name":"S","subject_transforms":[{"src":"s.>","dest":%s}]}]}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","sources":[{"name":"S","consumer":{"name":%s,"deliver_subject":"x"}}]}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","sources":[{"name":"S","consumer":{"name":"x","deliver_subject":%s}}]}`},
	{"$JS.API.STREAM.CREATE.N", `{"name":"N","subjects":["n.a"],"placement":{"cluster":%s,"tags":[%s]}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"name":%s}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"deliver_subject":%s}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"deliver_subject":"d.x","deliver_group":%s}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"filter_subject":%s}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"filter_subjects":[%s]}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"description":%s}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"sample_freq":%s}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":{"priority_policy":"overflow","priority_groups":[%s]}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":%s,"config":{}}`},
	{"$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","action":%s,"config":{}}`},
	{"$JS.API.CONSUMER.DURABLE.CREATE.S.D", `{"stream_name":"S","config":{"durable_name":%s}}`},
	{"$JS.API.STREAM.INFO.S", `{"subjects_filter":%s}`},
	{"$JS.API.STREAM.PURGE.S", `{"filter":%s,"keep":1000}`},
	{"$JS.API.STREAM.MSG.GET.S", `{"last_by_subj":%s}`},
	{"$JS.API.STREAM.MSG.GET.S", `{"next_by_subj":%s}`},
	{"$JS.API.DIRECT.GET.S", `{"multi_last":[%s]}`},
	{"$JS.API.DIRECT.GET.S", `{"next_by_subj":%s,"batch":1}`},
	{"$JS.API.STREAM.NAMES", `{"subject":%s}`},
	{"$JS.API.CONSUMER.MSG.NEXT.S.P", `{"batch":1,"no_wait":true,"group":%s,"id":%s}`},
	{"$JS.API.CONSUMER.UNPIN.S.P", `{"group":%s}`},
	{"$JS.API.STREAM.RESTORE.N", `{"config":{"name":%s},"state":{}}`},
	{"$JS.API.STREAM.SNAPSHOT.S", `{"deliver_subject":%s}`},
	{"$HERALD.ADV.PUT", `{"name":%s,"subject":"x.y"}`},
	{"$HERALD.ADV.PUT", `{"name":"x","subject":%s}`},
	{"$HERALD.ADV.PUT", `{"name":"x","subject":"x.y","owner":{"team":%s,"service":%s,"instance":%s},"tags":[%s],"summary":%s,"kind":"event"}`},
	{"$HERALD.ADV.PUT", `{"name":"x","subject":"x.y","durable":{"topic":%s}}`},
	{"$HERALD.ADV.PUT", `{"name":"x","subject":"x.y","schema":{"format":"none","ref":%s}}`},
	{"$HERALD.ADV.LIST", `{"subject":%s,"name":%s}`},
	{"$HERALD.ADV.GET", `{"name":%s,"owner":%s}`},
	{"$SYS.REQ.ACCOUNT.PING.CONNZ", `{"sort":%s}`},
	{"$SYS.REQ.ACCOUNT.PING.CONNZ", `{"user":%s,"filter_subject":%s}`},
	{"$SYS.DEBUG.SUBSCRIBERS", `{"subject":%s,"queue":%s}`},
}

// pages are what monitoring shows of names.
var pages = []string{
	"/varz", "/connz?subs=detail&auth=1&state=any", "/subsz?subs=1", "/jsz?accounts=1&streams=1&consumers=1&config=1", "/accountz?acc=$G", "/accstatz?unused=1",
	"/healthz?details=1",
}

// TestNamesInjectNothing puts every nasty name in every place. Whoever listens
// to everything must get well-formed protocol and JSON only, and never the word
// that the names smuggle.
func TestNamesInjectNothing(t *testing.T) {
	s := start(t, "")
	nc, err := nats.Connect(s.ClientURL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	listener := s.listen(t)
	must(t, nc, "$JS.API.STREAM.CREATE.S", `{"name":"S","subjects":["s.>"],"allow_direct":true}`)
	must(t, nc, "$JS.API.CONSUMER.DURABLE.CREATE.S.P", `{"stream_name":"S","config":{"durable_name":"P","ack_policy":"explicit"}}`)
	must(t, nc, "s.x", "x")
	taken := 0
	for _, p := range places {
		for _, name := range nasty {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			body := strings.ReplaceAll(p.body, "%s", string(quoted))
			m, err := nc.Request(p.subject, []byte(body), patience)
			if err != nil {
				t.Fatalf("%s %s: %v", p.subject, body, err)
			}
			if len(m.Data) > 0 && m.Header == nil && !json.Valid(m.Data) && string(m.Data) != "x" {
				t.Errorf("%s %s: not JSON: %s", p.subject, body, m.Data)
			}
			if !strings.Contains(string(m.Data), `"error"`) {
				taken++
				// What was made with it must work, and show.
				if strings.Contains(body, `"n.a"`) {
					ack, err := nc.Request("n.a", []byte("x"), 100*time.Millisecond) // not every such stream acknowledges
					if err == nil && !json.Valid(ack.Data) {
						t.Errorf("%s %s: PubAck isn't JSON: %s", p.subject, body, ack.Data)
					}
				}
				for _, page := range pages[taken%len(pages):][:1] { // in turn: they take long
					if text := s.page(t, page); !json.Valid([]byte(text)) {
						t.Fatalf("%s %s: %s isn't JSON: %s", p.subject, body, page, text)
					}
				}
			}
			if strings.Contains(p.subject, ".CREATE.N") {
				ask(t, nc, "$JS.API.STREAM.DELETE.N", "")
			}
			if strings.Contains(p.subject, "$HERALD.ADV.PUT") {
				ask(t, nc, "$HERALD.ADV.WITHDRAW", `{"name":"x"}`)
			}
		}
		for _, c := range []string{ask(t, nc, "$JS.API.CONSUMER.NAMES.S", "")} {
			var r struct {
				Consumers []string `json:"consumers"`
			}
			if err := json.Unmarshal([]byte(c), &r); err != nil {
				t.Fatal(err)
			}
			for _, name := range r.Consumers {
				if name != "P" {
					must(t, nc, "$JS.API.CONSUMER.DELETE.S."+name, "")
				}
			}
		}
	}
	if taken == 0 {
		t.Error("no name was taken anywhere: the test is of no worth")
	}
	for _, page := range pages {
		if text := s.page(t, page); !json.Valid([]byte(text)) {
			t.Errorf("%s isn't JSON: %s", page, text)
		}
	}
	listener.check(t)
}

// listener is a client that gets everything and counts bytes as the protocol
// says.
type listener struct {
	c    *raw
	done chan string
}

func (s *server) listen(t *testing.T) *listener {
	t.Helper()
	c := s.dial(t, "x")
	c.send("SUB > all\r\nSUB $JS.> js\r\nSUB evil evil\r\n")
	c.sync()
	if err := c.SetReadDeadline(noDeadline); err != nil {
		t.Fatal(err)
	}
	l := &listener{c, make(chan string, 1)}
	go func() { l.done <- l.read() }()
	return l
}

// read reads until "enough" comes, and returns what was wrong.
func (l *listener) read() string {
	for {
		line, err := l.c.r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		line = strings.TrimSuffix(line, "\r\n")
		var subject, sid string
		var total int
		f := strings.Split(line, " ")
		ok := false
		switch {
		case line == "PING":
			if _, err := l.c.Write([]byte("PONG\r\n")); err != nil {
				return err.Error()
			}
			continue
		case f[0] == "MSG" && (len(f) == 4 || len(f) == 5), f[0] == "HMSG" && (len(f) == 5 || len(f) == 6):
			subject, sid = f[1], f[2]
			total, err = strconv.Atoi(f[len(f)-1])
			ok = err == nil && (sid == "all" || sid == "js" || sid == "evil")
		}
		if !ok {
			return fmt.Sprintf("not a line of the protocol: %q", line)
		}
		body := make([]byte, total+2)
		for n := 0; n < len(body); {
			k, err := l.c.r.Read(body[n:])
			if n += k; err != nil {
				return err.Error()
			}
		}
		if string(body[total:]) != "\r\n" {
			return fmt.Sprintf("a payload of another length than %q says", line)
		}
		if sid == "evil" || subject == "evil" {
			return fmt.Sprintf("the word got out: %q %q", line, body)
		}
		if subject == "enough" {
			return ""
		}
	}
}

func (l *listener) check(t *testing.T) {
	t.Helper()
	if _, err := l.c.Write([]byte("PUB enough 0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if what := <-l.done; what != "" {
		t.Error(what)
	}
}

// TestNamesOnTheWire: the same names in the protocol itself: either they are
// refused, or they are one token of one line.
func TestNamesOnTheWire(t *testing.T) {
	s := start(t, "")
	listener := s.listen(t)
	for _, format := range []string{
		"SUB %s 1\r\n", "SUB a %s 1\r\n", "SUB a %s\r\n", "UNSUB %s\r\n", "PUB %s 0\r\n\r\n", "PUB a %s 0\r\n\r\n", "PUB $JS.API.STREAM.INFO.%s a 0\r\n\r\n",
		"PUB $JS.API.CONSUMER.MSG.NEXT.S.%s a 0\r\n\r\n", "PUB $JS.ACK.%s.a.1.1.1.1.1 a 0\r\n\r\n", "PUB $JS.API.DIRECT.GET.S.%s a 0\r\n\r\n", "HPUB %s a 12 12\r\nNATS/1.0\r\n\r\n\r\n",
		"PUB $SYS.REQ.SERVER.PING.%s a 0\r\n\r\n", "PUB $HERALD.ADV.%s a 0\r\n\r\n",
		"CONNECT {\"verbose\":false,\"name\":%q,\"lang\":%q,\"version\":%q}\r\n",
	} {
		for _, name := range nasty {
			args := []any{name}
			if strings.Count(format, "%q") == 3 {
				b, err := json.Marshal(name)
				if err != nil {
					t.Fatal(err)
				}
				format = strings.ReplaceAll(format, "%q", "%s")
				args = []any{b, b, b}
			} else if strings.Count(format, "%s") == 3 {
				b, err := json.Marshal(name)
				if err != nil {
					t.Fatal(err)
				}
				args = []any{b, b, b}
			}
			if strings.Contains(name, "\r\nPUB evil") && len(args) == 1 {
				continue // there it is the client's own line
			}
			c := s.dial(t, "")
			_, _ = fmt.Fprintf(c.Conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\n"+format+"PING\r\n", args...) // it may be closed already
			_, _ = c.r.ReadString('\n')
			_ = c.Close()
		}
	}
	for _, page := range pages {
		if text := s.page(t, page); !json.Valid([]byte(text)) {
			t.Errorf("%s isn't JSON: %s", page, text)
		}
	}
	for _, name := range nasty {
		for _, page := range []string{"/connz?sort=%s", "/connz?user=%s&acc=%s", "/subsz?test=%s&subs=1", "/jsz?acc=%s", "/accountz?acc=%s", "/healthz?account=%s&stream=%s", "/varz?callback=%s", "/connz?offset=%s&limit=%s", "/connz?state=%s"} {
			text, kind := s.fetch(t, strings.ReplaceAll(page, "%s", queryEscape(name)))
			if strings.Contains(text, "<script") && !strings.HasPrefix(kind, "text/plain") {
				t.Errorf("%s with %q echoes it: %s", page, name, text)
			}
		}
	}
	listener.check(t)
}

// TestMonitoringNumbers: no number makes a page fail.
func TestMonitoringNumbers(t *testing.T) {
	s := start(t, "")
	listener := s.listen(t)
	for _, n := range []string{"0", "-1", "1", "2147483648", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e9", "0x10", "", "NaN"} {
		for _, page := range []string{"/connz?offset=%s&limit=%s&subs=1", "/connz?cid=%s", "/subsz?subs=1&offset=%s&limit=%s", "/jsz?accounts=1&offset=%s&limit=%s"} {
			if text := s.page(t, strings.ReplaceAll(page, "%s", n)); !json.Valid([]byte(text)) && !strings.Contains(text, "error decoding") {
				t.Errorf("%s with %q: %s", page, n, text)
			}
		}
		for _, api := range []request{
			{"$JS.API.STREAM.NAMES", `{"offset":%s}`},
			{"$JS.API.STREAM.LIST", `{"offset":%s}`},
			{"$JS.API.CONSUMER.LIST.S", `{"offset":%s}`},
			{"$JS.API.CONSUMER.NAMES.S", `{"offset":%s}`},
			{"$JS.API.STREAM.INFO.S", `{"offset":%s,"subjects_filter":">"}`},
			{"$HERALD.ADV.LIST", `{"offset":%s,"limit":%s}`},
			{"$SYS.REQ.ACCOUNT.PING.CONNZ", `{"offset":%s,"limit":%s,"cid":%s}`},
		} {
			nc := s.connect(t, "x")
			if got := ask(t, nc, api.subject, strings.ReplaceAll(api.body, "%s", n)); !json.Valid([]byte(got)) {
				t.Errorf("%s %s with %q: %s", api.subject, api.body, n, got)
			}
			nc.Close()
		}
	}
	listener.check(t)
}
