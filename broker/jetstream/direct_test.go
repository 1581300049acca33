package jetstream

import (
	"errors"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// directTopic holds what the answers below were observed with: u.1 one, u.2
// two, u.1 three, u.3 four, a second apart from 12:00:00 UTC on.
func directTopic(t *testing.T) *store.Topic {
	t.Helper()
	s, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := stream(t, `{"name":"U","subjects":["u.>"],"allow_direct":true}`)
	for i, m := range []struct{ subject, header, payload string }{
		{"", "", ""}, {"u.1", "", "one"}, {"u.2", "", "two"}, {"u.1", "NATS/1.0\r\nK: v\r\n\r\n", "three"}, {"u.3", "", "four"},
	} {
		now := topics.Nanos(1764504000+i) * 1e9
		entry := topics.AppendEntryHeader(nil, now)
		p := topics.Publish{Topic: 1, Subject: []byte(m.subject), Header: []byte(m.header), Payload: []byte(m.payload)}
		off := len(entry)
		entry = topics.AppendPublish(entry, &p)
		s.Begin(topics.Index(i+1), now, entry)
		if i == 0 {
			err = s.CreateTopic(1, "$G", *cfg, now)
		} else if r := s.Publish(off, p); r.Fault != nil {
			err = errors.New(r.Fault.Text)
		}
		s.End()
		if err != nil {
			t.Fatal(err)
		}
	}
	return s.Topic(1)
}

// TestDirectGet compares answers with those of nats-server 2.15.2, one line
// each: headers without their names' common prefix, then the payload.
func TestDirectGet(t *testing.T) {
	const stamp = "2025-11-30T12:00:0"
	msg := func(seq, subject, sec, more, payload string) string {
		return "Stream: U|Subject: " + subject + "|Sequence: " + seq + "|Time-Stamp: " + stamp + sec + "Z" + more + "||" + payload
	}
	one, two, four := func(more string) string { return msg("1", "u.1", "1", more, "one") },
		func(more string) string { return msg("2", "u.2", "2", more, "two") },
		func(more string) string { return msg("4", "u.3", "4", more, "four") }
	three := func(more string) string { return "K: v|" + msg("3", "u.1", "3", more, "three") }
	in := func(pending, last string) string { return "|Num-Pending: " + pending + "|Last-Sequence: " + last }
	end := func(pending, last, upTo string) string {
		s := "204 EOB" + in(pending, last)
		if upTo != "" {
			s += "|UpTo-Sequence: " + upTo
		}
		return s + "||"
	}
	data := directTopic(t)
	for _, tt := range []struct {
		key, body string
		want      []string
	}{
		{"", ``, []string{"408 Empty Request||"}},
		{"", `{}`, []string{"408 Empty Request||"}},
		{"", `junk`, []string{"408 Malformed Request||"}},
		{"", `{"seq":1}`, []string{one("")}},
		{"", `{"seq":1,"no_hdr":true}`, []string{"one"}},
		{"", `{"seq":1,"zzz":1}`, []string{one("")}},
		{"", `{"seq":10}`, []string{"404 Message Not Found||"}},
		{"", `{"last_by_subj":"u.1"}`, []string{three("")}},
		{"", `{"last_by_subj":"u.9"}`, []string{"404 Message Not Found||"}},
		{"u.1", ``, []string{three("")}},
		{"u.9", ``, []string{"404 Message Not Found||"}},
		{"u.1", `{"seq":1}`, []string{"408 Bad Request||"}},
		{"", `{"next_by_subj":"u.1"}`, []string{one("")}},
		{"", `{"next_by_subj":"u.1","seq":2}`, []string{three("")}},
		{"", `{"seq":1,"last_by_subj":"u.1"}`, []string{"408 Bad Request||"}},
		{"", `{"start_time":"2020-01-01T00:00:00Z"}`, []string{one("")}},
		{"", `{"start_time":"2020-01-01T00:00:00Z","seq":2}`, []string{"408 Bad Request||"}},
		{"", `{"start_time":"2220-01-01T00:00:00Z"}`, []string{"404 Message Not Found||"}},
		{"", `{"batch":2}`, []string{"408 Empty Request||"}},
		{"", `{"seq":1,"batch":2}`, []string{one(in("3", "0")), two(in("2", "1")), end("2", "2", "")}},
		{"", `{"seq":3,"batch":10}`, []string{three(in("1", "0")), four(in("0", "3")), end("0", "4", "")}},
		{"", `{"seq":1,"batch":10,"max_bytes":3}`, []string{one(in("3", "0")), end("3", "1", "")}},
		{"", `{"seq":1,"batch":2,"next_by_subj":"u.1"}`, []string{one(in("1", "0")), three(in("0", "1")), end("0", "3", "")}},
		{"", `{"seq":1,"batch":2,"last_by_subj":"u.1"}`, []string{"408 Bad Request||"}},
		{"", `{"seq":10,"batch":2}`, []string{"404 Message Not Found||"}},
		{"", `{"batch":2,"next_by_subj":"u.9"}`, []string{"404 Message Not Found||"}},
		{"", `{"start_time":"2020-01-01T00:00:00Z","batch":2}`, []string{one(in("3", "0")), two(in("2", "1")), end("2", "2", "")}},
		{"", `{"multi_last":["u.1","u.2"]}`, []string{two(in("1", "0")), three(in("0", "2")), end("0", "3", "4")}},
		{"", `{"multi_last":["u.*"]}`, []string{two(in("2", "0")), three(in("1", "2")), four(in("0", "3")), end("0", "4", "4")}},
		{"", `{"multi_last":["u.*"],"batch":1}`, []string{two(in("2", "0")), end("2", "2", "4")}},
		{"", `{"multi_last":["u.*"],"max_bytes":3}`, []string{two(in("2", "0")), end("2", "2", "4")}},
		{"", `{"multi_last":["u.*"],"up_to_seq":2}`, []string{one(in("1", "0")), two(in("0", "1")), end("0", "2", "2")}},
		{"", `{"multi_last":["u.*"],"up_to_time":"2025-11-30T12:00:03Z"}`, []string{one(in("1", "0")), two(in("0", "1")), end("0", "2", "2")}},
		{"", `{"multi_last":["u.*"],"up_to_time":"2020-01-01T00:00:00Z"}`, []string{"404 No Results||"}},
		{"", `{"multi_last":["u.*"],"up_to_time":"2220-01-01T00:00:00Z","up_to_seq":4}`, []string{"408 Bad Request||"}},
		{"", `{"multi_last":["q.*"]}`, []string{"404 No Results||"}},
		{"", `{"multi_last":["u.*"],"last_by_subj":"u.1"}`, []string{"408 Bad Request||"}},
		{"", `{"multi_last":["u.*"],"next_by_subj":"u.1"}`, []string{"408 Bad Request||"}},
		{"", `{"up_to_seq":4}`, []string{"408 Empty Request||"}},
	} {
		var got []string
		d := &direct{data: data, stream: "U", respond: func(header, payload []byte) {
			s := strings.NewReplacer("NATS/1.0\r\n", "", "NATS/1.0 ", "", "Nats-", "", "\r\n", "|").Replace(string(header))
			got = append(got, s+string(payload))
		}}
		d.serve(tt.key, tt.key != "", []byte(tt.body))
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s %s:\n got %q\nwant %q", tt.key, tt.body, got, tt.want)
		}
	}
}
