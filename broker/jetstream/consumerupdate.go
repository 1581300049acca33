package jetstream

import (
	"reflect"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// updateConsumer checks what may not change between a consumer's config and its
// successor, which has been completed. active tells whether somebody listens to
// a push consumer.
func updateConsumer(now, next *topics.ConsumerConfig, active bool) *topics.Fault {
	fixed := func(what string) *topics.Fault { return jsapi.ConsumerCreate(what + " can not be updated") }
	switch {
	case now.DeliverPolicy != next.DeliverPolicy:
		return fixed("deliver policy")
	case now.OptStartSeq != next.OptStartSeq:
		return fixed("start sequence")
	case !sameTime(now.OptStartTime, next.OptStartTime):
		return fixed("start time")
	case now.AckPolicy != next.AckPolicy:
		return fixed("ack policy")
	case now.ReplayPolicy != next.ReplayPolicy:
		return fixed("replay policy")
	case now.MemoryStorage != next.MemoryStorage:
		return fixed("storage type")
	case now.Heartbeat != next.Heartbeat:
		return pullPush(now, next, fixed("heart beats"))
	case now.FlowControl != next.FlowControl:
		return fixed("flow control")
	case now.IsPush() != next.IsPush():
		return pullPush(now, next, nil)
	case now.MaxWaiting != next.MaxWaiting:
		return fixed("max waiting")
	case now.Direct != next.Direct:
		return fixed("direct")
	case now.Sourcing != next.Sourcing:
		return fixed("sourcing")
	case now.DeliverSubject != next.DeliverSubject && active:
		return jsapi.ErrConsumerNameExist
	}
	return nil
}

// pullPush words the change between the two kinds of consumer, otherwise gives
// what else is wrong.
func pullPush(now, next *topics.ConsumerConfig, otherwise *topics.Fault) *topics.Fault {
	switch {
	case now.IsPush() && !next.IsPush():
		return jsapi.ConsumerCreate("can not update push consumer to pull based")
	case !now.IsPush() && next.IsPush():
		return jsapi.ConsumerCreate("can not update pull consumer to push based")
	}
	return otherwise
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

// sameConsumer tells whether two completed configs ask for the same, whatever
// metadata the server adds.
func sameConsumer(a, b topics.ConsumerConfig) bool {
	for _, c := range []*topics.ConsumerConfig{&a, &b} {
		c.Metadata = jsapi.UserMetadata(c.Metadata)
		c.Name, c.PauseUntil = "", nil
		c.FilterSubjects = slices.Clone(c.Filters())
		c.FilterSubject = ""
		slices.Sort(c.FilterSubjects)
		if len(c.BackOff) == 0 {
			c.BackOff = nil
		}
		if len(c.FilterSubjects) == 0 {
			c.FilterSubjects = nil
		}
		if len(c.PriorityGroups) == 0 {
			c.PriorityGroups = nil
		}
	}
	ok := sameTime(a.OptStartTime, b.OptStartTime)
	a.OptStartTime, b.OptStartTime = nil, nil
	return ok && reflect.DeepEqual(a, b)
}
