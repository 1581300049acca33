package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// consumerCreate serves all three forms of the subject.
func (r *request) consumerCreate() (any, error) {
	var req jsapi.ConsumerRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if req.Stream != r.stream {
		return nil, jsapi.ErrStreamMismatch
	}
	if f := r.nameConsumer(&req.Config); f != nil {
		return nil, f
	}
	t, err := r.topicLed()
	if err != nil {
		return nil, err
	}
	cfg := t.Config()
	env := r.api.s.environment(r.api)
	if limit := env.maxRequestBatch; limit > 0 && req.Config.MaxRequestBatch > limit {
		return nil, jsapi.ConsumerMaxBatch(limit)
	}
	if f := completeConsumer(&req.Config, cfg, env, req.Pedantic); f != nil {
		return nil, f
	}
	if to := req.Config.Metadata[consumer.KeyDeadSubject]; to != "" && !r.msg.Client.MayPublish(to) {
		return nil, mayNotBury(to)
	}
	// Two creates at once on a work queue could each find the other missing.
	if cfg.Retention == topics.RetainWorkQueue {
		mu := r.api.s.exclusive(r.api.name, r.stream)
		mu.Lock()
		defer mu.Unlock()
	}
	if r.name == "" {
		r.name = req.Config.Name
	}
	if r.name == "" {
		r.name = newConsumerName()
	}
	if err := r.putConsumer(t, &req); err != nil {
		return nil, err
	}
	describe := r.api.s.consumerInfo
	if len(r.after) > 0 { // its delivery starts after the answer
		describe = func(t *state.Topic, name string) (*jsapi.ConsumerInfo, bool) {
			return r.api.s.committedInfo(t, name, nil)
		}
	}
	info, ok := describe(t, r.name)
	if !ok {
		return nil, jsapi.ErrConsumerNotFound
	}
	return &jsapi.ConsumerInfoReply{Reply: r.head(), ConsumerInfo: r.api.s.placed(t, info)}, nil
}

// newConsumerName makes up a name for a consumer that was given none.
func newConsumerName() string { return rand.Text()[:8] }

// nameConsumer makes the names in subject and body agree.
func (r *request) nameConsumer(c *topics.ConsumerConfig) *topics.Fault {
	switch {
	case r.op == "CONSUMER.DURABLE.CREATE":
		if c.Durable == "" {
			return jsapi.ErrConsumerDurableNotSet
		}
		if c.Durable != r.name {
			return jsapi.ErrConsumerDurableNotMatch
		}
	case r.name == "":
		if c.Durable != "" {
			return jsapi.ErrConsumerEphemeralWithDurable
		}
	case c.Durable != "" && c.Durable != r.name:
		return jsapi.ErrConsumerDurableNotMatch
	default:
		c.Name = r.name // what the subject says counts
	}
	if c.Durable != "" && c.Name != "" && c.Durable != c.Name {
		return jsapi.ErrConsumerDurableAndName
	}
	if r.tail == "" {
		return nil
	}
	if len(c.FilterSubjects) > 0 {
		return jsapi.ErrConsumerMultipleFilters
	}
	if c.FilterSubject != r.tail {
		return jsapi.ErrConsumerFilterMismatch
	}
	return nil
}

