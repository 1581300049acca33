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

// ErrAlone is returned by what needs a cluster where there is none.
var ErrAlone = errors.New("this node is not part of a cluster")

// The refusals this package answers with by itself.
var (
	faultTopicNotFound    = &topics.Fault{Status: 404, ErrCode: 10059, Text: "stream not found"}
	faultConsumerNotFound = &topics.Fault{Status: 404, ErrCode: 10014, Text: "consumer not found"}
	faultMaxConsumers     = &topics.Fault{Status: 400, ErrCode: 10026, Text: "maximum consumers limit reached"}
	faultAccountStorage   = &topics.Fault{Status: 400, ErrCode: 10002, Text: "resource limits exceeded for account"}
	faultNoSpace          = &topics.Fault{Status: 500, ErrCode: 10047, Text: "insufficient storage resources available"}
	faultSealed           = &topics.Fault{Status: 400, ErrCode: 10109, Text: "invalid operation on sealed stream"}
	faultTooBig           = &topics.Fault{Status: 400, ErrCode: 10054, Text: "message size exceeds maximum allowed"}
	faultAtomicDisabled   = &topics.Fault{Status: 400, ErrCode: 10174, Text: "atomic publish is disabled"}
	faultAtomicSequence   = &topics.Fault{Status: 400, ErrCode: 10175, Text: "atomic publish sequence is missing"}
	faultAtomicIncomplete = &topics.Fault{Status: 400, ErrCode: 10176, Text: "atomic publish batch is incomplete"}
	faultAtomicID         = &topics.Fault{Status: 400, ErrCode: 10179, Text: "atomic publish batch ID is invalid"}
	faultAtomicCommit     = &topics.Fault{Status: 400, ErrCode: 10200, Text: "atomic publish batch commit is invalid"}
	faultAtomicInFlight   = &topics.Fault{Status: 429, ErrCode: 10210, Text: "atomic publish too many inflight"}
	faultFastDisabled     = &topics.Fault{Status: 400, ErrCode: 10205, Text: "batch publish is disabled"}
	faultFastPattern      = &topics.Fault{Status: 400, ErrCode: 10206, Text: "batch publish pattern is invalid"}
	faultFastID           = &topics.Fault{Status: 400, ErrCode: 10207, Text: "batch publish ID is invalid"}
	faultFastUnknown      = &topics.Fault{Status: 400, ErrCode: 10208, Text: "batch publish ID unknown"}
	faultFastInFlight     = &topics.Fault{Status: 429, ErrCode: 10211, Text: "batch publish too many inflight"}
	faultUnavailable      = &topics.Fault{Status: 503, ErrCode: 10008, Text: "JetStream system temporarily unavailable"}
)

func faultAtomicTooLarge(most int) *topics.Fault {
	return topics.NewFault(400, 10199, "atomic publish batch is too large: %d", most)
}

// faultGuarded is the result of a publish whose guard refused it, or has seen it before.
var faultGuarded = topics.NewFault(400, 10176, "its guard did not let it pass")

// faultChain is the result of a message behind one of its fast batch that was
// refused. Clients never see it.
var faultChain = topics.NewFault(400, 10176, "a message before it was refused")
