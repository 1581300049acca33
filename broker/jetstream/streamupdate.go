package jetstream

import (
	"reflect"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// updateStream checks what may not change between a stream's config and its
// successor, which has been completed. It may change next: sealing brings other
// settings with it.
func updateStream(now, next *topics.Config) *topics.Fault {
	if now.Sealed && !next.Sealed {
		return badConfig("stream configuration update can not unseal a sealed stream")
	}
	if next.Sealed && !now.Sealed {
		next.Discard, next.MaxAge = topics.DiscardNew, 0
		next.DenyDelete, next.DenyPurge, next.AllowRollup = true, true, false
	}
	switch {
	case now.Name != next.Name:
		return badConfig("stream configuration name must match original")
	case now.Storage != next.Storage:
		return badConfig("stream configuration update can not change storage type")
	case now.Retention != next.Retention &&
		(now.Retention == topics.RetainWorkQueue || next.Retention == topics.RetainWorkQueue):
		return badConfig("stream configuration update can not change retention policy to/from workqueue")
	case now.DenyDelete && !next.DenyDelete:
		return badConfig("stream configuration update can not cancel deny message deletes")
	case now.DenyPurge && !next.DenyPurge:
		return badConfig("stream configuration update can not cancel deny purge")
	case now.AllowMsgCounter != next.AllowMsgCounter:
		return badConfig("stream configuration update can not change message counter setting")
	case now.PersistMode != next.PersistMode:
		return badConfig("stream configuration update can not change persist mode")
	case now.AllowMsgTTL && !next.AllowMsgTTL:
		return badConfig("message TTL status can not be disabled")
	case now.AllowMsgSchedules && !next.AllowMsgSchedules:
		return badConfig("message schedules can not be disabled")
	}
	// A mirror may let go of its source (it becomes a stream of its own), and
	// nothing else about it may change.
	if next.Mirror != nil && !reflect.DeepEqual(now.Mirror, next.Mirror) {
		return jsapi.ErrMirrorNotUpdatable
	}
	if now.Replicas != next.Replicas && !reflect.DeepEqual(now.Placement, next.Placement) {
		return jsapi.ErrStreamMoveAndScale
	}
	return nil
}
