package jetstream

import (
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/filter"
	"github.com/heraldmq/herald/topics/subject"
	"github.com/heraldmq/herald/topics/transform"
)

const (
	nameBytesMax        = 255
	descriptionBytesMax = 4 << 10
	metadataBytesMax    = 128 << 10
	replicasMax         = 5
	maxAgeMin           = 100 * time.Millisecond
	markerTTLMin        = time.Second
	duplicatesDefault   = 2 * time.Minute
)

// badConfig refuses a stream's config with nats-server's wording.
func badConfig(format string, args ...any) *topics.Fault {
	return jsapi.StreamConfig(fmt.Sprintf(format, args...))
}

// environment is what the rules need to know beside the config itself.
type environment struct {
	clustered       bool
	nodes           int // that may hold a replica
	cluster         string
	maxRequestBatch int
	maxConsumers    int // of a stream that doesn't say; 0 is no limit
	limits          jsapi.AccountLimits
	filters         *filter.Set   // compiles content filters; nil: one is made
	maxDuplicates   time.Duration // server's cap on duplicate_window; 0 is none
	apiPrefixes     []string      // subjects of this account's API, for external sources
	// stream returns the config of one of the account's streams, nil if there is
	// none; nil where configs are checked by themselves.
	stream func(name string) *topics.Config
	// keeps returns the config of the account's stream that captures a literal subject,
	// nil if there is none; nil where configs are checked by themselves.
	keeps func(subject string) *topics.Config
}

// completeStream fills in a new stream's defaults and checks the result. It
// changes c even when it refuses it. Faults: see NATS-SURFACE 2.2 and 2.13.
func completeStream(c *topics.Config, env *environment, pedantic bool) *topics.Fault {
	if f := checkStreamName(c.Name); f != nil {
		return f
	}
	if len(c.Description) > descriptionBytesMax {
		return badConfig("stream description is too long, maximum allowed is %d", descriptionBytesMax)
	}
	if n := metadataBytes(c.Metadata); n > metadataBytesMax {
		return badConfig("stream metadata exceeds maximum size of %d bytes", metadataBytesMax)
	}
	for _, rule := range []func(*topics.Config, *environment, bool) *topics.Fault{
		streamLimits, streamTimes, streamFlags, streamFeatures, streamMirror, streamSources, streamCycle,
		streamSubjects, streamTransform, streamRepublish, streamAccount,
	} {
		if f := rule(c, env, pedantic); f != nil {
			return f
		}
	}
	c.Metadata = jsapi.StoredMetadata(c.Metadata, jsapi.StreamLevel(c))
	return nil
}

