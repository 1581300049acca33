package jetstream

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

const (
	ackWaitDefault       = 30 * time.Second
	maxAckPendingDefault = 1000
	maxWaitingDefault    = 512
	inactiveDefault      = 5 * time.Second
	heartbeatMin         = 100 * time.Millisecond
	pinnedTTLDefault     = 2 * time.Minute
	flowHeartbeatDefault = time.Second
)

var groupName = regexp.MustCompile(`^[a-zA-Z0-9/_=)+-]{1,16}$`)

func checkConsumerName(name string) *topics.Fault {
	switch {
	case strings.ContainsAny(name, `/\`):
		return jsapi.ErrConsumerNameSeparators
	case name == "" || strings.ContainsAny(name, ".*>") || subject.HasControl(name):
		return badConfig(`consumer name can not contain '.', '*', '>', '\', '/'`)
	case len(name) > nameBytesMax:
		return jsapi.ConsumerNameTooLong(nameBytesMax)
	}
	return nil
}

// completeConsumer fills in a consumer's defaults and checks the result against
// its stream. Rules that depend on the stream's other consumers are
// checkAmongOthers.
func completeConsumer(c *topics.ConsumerConfig, s *topics.Config, env *environment, pedantic bool) *topics.Fault {
	if c.Durable != "" {
		c.Name = c.Durable
	}
	if c.Name != "" {
		if f := checkConsumerName(c.Name); f != nil {
			return f
		}
	}
	consumerDefaults(c, s, env)
	for _, rule := range []func(*topics.ConsumerConfig, *topics.Config, *environment) *topics.Fault{
		consumerSizes, consumerAcks, consumerFilters, consumerPush, consumerPull, consumerGroups,
		consumerStart, consumerRetention, consumerLimits, consumerWhere, consumerDead, consumerKey,
	} {
		if f := rule(c, s, env); f != nil {
			return f
		}
	}
	c.Metadata = jsapi.StoredMetadata(c.Metadata, jsapi.ConsumerLevel(c))
	return nil
}

func consumerDefaults(c *topics.ConsumerConfig, s *topics.Config, env *environment) {
	if c.DeliverPolicy == "undefined" {
		c.DeliverPolicy = ""
	}
	word(&c.DeliverPolicy, topics.DeliverAll)
	word(&c.AckPolicy, topics.AckNone)
	word(&c.ReplayPolicy, topics.ReplayInstant)
	if c.PriorityPolicy == "none" {
		c.PriorityPolicy = ""
	}
	if c.PauseUntil != nil && c.PauseUntil.IsZero() {
		c.PauseUntil = nil
	}
	if c.OptStartTime != nil && c.OptStartTime.IsZero() && c.DeliverPolicy != topics.DeliverByStartTime {
		c.OptStartTime = nil
	}
	if c.MaxDeliver == 0 || c.MaxDeliver < -1 {
		c.MaxDeliver = -1
	}
	if c.AckPolicy == topics.AckExplicit || c.AckPolicy == topics.AckAll {
		if c.AckWait == 0 {
			c.AckWait = ackWaitDefault
		}
		if len(c.BackOff) > 0 && c.BackOff[0] > 0 {
			c.AckWait = c.BackOff[0] // it overrides ack_wait, and infos say so
		}
		if c.MaxAckPending == 0 {
			c.MaxAckPending = maxAckPendingDefault
			if n := s.ConsumerLimits.MaxAckPending; n > 0 {
				c.MaxAckPending = n
			}
			if n := env.limits.MaxAckPending; n > 0 {
				c.MaxAckPending = min(c.MaxAckPending, n)
			}
		}
	}
	if c.AckPolicy == topics.AckFlowControl && c.IsPush() {
		c.FlowControl = true // it is the flow control that acknowledges
		if c.Heartbeat == 0 {
			c.Heartbeat = flowHeartbeatDefault
		}
		if c.MaxAckPending == 0 {
			c.MaxAckPending = maxAckPendingDefault
		}
	}
	if c.MaxAckPending < 0 {
		c.MaxAckPending = -1
	}
	if !c.IsPush() {
		if c.MaxWaiting <= 0 {
			c.MaxWaiting = maxWaitingDefault
		}
		c.MaxRequestBatch = max(c.MaxRequestBatch, 0)
		c.MaxRequestMaxBytes = max(c.MaxRequestMaxBytes, 0)
	}
	if c.InactiveThreshold <= 0 {
		c.InactiveThreshold = s.ConsumerLimits.InactiveThreshold
		if c.InactiveThreshold == 0 && !c.IsDurable() {
			c.InactiveThreshold = inactiveDefault
		}
	}
	if c.PriorityPolicy == "pinned_client" && c.PriorityTimeout == 0 {
		c.PriorityTimeout = pinnedTTLDefault
	}
}

func consumerSizes(c *topics.ConsumerConfig, s *topics.Config, env *environment) *topics.Fault {
	switch {
	case len(c.Description) > descriptionBytesMax:
		return jsapi.ConsumerDescriptionTooLong(descriptionBytesMax)
	case metadataBytes(c.Metadata) > metadataBytesMax:
		return jsapi.ConsumerMetadata("128KB")
	case c.Replicas < 0:
		return jsapi.ErrReplicasNegative
	case c.Replicas > 1 && !env.clustered:
		return jsapi.ErrStreamReplicas
	case c.Replicas > s.Replicas:
		return jsapi.ErrConsumerReplicasExceed
	case s.Retention == topics.RetainInterest && c.Replicas != 0 && c.Replicas != s.Replicas:
		return jsapi.ErrConsumerReplicasMatch
	}
	return nil
}

func consumerAcks(c *topics.ConsumerConfig, _ *topics.Config, _ *environment) *topics.Fault {
	if c.AckWait < 0 {
		return jsapi.ErrConsumerAckWaitNegative
	}
	for _, d := range c.BackOff {
		if d < 0 {
			return jsapi.ErrConsumerBackOffNegative
		}
	}
	if n := len(c.BackOff); n > 0 && c.MaxDeliver > 0 && c.MaxDeliver < n {
		return jsapi.ErrConsumerBackOffMaxDeliver
	}
	if v := strings.TrimSuffix(c.SampleFrequency, "%"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return jsapi.ConsumerSampling(err.Error())
		}
		if n < 0 {
			return jsapi.ConsumerSampling("negative frequency")
		}
	}
	if c.AckPolicy != topics.AckFlowControl {
		return nil
	}
	switch {
	case !c.IsPush():
		return jsapi.ErrAckFCPush
	case !c.FlowControl:
		return jsapi.ErrAckFCFlowControl
	case c.MaxAckPending <= 0:
		return jsapi.ErrAckFCMaxAckPending
	case c.AckWait != 0:
		return jsapi.ErrAckFCAckWait
	case c.MaxDeliver > 0:
		return jsapi.ErrAckFCMaxDeliver
	}
	return nil
}

