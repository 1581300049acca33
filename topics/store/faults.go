package store

import (
	"errors"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// ErrNotFound is returned by Load for a sequence that is not alive.
var ErrNotFound = errors.New("message not found")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("store is closed")

// ErrUnknownTopic is returned for a topic this group doesn't hold. On the apply
// side that is not damage: the record raced with the topic's deletion.
var ErrUnknownTopic = errors.New("no such topic in this group")

// ErrUnknownConsumer is the same for a consumer.
var ErrUnknownConsumer = errors.New("no such consumer of this topic")

// CorruptError says which bytes on disk are not what was written. The message or
// topic part there is refused, the rest goes on; repair it from a replica.
type CorruptError = datafile.CorruptError

// The refusals of the store, with the codes and texts clients know.
var (
	faultNoTopic         = topics.NewFault(404, 10059, "stream not found")
	faultOffline         = topics.NewFault(500, 10118, "stream is offline")
	faultSealed          = topics.NewFault(400, 10109, "invalid operation on sealed stream")
	faultTooBig          = topics.NewFault(400, 10054, "message size exceeds maximum allowed")
	faultHeaderTooBig    = topics.NewFault(400, 10097, "header size exceeds maximum allowed of 64k")
	faultWrongTopic      = topics.NewFault(400, 10060, "expected stream does not match")
	faultSubjectNoSeq    = topics.NewFault(400, 10193, "missing sequence for expected last sequence per subject")
	faultTTLInvalid      = topics.NewFault(400, 10165, "invalid per-message TTL")
	faultTTLDisabled     = topics.NewFault(400, 10166, "per-message TTL is disabled")
	faultIncrDisabled    = topics.NewFault(400, 10168, "message counters is disabled")
	faultIncrMissing     = topics.NewFault(400, 10169, "message counter increment is missing")
	faultIncrPayload     = topics.NewFault(400, 10170, "message counter has payload")
	faultIncrInvalid     = topics.NewFault(400, 10171, "message counter increment is invalid")
	faultCounterBroken   = topics.NewFault(400, 10172, "message counter is broken")
	faultAtomicDisabled  = topics.NewFault(400, 10174, "atomic publish is disabled")
	faultBatchIncomplete = topics.NewFault(400, 10176, "atomic publish batch is incomplete")
	faultBatchDuplicate  = topics.NewFault(400, 10201, "atomic publish batch contains duplicate message id")
	faultWrongLastInside = topics.NewFault(400, 10164, "wrong last sequence")
	faultSourceHeader    = topics.NewFault(400, 10227, "message stream source header is not allowed")
	faultSchedules       = topics.NewFault(400, 10188, "message schedules is disabled")
	faultRollupDenied    = topics.NewFault(500, 10111, "rollup not permitted")
	faultMaxMsgs         = topics.NewFault(503, 10077, "maximum messages exceeded")
	faultMaxBytes        = topics.NewFault(503, 10077, "maximum bytes exceeded")
	faultMaxPer          = topics.NewFault(503, 10077, "maximum messages per subject exceeded")
	faultDeleteDenied    = topics.NewFault(500, 10057, "message delete not permitted")
	faultMaxConsumers    = topics.NewFault(400, 10026, "maximum consumers limit reached")
	faultConsumerExists  = topics.NewFault(400, 10148, "consumer already exists")
	faultConsumerMissing = topics.NewFault(404, 10014, "consumer not found")
	faultQueueUnfiltered = topics.NewFault(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream")
	faultQueueOverlap    = topics.NewFault(400, 10100, "filtered consumer not unique on workqueue stream")
	faultKeepAndSeq      = topics.NewFault(400, 10003, "bad request")
)

func faultWrongLast(last topics.Sequence) *topics.Fault {
	return topics.NewFault(400, 10071, "wrong last sequence: %d", last)
}

func faultWrongLastID(id string) *topics.Fault {
	return topics.NewFault(400, 10070, "wrong last msg ID: %s", id)
}

func faultBatchHeader(name string) *topics.Fault {
	return topics.NewFault(400, 10177, "atomic publish unsupported header used: %s", name)
}

func faultBatchRollup(value string) *topics.Fault {
	return topics.NewFault(500, 10111, "batch rollup %s invalid", value)
}

func faultNoSequence(seq topics.Sequence) *topics.Fault {
	return topics.NewFault(400, 10043, "sequence %d not found", seq)
}
