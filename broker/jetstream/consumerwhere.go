package jetstream

import (
	"encoding/json"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/filter"
)

// badWhere refuses a content filter: the request is wrong, so the status isn't the 500
// that err_code 10012 has elsewhere.
func badWhere(text string) *topics.Fault { return topics.NewFault(400, 10012, "%s", text) }

// consumerWhere checks the content filter that metadata asks for.
func consumerWhere(c *topics.ConsumerConfig, s *topics.Config, env *environment) *topics.Fault {
	where, ok := c.Metadata[filter.KeyWhere]
	if !ok {
		if c.Metadata[filter.KeyCodec] != "" {
			return badWhere(filter.KeyCodec + " is of no use without " + filter.KeyWhere)
		}
		return nil
	}
	filters := env.filters
	if filters == nil {
		filters = filter.NewSet()
	}
	err := filters.Check(where, c.Metadata[filter.KeyCodec])
	switch {
	case err != nil:
		return badWhere(filter.KeyWhere + ": " + err.Error())
	case s.Retention == topics.RetainWorkQueue:
		return badWhere(filter.KeyWhere + " is not possible on a work queue, which would keep for ever what doesn't match: filter by subject, or give the topic another retention")
	case s.Retention == topics.RetainInterest && c.AckPolicy == topics.AckFlowControl:
		return badWhere(filter.KeyWhere + " does not go with ack policy flow_control where messages are kept by interest")
	}
	return nil
}

// showFilter puts what a content filter, a key and dead letters did into the metadata of an info.
func showFilter(info *jsapi.ConsumerInfo, live *delivery.LiveInfo) {
	show := func(key string, v any) {
		if b, err := json.Marshal(v); err == nil && info.Config.Metadata != nil { // numbers and strings: it is nil
			info.Config.Metadata[key] = string(b)
		}
	}
	if live.Filter != nil {
		show(jsapi.MetaFilter, live.Filter)
	}
	if live.Dead != nil {
		show(jsapi.MetaDead, live.Dead)
	}
	if live.Keys != nil {
		show(jsapi.MetaKeys, live.Keys)
	}
}
