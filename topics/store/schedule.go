package store

import (
	"errors"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/schedule"
	"github.com/heraldmq/herald/topics/subject"
)

// The refusals of scheduled messages.
var (
	faultSchedulePattern = topics.NewFault(400, 10189, "message schedules pattern is invalid")
	faultScheduleTarget  = topics.NewFault(400, 10190, "message schedules target is invalid")
	faultScheduleTTL     = topics.NewFault(400, 10191, "message schedules invalid per-message TTL")
	faultScheduleRollup  = topics.NewFault(400, 10192, "message schedules invalid rollup")
	faultScheduleSource  = topics.NewFault(400, 10203, "message schedules source is invalid")
	faultScheduler       = topics.NewFault(400, 10212, "message schedules invalid scheduler")
	faultScheduleZone    = topics.NewFault(400, 10223, "message schedules time zone is invalid")
)

// checkSchedule checks a message that asks for others later, or that is one of
// those.
func (t *Topic) checkSchedule(p *topics.Publish, h *headers) *topics.Fault {
	switch {
	case h.schedule == "" && h.scheduler == "":
		return nil
	case !t.cfg.AllowMsgSchedules:
		if h.schedule != "" {
			return faultSchedules
		}
		return nil
	case h.scheduler != "":
		if h.schedule != "" || h.scheduleNext == "" {
			return faultScheduler
		}
		return nil
	}
	if _, err := schedule.Parse(h.schedule, fieldOf(p.Header, "Nats-Schedule-Time-Zone")); err != nil {
		if errors.Is(err, schedule.ErrZone) {
			return faultScheduleZone
		}
		return faultSchedulePattern
	}
	if ttl := fieldOf(p.Header, "Nats-Schedule-TTL"); ttl != "" {
		if _, ok := parseTTL(ttl); !ok {
			return faultScheduleTTL
		}
		if !t.cfg.AllowMsgTTL {
			return faultTTLDisabled
		}
	}
	if h.rollup != "" && h.rollup != "sub" {
		return faultScheduleRollup
	}
	if r := fieldOf(p.Header, "Nats-Schedule-Rollup"); r != "" && r != "sub" {
		return faultScheduleRollup
	}
	own := alias(p.Subject)
	target := fieldOf(p.Header, "Nats-Schedule-Target")
	if !t.keeps(target) || target == own {
		return faultScheduleTarget
	}
	if source := fieldOf(p.Header, "Nats-Schedule-Source"); source != "" &&
		(!t.keeps(source) || source == own || source == target) {
		return faultScheduleSource
	}
	return nil
}

// keeps tells whether messages of a literal subject can be in the topic.
func (t *Topic) keeps(s string) bool {
	return subject.ValidLiteral(s) && len(t.cfg.Subjects) > 0 && subject.MatchAny(t.cfg.Subjects, s)
}

// endSchedule removes the schedule whose last message this is.
func (t *Topic) endSchedule(h *headers) {
	if h.scheduler != "" && h.scheduleNext == "purge" && t.cfg.AllowMsgSchedules && subject.ValidLiteral(h.scheduler) {
		t.purgeSubject(string([]byte(h.scheduler)), 0)
	}
}