func consumerFilters(c *topics.ConsumerConfig, _ *topics.Config, _ *environment) *topics.Fault {
	if c.FilterSubject != "" && len(c.FilterSubjects) > 0 {
		return jsapi.ErrConsumerDuplicateFilters
	}
	if c.FilterSubject != "" && !subject.Valid(c.FilterSubject) {
		return badConfig("invalid subject")
	}
	for i, s := range c.FilterSubjects {
		if s == "" {
			return jsapi.ErrConsumerEmptyFilter
		}
		if !subject.Valid(s) {
			return badConfig("invalid subject")
		}
		for _, o := range c.FilterSubjects[:i] {
			if subject.Overlap(o, s) {
				return jsapi.ErrConsumerOverlappingFilters
			}
		}
	}
	return nil
}

func consumerPush(c *topics.ConsumerConfig, s *topics.Config, _ *environment) *topics.Fault {
	if !c.IsPush() {
		return nil
	}
	switch {
	case !subject.Valid(c.DeliverSubject):
		return jsapi.ErrConsumerDeliverSubject
	case !subject.IsLiteral(c.DeliverSubject):
		return jsapi.ErrConsumerDeliverWildcards
	case c.MaxWaiting != 0:
		return jsapi.ErrConsumerPushMaxWaiting
	case c.Heartbeat > 0 && c.Heartbeat < heartbeatMin:
		return jsapi.ErrConsumerSmallHeartbeat
	case c.FlowControl && c.Heartbeat == 0 && c.AckPolicy != topics.AckFlowControl:
		return jsapi.ErrConsumerFlowControlHeartbeat
	case c.Direct && c.IsDurable():
		return jsapi.ErrConsumerDirectEphemeral
	case len(c.PriorityGroups) > 0:
		return jsapi.ErrConsumerPushPriority
	}
	for _, p := range s.Subjects {
		if subject.Match(p, c.DeliverSubject) {
			return jsapi.ErrConsumerDeliverCycle
		}
	}
	return nil
}

func consumerPull(c *topics.ConsumerConfig, s *topics.Config, _ *environment) *topics.Fault {
	if c.IsPush() {
		return nil
	}
	switch {
	case c.RateLimit > 0:
		return jsapi.ErrConsumerPullRateLimit
	case c.Heartbeat > 0:
		return jsapi.ErrConsumerHeartbeatPush
	case c.FlowControl:
		return jsapi.ErrConsumerFlowControlPush
	case c.Direct:
		return jsapi.ErrConsumerDirectPush
	case c.MaxRequestExpires != 0 && c.MaxRequestExpires < time.Millisecond:
		return jsapi.ErrConsumerMaxExpiresSmall
	case s.Retention == topics.RetainWorkQueue && c.AckPolicy == topics.AckNone:
		return jsapi.ErrConsumerPullRequiresAck
	}
	return nil
}

