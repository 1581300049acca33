package security

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// sideDoors has a user who may use part of the JetStream API and publish to ok.>
// and no more, one who may only answer, and one who may do all.
const sideDoors = `
accounts {
  A {
    jetstream: enabled
    users: [
      {user: free, password: free}
      {user: narrow, password: narrow, permissions: {
        publish: ["ok.>", "$JS.API.CONSUMER.>", "$JS.API.DIRECT.GET.>", "$JS.API.STREAM.INFO.>", "$JS.API.STREAM.CREATE.MINE", "$JS.ACK.>", "$HERALD.ADV.>"]
        subscribe: ["_INBOX.>", "ok.>"]
      }}
      {user: answerer, password: answerer, permissions: { subscribe: ["q", "_INBOX.>"], allow_responses: true }}
    ]
  }
}`

// victim makes a stream that must come to no harm, and one whose messages the
// narrow user may write.
func victim(t *testing.T, s *server) *nats.Conn {
	t.Helper()
	free := s.connect(t, "free")
	must(t, free, "$JS.API.STREAM.CREATE.VICTIM", `{"name":"VICTIM","subjects":["victim.>"],"allow_direct":true}`)
	must(t, free, "$JS.API.CONSUMER.DURABLE.CREATE.VICTIM.CON", `{"stream_name":"VICTIM","config":{"durable_name":"CON","ack_policy":"explicit","ack_wait":3600000000000}}`)
	for range 3 {
		must(t, free, "victim.x", "v")
	}
	if _, err := free.Request("$JS.API.CONSUMER.MSG.NEXT.VICTIM.CON", []byte("1"), patience); err != nil {
		t.Fatal(err)
	}
	must(t, free, "$JS.API.STREAM.CREATE.OK", `{"name":"OK","subjects":["ok.s.>"],"allow_direct":true,"allow_msg_schedules":true,"allow_msg_ttl":true}`)
	return free
}

// unharmed fails when the victim's messages or consumer aren't as they were.
func unharmed(t *testing.T, free *nats.Conn, after string) {
	t.Helper()
	info := ask(t, free, "$JS.API.STREAM.INFO.VICTIM", "")
	if !strings.Contains(info, `"messages":3,`) || !strings.Contains(info, `"consumer_count":1`) {
		t.Fatalf("after %s: %s", after, info)
	}
	if con := ask(t, free, "$JS.API.CONSUMER.INFO.VICTIM.CON", ""); !strings.Contains(con, `"num_ack_pending":1`) || strings.Contains(con, `"paused":true`) {
		t.Fatalf("after %s: %s", after, con)
	}
	if names := ask(t, free, "$HERALD.ADV.LIST", ""); strings.Contains(names, "forged") {
		t.Fatalf("after %s: %s", after, names)
	}
}

// requests are what nobody may have the broker ask itself; a body comes with
// each.
var requests = map[string]string{
	"$JS.API.STREAM.DELETE.VICTIM":       "",
	"$JS.API.STREAM.PURGE.VICTIM":        `{"filter":"victim.x"}`,
	"$JS.API.STREAM.MSG.DELETE.VICTIM":   `{"seq":2}`,
	"$JS.API.CONSUMER.DELETE.VICTIM.CON": "",
	"$JS.API.CONSUMER.PAUSE.VICTIM.CON":  `{"pause_until":"2050-01-01T00:00:00Z"}`,
	"$HERALD.ADV.PUT":                    `{"name":"forged","subject":"forged.x","lease":{"mode":"permanent"}}`,
}

// TestDeliverSubjectIsNoWayToAsk: what consumers deliver, to whatever subject, is
// no request: neither to the broker nor an acknowledgement.
func TestDeliverSubjectIsNoWayToAsk(t *testing.T) {
	s := start(t, sideDoors)
	free := victim(t, s)
	narrow := s.connect(t, "narrow")
	n := 0
	for subj, body := range requests {
		n++
		must(t, narrow, fmt.Sprintf("ok.s.push.%d", n), body)
		got := ask(t, narrow, "$JS.API.CONSUMER.CREATE.OK", fmt.Sprintf(`{"stream_name":"OK","config":{"deliver_subject":%q,"filter_subject":"ok.s.push.%d"}}`, subj, n))
		settle(t, free)
		unharmed(t, free, "a push consumer to "+subj+" ("+got+")")
	}
	ack := fmt.Sprintf("$JS.ACK.VICTIM.CON.1.1.1.%d.2", time.Now().UnixNano())
	must(t, narrow, "ok.s.ack", "+TERM")
	ask(t, narrow, "$JS.API.CONSUMER.CREATE.OK", fmt.Sprintf(`{"stream_name":"OK","config":{"deliver_subject":%q,"filter_subject":"ok.s.ack"}}`, ack))
	settle(t, free)
	unharmed(t, free, "a push consumer to an ack subject")
}

