package state

import (
	"errors"

	"github.com/heraldmq/herald/topics"
)

// ErrUnknown means that nobody knows whether the change was made: the node
// stopped waiting, or lost its lead. The caller may ask again; every change here
// can be asked for twice.
var ErrUnknown = errors.New("outcome not known")

// ErrBusy means that a group has too much waiting to be proposed. Nothing was
// changed; ask again later.
var ErrBusy = errors.New("too much is waiting to be written")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("state is closed")

// The refusals this package answers with by itself.
var (
	faultTopicNotFound    = &topics.Fault{Status: 404, ErrCode: 10059, Text: "stream not found"}
	faultConsumerNotFound = &topics.Fault{Status: 404, ErrCode: 10014, Text: "consumer not found"}
	faultMaxConsumers     = &topics.Fault{Status: 400, ErrCode: 10026, Text: "maximum consumers limit reached"}
	faultAccountStorage   = &topics.Fault{Status: 400, ErrCode: 10002, Text: "resource limits exceeded for account"}
	faultNoSpace          = &topics.Fault{Status: 500, ErrCode: 10047, Text: "insufficient storage resources available"}
	faultBatchDisabled    = &topics.Fault{Status: 400, ErrCode: 10205, Text: "batch publish is disabled"}
	faultUnavailable      = &topics.Fault{Status: 503, ErrCode: 10008, Text: "JetStream system temporarily unavailable"}
)