func consumerGroups(c *topics.ConsumerConfig, _ *topics.Config, _ *environment) *topics.Fault {
	if c.PriorityPolicy == "" {
		if len(c.PriorityGroups) > 0 {
			return jsapi.ErrConsumerGroupPolicyNone
		}
		if c.PriorityTimeout != 0 {
			return jsapi.ErrConsumerPinnedTTLPolicyNone
		}
		return nil
	}
	if len(c.PriorityGroups) == 0 {
		return jsapi.ErrConsumerPriorityNoGroup
	}
	for _, g := range c.PriorityGroups {
		if g == "" {
			return jsapi.ErrConsumerEmptyGroup
		}
		if !groupName.MatchString(g) {
			return jsapi.ErrConsumerGroupName
		}
	}
	return nil
}

// consumerStart checks that the deliver policy and where to start fit together.
func consumerStart(c *topics.ConsumerConfig, _ *topics.Config, _ *environment) *topics.Fault {
	words := map[topics.DeliverPolicy]string{
		topics.DeliverAll: "all", topics.DeliverLast: "last", topics.DeliverNew: "new",
		topics.DeliverLastPerSubject: "last per subject",
		topics.DeliverByStartSeq:     "by start sequence", topics.DeliverByStartTime: "by start time",
	}
	bad := func(what string) *topics.Fault {
		return jsapi.ConsumerPolicy("consumer delivery policy is deliver " + words[c.DeliverPolicy] + ", but optional " + what)
	}
	switch c.DeliverPolicy {
	case topics.DeliverByStartSeq:
		if c.OptStartSeq == 0 {
			return bad("start sequence is not set")
		}
		if c.OptStartTime != nil {
			return bad("start time is also set")
		}
	case topics.DeliverByStartTime:
		if c.OptStartTime == nil {
			return bad("start time is not set")
		}
		if c.OptStartSeq != 0 {
			return bad("start start sequence is also set") // sic: nats-server's wording
		}
	default:
		if c.OptStartSeq != 0 {
			return bad("start sequence is also set")
		}
		if c.OptStartTime != nil {
			return bad("start time is also set")
		}
		if c.DeliverPolicy == topics.DeliverLastPerSubject && len(c.Filters()) == 0 {
			return bad("filter subject is not set")
		}
	}
	return nil
}

func consumerRetention(c *topics.ConsumerConfig, s *topics.Config, _ *environment) *topics.Fault {
	if s.Retention != topics.RetainWorkQueue || c.Direct {
		return nil
	}
	switch {
	case c.AckPolicy != topics.AckExplicit && c.AckPolicy != topics.AckFlowControl:
		return jsapi.ErrConsumerWQExplicitAck
	case c.DeliverPolicy != topics.DeliverAll:
		return jsapi.ErrConsumerWQDeliverAll
	}
	return nil
}

func consumerLimits(c *topics.ConsumerConfig, s *topics.Config, env *environment) *topics.Fault {
	for _, limit := range []int{s.ConsumerLimits.MaxAckPending, env.limits.MaxAckPending} {
		if limit > 0 && c.AckPolicy != topics.AckNone && (c.MaxAckPending > limit || c.MaxAckPending < 0) {
			return jsapi.ConsumerMaxAckPending(limit)
		}
	}
	if limit := s.ConsumerLimits.InactiveThreshold; limit > 0 && c.InactiveThreshold > limit {
		return jsapi.ConsumerInactiveThreshold(limit.String())
	}
	return nil
}

// checkAmongOthers applies the rules of workqueue streams about consumers that
// would take each other's messages. others are the stream's consumers except
// the one being made.
func checkAmongOthers(c *topics.ConsumerConfig, s *topics.Config, others []topics.ConsumerConfig) *topics.Fault {
	if s.Retention != topics.RetainWorkQueue || c.Direct {
		return nil
	}
	mine := c.Filters()
	for i := range others {
		theirs := others[i].Filters()
		if len(mine) == 0 {
			return jsapi.ErrConsumerWQUnfiltered
		}
		if len(theirs) == 0 || overlap(mine, theirs) {
			return jsapi.ErrConsumerWQNotUnique
		}
	}
	return nil
}

func overlap(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if subject.Overlap(x, y) {
				return true
			}
		}
	}
	return false
}
