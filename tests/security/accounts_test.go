package security

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// twoAccounts has one account with things in it, another that is to find none
// of them, one without JetStream, and the system account.
const twoAccounts = `
accounts {
  A { users: [{user: a, password: a}], jetstream: enabled }
  B { users: [{user: b, password: b}], jetstream: enabled }
  C { users: [{user: c, password: c}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
`

// furnish gives account A a stream SECRET with a consumer, a message that it was
// delivered and has not acknowledged, and an advertisement.
func furnish(t *testing.T, s *server) *nats.Conn {
	t.Helper()
	a := s.connect(t, "a", nats.Name("name-of-a"))
	must(t, a, "$JS.API.STREAM.CREATE.SECRET", `{"name":"SECRET","subjects":["secret.>"],"allow_direct":true,"allow_rollup_hdrs":true}`)
	must(t, a, "$JS.API.CONSUMER.DURABLE.CREATE.SECRET.CON", `{"stream_name":"SECRET","config":{"durable_name":"CON","ack_policy":"explicit","ack_wait":3600000000000}}`)
	for i := range 3 {
		must(t, a, "secret.x", fmt.Sprint("payload-of-a ", i))
	}
	if m, err := a.Request("$JS.API.CONSUMER.MSG.NEXT.SECRET.CON", []byte("1"), patience); err != nil || m.Reply == "" {
		t.Fatalf("%v %+v", err, m)
	}
	must(t, a, "$HERALD.ADV.PUT", `{"name":"adv-of-a","subject":"secret.x","lease":{"mode":"permanent"}}`)
	return a
}

// state is all that account A can see of its own things.
func state(t *testing.T, a *nats.Conn) string {
	t.Helper()
	var all strings.Builder
	for _, r := range []request{
		{"$JS.API.STREAM.LIST", ""},
		{"$JS.API.STREAM.INFO.SECRET", `{"subjects_filter":">","deleted_details":true}`},
		{"$JS.API.CONSUMER.INFO.SECRET.CON", ""},
		{"$HERALD.ADV.LIST", ""},
		{"$HERALD.ADV.GET", `{"name":"adv-of-a"}`},
		{"$JS.API.STREAM.MSG.GET.SECRET", `{"seq":1}`},
		{"$JS.API.STREAM.MSG.GET.SECRET", `{"seq":3}`},
	} {
		all.WriteString(ask(t, a, r.subject, r.body) + "\n")
	}
	// The catalogue's revision counts the changes of all accounts.
	return regexp.MustCompile(`"ts":"[^"]*"|"revision":\d+`).ReplaceAllString(all.String(), "")
}

// unchanged fails when account A finds its things otherwise than before.
func unchanged(t *testing.T, a *nats.Conn, before string) {
	t.Helper()
	was, is := strings.Split(before, "\n"), strings.Split(state(t, a), "\n")
	for i := range was {
		if was[i] != is[i] {
			t.Errorf("A's things changed from\n%s\nto\n%s", was[i], is[i])
		}
	}
}

// bodies are what a request about a stream may carry, whether or not it fits.
func bodies(stream string) []string {
	q := func(format string) string { return strings.ReplaceAll(format, "%s", stream) }
	return []string{
		"", "{}", q(`{"name":"%s"}`), q(`{"name":"%s","subjects":["other.>"],"description":"x"}`), q(`{"stream_name":"%s","config":{"durable_name":"CON"}}`),
		q(`{"stream_name":"%s","config":{"durable_name":"NEW","deliver_subject":"x"}}`), q(`{"stream_name":"%s","config":{"name":"NEW"},"action":"create"}`),
		`{"seq":1}`, `{"seq":1,"no_erase":true}`, `{"last_by_subj":"secret.x"}`, `{"filter":">"}`, `{"keep":0}`, `{"batch":10,"no_wait":true}`, `{"next_by_subj":">","batch":5,"seq":1}`,
		`{"multi_last":[">"]}`, `{"pause_until":"2050-01-01T00:00:00Z"}`, `{"group":"g"}`, q(`{"config":{"name":"%s"},"state":{"messages":1}}`),
		q(`{"deliver_subject":"x","name":"%s"}`), `{"placement":{"cluster":"x"}}`, q(`{"peer":"%s"}`), `{"offset":0,"subject":"secret.>"}`,
	}
}

