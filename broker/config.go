package broker

import (
	"log/slog"
	"time"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/operators/steps"
)

// Version is Herald's version; NATSVersion is the nats-server release whose
// features it offers, which is what INFO tells as "version" because clients
// gate features on it.
const (
	Version     = "0.1.0"
	NATSVersion = "2.15.2"
	// APILevel is the JetStream API level offered.
	APILevel = 5
	// ClusterFormat is what nodes of a cluster must have in common: how they talk and
	// what they keep.
	ClusterFormat = 1
)

// Config says what an embedded broker is to be. The zero value works: core
// publish/subscribe and durable topics on a free loopback port, in a temporary
// directory that Close removes.
type Config struct {
	// Options are the broker's options, from config.Load, config.ParseFile or
	// config.Defaults. nil is the default with a free port and durable topics.
	Options *config.Options
	// StoreDir is where durable topics are kept, over that of Options. With
	// neither, a temporary directory is.
	StoreDir string
	// Log gets the broker's log lines; nil discards them.
	Log *slog.Logger
	// Fatal is called, if set, as soon as a log can't go on (a write failed or
	// hangs, damage): a process that is nothing but the broker should exit. Run
	// ends with the same error.
	Fatal func(error)
	// Level, when set, is turned to what Options ask for when they are reloaded.
	Level *slog.LevelVar
	// Reload reads the options again for Broker.Reload; nil means they can't
	// change.
	Reload func() (*config.Options, error)
	// Functions are the process functions that operators may name. All nodes of a cluster
	// must have the same.
	Functions map[string]steps.Factory
	// ClockOffset is for tests only: the clock of durable topics is off by so much.
	ClockOffset time.Duration
}

// withDefaults returns a copy in which everything is set.
func (c Config) withDefaults() Config {
	if c.Options == nil {
		c.Options = config.Defaults()
		c.Options.Port = -1
		c.Options.JetStream.Enabled = true
	}
	if c.StoreDir == "" {
		c.StoreDir = c.Options.JetStream.StoreDir
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
