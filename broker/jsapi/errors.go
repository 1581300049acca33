package jsapi

import "github.com/heraldmq/herald/topics"

func fault(status int, code uint16, text string) *topics.Fault {
	return &topics.Fault{Status: status, ErrCode: code, Text: text}
}

// Requests that can't be taken as they are.
var (
	ErrBadRequest       = fault(400, 10003, "bad request")
	ErrNotEmptyRequest  = fault(400, 10038, "expected an empty request payload")
	ErrStreamMismatch   = fault(400, 10056, "stream name in subject does not match request")
	ErrRequiredAPILevel = fault(412, 10185, "JetStream minimum api level required")
)

// What the server or the account can't give.
var (
	ErrAccountResourcesExceeded = fault(400, 10002, "resource limits exceeded for account")
	ErrClusterNotActive         = fault(500, 10006, "JetStream not in clustered mode")
	ErrClusterUnavailable       = fault(503, 10008, "JetStream system temporarily unavailable")
	ErrClusterNotLeader         = fault(500, 10009, "JetStream cluster can not handle request")
	ErrClusterRequired          = fault(503, 10010, "JetStream clustering support required")
	ErrClusterTags              = fault(400, 10011, "tags placement not supported for operation")
	ErrInsufficientResources    = fault(503, 10023, "insufficient resources")
	ErrMaximumConsumers         = fault(400, 10026, "maximum consumers limit reached")
	ErrMaximumStreams           = fault(400, 10027, "maximum number of streams reached")
	ErrMemoryExceeded           = fault(500, 10028, "insufficient memory resources available")
	ErrNoAccount                = fault(503, 10035, "account not found")
	ErrUnsupportedClustered     = fault(500, 10036, "not currently supported in clustered mode")
	ErrNotEnabledForAccount     = fault(503, 10039, "JetStream not enabled for account")
	ErrPeerNotMember            = fault(400, 10040, "peer not a member")
	ErrServerNotMember          = fault(400, 10044, "server is not a member of the cluster")
	ErrStorageExceeded          = fault(500, 10047, "insufficient storage resources available")
	ErrNotEnabled               = fault(503, 10076, "JetStream not enabled")
	ErrNoLimits                 = fault(400, 10120, "no JetStream default or applicable tiered limit present")
)

// Streams.
var (
	ErrStreamNotFound           = fault(404, 10059, "stream not found")
	ErrStreamNameExist          = fault(400, 10058, "stream name already in use with a different configuration")
	ErrStreamSubjectOverlap     = fault(400, 10065, "subjects overlap with an existing stream")
	ErrStreamReplicas           = fault(500, 10074, "replicas > 1 not supported in non-clustered mode")
	ErrReplicasNegative         = fault(400, 10133, "replicas count cannot be negative")
	ErrStreamInvalid            = fault(500, 10096, "stream not valid")
	ErrStreamSealed             = fault(400, 10109, "invalid operation on sealed stream")
	ErrStreamMaxBytesRequired   = fault(400, 10113, "account requires a stream config to have max bytes set")
	ErrStreamMaxStreamBytes     = fault(400, 10122, "stream max bytes exceeds account limit max stream bytes")
	ErrStreamMoveAndScale       = fault(400, 10123, "can not move and scale a stream in a single update")
	ErrStreamInfoMaxSubjects    = fault(500, 10117, "subject details would exceed maximum allowed")
	ErrStreamNameSeparators     = fault(400, 10128, "Stream name can not contain path separators")
	ErrStreamNameRestoreExist   = fault(400, 10130, "stream name already in use, cannot restore")
	ErrStreamReplicasUpdate     = fault(400, 10061, "Replicas configuration can not be updated")
	ErrNoReconfigure            = fault(400, 10129, "stream reconfiguration not in progress")
	ErrMirrorNotUpdatable       = fault(400, 10055, "stream mirror configuration can not be updated")
	ErrMirrorMaxMsgSize         = fault(400, 10030, "stream mirror must have max message size >= source")
	ErrMirrorWithSources        = fault(400, 10031, "stream mirrors can not also contain other sources")
	ErrMirrorStartSeqAndTime    = fault(400, 10032, "stream mirrors can not have both start seq and start time configured")
	ErrMirrorWithSubjects       = fault(400, 10034, "stream mirrors can not contain subjects")
	ErrMirrorStreamName         = fault(400, 10142, "mirrored stream name is invalid")
	ErrMirrorFirstSeq           = fault(400, 10143, "stream mirrors can not have first sequence configured")
	ErrMirrorMultipleFilters    = fault(400, 10150, "mirror with multiple subject transforms cannot also have a single subject filter")
	ErrMirrorOverlappingFilters = fault(400, 10152, "mirror subject filters can not overlap")
	ErrMirrorCounters           = fault(400, 10173, "stream mirrors can not also calculate counters")
	ErrMirrorSchedules          = fault(400, 10186, "stream mirrors can not also schedule messages")
	ErrMirrorAtomic             = fault(400, 10198, "stream mirrors can not also use atomic publishing")
	ErrMirrorBatched            = fault(400, 10209, "stream mirrors can not also use batch publishing")
	ErrMirrorConsumer           = fault(400, 10213, "stream mirror consumer config is invalid")
	ErrSourceMaxMsgSize         = fault(400, 10046, "stream source must have max message size >= target")
	ErrSourceDuplicate          = fault(400, 10140, "duplicate source configuration detected")
	ErrSourceStreamName         = fault(400, 10141, "sourced stream name is invalid")
	ErrSourceMultipleFilters    = fault(400, 10144, "source with multiple subject transforms cannot also have a single subject filter")
	ErrSourceOverlappingFilters = fault(400, 10147, "source filters can not overlap")
	ErrSourceSchedules          = fault(400, 10187, "stream source can not also schedule messages")
	ErrSourceConsumer           = fault(400, 10215, "stream source consumer config is invalid")
	ErrSourceConsumerDuplicate  = fault(400, 10216, "duplicate stream source consumer detected")
)