func checkStreamName(name string) *topics.Fault {
	switch {
	case strings.ContainsAny(name, `/\`):
		return jsapi.ErrStreamNameSeparators
	case name == "" || strings.ContainsAny(name, ".*>") || subject.HasControl(name):
		return badConfig("stream name is required and can not contain '.', '*', '>'")
	case len(name) > nameBytesMax:
		return badConfig("stream name is too long, maximum allowed is %d", nameBytesMax)
	}
	return nil
}

func metadataBytes(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// unlimited turns 0 and everything negative into -1.
func unlimited[T int | int32 | int64](v *T) {
	if *v <= 0 {
		*v = -1
	}
}

func word[W ~string](v *W, otherwise W) {
	if *v == "" {
		*v = otherwise
	}
}

func streamLimits(c *topics.Config, env *environment, _ bool) *topics.Fault {
	word(&c.Retention, topics.RetainLimits)
	word(&c.Discard, topics.DiscardOld)
	word(&c.Storage, topics.StoreFile)
	word(&c.Compression, "none")
	if c.PersistMode == "default" {
		c.PersistMode = ""
	}
	if c.MaxConsumers == 0 {
		c.MaxConsumers = env.maxConsumers
	}
	unlimited(&c.MaxConsumers)
	unlimited(&c.MaxMsgs)
	unlimited(&c.MaxBytes)
	unlimited(&c.MaxMsgsPer)
	unlimited(&c.MaxMsgSize)
	switch {
	case c.Replicas < 0:
		return jsapi.ErrReplicasNegative
	case c.Replicas == 0:
		c.Replicas = 1
	case c.Replicas > replicasMax:
		return badConfig("maximum replicas is %d", replicasMax)
	}
	if c.Replicas > 1 && !env.clustered {
		return jsapi.ErrStreamReplicas
	}
	if c.Replicas > 1 && c.Replicas > env.nodes {
		return jsapi.ErrInsufficientResources
	}
	if p := c.Placement; env.clustered && p != nil && p.Cluster != "" && p.Cluster != env.cluster {
		return jsapi.NoPeers("no suitable peers for placement")
	}
	return nil
}

func streamTimes(c *topics.Config, env *environment, pedantic bool) *topics.Fault {
	switch {
	case c.MaxAge < 0:
		return badConfig("max age can not be negative")
	case c.MaxAge > 0 && c.MaxAge < maxAgeMin:
		return badConfig("max age needs to be >= 100ms")
	case c.Duplicates < 0:
		return badConfig("duplicates window can not be negative")
	}
	if c.Mirror != nil && c.Duplicates == 0 {
		return nil // a mirror takes its source's word for what is a duplicate
	}
	if c.Duplicates == 0 {
		c.Duplicates = duplicatesDefault
		if env.maxDuplicates > 0 {
			c.Duplicates = min(c.Duplicates, env.maxDuplicates)
		}
		if c.MaxAge > 0 && c.MaxAge < c.Duplicates {
			if pedantic {
				return jsapi.Pedantic("duplicate window limited by max age")
			}
			c.Duplicates = c.MaxAge
		}
		return nil
	}
	switch {
	case c.MaxAge > 0 && c.Duplicates > c.MaxAge:
		return badConfig("duplicates window can not be larger then max age")
	case c.Duplicates < maxAgeMin:
		return badConfig("duplicates window needs to be >= 100ms")
	case env.maxDuplicates > 0 && c.Duplicates > env.maxDuplicates:
		return badConfig("duplicates window can not be larger then server limit of %s", env.maxDuplicates)
	}
	return nil
}

func streamFlags(c *topics.Config, _ *environment, _ bool) *topics.Fault {
	switch {
	case c.DiscardNewPer && c.Discard != topics.DiscardNew:
		return badConfig("discard new per subject requires discard new policy to be set")
	case c.DiscardNewPer && c.MaxMsgsPer <= 0:
		return badConfig("discard new per subject requires max msgs per subject > 0")
	case c.DenyPurge && c.AllowRollup:
		return badConfig("roll-ups require the purge permission")
	case c.MirrorDirect && c.Mirror == nil:
		return badConfig("stream has no mirror but does have mirror direct")
	}
	return nil
}

func streamFeatures(c *topics.Config, _ *environment, pedantic bool) *topics.Fault {
	if c.AllowMsgCounter {
		switch {
		case c.Mirror != nil:
			return jsapi.ErrMirrorCounters
		case c.Discard == topics.DiscardNew:
			return badConfig("counter stream cannot use discard new")
		case c.AllowMsgTTL:
			return badConfig("counter stream cannot use message TTLs")
		case c.Retention != topics.RetainLimits:
			return badConfig("counter stream can only use limits retention")
		case c.AllowMsgSchedules:
			return badConfig("counter stream cannot use message schedules")
		}
	}
	if f := streamMarkers(c, pedantic); f != nil {
		return f
	}
	if c.AllowMsgSchedules {
		switch {
		case c.Mirror != nil:
			return jsapi.ErrMirrorSchedules
		case len(c.Sources) > 0:
			return jsapi.ErrSourceSchedules
		case c.Discard == topics.DiscardNew:
			return badConfig("message scheduling cannot use discard new")
		case pedantic && (!c.AllowRollup || c.DenyPurge):
			return jsapi.Pedantic("message schedules require roll-ups")
		}
		c.AllowRollup, c.DenyPurge = true, false
	}
	if c.PersistMode == "async" {
		switch {
		case c.Storage != topics.StoreFile:
			return badConfig("async persist mode is only supported on file storage")
		case c.Replicas > 1:
			return badConfig("async persist mode is not supported on replicated streams")
		case c.AllowAtomic:
			return badConfig("async persist mode is not supported with atomic batch publish")
		}
	}
	return nil
}

func streamMarkers(c *topics.Config, pedantic bool) *topics.Fault {
	ttl := c.SubjectDeleteMarkerTTL
	switch {
	case ttl == 0:
		return nil
	case ttl < 0:
		return badConfig("subject delete marker TTL must not be negative")
	case ttl < markerTTLMin:
		return badConfig("subject delete marker TTL must be at least 1 second")
	case c.Mirror != nil:
		return badConfig("subject delete markers forbidden on mirrors")
	case pedantic && !c.AllowMsgTTL:
		return jsapi.Pedantic("subject delete marker TTL requires message TTLs to be allowed")
	case pedantic && (!c.AllowRollup || c.DenyPurge):
		return jsapi.Pedantic("subject delete markers require roll-ups")
	}
	c.AllowMsgTTL, c.AllowRollup, c.DenyPurge = true, true, false
	return nil
}

// reserved are the subjects a stream may only capture when it acknowledges
// nothing: otherwise it would answer the API's own requests.
var reserved = []struct{ pattern, api string }{
	{"$JS.API.>", "jetstream"}, {"$JSC.>", "jetstream"}, {"$NRG.>", "jetstream"}, {"$SYS.>", "system"},
}

func streamSubjects(c *topics.Config, _ *environment, _ bool) *topics.Fault {
	if c.Mirror != nil {
		return nil // streamMirror has looked
	}
	if len(c.Subjects) == 0 {
		if len(c.Sources) == 0 {
			c.Subjects = []string{c.Name}
		}
		return nil
	}
	for i, s := range c.Subjects {
		if !subject.Valid(s) {
			return badConfig("invalid subject")
		}
		if s == ">" && !c.NoAck {
			return badConfig("capturing all subjects requires no-ack to be true")
		}
		for _, o := range c.Subjects[:i] {
			if subject.Overlap(o, s) {
				return badConfig("subject %q overlaps with %q", o, s)
			}
		}
		if c.NoAck {
			continue
		}
		for _, r := range reserved {
			if subject.Overlap(s, r.pattern) && !strings.HasPrefix(s, "$SYS.ACCOUNT.") {
				return badConfig("subjects that overlap with %s api require no-ack to be true", r.api)
			}
		}
	}
	return nil
}

func streamTransform(c *topics.Config, _ *environment, _ bool) *topics.Fault {
	t := c.SubjectTransform
	if t == nil {
		return nil
	}
	if t.Source != "" && !subject.Valid(t.Source) {
		return jsapi.TransformSource("invalid subject " + t.Source)
	}
	if _, err := transform.New(t.Source, t.Destination); err != nil {
		return jsapi.TransformDestination(err.Error())
	}
	return nil
}

func streamRepublish(c *topics.Config, _ *environment, _ bool) *topics.Fault {
	r := c.Republish
	if r == nil {
		return nil
	}
	t, err := transform.New(r.Source, r.Destination)
	if err != nil || r.Destination == "" || strings.HasPrefix(r.Destination, "$JS.API") {
		return badConfig("stream configuration for republish with transform from '%s' to '%s' not valid",
			orAll(r.Source), r.Destination)
	}
	for _, s := range c.Subjects {
		if subject.Overlap(s, t.Pattern()) {
			return badConfig("stream configuration for republish destination forms a cycle")
		}
	}
	return nil
}

// streamAccount applies the account's limits on a single stream.
func streamAccount(c *topics.Config, env *environment, _ bool) *topics.Fault {
	perStream := env.limits.StoreMaxStreamBytes
	if c.Storage == topics.StoreMemory {
		perStream = env.limits.MemoryMaxStreamBytes
	}
	switch {
	case env.limits.MaxBytesRequired && c.MaxBytes <= 0:
		return jsapi.ErrStreamMaxBytesRequired
	case perStream > 0 && c.MaxBytes > perStream:
		return jsapi.ErrStreamMaxStreamBytes
	case perStream > 0 && c.MaxBytes <= 0:
		c.MaxBytes = perStream
	}
	return nil
}