// operations are the subjects of the API about a stream or a consumer, "%s" for
// the stream's name.
var operations = []string{
	"STREAM.UPDATE.%s", "STREAM.INFO.%s", "STREAM.DELETE.%s", "STREAM.PURGE.%s", "STREAM.MSG.GET.%s", "STREAM.MSG.DELETE.%s",
	"DIRECT.GET.%s", "DIRECT.GET.%s.secret.x", "STREAM.SNAPSHOT.%s", "STREAM.RESTORE.%s", "STREAM.LEADER.STEPDOWN.%s", "STREAM.PEER.REMOVE.%s",
	"STREAM.PEER.EVACUATE.%s", "STREAM.CANCEL_MOVE.%s", "CONSUMER.CREATE.%s", "CONSUMER.CREATE.%s.CON", "CONSUMER.CREATE.%s.NEW.secret.x",
	"CONSUMER.DURABLE.CREATE.%s.CON", "CONSUMER.NAMES.%s", "CONSUMER.LIST.%s", "CONSUMER.INFO.%s.CON", "CONSUMER.DELETE.%s.CON",
	"CONSUMER.MSG.NEXT.%s.CON", "CONSUMER.PAUSE.%s.CON", "CONSUMER.UNPIN.%s.CON", "CONSUMER.RESET.%s.CON", "CONSUMER.LEADER.STEPDOWN.%s.CON",
	"CONSUMER.PEER.REMOVE.%s.CON", "CONSUMER.PEER.EVACUATE.%s.CON", "STREAM.NAMES", "STREAM.LIST", "INFO",
	"META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE", "ACCOUNT.PURGE.A", "ACCOUNT.STREAM.MOVE.A.%s", "ACCOUNT.STREAM.CANCEL_MOVE.A.%s",
	"STREAM.TEMPLATE.NAMES", "STREAM.CREATE.%s.x", "STREAM.INFO.%s.x", "STREAM.INFO.A.%s", "CONSUMER.INFO.A.%s.CON",
}

// TestForeignAccountsFindNothing: with every request of the API, under another
// account's names in the subject, in the body and in both, B gets what it gets
// for names that nobody has, and nothing of A's changes.
func TestForeignAccountsFindNothing(t *testing.T) {
	s := start(t, twoAccounts)
	a := furnish(t, s)
	before := state(t, a)
	for user, others := range map[string]int{"b": 1, "c": 0} {
		b := s.connect(t, user)
		if others > 0 {
			must(t, b, "$JS.API.STREAM.CREATE.OWN", `{"name":"OWN","subjects":["own.>"],"allow_direct":true}`)
			must(t, b, "$JS.API.CONSUMER.DURABLE.CREATE.OWN.CON", `{"stream_name":"OWN","config":{"durable_name":"CON","ack_policy":"explicit"}}`)
		}
		// NOBODYS has as many letters, so that even sizes are the same.
		var pairs [][2]request
		for _, op := range operations {
			named := strings.Contains(op, "%s")
			for _, body := range bodies("SECRET") {
				inBody := strings.Contains(body, "SECRET")
				if !named && !inBody && !strings.HasPrefix(op, "STREAM.") {
					continue
				}
				r := request{"$JS.API." + strings.ReplaceAll(op, "%s", "SECRET"), body}
				pairs = append(pairs, [2]request{r, {strings.ReplaceAll(r.subject, "SECRET", "NOBODY"), strings.ReplaceAll(r.body, "SECRET", "NOBODY")}})
				if named && inBody { // A's name in the body only
					r.subject = "$JS.API." + strings.ReplaceAll(op, "%s", "OWN")
					pairs = append(pairs, [2]request{r, {r.subject, strings.ReplaceAll(r.body, "SECRET", "NOBODY")}})
				}
			}
		}
		var asked []request
		seen := map[request]bool{}
		for _, p := range pairs {
			for _, r := range p {
				// What B does to its own stream is not what is tested.
				if !seen[r] && !strings.Contains(r.subject, "DELETE.OWN") {
					seen[r] = true
					asked = append(asked, r)
				}
			}
		}
		got := answers(t, b, 2*time.Second, asked...)
		if len(got) < len(asked)/2 {
			t.Fatalf("only %d of %d requests were answered", len(got), len(asked))
		}
		stamps := regexp.MustCompile(`,?"(ts|created|total|errors|inflight|num_pending|api|deliver_subject)":("[^"]*"|\d+)`)
		for _, p := range pairs {
			foreign, nobodys := got[p[0]], strings.ReplaceAll(got[p[1]], "NOBODY", "SECRET")
			if stamps.ReplaceAllString(foreign, "") != stamps.ReplaceAllString(nobodys, "") {
				t.Errorf("%s: %s %s: answered otherwise than a name nobody has:\n%s\n%s", user, p[0].subject, p[0].body, foreign, nobodys)
			}
			for _, secret := range []string{"payload-of-a", "cGF5bG9hZC1vZi1h", "name-of-a", "secret.x\""} {
				if strings.Contains(foreign, secret) && !strings.Contains(p[0].body, strings.Trim(secret, `"`)) {
					t.Errorf("%s: %s %s tells %s: %s", user, p[0].subject, p[0].body, secret, foreign)
				}
			}
		}
	}
	unchanged(t, a, before)
}

