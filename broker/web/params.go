package web

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics/subject"
)

// params are what a subscriber asks for.
type params struct {
	subject string
	where   string
	codec   string
	topic   string // "": the one that keeps the subject
	durable string
	ack     string // auto, client
	window  int    // messages sent and not acknowledged by the subscriber; 0: no bound
	stored  bool

	// Where to start in a topic.
	policy    string // of deliver_policy
	startSeq  uint64
	startTime time.Time
}

// windowDefault bounds what is under way to a subscriber that acknowledges itself.
const windowDefault = 256

func badParam(text string) *failure { return &failure{http.StatusBadRequest, text} }

// readParams reads the query of /subscribe.
func readParams(r *http.Request, now time.Time) (p params, f *failure) {
	q := r.URL.Query()
	for name := range q {
		switch name {
		case "subject", "where", "codec", "topic", "durable", "ack", "window", "from", "last_event_id", "token":
		default:
			return p, badParam("there is no parameter " + strconv.Quote(name) + ": subject, where, codec, topic, from, durable, ack, window, last_event_id, token")
		}
	}
	p = params{
		subject: cmp.Or(r.PathValue("subject"), q.Get("subject")), where: q.Get("where"), codec: q.Get("codec"),
		topic: q.Get("topic"), durable: q.Get("durable"), ack: cmp.Or(q.Get("ack"), "auto"),
	}
	if !subject.Valid(p.subject) {
		return p, badParam("subject: want the subject or pattern to subscribe to, in the path or as ?subject=")
	}
	if strings.ContainsAny(p.topic+p.durable, ". \t*>/\\") {
		return p, badParam("topic and durable are names, without spaces and any of .*>/\\")
	}
	if p.ack != "auto" && p.ack != "client" {
		return p, badParam("ack: auto or client")
	}
	if v := q.Get("window"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100_000 {
			return p, badParam("window: a number of messages from 1 to 100000")
		}
		p.window = n
	} else if p.ack == "client" {
		p.window = windowDefault
	}
	if p.ack == "client" && p.durable == "" {
		return p, badParam("ack=client needs durable=NAME: only a named reader keeps what isn't acknowledged")
	}
	last := cmp.Or(r.Header.Get("Last-Event-ID"), q.Get("last_event_id"))
	if f := p.start(q.Get("from"), last, now); f != nil {
		return p, f
	}
	p.stored = p.policy != "" || p.durable != "" || p.topic != ""
	if p.stored && p.policy == "" {
		p.policy = "new"
		if p.durable != "" {
			p.policy = "all"
		}
	}
	return p, nil
}

// start reads where to begin. What was received last counts more than where the
// first connection began.
func (p *params) start(from, last string, now time.Time) *failure {
	if last != "" && p.durable == "" {
		n, err := strconv.ParseUint(last, 10, 64)
		if err != nil {
			return badParam("Last-Event-ID: a sequence, as the id of an event is")
		}
		p.policy, p.startSeq = "by_start_sequence", n+1
		return nil
	}
	switch from {
	case "", "new", "last":
		p.policy = from
		return nil
	case "first", "all":
		p.policy = "all"
		return nil
	case "last_per_subject":
		p.policy = "last_per_subject"
		return nil
	}
	if n, err := strconv.ParseUint(strings.TrimPrefix(from, "seq:"), 10, 64); err == nil && n > 0 {
		p.policy, p.startSeq = "by_start_sequence", n
		return nil
	}
	at := strings.TrimPrefix(from, "time:")
	if d, err := time.ParseDuration(at); err == nil && d >= 0 {
		p.policy, p.startTime = "by_start_time", now.Add(-d).UTC()
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return badParam("from: first, new, last, last_per_subject, a sequence, a time (RFC 3339) or how long ago (5m), not " + strconv.Quote(from))
	}
	p.policy, p.startTime = "by_start_time", t.UTC()
	return nil
}
