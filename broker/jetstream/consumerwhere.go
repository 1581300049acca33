package jetstream

import (
	"encoding/json"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/filter"
)

// consumerWhere checks the content filter that metadata asks for.
func consumerWhere(c *topics.ConsumerConfig, s *topics.Config, env *environment) *topics.Fault {
	where, ok := c.Metadata[filter.KeyWhere]
	if !ok {
		if c.Metadata[filter.KeyCodec] != "" {
			return jsapi.ConsumerCreate(filter.KeyCodec + " is of no use without " + filter.KeyWhere)
		}
		return nil
	}
	filters := env.filters
	if filters == nil {
		filters = filter.NewSet()
	}
	switch {
	case filters.Check(where, c.Metadata[filter.KeyCodec]) != nil:
		return jsapi.ConsumerCreate(filter.KeyWhere + ": " + filters.Check(where, c.Metadata[filter.KeyCodec]).Error())
	case s.Retention == topics.RetainWorkQueue:
		return jsapi.ConsumerCreate(filter.KeyWhere + " is not possible on a work queue, which would keep for ever what doesn't match: filter by subject, or give the topic another retention")
	case s.Retention == topics.RetainInterest && c.AckPolicy == topics.AckFlowControl:
		return jsapi.ConsumerCreate(filter.KeyWhere + " does not go with ack policy flow_control where messages are kept by interest")
	}
	return nil
}

// showFilter puts what a content filter did into the metadata of an info.
func showFilter(info *jsapi.ConsumerInfo, live *delivery.LiveInfo) {
	if live.Filter == nil || info.Config.Metadata == nil {
		return
	}
	if b, err := json.Marshal(live.Filter); err == nil { // numbers and strings: it is nil
		info.Config.Metadata[jsapi.MetaFilter] = string(b)
	}
}