// TestForeignAcknowledgements: acks and flow control of one account's consumer,
// in both forms of the subject, do nothing from another.
func TestForeignAcknowledgements(t *testing.T) {
	s := start(t, twoAccounts)
	a := furnish(t, s)
	b := s.connect(t, "b")
	before := state(t, a)
	now := time.Now().UnixNano()
	for _, subj := range []string{
		fmt.Sprintf("$JS.ACK.SECRET.CON.1.1.1.%d.2", now), fmt.Sprintf("$JS.ACK._.A.SECRET.CON.1.1.1.%d.2.x", now),
		fmt.Sprintf("$JS.ACK.A.SECRET.CON.1.1.1.%d.2", now), "$JS.FC.SECRET.CON.x",
	} {
		for _, body := range []string{"", "+ACK", "-NAK", "+TERM", "+WPI", "+NXT", `+NXT {"batch":5}`} {
			if m, err := b.Request(subj, []byte(body), 20*time.Millisecond); err == nil && len(m.Data) > 0 {
				t.Errorf("%s %s: %s", subj, body, m.Data)
			}
		}
	}
	unchanged(t, a, before)
}

// TestForeignAdvertisements: an account finds, hears of and ends only its own.
func TestForeignAdvertisements(t *testing.T) {
	s := start(t, twoAccounts)
	a := furnish(t, s)
	b := s.connect(t, "b")
	events, err := b.SubscribeSync("$HERALD.>")
	if err != nil {
		t.Fatal(err)
	}
	watched, err := b.SubscribeSync("watch.b")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.PublishRequest("$HERALD.ADV.LIST", "watch.b", []byte(`{"watch":true}`)); err != nil {
		t.Fatal(err)
	}
	before := state(t, a)
	for _, verb := range []string{"GET", "WITHDRAW", "RENEW"} {
		for _, body := range []string{`{"name":"adv-of-a"}`, `{"name":"adv-of-a","owner":""}`} {
			nobodys := ask(t, b, "$HERALD.ADV."+verb, strings.ReplaceAll(body, "adv-of-a", "adv-of-0"))
			if got := ask(t, b, "$HERALD.ADV."+verb, body); got != strings.ReplaceAll(nobodys, "adv-of-0", "adv-of-a") {
				t.Errorf("%s %s: %s, but for a name nobody has %s", verb, body, got, nobodys)
			}
		}
	}
	for _, body := range []string{"", `{"name":"adv-of-a"}`, `{"subject":">"}`, `{"role":"publishes"}`, `{"account":"A"}`} {
		if got := ask(t, b, "$HERALD.ADV.LIST", body); strings.Contains(got, "adv-of-a") && !strings.Contains(got, "error") {
			t.Errorf("LIST %s: %s", body, got)
		}
	}
	// The same name is another advertisement here.
	must(t, b, "$HERALD.ADV.PUT", `{"name":"adv-of-a","subject":"mine","lease":{"mode":"permanent"}}`)
	must(t, b, "$HERALD.ADV.WITHDRAW", `{"name":"adv-of-a"}`)
	unchanged(t, a, before)
	must(t, a, "$HERALD.ADV.PUT", `{"name":"adv-2","subject":"secret.y"}`)
	must(t, a, "$HERALD.ADV.WITHDRAW", `{"name":"adv-2"}`)
	must(t, b, "$HERALD.ADV.PUT", `{"name":"end","subject":"end"}`)
	for _, sub := range []*nats.Subscription{events, watched} {
		for {
			m, err := sub.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(m.Data), "secret") || strings.Contains(string(m.Data), "adv-2") {
				t.Errorf("B hears of A's: %s %s", m.Subject, m.Data)
			}
			if strings.Contains(string(m.Data), `"end"`) {
				break
			}
		}
	}
}

