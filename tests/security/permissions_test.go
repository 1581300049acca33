package security

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// rule is an entry of an allow or deny list, perhaps for one queue only.
type rule struct{ pattern, queue string }

func (r rule) String() string { return strings.TrimSpace(r.pattern + " " + r.queue) }

func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, tok := range p {
		switch {
		case tok == ">":
			return len(s) > i
		case i >= len(s) || tok != "*" && tok != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// rights are what a user may subscribe to; allow nil is everything.
type rights struct{ allow, deny []rule }

// lets tells whether a message on a subject may reach a subscription with a
// queue ("" for none): the definition, as a user reads the lists.
func (r *rights) lets(subject, queue string) bool {
	hit := func(list []rule) bool {
		return slices.ContainsFunc(list, func(e rule) bool {
			return matches(e.pattern, subject) && (e.queue == "" || queue != "" && e.queue == queue)
		})
	}
	return (r.allow == nil || hit(r.allow)) && !hit(r.deny)
}

func (r *rights) config() string {
	list := func(key string, l []rule) string {
		if l == nil {
			return ""
		}
		texts := []string{}
		for _, e := range l {
			texts = append(texts, e.String())
		}
		b, _ := json.Marshal(texts) // strings always encode
		return key + ": " + strings.ReplaceAll(string(b), `\u003e`, ">") + ", "
	}
	perms := ""
	if r != nil {
		perms = ", permissions: { subscribe: { " + list("allow", r.allow) + list("deny", r.deny) + "} }"
	}
	return "accounts { A { users: [{user: free, password: free}, {user: bound, password: bound" + perms + "}], jetstream: enabled } }"
}

// all are the literal subjects a message can take to a subscription.
func all() (out []string) {
	for _, x := range []string{"a", "b", "c"} {
		out = append(out, x)
		for _, y := range []string{"a", "b", "c"} {
			out = append(out, x+"."+y)
		}
	}
	return out
}

// ways are how a message gets to a subscription on a subject. What consumers
// deliver is shown as j.keep.<to>.
var ways = map[string]func(t tb, nc *nats.Conn, to string){
	"plain": func(t tb, nc *nats.Conn, to string) { publish(t, nc, to, "", to) },
	"reply of a service": func(t tb, nc *nats.Conn, to string) {
		publish(t, nc, "service", to, to)
	},
	"push consumer": func(t tb, nc *nats.Conn, to string) {
		create(t, nc, `{"deliver_subject":%q,"filter_subject":%q}`, to, "j.keep."+to)
	},
	"push consumer with a queue": func(t tb, nc *nats.Conn, to string) {
		create(t, nc, `{"deliver_subject":%q,"deliver_group":"q","filter_subject":%q}`, to, "j.keep."+to)
	},
	"ordered consumer": func(t tb, nc *nats.Conn, to string) {
		create(t, nc, `{"deliver_subject":%q,"filter_subject":%q,"ack_policy":"none","flow_control":true,"idle_heartbeat":5000000000,"max_deliver":1,"mem_storage":true,"num_replicas":1}`, to, "j.keep."+to)
	},
	"pull": func(t tb, nc *nats.Conn, to string) {
		name := create(t, nc, `{"filter_subject":%q}`, "j.keep."+to)
		publish(t, nc, "$JS.API.CONSUMER.MSG.NEXT.S."+name, to, `{"batch":3,"no_wait":true}`)
	},
	"direct get": func(t tb, nc *nats.Conn, to string) {
		publish(t, nc, "$JS.API.DIRECT.GET.S.j.keep."+to, to, "")
		publish(t, nc, "$JS.API.DIRECT.GET.S", to, fmt.Sprintf(`{"multi_last":[%q]}`, "j.keep."+to))
	},
	"republish": func(t tb, nc *nats.Conn, to string) {
		if x, y, ok := strings.Cut(to, "."); ok && x == "a" {
			publish(t, nc, "j.again."+y, "", to)
		}
	},
	"republish of a mirror": func(t tb, nc *nats.Conn, to string) {
		if x, y, ok := strings.Cut(to, "."); ok && x == "b" {
			publish(t, nc, "j.mirror."+y, "", to)
		}
	},
	"republish of a stream with a source": func(t tb, nc *nats.Conn, to string) {
		if x, y, ok := strings.Cut(to, "."); ok && x == "c" {
			publish(t, nc, "j.source."+y, "", to)
		}
	},
}

func publish(t tb, nc *nats.Conn, subject, reply, payload string) {
	t.Helper()
	if err := nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(payload)}); err != nil {
		t.Fatal(err)
	}
}