// putConsumer creates or updates the consumer as the request's action asks.
func (r *request) putConsumer(t *state.Topic, req *jsapi.ConsumerRequest) error {
	ctx, cancel := r.wait()
	defer cancel()
	st := r.api.s.o.State
	if t.Data().ConsumerID(r.name) == 0 && req.Action != jsapi.ActionUpdate {
		// As far as this node knows it is new. If it is not, it will be told.
		err := r.newConsumer(ctx, t, req)
		if !errors.Is(err, jsapi.ErrConsumerAlreadyExists) {
			return err
		}
	}
	if err := r.api.s.linearize(ctx, t); err != nil {
		return err
	}
	if t.Data() == nil {
		return replication.ErrNotLeader
	}
	old := t.Data().Consumer(r.name)
	if old == nil {
		if req.Action == jsapi.ActionUpdate {
			return jsapi.ErrConsumerDoesNotExist
		}
		return r.newConsumer(ctx, t, req)
	}
	if f := checkAmongOthers(&req.Config, t.Config(), otherConsumers(t, r.name)); f != nil {
		return f
	}
	now := old.Config()
	same := sameConsumer(now, req.Config)
	if req.Action == jsapi.ActionCreate {
		if !same {
			return jsapi.ErrConsumerAlreadyExists
		}
		return nil
	}
	if same {
		return nil
	}
	active := false
	if now.IsPush() {
		active = r.api.account.HasInterest(now.DeliverSubject)
	}
	if f := updateConsumer(&now, &req.Config, active); f != nil {
		return f
	}
	if !now.IsDurable() && req.Config.IsDurable() {
		now.Durable = req.Config.Durable
	}
	req.Config.PauseUntil = now.PauseUntil // only CONSUMER.PAUSE changes it
	return st.UpdateConsumer(ctx, t, r.name, req.Config)
}

// newConsumer creates the consumer.
func (r *request) newConsumer(ctx context.Context, t *state.Topic, req *jsapi.ConsumerRequest) error {
	if f := checkAmongOthers(&req.Config, t.Config(), otherConsumers(t, r.name)); f != nil {
		return f
	}
	if req.Config.IsPush() && len(r.after) == 0 {
		r.after = append(r.after, r.api.s.hold(t.ID(), r.name))
	}
	if _, err := r.api.s.o.State.CreateConsumer(ctx, t, r.name, req.Config); err != nil {
		return err
	}
	r.consumerAction(jsapi.ActionCreated)
	return nil
}

// otherConsumers returns the configs that rules among a work queue's consumers
// look at.
func otherConsumers(t *state.Topic, name string) (out []topics.ConsumerConfig) {
	if t.Config().Retention != topics.RetainWorkQueue {
		return nil
	}
	t.Data().Consumers(func(c *consumer.Consumer) bool {
		if cfg := c.Config(); c.Name() != name && !cfg.Direct {
			out = append(out, cfg)
		}
		return true
	})
	return out
}

// consumer finds the stream and consumer the subject names.
func (r *request) consumer() (*state.Topic, error) {
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	if t.Data().ConsumerID(r.name) == 0 {
		return nil, jsapi.ErrConsumerNotFound
	}
	return t, nil
}

func (r *request) consumerInfoReply() (any, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	info, ok := r.api.s.consumerInfo(t, r.name)
	if !ok {
		return nil, jsapi.ErrConsumerNotFound
	}
	info.Cluster = r.api.s.consumerCluster(t, info.Config)
	return &jsapi.ConsumerInfoReply{Reply: r.head(), ConsumerInfo: info}, nil
}

func (r *request) consumerDelete() (any, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.wait()
	defer cancel()
	ok, err := r.api.s.o.State.DeleteConsumer(ctx, t, r.name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, jsapi.ErrConsumerNotFound
	}
	r.consumerAction(jsapi.ActionDeleted)
	return &jsapi.SuccessReply{Reply: r.head(), Success: true}, nil
}

func (r *request) consumerNames() (any, error) {
	var req jsapi.PageRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	names := t.Data().ConsumerNames()
	page, from, to := jsapi.Window(len(names), req.Offset, jsapi.NamesLimit)
	return &jsapi.ConsumerNamesReply{
		Reply: r.head(), Page: page, Consumers: append([]string{}, names[from:to]...),
	}, nil
}

func (r *request) consumerList() (any, error) {
	var req jsapi.PageRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	names := t.Data().ConsumerNames()
	page, from, to := jsapi.Window(len(names), req.Offset, jsapi.ListLimit)
	return &jsapi.ConsumerListReply{
		Reply: r.head(), Page: page, Consumers: r.api.s.consumerInfos(t, names[from:to]),
	}, nil
}

