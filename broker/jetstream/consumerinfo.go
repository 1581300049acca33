package jetstream

import (
	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// consumerInfo describes a consumer: what is committed, and over it what the
// leader's live copy knows better.
func (s *Service) consumerInfo(t *state.Topic, name string) (*jsapi.ConsumerInfo, bool) {
	if e := s.engine(t); e != nil && s.leads(t.Group().ID()) {
		if live, leads := e.Info(t.ID(), name); leads {
			return s.committedInfo(t, name, &live)
		}
	}
	return s.committedInfo(t, name, nil)
}

// committedInfo describes a consumer by what is committed, without setting its
// delivery going; live, when not nil, knows some of it better.
func (s *Service) committedInfo(t *state.Topic, name string, live *delivery.LiveInfo) (*jsapi.ConsumerInfo, bool) {
	c := t.Data().Consumer(name)
	if c == nil {
		return nil, false
	}
	cfg := c.Config()
	cfg.Metadata = jsapi.ReplyMetadata(cfg.Metadata)
	now := s.o.Now()
	if live == nil {
		// c is a copy of ours: made a leading one, it can count, and knows what the
		// topic has let go of.
		c.Lead(t.Data())
		first, _ := t.Data().Bounds()
		c.Shed(first, topics.NanosOf(now))
	}
	info := &jsapi.ConsumerInfo{
		Stream: t.Name(), Name: name, Created: wireTime(c.Created()), Config: &cfg, Time: now.UTC(),
		Delivered: sequenceInfo(c.Delivered()), AckFloor: sequenceInfo(c.AckFloor()),
		NumAckPending: c.NumAckPending(), NumRedelivered: c.NumRedelivered(),
	}
	if until := c.PausedUntil(); until != 0 {
		info.PauseRemaining = max(wireTime(until).Sub(now), 0)
	}
	if live != nil {
		overlay(info, live)
	} else {
		info.NumPending = c.NumPending()
	}
	info.Paused = info.PauseRemaining > 0
	if len(cfg.PriorityGroups) > 0 && len(info.PriorityGroups) == 0 {
		info.PriorityGroups = []jsapi.PriorityGroupState{{Group: cfg.PriorityGroups[0]}}
	}
	return info, true
}

func sequenceInfo(p consumer.Position) jsapi.SequenceInfo {
	return jsapi.SequenceInfo{Consumer: p.Consumer, Stream: uint64(p.Stream), Last: optionalTime(p.Time)}
}

// overlay puts what the live copy knows over what is committed.
func overlay(info *jsapi.ConsumerInfo, live *delivery.LiveInfo) {
	info.Delivered, info.AckFloor = sequenceInfo(live.Delivered), sequenceInfo(live.AckFloor)
	info.NumAckPending, info.NumRedelivered = live.NumAckPending, live.NumRedelivered
	info.NumWaiting, info.NumPending = live.NumWaiting, live.NumPending
	info.PushBound, info.PauseRemaining = live.PushBound, live.PauseRemaining
	showFilter(info, live)
	if live.Group != "" {
		info.PriorityGroups = []jsapi.PriorityGroupState{{
			Group: live.Group, PinnedClientID: live.PinnedClientID, PinnedTime: wireTime(live.PinnedSince),
		}}
	}
}

// engine returns the delivery engine of the stream's group, nil where it has no
// replica.
func (s *Service) engine(t *state.Topic) *delivery.Engine { return s.o.Engine(t.Group().ID()) }

// ConsumerInfos describes a stream's consumers, by name, as CONSUMER.LIST does. On
// a node that doesn't lead it they are as that node knows them.
func (s *Service) ConsumerInfos(t *state.Topic) []*jsapi.ConsumerInfo {
	if t.Data() == nil {
		return nil
	}
	return s.consumerInfos(t, t.Data().ConsumerNames())
}

func (s *Service) consumerInfos(t *state.Topic, names []string) []*jsapi.ConsumerInfo {
	out := make([]*jsapi.ConsumerInfo, 0, len(names))
	for _, name := range names {
		if info, ok := s.consumerInfo(t, name); ok {
			info.Cluster = s.consumerCluster(t, info.Config)
			out = append(out, info)
		}
	}
	return out
}
