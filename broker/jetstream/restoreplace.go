package jetstream

import (
	"context"
	"errors"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/topics"
)

// In a cluster the catalogue's leader makes the stream of a restore, and the node
// that leads the stream's group fills it: it is handed the same request once more,
// with a header that says so. Clients can't set it, see unmarked.

const restoreHeader = "Herald-Restore"

// errHandedOn is what a handler returns whose request another node answers.
var errHandedOn = errors.New("handed on")

// unmarked takes the header off what comes from a client.
func unmarked(m *front.Message) {
	if m.Forwarded == "" && len(m.Header) > 0 && wire.HeaderHas(m.Header, restoreHeader) {
		m.Header = wire.HeaderRemove(m.Header, func(key []byte) bool { return string(key) == restoreHeader })
	}
}

// continues tells whether a request is a restore whose stream is made already.
func (r *request) continues() bool {
	return r.op == "STREAM.RESTORE" && r.msg.Forwarded != "" && len(r.msg.Header) > 0 && wire.HeaderHas(r.msg.Header, restoreHeader)
}

// prepare makes the stream that a restore fills, or finds it where it was made. It
// gives errHandedOn when another node goes on.
func (r *request) prepare(b *restore, st *jsapi.StreamState) error {
	s := r.api.s
	if !s.clustered() {
		return nil
	}
	first := max(st.FirstSeq, 1)
	if r.continues() {
		t, ok := r.api.topic(r.stream)
		if !ok && s.freshCatalogue() == nil {
			t, ok = r.api.topic(r.stream)
		}
		if !ok || t.Config().Metadata[keyRestoring] == "" || t.Data() == nil {
			return jsapi.ErrClusterUnavailable
		}
		b.topic, b.first = t, first
		return nil
	}
	ctx, cancel := r.wait()
	defer cancel()
	t, created, err := s.o.State.CreateTopic(ctx, r.api.name, b.bare(first, s.o.Peers.Name()))
	if err != nil {
		return err
	}
	if !created {
		return jsapi.ErrStreamNameRestoreExist
	}
	err = r.handOver(ctx, t)
	if err == nil {
		b.topic, b.first = t, first
	} else if !errors.Is(err, errHandedOn) {
		b.topic = t
		b.drop()
	}
	return err
}

// handOver gives a restore to the node that leads its stream; nil when it is this
// one.
func (r *request) handOver(ctx context.Context, t *state.Topic) error {
	s := r.api.s
	for end := time.Now().Add(leaderPatience); time.Now().Before(end) && ctx.Err() == nil; {
		leader := s.leaderOf(t)
		if leader == s.o.Peers.Name() && t.Data() != nil {
			return nil
		}
		if leader != "" && leader != s.o.Peers.Name() {
			m := *r.msg
			m.Header, m.Forwarded = wire.HeaderSet(m.Header, restoreHeader, "1"), ""
			if s.o.Peers.Forward(leader, &m) == nil {
				return errHandedOn
			}
		}
		time.Sleep(waitingLook)
	}
	return jsapi.ErrClusterUnavailable
}

// drop deletes what a restore has made.
func (b *restore) drop() {
	ctx, cancel := b.wait()
	defer cancel()
	if e := b.s.o.State.DeleteTopic(ctx, b.api.name, b.cfg.Name); e != nil {
		b.s.o.Log.Warn("what a restore left can't be deleted before the next start", "account", b.api.name, "stream", b.cfg.Name, "error", e)
	}
}

// dropUnfinished deletes the streams whose restore a crash has ended: in a cluster
// those that an earlier run of this node has begun.
func (s *Service) dropUnfinished() {
	mine := "true"
	if s.clustered() {
		mine = s.o.Peers.Name()
	}
	s.o.State.Topics("", func(t *state.Topic) bool {
		if t.Config().Metadata[keyRestoring] != mine || !s.clustered() && !t.Group().IsLeader() {
			return true
		}
		s.moving.Go(func() { s.dropTopic(t.ID()) })
		return true
	})
}

// dropAttempts is how often it is tried to delete what a crash has left: the
// cluster may not have formed yet.
const dropAttempts = 10

func (s *Service) dropTopic(id topics.TopicID) {
	for i := range dropAttempts {
		t, ok := s.o.State.TopicByID(id)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
		err := s.o.State.DeleteTopic(ctx, t.Account(), t.Name())
		cancel()
		if err == nil {
			s.o.Log.Info("a stream was deleted whose restore did not end", "account", t.Account(), "stream", t.Name())
			return
		}
		if !s.clustered() || s.ctx.Err() != nil || i+1 == dropAttempts {
			s.o.Log.Warn("what a restore left can't be deleted before the next start", "account", t.Account(), "stream", t.Name(), "error", err)
			return
		}
		timer := time.NewTimer(callPatience)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
	}
}