func (r *request) consumerPause() (any, error) {
	var req jsapi.PauseRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	t, err := r.consumer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.wait()
	defer cancel()
	if !req.PauseUntil.IsZero() {
		req.PauseUntil = wireTime(topics.NanosOf(req.PauseUntil)) // UTC may be in another year, even the year 10000
	}
	if err := r.api.s.o.State.PauseConsumer(ctx, t, r.name, req.PauseUntil); err != nil {
		return nil, err
	}
	reply := &jsapi.PauseReply{Reply: r.head(), PauseUntil: req.PauseUntil}
	if left := req.PauseUntil.Sub(r.api.s.o.Now()); !req.PauseUntil.IsZero() && left > 0 {
		reply.Paused, reply.PauseRemaining = true, left
	}
	r.pauseAdvisory(reply.Paused, reply.PauseUntil)
	return reply, nil
}

func (r *request) consumerReset() (any, error) {
	var req jsapi.ResetRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	t, err := r.consumer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.wait()
	defer cancel()
	// Who seeks says where to on purpose.
	if _, seeks := jsapi.HeaderValue(r.msg.Header, jsapi.HeaderSeek); !seeks {
		if f := mayReset(t, r.name, topics.Sequence(req.Seq)); f != nil {
			return nil, f
		}
	}
	next, err := r.api.s.o.State.ResetConsumer(ctx, t, r.name, topics.Sequence(req.Seq))
	if err != nil {
		return nil, err
	}
	info, ok := r.api.s.consumerInfo(t, r.name)
	if !ok {
		return nil, jsapi.ErrConsumerNotFound
	}
	return &jsapi.ResetReply{Reply: r.head(), ConsumerInfo: r.api.s.placed(t, info), ResetSeq: uint64(next)}, nil
}

// mayReset tells whether a consumer may be moved to seq: not to before where its
// deliver policy let it start. 0 is always allowed.
func mayReset(t *state.Topic, name string, seq topics.Sequence) *topics.Fault {
	c := t.Data().Consumer(name)
	if c == nil {
		return jsapi.ErrConsumerNotFound
	}
	if seq == 0 {
		return nil
	}
	switch cfg := c.Config(); cfg.DeliverPolicy {
	case topics.DeliverAll:
		return nil
	case topics.DeliverByStartSeq:
		if seq < topics.Sequence(cfg.OptStartSeq) {
			return jsapi.ConsumerReset("below start seq")
		}
		return nil
	case topics.DeliverByStartTime:
		if cfg.OptStartTime != nil && seq < t.Data().SequenceAt(topics.NanosOf(*cfg.OptStartTime)) {
			return jsapi.ConsumerReset("below start time")
		}
		return nil
	}
	return jsapi.ConsumerReset("not allowed")
}

// consumerUnpin frees a priority group from the client it is pinned to.
func (r *request) consumerUnpin() (any, error) {
	var req jsapi.UnpinRequest
	if err := jsapi.Decode(r.msg.Payload, &req, !r.api.s.o.Lenient); err != nil {
		return nil, err
	}
	t, err := r.consumer()
	if err != nil {
		return nil, err
	}
	e := r.api.s.engine(t)
	if e == nil || !e.Leads() && r.api.s.clustered() {
		return nil, replication.ErrNotLeader
	}
	if !e.Unpin(t.ID(), r.name, req.Group) {
		return nil, jsapi.ErrConsumerInvalidGroup
	}
	return &jsapi.SuccessReply{Reply: r.head()}, nil
}

// optionalTime returns a log time for a field that is left out when never.
func optionalTime(t topics.Nanos) *time.Time {
	if t == 0 {
		return nil
	}
	w := wireTime(t)
	return &w
}
