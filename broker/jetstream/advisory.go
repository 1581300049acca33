package jetstream

import (
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
)

// Advisories are best effort: they are published once, to whoever listens, and
// a stream that captures them keeps them like any other message.

func (a *accountAPI) advise(subject string, advisory any) {
	a.account.Publish(subject, "", nil, jsapi.Marshal(advisory))
}

// heard tells whether anybody gets what is published to a subject, or a topic keeps it.
func (a *accountAPI) heard(subject string) bool {
	return a.account.HasInterest(subject) || a.account.Captures(subject)
}

func (a *accountAPI) event(short string) jsapi.Event { return a.s.newEvent(short) }

func (s *Service) newEvent(short string) jsapi.Event {
	return jsapi.NewEvent(short, nuid.Next(), s.o.Now())
}

// limitReached tells that a request was dropped because too many wait. At most
// one advisory a second, with the number dropped since the last.
func (a *accountAPI) limitReached() {
	a.dropped.Add(1)
	now := a.s.o.Now().UnixNano()
	if last := a.dropAdvised.Load(); now-last < int64(time.Second) || !a.dropAdvised.CompareAndSwap(last, now) {
		return
	}
	n := a.dropped.Swap(0)
	a.s.o.Log.Warn("API requests dropped: too many wait for a worker", "account", a.name, "dropped", n)
	a.advise(jsapi.AdvisoryAPILimit, &jsapi.APILimitReached{
		Event: a.event("api_limit_reached"), Server: a.s.o.ServerName, Domain: a.s.o.Domain, Dropped: int64(n),
	})
}

// audit tells of a request and its reply.
func (r *request) audit(reply []byte) {
	a := r.api
	if !a.heard(jsapi.AdvisoryAPI) {
		return
	}
	a.advise(jsapi.AdvisoryAPI, &jsapi.APIAudit{
		Event: a.event("api_audit"), Server: a.s.o.ServerName, Client: clientInfo(r.msg.Client, a),
		Subject: string(r.msg.Subject), Request: string(r.msg.Payload), Reply: string(reply), Domain: a.s.o.Domain,
	})
}

func clientInfo(c *front.ClientInfo, a *accountAPI) *jsapi.ClientInfo {
	if c == nil {
		return &jsapi.ClientInfo{Account: a.name, Server: a.s.o.ServerName, Kind: "Account"}
	}
	start := c.Start.UTC()
	return &jsapi.ClientInfo{
		Start: &start, Host: c.Host, ID: c.ID, Account: a.name, User: c.User, Name: c.Name, Lang: c.Lang,
		Version: c.Version, RTT: c.RTT(), Server: a.s.o.ServerName, Kind: c.Kind, ClientType: c.Type,
	}
}

func (r *request) streamAction(action string) {
	word := map[string]string{
		jsapi.ActionCreated: "CREATED", jsapi.ActionDeleted: "DELETED", jsapi.ActionModified: "UPDATED",
	}[action]
	subject := jsapi.AdvisoryPrefix + "STREAM." + word + "." + r.stream
	if !r.api.heard(subject) {
		return // who makes thousands of streams mostly has nobody listen
	}
	r.api.advise(subject, &jsapi.StreamAction{
		Event: r.api.event("stream_action"), Stream: r.stream, Action: action, Domain: r.api.s.o.Domain,
	})
}

func (r *request) consumerAction(action string) {
	word := map[string]string{jsapi.ActionCreated: "CREATED", jsapi.ActionDeleted: "DELETED"}[action]
	subject := jsapi.AdvisoryPrefix + "CONSUMER." + word + "." + r.stream + "." + r.name
	if !r.api.heard(subject) {
		return
	}
	r.api.advise(subject, &jsapi.ConsumerAction{
		Event: r.api.event("consumer_action"), Stream: r.stream, Consumer: r.name, Action: action,
		Domain: r.api.s.o.Domain,
	})
}

func (r *request) pauseAdvisory(paused bool, until time.Time) {
	r.api.advise(jsapi.AdvisoryPrefix+"CONSUMER.PAUSE."+r.stream+"."+r.name, &jsapi.ConsumerPause{
		Event: r.api.event("consumer_pause"), Stream: r.stream, Consumer: r.name,
		Paused: paused, PauseUntil: until, Domain: r.api.s.o.Domain,
	})
}
