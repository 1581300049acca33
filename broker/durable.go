package broker

import (
	"errors"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/monitor"
)

// durable is the durable side of a broker.
type durable struct{}

func (b *Broker) openDurable() (*durable, error) {
	return nil, errors.New("durable topics are not wired yet")
}

func (d *durable) quiet()                       {}
func (d *durable) close() error                 { return nil }
func (d *durable) enable(*config.Options) error { return nil }

func (d *durable) Usage(string) monitor.Usage              { return monitor.Usage{} }
func (d *durable) Topics(string, func(monitor.Topic) bool) {}
func (d *durable) Topic(_, _ string) (monitor.Topic, bool) { return monitor.Topic{}, false }
func (d *durable) Groups() []monitor.Group                 { return nil }
func (d *durable) API() jsapi.APIStats                     { return jsapi.APIStats{} }
