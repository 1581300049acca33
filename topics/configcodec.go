package topics

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/heraldmq/herald/topics/fields"
)

// Configs in logs: a version byte, then fields (package fields). Configs of versions
// before are JSON, which begins with a brace. What topics rarely have (sources and the
// like) is JSON inside its field.
const configVersion = 1

// The tags of a Config. Those of JSON parts are last.
const (
	tagName fields.Tag = iota + 1
	tagDescription
	tagSubject // one for each
	tagRetention
	tagMaxConsumers
	tagMaxMsgs
	tagMaxBytes
	tagMaxAge
	tagMaxMsgsPer
	tagMaxMsgSize
	tagDiscard
	tagStorage
	tagReplicas
	tagNoAck
	tagDuplicates
	tagCompression
	tagFirstSeq
	tagSealed
	tagDenyDelete
	tagDenyPurge
	tagAllowRollup
	tagAllowDirect
	tagMirrorDirect
	tagDiscardNewPer
	tagAllowMsgTTL
	tagSubjectDeleteMarkerTTL
	tagAllowMsgCounter
	tagAllowAtomic
	tagAllowMsgSchedules
	tagAllowBatched
	tagPersistMode
	tagMetadataKey // its value follows
	tagMetadataValue
	tagPlacement
	tagMirror
	tagSource // one for each
	tagSubjectTransform
	tagRepublish
	tagConsumerLimits
)

// AppendConfig appends a topic's config as logs have it.
func AppendConfig(dst []byte, c *Config) ([]byte, error) {
	dst = append(dst, configVersion)
	dst = fields.Text(dst, tagName, c.Name)
	dst = fields.Text(dst, tagDescription, c.Description)
	for _, s := range c.Subjects {
		dst = fields.Item(dst, tagSubject, s)
	}
	dst = fields.Text(dst, tagRetention, c.Retention)
	dst = fields.Int(dst, tagMaxConsumers, int64(c.MaxConsumers))
	dst = fields.Int(dst, tagMaxMsgs, c.MaxMsgs)
	dst = fields.Int(dst, tagMaxBytes, c.MaxBytes)
	dst = fields.Int(dst, tagMaxAge, int64(c.MaxAge))
	dst = fields.Int(dst, tagMaxMsgsPer, c.MaxMsgsPer)
	dst = fields.Int(dst, tagMaxMsgSize, int64(c.MaxMsgSize))
	dst = fields.Text(dst, tagDiscard, c.Discard)
	dst = fields.Text(dst, tagStorage, c.Storage)
	dst = fields.Int(dst, tagReplicas, int64(c.Replicas))
	dst = fields.Bool(dst, tagNoAck, c.NoAck)
	dst = fields.Int(dst, tagDuplicates, int64(c.Duplicates))
	dst = fields.Text(dst, tagCompression, c.Compression)
	dst = fields.Uint(dst, tagFirstSeq, c.FirstSeq)
	dst = fields.Bool(dst, tagSealed, c.Sealed)
	dst = fields.Bool(dst, tagDenyDelete, c.DenyDelete)
	dst = fields.Bool(dst, tagDenyPurge, c.DenyPurge)
	dst = fields.Bool(dst, tagAllowRollup, c.AllowRollup)
	dst = fields.Bool(dst, tagAllowDirect, c.AllowDirect)
	dst = fields.Bool(dst, tagMirrorDirect, c.MirrorDirect)
	dst = fields.Bool(dst, tagDiscardNewPer, c.DiscardNewPer)
	dst = fields.Bool(dst, tagAllowMsgTTL, c.AllowMsgTTL)
	dst = fields.Int(dst, tagSubjectDeleteMarkerTTL, int64(c.SubjectDeleteMarkerTTL))
	dst = fields.Bool(dst, tagAllowMsgCounter, c.AllowMsgCounter)
	dst = fields.Bool(dst, tagAllowAtomic, c.AllowAtomic)
	dst = fields.Bool(dst, tagAllowMsgSchedules, c.AllowMsgSchedules)
	dst = fields.Bool(dst, tagAllowBatched, c.AllowBatched)
	dst = fields.Text(dst, tagPersistMode, c.PersistMode)
	dst = appendMetadata(dst, c.Metadata)
	return appendConfigParts(dst, c)
}

// appendConfigParts appends the JSON parts.
func appendConfigParts(dst []byte, c *Config) ([]byte, error) {
	var err error
	part := func(t fields.Tag, there bool, v any) {
		if !there || err != nil {
			return
		}
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			dst = fields.Item(dst, t, b)
		}
	}
	part(tagPlacement, c.Placement != nil, c.Placement)
	part(tagMirror, c.Mirror != nil, c.Mirror)
	for _, s := range c.Sources {
		part(tagSource, true, s)
	}
	part(tagSubjectTransform, c.SubjectTransform != nil, c.SubjectTransform)
	part(tagRepublish, c.Republish != nil, c.Republish)
	part(tagConsumerLimits, c.ConsumerLimits != ConsumerLimits{}, c.ConsumerLimits)
	if err != nil {
		return nil, fmt.Errorf("encode a config: %w", err)
	}
	return dst, nil
}