// TestAdvertisementsWithoutJetStream: what an account may not have it doesn't
// get by advertising either.
func TestAdvertisementsWithoutJetStream(t *testing.T) {
	s := start(t, twoAccounts)
	c := s.connect(t, "c")
	if got := ask(t, c, "$HERALD.ADV.PUT", `{"name":"x","subject":"x.y","durable":{}}`); errCode(t, got) != 10035 && errCode(t, got) != 10039 {
		t.Errorf("an account without JetStream made a topic: %s", got)
	}
	must(t, c, "$HERALD.ADV.PUT", `{"name":"x","subject":"x.y"}`)
}

// systemRequests are about the server and all its accounts.
func systemRequests(id string) (out []request) {
	pages := []string{
		"IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "PROFILEZ",
		"EXPVARZ", "IPQUEUESZ", "RAFTZ", "RELOAD", "KICK", "LDM",
	}
	asked := []string{
		"", `{"account":"A","acc":"A"}`, `{"accounts":true,"streams":true,"consumer":true,"config":true}`,
		`{"subscriptions":true,"auth":true,"state":2,"acc":"A"}`, `{"cid":1}`, `{"accounts":["A"],"include_unused":true}`, `{"acc":"A","subject":"secret.x"}`,
	}
	var subjects []string
	for _, p := range pages {
		subjects = append(subjects, "$SYS.REQ.SERVER.PING."+p, "$SYS.REQ.SERVER."+id+"."+p)
	}
	for _, p := range []string{"INFO", "CONNZ", "LEAFZ", "SUBSZ", "JSZ", "STATZ", "CONNS", "CLAIMS.LOOKUP", "CLAIMS.UPDATE"} {
		subjects = append(subjects, "$SYS.REQ.ACCOUNT.A."+p, "$SYS.REQ.ACCOUNT.PING."+p)
	}
	subjects = append(subjects, "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.DEBUG.SUBSCRIBERS", "$SYS.REQ.ACCOUNT.NSUBS",
		"$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.PACK", "$SYS.REQ.CLAIMS.DELETE", "$SYS.REQ.USER.AUTH")
	for _, subj := range subjects {
		for _, body := range asked {
			out = append(out, request{subj, body})
		}
	}
	return out
}

// TestSystemRequestsAreTheSystemAccounts: others get no answer, or one about
// themselves.
func TestSystemRequestsAreTheSystemAccounts(t *testing.T) {
	s := start(t, twoAccounts)
	a := furnish(t, s)
	if _, err := a.SubscribeSync("subject-of-a"); err != nil {
		t.Fatal(err)
	}
	b := s.connect(t, "b")
	own := []string{ // what every account may ask, about itself
		"$SYS.REQ.USER.INFO", "$SYS.DEBUG.SUBSCRIBERS", "$SYS.REQ.ACCOUNT.NSUBS", "$SYS.REQ.ACCOUNT.PING.CONNZ",
		"$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.SERVER.PING.CONNZ",
	}
	for r, answer := range answers(t, b, time.Second, systemRequests(s.ID())...) {
		known := false
		for _, o := range own {
			known = known || r.subject == o
		}
		if !known {
			t.Errorf("B is answered to %s: %s", r.subject, answer)
		}
		for _, secret := range []string{"name-of-a", "subject-of-a", "SECRET", `"A"`, `"acc":"A"`, `"account":"A"`, `"a"`} {
			if strings.Contains(answer, secret) {
				t.Errorf("%s %s tells B of %s: %s", r.subject, r.body, secret, answer)
			}
		}
	}
	if n := ask(t, b, "$SYS.DEBUG.SUBSCRIBERS", `{"acc":"A","subject":"subject-of-a"}`); n != "0" {
		t.Errorf("B learns that A has %s subscribers", n)
	}
	if !a.IsConnected() || !b.IsConnected() {
		t.Error("somebody was kicked")
	}
	// The system account does get answers.
	sys := s.connect(t, "s")
	got := answers(t, sys, time.Second, request{"$SYS.REQ.SERVER.PING", ""}, request{"$SYS.REQ.SERVER.PING.CONNZ", `{"auth":true}`})
	if len(got) != 2 {
		t.Fatalf("the system account got %v", got)
	}
	for _, answer := range got {
		if !json.Valid([]byte(answer)) {
			t.Errorf("not JSON: %s", answer)
		}
	}
}
