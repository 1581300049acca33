package jetstream

import (
	"errors"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

func (r *request) msgGet() (any, error) {
	var req jsapi.MsgGetRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	if req.Batch != 0 || req.MaxBytes != 0 || len(req.MultiLast) > 0 || req.UpToSeq != 0 || req.UpToTime != nil ||
		!oneStart(&req) {
		return nil, jsapi.ErrBadRequest
	}
	m, err := find(t.Data(), &req)
	if errors.Is(err, store.ErrNotFound) {
		return nil, jsapi.ErrNoMessageFound
	}
	if err != nil {
		return nil, err
	}
	out := &jsapi.StoredMessage{
		Subject: m.Subject, Sequence: uint64(m.Sequence), Data: m.Payload, Time: wireTime(m.Time),
	}
	if !req.NoHeaders {
		out.Header = m.Header
	}
	return &jsapi.MsgGetReply{Reply: r.head(), Message: out}, nil
}

func (r *request) msgDelete() (any, error) {
	var req jsapi.MsgDeleteRequest
	t, err := r.topicAsked(&req)
	if err != nil {
		return nil, err
	}
	cfg := t.Config()
	switch {
	case req.Seq == 0:
		return nil, jsapi.ErrBadRequest
	case cfg.Sealed:
		return nil, jsapi.ErrStreamSealed
	case cfg.DenyDelete:
		return nil, jsapi.MessageDelete("message delete not permitted")
	}
	ctx, cancel := r.wait()
	defer cancel()
	ok, err := r.api.s.o.State.DeleteMessage(ctx, t, topics.Sequence(req.Seq))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, jsapi.SequenceNotFound(topics.Sequence(req.Seq))
	}
	return &jsapi.SuccessReply{Reply: r.head(), Success: true}, nil
}