// Messages.
var (
	ErrNoMessageFound        = fault(404, 10037, "no message found")
	ErrSnapshotDeliver       = fault(400, 10015, "deliver subject not valid")
	ErrSnapshotTempStorage   = fault(500, 10072, "JetStream unable to open temp storage for restore")
	ErrMessageExceedsMaximum = fault(400, 10054, "message size exceeds maximum allowed")
	ErrHeaderExceedsMaximum  = fault(400, 10097, "header size exceeds maximum allowed of 64k")
)

// Consumers.
var (
	ErrConsumerNameExist            = fault(400, 10013, "consumer name already in use")
	ErrConsumerNotFound             = fault(404, 10014, "consumer not found")
	ErrConsumerDurableNotInSubject  = fault(400, 10016, "consumer expected to be durable but no durable name set in subject")
	ErrConsumerDurableNotMatch      = fault(400, 10017, "consumer name in subject does not match durable name in request")
	ErrConsumerDurableNotSet        = fault(400, 10018, "consumer expected to be durable but a durable name was not set")
	ErrConsumerEphemeralInSubject   = fault(400, 10019, "consumer expected to be ephemeral but detected a durable name set in subject")
	ErrConsumerEphemeralWithDurable = fault(400, 10020, "consumer expected to be ephemeral but a durable name was set in request")
	ErrConsumerConfigRequired       = fault(400, 10078, "consumer config required")
	ErrConsumerDeliverWildcards     = fault(400, 10079, "consumer deliver subject has wildcards")
	ErrConsumerPushMaxWaiting       = fault(400, 10080, "consumer in push mode can not set max waiting")
	ErrConsumerDeliverCycle         = fault(400, 10081, "consumer deliver subject forms a cycle")
	ErrConsumerMaxPendingAckPolicy  = fault(400, 10082, "consumer requires ack policy for max ack pending")
	ErrConsumerSmallHeartbeat       = fault(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
	ErrConsumerPullRequiresAck      = fault(400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream")
	ErrConsumerPullNotDurable       = fault(400, 10085, "consumer in pull mode requires a durable name")
	ErrConsumerPullRateLimit        = fault(400, 10086, "consumer in pull mode can not have rate limit set")
	ErrConsumerMaxWaitingNegative   = fault(400, 10087, "consumer max waiting needs to be positive")
	ErrConsumerHeartbeatPush        = fault(400, 10088, "consumer idle heartbeat requires a push based consumer")
	ErrConsumerFlowControlPush      = fault(400, 10089, "consumer flow control requires a push based consumer")
	ErrConsumerDirectPush           = fault(400, 10090, "consumer direct requires a push based consumer")
	ErrConsumerDirectEphemeral      = fault(400, 10091, "consumer direct requires an ephemeral consumer")
	ErrConsumerFilterNotSubset      = fault(400, 10093, "consumer filter subject is not a valid subset of the interest subjects")
	ErrConsumerWQExplicitAck        = fault(400, 10098, "workqueue stream requires explicit ack")
	ErrConsumerWQUnfiltered         = fault(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream")
	ErrConsumerWQNotUnique          = fault(400, 10100, "filtered consumer not unique on workqueue stream")
	ErrConsumerWQDeliverAll         = fault(400, 10101, "consumer must be deliver all on workqueue stream")
	ErrConsumerBadDurable           = fault(400, 10103, "durable name can not contain '.', '*', '>'")
	ErrConsumerActive               = fault(400, 10105, "consumer already exists and is still active")
	ErrConsumerReplacementDiffers   = fault(400, 10106, "consumer replacement durable config not the same")
	ErrConsumerFlowControlHeartbeat = fault(400, 10108, "consumer with flow control also needs heartbeats")
	ErrConsumerDeliverSubject       = fault(400, 10112, "invalid push consumer deliver subject")
	ErrConsumerMaxBatchNegative     = fault(400, 10114, "consumer max request batch needs to be > 0")
	ErrConsumerMaxExpiresSmall      = fault(400, 10115, "consumer max request expires needs to be >= 1ms")
	ErrConsumerBackOffMaxDeliver    = fault(400, 10116, "max deliver is required to be > length of backoff values")
	ErrConsumerReplicasExceed       = fault(400, 10126, "consumer config replica count exceeds parent stream")
	ErrConsumerNameSeparators       = fault(400, 10127, "Consumer name can not contain path separators")
	ErrConsumerFilterMismatch       = fault(400, 10131, "Consumer create request did not match filtered subject from create subject")
	ErrConsumerDurableAndName       = fault(400, 10132, "Consumer Durable and Name have to be equal if both are provided")
	ErrConsumerReplicasMatch        = fault(400, 10134, "consumer config replicas must match interest retention stream's replicas")
	ErrConsumerDuplicateFilters     = fault(400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified")
	ErrConsumerMultipleFilters      = fault(400, 10137, "consumer with multiple subject filters cannot use subject based API")
	ErrConsumerOverlappingFilters   = fault(400, 10138, "consumer subject filters cannot overlap")
	ErrConsumerEmptyFilter          = fault(400, 10139, "consumer filter in FilterSubjects cannot be empty")
	ErrConsumerAlreadyExists        = fault(400, 10148, "consumer already exists")
	ErrConsumerDoesNotExist         = fault(400, 10149, "consumer does not exist")
	ErrConsumerPriorityNoGroup      = fault(400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set")
	ErrConsumerInvalidGroup         = fault(400, 10160, "Provided priority group does not exist for this consumer")
	ErrConsumerEmptyGroup           = fault(400, 10161, "Group name cannot be an empty string")
	ErrConsumerGroupName            = fault(400, 10162, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters")
	ErrConsumerPushPriority         = fault(400, 10178, "priority groups can not be used with push consumers")
	ErrConsumerAckPolicy            = fault(400, 10181, "consumer ack policy invalid")
	ErrConsumerReplayPolicy         = fault(400, 10182, "consumer replay policy invalid")
	ErrConsumerAckWaitNegative      = fault(400, 10183, "consumer ack wait needs to be positive")
	ErrConsumerBackOffNegative      = fault(400, 10184, "consumer backoff needs to be positive")
	ErrConsumerGroupPolicyNone      = fault(400, 10196, "consumer can not have priority groups when policy is none")
	ErrConsumerPinnedTTLPolicyNone  = fault(400, 10197, "PinnedTTL cannot be set when PriorityPolicy is none")
	ErrAckFCPush                    = fault(400, 10218, "flow control ack policy requires a push based consumer")
	ErrAckFCFlowControl             = fault(400, 10219, "flow control ack policy requires flow control")
	ErrAckFCMaxAckPending           = fault(400, 10220, "flow control ack policy requires max ack pending")
	ErrAckFCAckWait                 = fault(400, 10221, "flow control ack policy requires unset ack wait")
	ErrAckFCMaxDeliver              = fault(400, 10222, "flow control ack policy requires unset max deliver")
)

// Faults whose text carries a value.

// InvalidJSON refuses a body that doesn't decode.
func InvalidJSON(why string) *topics.Fault {
	return topics.NewFault(400, 10025, "invalid JSON: %s", why)
}

// Pedantic refuses a request that only passes with silent defaulting.
func Pedantic(why string) *topics.Fault { return topics.NewFault(400, 10157, "pedantic mode: %s", why) }

// StreamCreate, StreamDelete, StreamUpdate, StreamPurge, StreamConfig and
// StreamLimits are failures of the named step, with the reason as text.
func StreamCreate(why string) *topics.Fault { return fault(500, 10049, why) }

// StreamDelete refuses to delete a stream.
func StreamDelete(why string) *topics.Fault { return fault(500, 10050, why) }

// StreamConfig refuses a stream's configuration.
func StreamConfig(why string) *topics.Fault { return fault(500, 10052, why) }

// StreamUpdate refuses to change a stream.
func StreamUpdate(why string) *topics.Fault { return fault(500, 10069, why) }

// StreamPurge refuses a purge.
func StreamPurge(why string) *topics.Fault { return fault(500, 10110, why) }

// StreamSnapshot refuses a snapshot.
func StreamSnapshot(why string) *topics.Fault {
	return topics.NewFault(500, 10064, "snapshot failed: %s", why)
}

// StreamRestore refuses a restore.
func StreamRestore(why string) *topics.Fault {
	return topics.NewFault(500, 10062, "restore failed: %s", why)
}

// MessageDelete says why a message can't be deleted.
func MessageDelete(why string) *topics.Fault { return fault(500, 10057, why) }

// SequenceNotFound says that no message has the sequence.
func SequenceNotFound(seq topics.Sequence) *topics.Fault {
	return topics.NewFault(400, 10043, "sequence %d not found", seq)
}

// NoPeers says why no set of nodes can hold a stream.
func NoPeers(why string) *topics.Fault { return fault(400, 10005, why) }

// TransformSource refuses the source pattern of a stream's transform.
func TransformSource(why string) *topics.Fault {
	return topics.NewFault(400, 10155, "stream transform source: %s", why)
}

// TransformDestination refuses the destination of a stream's transform.
func TransformDestination(why string) *topics.Fault {
	return topics.NewFault(400, 10156, "stream transform: %s", why)
}

// MirrorFilter refuses a mirror's filter or transform source.
func MirrorFilter(why string) *topics.Fault {
	return topics.NewFault(400, 10151, "mirror transform source: %s", why)
}

// MirrorTransform refuses a mirror's transform destination.
func MirrorTransform(why string) *topics.Fault {
	return topics.NewFault(400, 10154, "mirror transform: %s", why)
}

// SourceFilter refuses a source's filter or transform source.
func SourceFilter(why string) *topics.Fault {
	return topics.NewFault(400, 10145, "source transform source: %s", why)
}

// SourceTransform refuses a source's transform destination.
func SourceTransform(why string) *topics.Fault {
	return topics.NewFault(400, 10146, "source transform: %s", why)
}

// ExternalAPIOverlap refuses a source's API prefix.
func ExternalAPIOverlap(prefix, subj string) *topics.Fault {
	return topics.NewFault(400, 10021, "stream external api prefix %s must not overlap with %s", prefix, subj)
}

// ExternalDeliverOverlap refuses a source's delivery prefix.
func ExternalDeliverOverlap(prefix, subj string) *topics.Fault {
	return topics.NewFault(400, 10022, "stream external delivery prefix %s overlaps with stream subject %s", prefix, subj)
}

// ExternalDeliverWildcards refuses a delivery prefix with wildcards.
func ExternalDeliverWildcards(prefix string) *topics.Fault {
	return topics.NewFault(400, 10024, "stream external delivery prefix %s must not contain wildcards", prefix)
}

// ConsumerCreate refuses a consumer for a reason without a code of its own.
func ConsumerCreate(why string) *topics.Fault { return fault(500, 10012, why) }

// ConsumerPolicy refuses a deliver policy and what goes with it.
func ConsumerPolicy(why string) *topics.Fault { return fault(400, 10094, why) }

// ConsumerSampling refuses a sampling frequency.
func ConsumerSampling(why string) *topics.Fault {
	return topics.NewFault(400, 10095, "failed to parse consumer sampling configuration: %s", why)
}

// ConsumerNameTooLong refuses a name longer than limit bytes.
func ConsumerNameTooLong(limit int) *topics.Fault {
	return topics.NewFault(400, 10102, "consumer name is too long, maximum allowed is %d", limit)
}

// ConsumerDescriptionTooLong refuses a description longer than limit bytes.
func ConsumerDescriptionTooLong(limit int) *topics.Fault {
	return topics.NewFault(400, 10107, "consumer description is too long, maximum allowed is %d", limit)
}

// ConsumerMaxAckPending refuses a max_ack_pending above the account's or stream's.
func ConsumerMaxAckPending(limit int) *topics.Fault {
	return topics.NewFault(400, 10121, "consumer max ack pending exceeds system limit of %d", limit)
}

// ConsumerMaxBatch refuses a max_batch above the server's.
func ConsumerMaxBatch(limit int) *topics.Fault {
	return topics.NewFault(400, 10125, "consumer max request batch exceeds server limit of %d", limit)
}

// ConsumerMetadata refuses metadata above limit bytes.
func ConsumerMetadata(limit string) *topics.Fault {
	return topics.NewFault(400, 10135, "consumer metadata exceeds maximum size of %s", limit)
}

// ConsumerInactiveThreshold refuses a threshold above the stream's.
func ConsumerInactiveThreshold(limit string) *topics.Fault {
	return topics.NewFault(400, 10153, "consumer inactive threshold exceeds system limit of %s", limit)
}

// ConsumerReset refuses a reset.
func ConsumerReset(why string) *topics.Fault {
	return topics.NewFault(400, 10204, "invalid reset: %s", why)
}
