package jetstream

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// A route is what one API subject leads to.
type route struct {
	reply   string // the reply's type without its prefix
	tokens  int    // names in the subject: 0, 1 the stream, 2 the consumer too
	tail    bool   // more tokens may follow the names
	system  bool   // only in the system account
	mutates bool
	place   place
	serve   func(*request) (any, error)
}

// A request is one API call. It belongs to one worker.
type request struct {
	api    *accountAPI
	route  *route
	op     string
	stream string
	name   string // the consumer's
	tail   string // what follows in the subject
	msg    *front.Message
	after  []func()  // run once the reply is on its way
	until  time.Time // how long it may wait for a leader; zero before it has to
}

// parseRequest finds the route of a subject and takes the names out of it.
func parseRequest(rest string) (*request, bool) {
	op, names := rest, ""
	for {
		if rt := routes[op]; rt != nil {
			r := &request{route: rt, op: op}
			return r, r.take(names)
		}
		i := strings.LastIndexByte(op, '.')
		if i < 0 {
			return nil, false
		}
		op, names = rest[:i], rest[i+1:]
	}
}

// take spreads the tokens behind the operation over the request.
func (r *request) take(names string) bool {
	var ok bool
	switch r.route.tokens {
	case 0:
		return names == ""
	case 1:
		r.stream, r.tail, ok = strings.Cut(names, ".")
	default:
		r.stream, r.name, ok = strings.Cut(names, ".")
		if !ok && r.op != "CONSUMER.CREATE" {
			return false
		}
		r.name, r.tail, ok = strings.Cut(r.name, ".")
		if r.op != "CONSUMER.CREATE" && r.name == "" {
			return false
		}
	}
	return r.stream != "" && (r.route.tail || !ok)
}

// key orders what must not overtake: requests about one consumer, and those
// about one stream.
func (r *request) key() string { return r.api.name + "\x00" + r.stream + "\x00" + r.name }

// serve answers a request, or sees to it that another node does. It runs on a
// worker.
func (r *request) serve() {
	if r.passOn() {
		return
	}
	reply, err := r.answer()
	if errors.Is(err, errHandedOn) {
		r.passed()
		return
	}
	if r.mayRepeat(err) {
		r.park(r.answering())
		return
	}
	r.finish(reply, err)
}

// answering is the group whose leader had to answer.
func (r *request) answering() topics.GroupID {
	if t, ok := r.api.topic(r.stream); ok && r.route.place == ofStream {
		return t.Group().ID()
	}
	return topics.CatalogueGroup
}

// finish sends the answer.
func (r *request) finish(reply any, err error) {
	r.api.total.Add(1)
	if err != nil {
		r.api.failed.Add(1)
		var f *topics.Fault
		if !errors.As(err, &f) {
			r.api.s.o.Log.Error("API request not served", "subject", string(r.msg.Subject), "error", err)
		}
		head := jsapi.Head(r.route.reply)
		head.Error = jsapi.ErrorOf(err)
		reply = head
	}
	body := jsapi.Marshal(reply)
	r.api.inflight.Add(^uint64(0)) // before the client can ask how many there are
	r.msg.Respond(nil, body)
	for _, f := range r.after {
		f()
	}
	r.audit(body)
}

// refusal is why a request is answered by the node it came to, whatever it asks.
func (r *request) refusal() *topics.Fault {
	switch {
	case !r.route.system && r.api.limits.Load() == nil:
		return jsapi.ErrNotEnabledForAccount
	case !jsapi.LevelMet(r.msg.Header):
		return jsapi.ErrRequiredAPILevel
	}
	return nil
}

func (r *request) answer() (any, error) {
	if f := r.refusal(); f != nil {
		return nil, f
	}
	return r.route.serve(r)
}

// decode reads the body into v; an empty body leaves v as it is.
func (r *request) decode(v any) error {
	if len(r.msg.Payload) == 0 {
		return nil
	}
	return jsapi.Decode(r.msg.Payload, v, !r.api.s.o.Lenient)
}

// empty refuses a body.
func (r *request) empty() error { return jsapi.Empty(r.msg.Payload) }

// topic finds the stream the subject names. For a request that only reads it
// waits until what was published before is there to be read, and until what any
// node has been told is.
func (r *request) topic() (*state.Topic, error) {
	t, ok := r.api.topic(r.stream)
	if !ok {
		return nil, jsapi.ErrStreamNotFound
	}
	if r.route.place == ofCatalogue || r.route.mutates && r.route.tokens < 2 {
		return t, nil
	}
	ctx, cancel := r.wait()
	defer cancel()
	if !r.route.mutates {
		t.Group().Settle(ctx)
	}
	// What changes a consumer looks at it first.
	if err := r.api.s.linearize(ctx, t); err != nil {
		return nil, err
	}
	if t.Data() == nil {
		return nil, replication.ErrNotLeader
	}
	return t, nil
}

// topicLed finds the stream the subject names where it can be changed, without asking
// whether this node still leads it: whoever proposes something is told.
func (r *request) topicLed() (*state.Topic, error) {
	t, ok := r.api.topic(r.stream)
	switch {
	case !ok:
		return nil, jsapi.ErrStreamNotFound
	case t.Data() == nil:
		return nil, replication.ErrNotLeader
	}
	return t, nil
}

// topicAsked reads the request's body and then finds the stream its subject
// names: bad JSON is told before a stream that isn't there.
func (r *request) topicAsked(body any) (*state.Topic, error) {
	if err := r.decode(body); err != nil {
		return nil, err
	}
	return r.topic()
}

// wait returns the context of a change that waits for its commit.
func (r *request) wait() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.api.s.ctx, r.api.s.o.Timeout)
}
