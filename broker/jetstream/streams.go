package jetstream

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
)

func (r *request) streamCreate() (any, error) {
	var req jsapi.StreamRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if req.Name != r.stream {
		return nil, jsapi.ErrStreamMismatch
	}
	if f := completeStream(&req.Config, r.api.s.environment(r.api), req.Pedantic); f != nil {
		return nil, f
	}
	if req.Sealed {
		return nil, badConfig("stream configuration for create can not be sealed")
	}
	if f := r.api.s.unsupported(&req.Config); f != nil {
		return nil, f
	}
	ctx, cancel := r.wait()
	defer cancel()
	t, created, err := r.api.s.o.State.CreateTopic(ctx, r.api.name, req.Config)
	if err != nil {
		return nil, err
	}
	r.api.s.seen(t.Group().ID(), r.msg.Forwarded)
	if created {
		r.streamAction(jsapi.ActionCreated)
	}
	// An equal stream that was there is as good as a new one: clients that
	// create at each start rely on it.
	describe := r.api.s.changed
	if created {
		describe = r.api.s.created
	}
	return &jsapi.StreamCreateReply{Reply: r.head(), StreamInfo: describe(t), DidCreate: true}, nil
}

// Create makes a topic as a request for a stream does, for another room of the broker; it
// needn't be complete. One of an equal config is as good. Whether whoever asks may is for
// the caller to check.
func (s *Service) Create(ctx context.Context, account string, cfg topics.Config) (*state.Topic, error) {
	s.mu.Lock()
	a := s.accounts[account]
	s.mu.Unlock()
	if a == nil {
		return nil, jsapi.ErrNotEnabledForAccount
	}
	if f := completeStream(&cfg, s.environment(a), false); f != nil {
		return nil, f
	}
	if f := s.unsupported(&cfg); f != nil {
		return nil, f
	}
	t, _, err := s.o.State.CreateTopic(ctx, account, cfg)
	return t, err
}

// unsupported refuses what configs may ask for but Herald can't do yet, instead
// of taking it and not doing it.
func (s *Service) unsupported(c *topics.Config) *topics.Fault {
	switch {
	case s.o.Sources != nil:
		return nil
	case c.Mirror != nil:
		return badConfig("stream mirrors are not supported by this server")
	case len(c.Sources) > 0:
		return badConfig("stream sources are not supported by this server")
	}
	return nil
}

func (r *request) streamUpdate() (any, error) {
	var req jsapi.StreamRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if req.Name != r.stream {
		return nil, jsapi.ErrStreamMismatch
	}
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	if f := completeStream(&req.Config, r.api.s.environment(r.api), req.Pedantic); f != nil {
		return nil, f
	}
	// With it the stream would be deleted at the next start, which is not what the
	// right to update a stream gives.
	delete(req.Config.Metadata, keyRestoring)
	now := t.Config()
	if f := updateStream(now, &req.Config); f != nil {
		return nil, f
	}
	if f := r.api.s.unsupported(&req.Config); f != nil {
		return nil, f
	}
	req.FirstSeq = max(req.FirstSeq, now.FirstSeq)
	ctx, cancel := r.wait()
	defer cancel()
	if err := r.api.s.fits(ctx, t, &req.Config); err != nil {
		return nil, err
	}
	t, err = r.api.s.o.State.UpdateTopic(ctx, r.api.name, req.Config)
	if err != nil {
		return nil, err
	}
	r.api.s.seen(t.Group().ID(), r.msg.Forwarded)
	r.streamAction(jsapi.ActionModified)
	return &jsapi.StreamCreateReply{Reply: r.head(), StreamInfo: r.api.s.changed(t)}, nil
}

// consumersFit refuses consumer limits that consumers already exceed.
func consumersFit(data *store.Topic, next *topics.Config) *topics.Fault {
	limits := next.ConsumerLimits
	if limits == (topics.ConsumerLimits{}) {
		return nil
	}
	var names []string
	data.Consumers(func(c *consumer.Consumer) bool {
		cfg := c.Config()
		if limits.MaxAckPending > 0 && cfg.AckPolicy != topics.AckNone &&
			(cfg.MaxAckPending > limits.MaxAckPending || cfg.MaxAckPending <= 0) ||
			limits.InactiveThreshold > 0 && cfg.InactiveThreshold > limits.InactiveThreshold {
			names = append(names, c.Name())
		}
		return true
	})
	if len(names) > 0 {
		return jsapi.StreamUpdate("change to limits violates consumers: " + strings.Join(names, ", "))
	}
	return nil
}