func appendMetadata(dst []byte, m map[string]string) []byte {
	if len(m) == 0 {
		return dst
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = fields.Item(dst, tagMetadataKey, k)
		dst = fields.Item(dst, tagMetadataValue, m[k])
	}
	return dst
}

// ParseConfig reads what AppendConfig wrote, also in versions before. Nothing of b is kept.
// An error is ErrBadEntry.
func ParseConfig(b []byte) (*Config, error) {
	c := &Config{}
	if err := c.parse(b); err != nil {
		return nil, fmt.Errorf("%w: a topic's config: %w", ErrBadEntry, err)
	}
	return c, nil
}

func (c *Config) parse(b []byte) error {
	switch {
	case len(b) > 0 && b[0] == '{':
		return json.Unmarshal(b, c)
	case len(b) == 0 || b[0] != configVersion:
		return fmt.Errorf("version %v is not known to this program", b[:min(len(b), 1)])
	}
	r := fields.Read(b[1:])
	for r.Next() {
		c.read(&r)
	}
	return r.Err()
}

// read takes one field; it goes on where a list or a map of several has been begun.
func (c *Config) read(r *fields.Reader) {
	switch r.Tag() {
	case tagName:
		c.Name = r.Text()
	case tagDescription:
		c.Description = r.Text()
	case tagSubject:
		c.Subjects = append(c.Subjects, r.Text())
	case tagRetention:
		c.Retention = Retention(known(r.Bytes()))
	case tagMaxConsumers:
		c.MaxConsumers = int(r.Int())
	case tagMaxMsgs:
		c.MaxMsgs = r.Int()
	case tagMaxBytes:
		c.MaxBytes = r.Int()
	case tagMaxAge:
		c.MaxAge = time.Duration(r.Int())
	case tagMaxMsgsPer:
		c.MaxMsgsPer = r.Int()
	case tagMaxMsgSize:
		c.MaxMsgSize = int32(r.Int())
	case tagDiscard:
		c.Discard = Discard(known(r.Bytes()))
	case tagStorage:
		c.Storage = Storage(known(r.Bytes()))
	case tagReplicas:
		c.Replicas = int(r.Int())
	case tagDuplicates:
		c.Duplicates = time.Duration(r.Int())
	case tagCompression:
		c.Compression = known(r.Bytes())
	case tagFirstSeq:
		c.FirstSeq = r.Uint()
	case tagSubjectDeleteMarkerTTL:
		c.SubjectDeleteMarkerTTL = time.Duration(r.Int())
	case tagPersistMode:
		c.PersistMode = known(r.Bytes())
	case tagMetadataKey:
		c.readMetadata(r)
	default:
		if flag := c.flag(r.Tag()); flag != nil {
			*flag = r.Bool()
		} else {
			c.readPart(r)
		}
	}
}

// flag returns the flag of a tag, nil for other tags.
func (c *Config) flag(t fields.Tag) *bool {
	switch t {
	case tagNoAck:
		return &c.NoAck
	case tagSealed:
		return &c.Sealed
	case tagDenyDelete:
		return &c.DenyDelete
	case tagDenyPurge:
		return &c.DenyPurge
	case tagAllowRollup:
		return &c.AllowRollup
	case tagAllowDirect:
		return &c.AllowDirect
	case tagMirrorDirect:
		return &c.MirrorDirect
	case tagDiscardNewPer:
		return &c.DiscardNewPer
	case tagAllowMsgTTL:
		return &c.AllowMsgTTL
	case tagAllowMsgCounter:
		return &c.AllowMsgCounter
	case tagAllowAtomic:
		return &c.AllowAtomic
	case tagAllowMsgSchedules:
		return &c.AllowMsgSchedules
	case tagAllowBatched:
		return &c.AllowBatched
	}
	return nil
}

func (c *Config) readPart(r *fields.Reader) {
	var err error
	switch r.Tag() {
	case tagPlacement:
		err = json.Unmarshal(r.Bytes(), &c.Placement)
	case tagMirror:
		err = json.Unmarshal(r.Bytes(), &c.Mirror)
	case tagSource:
		var s *StreamSource
		err = json.Unmarshal(r.Bytes(), &s)
		c.Sources = append(c.Sources, s)
	case tagSubjectTransform:
		err = json.Unmarshal(r.Bytes(), &c.SubjectTransform)
	case tagRepublish:
		err = json.Unmarshal(r.Bytes(), &c.Republish)
	case tagConsumerLimits:
		err = json.Unmarshal(r.Bytes(), &c.ConsumerLimits)
	default:
		r.Unknown()
	}
	if err != nil {
		r.Unknown()
	}
}

// readMetadata takes a key and the value that follows it.
func (c *Config) readMetadata(r *fields.Reader) {
	key := r.Text()
	if !r.Next() || r.Tag() != tagMetadataValue {
		r.Unknown()
		return
	}
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[key] = r.Text()
}

// known returns a text without making a new one for those that most configs have.
func known(b []byte) string {
	switch string(b) {
	case string(RetainLimits):
		return string(RetainLimits)
	case string(DiscardOld):
		return string(DiscardOld)
	case string(StoreFile):
		return string(StoreFile)
	case "none":
		return "none"
	}
	return string(b)
}