// settle waits until what was set going by requests of others has happened: a
// message that takes the same way has arrived.
func settle(t *testing.T, free *nats.Conn) {
	t.Helper()
	sub, err := free.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection goes anyway
	must(t, free, "$JS.API.CONSUMER.CREATE.VICTIM", fmt.Sprintf(`{"stream_name":"VICTIM","config":{"name":"settle","deliver_subject":%q,"ack_policy":"none"}}`, sub.Subject))
	if _, err := sub.NextMsg(patience); err != nil {
		t.Fatal(err)
	}
	must(t, free, "$JS.API.CONSUMER.DELETE.VICTIM.settle", "")
}

// TestReplySubjectIsNoWayToAsk: neither what the broker answers nor what a
// colleague answers turns into a request that the asker may not make.
func TestReplySubjectIsNoWayToAsk(t *testing.T) {
	s := start(t, sideDoors)
	free := victim(t, s)
	narrow := s.connect(t, "narrow")
	answerer := s.connect(t, "answerer")
	if _, err := answerer.Subscribe("q", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	echo := s.connect(t, "free")
	if _, err := echo.Subscribe("ok.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	for _, nc := range []*nats.Conn{answerer, echo} {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for subj, body := range requests {
		n++
		at := fmt.Sprintf("ok.s.get.%d", n)
		must(t, narrow, at, body)
		for way, m := range map[string]request{
			"a direct get":          {"$JS.API.DIRECT.GET.OK." + at, ""},
			"an API answer":         {"$JS.API.STREAM.INFO.OK", ""},
			"a publish to a stream": {"ok.s.reply", "x"},
			"a colleague's answer":  {"ok.echo", body},
			"a pull":                {"$JS.API.CONSUMER.MSG.NEXT.OK.none", "1"},
			"an ack":                {"$JS.ACK.VICTIM.CON.1.1.1.1.1", "+WPI"},
		} {
			if way == "a colleague's answer" && (strings.HasPrefix(subj, "$JS.API.CONSUMER.") || strings.HasPrefix(subj, "$HERALD.ADV.")) {
				continue // it may ask for that itself
			}
			if err := narrow.PublishRequest(m.subject, subj, []byte(m.body)); err != nil {
				t.Fatal(err)
			}
			if err := narrow.Flush(); err != nil {
				t.Fatal(err)
			}
			settle(t, free)
			unharmed(t, free, way+" with reply "+subj)
		}
		// Somebody who may do it directly may do it by a reply subject too, but
		// the broker's answer isn't a request even then.
		if err := free.PublishRequest("$JS.API.DIRECT.GET.OK."+at, subj, nil); err != nil {
			t.Fatal(err)
		}
		settle(t, free)
		unharmed(t, free, "the broker's answer to "+subj)
	}
}

// TestRepublishIsNoWayToAsk: republished messages aren't requests, however the
// destination is put together.
func TestRepublishIsNoWayToAsk(t *testing.T) {
	s := start(t, sideDoors)
	free := victim(t, s)
	narrow := s.connect(t, "narrow")
	for i, to := range []string{
		"$JS.API.>", "$JS.API.STREAM.DELETE.VICTIM", "{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}.{{wildcard(4)}}.{{wildcard(5)}}", "$JS.>", "{{wildcard(1)}}.API.{{wildcard(3)}}.{{wildcard(4)}}.{{wildcard(5)}}",
	} {
		src := "ok.r.*.*.*.*.*"
		if strings.HasSuffix(to, ">") {
			src = "ok.r.>"
		}
		got := ask(t, narrow, "$JS.API.STREAM.CREATE.MINE", fmt.Sprintf(`{"name":"MINE","subjects":["ok.r.>"],"republish":{"src":%q,"dest":%q}}`, src, to))
		if i < 2 && errCode(t, got) == 0 {
			t.Errorf("republishing to %s is allowed", to)
		}
		for subj := range requests {
			for _, at := range []string{"ok.r." + subj, "ok.r." + strings.TrimPrefix(subj, "$JS.API."), "ok.r." + strings.TrimPrefix(subj, "$JS.")} {
				if _, err := narrow.Request(at, []byte(requests[subj]), patience); err != nil && errCode(t, got) == 0 {
					t.Fatal(err)
				}
			}
		}
		settle(t, free)
		unharmed(t, free, "republishing to "+to)
		if errCode(t, got) == 0 {
			must(t, free, "$JS.API.STREAM.DELETE.MINE", "")
		}
	}
}

// TestSchedulesNeedTheRights: a scheduled message is published, read and ended
// by the rights of who scheduled it.
func TestSchedulesNeedTheRights(t *testing.T) {
	s := start(t, sideDoors)
	free := s.connect(t, "free")
	must(t, free, "$JS.API.STREAM.CREATE.PLANS", `{"name":"PLANS","subjects":["ok.p.>","no.>"],"allow_msg_schedules":true}`)
	must(t, free, "no.plan", "x")
	c := s.dial(t, "narrow")
	for _, x := range []struct {
		header string
		denied string
	}{
		{"Nats-Schedule: @at 2026-01-01T00:00:00Z\r\nNats-Schedule-Target: ok.p.x", ""},
		{"Nats-Schedule: @at 2026-01-01T00:00:00Z\r\nNats-Schedule-Target: no.x", `Publish to "no.x"`},
		{"Nats-Schedule-Target: no.x\r\nNats-Schedule: @at 2026-01-01T00:00:00Z\r\nNats-Schedule-Target: ok.p.x", `Publish to "no.x"`},
		{"Nats-Schedule: @at 2026-01-01T00:00:00Z\r\nNats-Schedule-Target: ok.p.x\r\nNats-Schedule-Source: no.plan", `Subscription to "no.plan"`},
		{"Nats-Scheduler: no.plan\r\nNats-Schedule-Next: purge", `Publish to "no.plan"`},
	} {
		header := "NATS/1.0\r\n" + x.header + "\r\n\r\n"
		c.send("HPUB ok.p.s %d %d\r\n%s\r\n", len(header), len(header), header)
		lines := strings.Join(c.sync(), "\n")
		if x.denied == "" && lines != "" || !strings.Contains(lines, x.denied) {
			t.Errorf("%s: %q", x.header, lines)
		}
	}
	settled := ask(t, free, "$JS.API.STREAM.MSG.GET.PLANS", `{"last_by_subj":"no.plan"}`)
	if errCode(t, settled) != 0 {
		t.Errorf("somebody else's message is gone: %s", settled)
	}
	if got := ask(t, free, "$JS.API.STREAM.MSG.GET.PLANS", `{"last_by_subj":"no.x"}`); errCode(t, got) == 0 {
		t.Errorf("a message was published where its author may not: %s", got)
	}
}

// TestAdvertisingNeedsTheRights: a topic for an advertisement wants the right to
// make it.
func TestAdvertisingNeedsTheRights(t *testing.T) {
	s := start(t, sideDoors)
	narrow := s.connect(t, "narrow")
	if got := ask(t, narrow, "$HERALD.ADV.PUT", `{"name":"orders","subject":"ok.orders.>","durable":{}}`); errCode(t, got) != 20015 {
		t.Errorf("a topic by advertising: %s", got)
	}
	if got := ask(t, narrow, "$HERALD.ADV.PUT", `{"name":"orders","subject":"orders.>","durable":{}}`); errCode(t, got) != 20022 {
		t.Errorf("what it may not publish, advertised: %s", got)
	}
	must(t, narrow, "$HERALD.ADV.PUT", `{"name":"mine","subject":"ok.mine.>","durable":{"topic":"MINE"}}`)
	// Changing it wants another right.
	if got := ask(t, narrow, "$HERALD.ADV.PUT", `{"name":"mine","subject":"ok.more.>","durable":{"topic":"MINE"}}`); errCode(t, got) != 20015 {
		t.Errorf("a topic changed by advertising: %s", got)
	}
}

// TestExternalSourcesStayInTheAccount: a mirror or source that names another
// account's API gets nothing from there.
func TestExternalSourcesStayInTheAccount(t *testing.T) {
	s := start(t, twoAccounts)
	a := furnish(t, s)
	b := s.connect(t, "b")
	before := state(t, a)
	n := 0
	for _, api := range []string{"", "$JS.A.API", "$JS.API", "A", "$SYS.REQ", "JS.a", "$JS.*.API"} {
		for _, deliver := range []string{"", "deliver.x", "$JS.API.STREAM.DELETE"} {
			n++
			external := fmt.Sprintf(`"external":{"api":%q,"deliver":%q}`, api, deliver)
			for i, cfg := range []string{`"mirror":{"name":"SECRET",%s}`, `"sources":[{"name":"SECRET",%s}]`} {
				name := fmt.Sprintf("COPY-%d-%d", n, i)
				got := ask(t, b, "$JS.API.STREAM.CREATE."+name, fmt.Sprintf(`{"name":%q,%s}`, name, fmt.Sprintf(cfg, external)))
				if strings.Contains(got, "payload-of-a") {
					t.Errorf("%s", got)
				}
			}
		}
	}
	// A mirror that works, made after them all, has its message.
	must(t, b, "$JS.API.STREAM.CREATE.OWN", `{"name":"OWN","subjects":["own"]}`)
	must(t, b, "own", "x")
	must(t, b, "$JS.API.STREAM.CREATE.GOOD", `{"name":"GOOD","mirror":{"name":"OWN"}}`)
	for deadline := time.Now().Add(patience); !strings.Contains(ask(t, b, "$JS.API.STREAM.INFO.GOOD", ""), `"messages":1`); {
		if time.Now().After(deadline) {
			t.Fatal("a mirror in the account doesn't work either")
		}
	}
	if got := ask(t, b, "$JS.API.STREAM.LIST", ""); strings.Contains(got, `"last_seq":3`) || strings.Contains(got, `"messages":3`) {
		t.Errorf("B has A's messages: %s", got)
	}
	unchanged(t, a, before)
}