func (r *request) streamDelete() (any, error) {
	if err := r.empty(); err != nil {
		return nil, err
	}
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.wait()
	defer cancel()
	if err := r.api.s.o.State.DeleteTopic(ctx, r.api.name, r.stream); err != nil {
		return nil, err
	}
	r.api.s.seen(t.Group().ID(), r.msg.Forwarded)
	r.streamAction(jsapi.ActionDeleted)
	return &jsapi.SuccessReply{Reply: r.head(), Success: true}, nil
}

func (r *request) streamPurge() (any, error) {
	var req jsapi.PurgeRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	cfg := t.Config()
	switch {
	case cfg.Sealed:
		return nil, jsapi.ErrStreamSealed
	case cfg.DenyPurge:
		return nil, jsapi.StreamPurge("stream purge not permitted")
	case req.Sequence > 0 && req.Keep > 0:
		return nil, jsapi.ErrBadRequest
	}
	ctx, cancel := r.wait()
	defer cancel()
	n, err := r.api.s.o.State.Purge(ctx, t, store.Purge{
		Sequence: topics.Sequence(req.Sequence), Subject: req.Subject, Keep: req.Keep,
	})
	if err != nil {
		return nil, err
	}
	return &jsapi.PurgeReply{SuccessReply: jsapi.SuccessReply{Reply: r.head(), Success: true}, Purged: n}, nil
}

func (r *request) streamInfoReply() (any, error) {
	var req jsapi.StreamInfoRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	reply := &jsapi.StreamInfoReply{Reply: r.head(), StreamInfo: r.api.s.StreamInfo(t)}
	reply.Alternates = r.api.s.alternates(t)
	if req.DeletedDetails {
		t.Data().DeletedSequences(func(seq topics.Sequence) bool {
			reply.State.Deleted = append(reply.State.Deleted, uint64(seq))
			return true
		})
		reply.State.NumDeleted = len(reply.State.Deleted)
	}
	if req.SubjectsFilter != "" {
		r.subjectCounts(t, &req, reply)
	}
	return reply, nil
}

// subjectCounts adds a page of the stream's subjects to an info.
func (r *request) subjectCounts(t *state.Topic, req *jsapi.StreamInfoRequest, reply *jsapi.StreamInfoReply) {
	counts := make(map[string]uint64)
	t.Data().SubjectCounts(topics.NewFilter([]string{req.SubjectsFilter}), func(s string, n uint64) bool {
		counts[s] = n
		return true
	})
	if len(counts) == 0 {
		return
	}
	names := make([]string, 0, len(counts))
	for s := range counts {
		names = append(names, s)
	}
	slices.Sort(names)
	page, from, to := jsapi.Window(len(names), req.Offset, jsapi.SubjectsLimit)
	reply.Page = page
	if to-from < len(names) {
		for _, s := range slices.Concat(names[:from], names[to:]) {
			delete(counts, s)
		}
	}
	reply.State.Subjects = counts
}

// head returns the head of the request's reply.
func (r *request) head() jsapi.Reply { return jsapi.Head(r.route.reply) }

// StreamInfo describes a stream as STREAM.INFO does, by what this node knows.
func (s *Service) StreamInfo(t *state.Topic) *jsapi.StreamInfo {
	info := s.describe(t)
	info.Cluster = s.cluster(t)
	return info
}

// describe describes a stream, its metadata as replies show it.
func (s *Service) describe(t *state.Topic) *jsapi.StreamInfo { return shown(s.summary(t)) }

// summary describes a stream as lists show it.
func (s *Service) summary(t *state.Topic) *jsapi.StreamInfo {
	info := &jsapi.StreamInfo{
		Config: t.Config(), Created: t.Created(), Domain: s.o.Domain, Time: s.o.Now().UTC(),
	}
	if data := t.Data(); data != nil { // else no replica is here
		info.State = streamState(data.State())
	}
	if s.o.Sources != nil {
		info.Mirror, info.Sources = s.o.Sources(t.ID())
	}
	return info
}

func streamState(s topics.State) jsapi.StreamState {
	out := jsapi.StreamState{
		Messages: s.Messages, Bytes: s.Bytes, LastSeq: uint64(s.Last), FirstSeq: uint64(s.First),
		FirstTime: wireTime(s.FirstTime), LastTime: wireTime(s.LastTime),
		NumSubjects: s.Subjects, NumDeleted: int(s.Deleted), Consumers: s.Consumers,
	}
	if s.Last == 0 {
		out.FirstSeq = 0 // never had a message
	}
	return out
}

// wireTime turns a log time into one for JSON; 0 is the zero time.
func wireTime(t topics.Nanos) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}