func call(t tb, nc *nats.Conn, subject, body string) string {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), patience)
	if err != nil || strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("%s %s: %v %+v", subject, body, err, m)
	}
	return string(m.Data)
}

// create makes an ephemeral consumer of S.
func create(t tb, nc *nats.Conn, config string, args ...any) (name string) {
	t.Helper()
	var r struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(call(t, nc, "$JS.API.CONSUMER.CREATE.S", `{"stream_name":"S","config":`+fmt.Sprintf(config, args...)+`}`)), &r); err != nil {
		t.Fatal(err)
	}
	return r.Name
}

// consumers are those of S.
func consumers(t tb, nc *nats.Conn) []string {
	t.Helper()
	var r struct {
		Consumers []string `json:"consumers"`
	}
	if err := json.Unmarshal([]byte(call(t, nc, "$JS.API.CONSUMER.NAMES.S", "")), &r); err != nil {
		t.Fatal(err)
	}
	return r.Consumers
}

// subscription is one of the bound user's.
type subscription struct {
	pattern, queue string
	refused        bool
}

// TestDeniedMessagesAreNeverDelivered: for random lists and subscriptions, made
// before or after the lists come into force, no message reaches a subscription by
// a subject that the lists keep from it, whichever way it takes; and those that
// are allowed do arrive.
func TestDeniedMessagesAreNeverDelivered(t *testing.T) {
	s := start(t, (*rights)(nil).config())
	free := s.connect(t, "free")
	for _, c := range []string{
		`{"name":"S","subjects":["j.>"],"allow_direct":true,"storage":"memory","max_msgs_per_subject":1,"republish":{"src":"j.again.*","dest":"a.{{wildcard(1)}}"}}`,
		`{"name":"M","mirror":{"name":"S"},"storage":"memory","republish":{"src":"j.mirror.*","dest":"b.{{wildcard(1)}}"}}`,
		`{"name":"O","sources":[{"name":"S"}],"storage":"memory","republish":{"src":"j.source.*","dest":"c.{{wildcard(1)}}"}}`,
	} {
		must(t, free, "$JS.API.STREAM.CREATE."+c[9:10], c)
	}
	if _, err := free.Subscribe("service", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	for _, to := range all() {
		call(t, free, "j.keep."+to, to)
	}
	names := []string{}
	for w := range ways {
		names = append(names, w)
	}
	slices.Sort(names)
	delivered, kept := map[string]int{}, 0

	pattern := rapid.Custom(func(t *rapid.T) string {
		p := rapid.SampledFrom([]string{"a", "b", "c", "*"}).Draw(t, "token")
		switch tail := rapid.SampledFrom([]string{"", "", "a", "b", "*", ">"}).Draw(t, "tail"); {
		case tail != "":
			p += "." + tail
		case rapid.IntRange(0, 5).Draw(t, "everything") == 0:
			p = ">"
		}
		return p
	})
	queue := rapid.SampledFrom([]string{"", "", "q", "r"})
	entry := rapid.Custom(func(t *rapid.T) rule { return rule{pattern.Draw(t, "pattern"), queue.Draw(t, "queue")} })
	rapid.Check(t, func(t *rapid.T) {
		r := &rights{deny: rapid.SliceOfN(entry, 0, 3).Draw(t, "deny")}
		if rapid.Bool().Draw(t, "with allow") {
			r.allow = rapid.SliceOfN(entry, 1, 3).Draw(t, "allow")
		}
		subs := make([]subscription, rapid.IntRange(1, 5).Draw(t, "subscriptions"))
		for i := range subs {
			subs[i] = subscription{pattern: pattern.Draw(t, "subscription"), queue: queue.Draw(t, "its queue")}
		}
		before := rapid.Bool().Draw(t, "before the reload")
		if before {
			s.reload(t, (*rights)(nil).config())
		} else {
			s.reload(t, r.config())
		}
		c := s.dial(t, "bound")
		defer c.Close()
		for i, u := range subs {
			c.send("SUB %s %s %d\r\n", u.pattern, u.queue, i)
		}
		c.note(subs, c.sync())
		if before {
			s.reload(t, r.config())
			c.note(subs, c.sync())
		}
		chosen := map[string][]string{}
		for range rapid.IntRange(1, 4).Draw(t, "ways") {
			w := rapid.SampledFrom(names).Draw(t, "way")
			to := rapid.SampledFrom(all()).Draw(t, "to")
			chosen[w] = append(chosen[w], to)
			ways[w](t, free, to)
		}
		want := map[string]bool{} // deliveries of "plain" that must come
		for _, to := range chosen["plain"] {
			for i, u := range subs {
				if u.queue == "" && !u.refused && matches(u.pattern, to) && r.lets(to, "") {
					want[strconv.Itoa(i)+" "+to] = true
				}
			}
		}
		call(t, free, "$JS.API.STREAM.INFO.S", "")
		if err := free.Flush(); err != nil {
			t.Fatal(err)
		}
		for settled := time.Now().Add(5 * time.Millisecond); ; {
			for _, d := range c.deliveries() {
				u := &subs[d.sub]
				delete(want, strconv.Itoa(d.sub)+" "+d.to)
				if !r.lets(d.to, u.queue) {
					t.Fatalf("a message by %q reached %q queue %q against deny %v, allow %v (sent %v; subscribed before: %t)",
						d.to, u.pattern, u.queue, r.deny, r.allow, chosen, before)
				}
				kept++
			}
			if time.Now().After(settled) && (len(want) == 0 || time.Now().After(settled.Add(patience))) {
				break
			}
		}
		if len(want) > 0 {
			t.Fatalf("allowed and not delivered: %v, with deny %v, allow %v and %+v", want, r.deny, r.allow, subs)
		}
		for w := range chosen {
			delivered[w]++
		}
		for _, name := range consumers(t, free) {
			call(t, free, "$JS.API.CONSUMER.DELETE.S."+name, "")
		}
	})
	if kept == 0 {
		t.Error("nothing was ever delivered: the test is of no worth")
	}
	t.Logf("%d deliveries, rounds by way: %v", kept, delivered)
}

// note marks the subscriptions that errors are about.
func (c *raw) note(subs []subscription, lines []string) {
	c.t.Helper()
	for _, l := range lines {
		if !strings.HasPrefix(l, "-ERR 'Permissions Violation for Subscription to ") {
			c.t.Fatalf("unexpected: %s", l)
		}
		for i := range subs {
			u := &subs[i]
			text := fmt.Sprintf("Subscription to %q", u.pattern)
			if u.queue != "" {
				text += fmt.Sprintf(" using queue %q", u.queue)
			}
			if strings.Contains(l, text+"'") || strings.Contains(l, text+fmt.Sprintf(" (sid \"%d\")'", i)) {
				u.refused = true
			}
		}
	}
}

// delivery is one message as it came: on which subscription, and by which
// subject it was routed there.
type delivery struct {
	sub int
	to  string
}

// deliveries reads what has come.
func (c *raw) deliveries() (out []delivery) {
	c.t.Helper()
	lines := c.sync()
	for i := 0; i < len(lines); i++ {
		f := strings.Fields(lines[i])
		if len(f) < 4 || f[0] != "MSG" && f[0] != "HMSG" {
			continue
		}
		sid, err := strconv.Atoi(f[2])
		if err != nil {
			c.t.Fatalf("%q", lines[i])
		}
		out = append(out, delivery{sid, strings.TrimPrefix(f[1], "j.keep.")})
	}
	return out
}
