package jsapi

import (
	"bytes"
	"maps"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// Level is the JetStream API level this package speaks (that of 2.15).
const Level = 5

// Version is the server version that INFO and metadata name: clients gate
// features on it.
const Version = "2.15.2"

// Metadata keys the server keeps for itself. Only the first is stored.
const (
	MetaRequiredLevel = "_nats.req.level"
	MetaLevel         = "_nats.level"
	MetaVersion       = "_nats.ver"

	// MetaFilter is what a consumer's content filter did, as JSON. Only replies carry it.
	MetaFilter = "_herald.filter"
	// MetaDead and MetaKeys say the same of its dead letters and of its key.
	MetaDead = "_herald.dlq"
	MetaKeys = "_herald.key"
)

// HeaderRequiredLevel is the header by which a client asks for a level.
const HeaderRequiredLevel = "Nats-Required-Api-Level"

// HeaderSeek, with any value, lets CONSUMER.RESET move a consumer wherever the topic
// reaches, whatever its deliver policy. Only Herald has it.
const HeaderSeek = "Herald-Seek"

// LevelMet tells whether a request's header asks for a level above ours, or for
// something that is no level at all. No header is met.
func LevelMet(header []byte) bool {
	v, ok := HeaderValue(header, HeaderRequiredLevel)
	if !ok {
		return true
	}
	n, err := strconv.Atoi(v)
	return err == nil && n <= Level
}

// HeaderValue returns the first value of key in a header block. The key is
// matched case-sensitively, as the wire has it.
func HeaderValue(block []byte, key string) (string, bool) {
	for rest := block; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return "", false
		}
		rest = rest[i+1:]
		if len(rest) > len(key) && rest[len(key)] == ':' && string(rest[:len(key)]) == key {
			line, _, _ := bytes.Cut(rest[len(key)+1:], []byte("\r\n"))
			return string(bytes.TrimSpace(line)), true
		}
	}
}

// StreamLevel returns the lowest API level that knows everything c uses.
func StreamLevel(c *topics.Config) int {
	switch {
	case c.AllowBatched || c.Mirror != nil && c.Mirror.Consumer != nil || sourceConsumer(c.Sources):
		return 4
	case c.AllowMsgCounter || c.AllowAtomic || c.AllowMsgSchedules || c.PersistMode == "async":
		return 2
	case c.AllowMsgTTL || c.SubjectDeleteMarkerTTL > 0:
		return 1
	}
	return 0
}

func sourceConsumer(sources []*topics.StreamSource) bool {
	for _, s := range sources {
		if s != nil && s.Consumer != nil {
			return true
		}
	}
	return false
}

// ConsumerLevel returns the lowest API level that knows everything c uses.
func ConsumerLevel(c *topics.ConsumerConfig) int {
	switch {
	case c.AckPolicy == topics.AckFlowControl:
		return 4
	case c.PauseUntil != nil && !c.PauseUntil.IsZero() || len(c.PriorityGroups) > 0 ||
		c.PriorityPolicy != "" && c.PriorityPolicy != "none":
		return 1
	}
	return 0
}

// StoredMetadata returns metadata as it is stored: without the keys that only
// replies carry, and with the required level.
func StoredMetadata(m map[string]string, level int) map[string]string {
	out := UserMetadata(m)
	if out == nil {
		out = make(map[string]string, 1)
	}
	out[MetaRequiredLevel] = strconv.Itoa(level)
	return out
}

// ReplyMetadata returns stored metadata as infos show it. Old assets without a
// level get none.
func ReplyMetadata(m map[string]string) map[string]string {
	out := make(map[string]string, len(m)+2)
	maps.Copy(out, m)
	out[MetaVersion] = Version
	out[MetaLevel] = strconv.Itoa(Level)
	return out
}

// UserMetadata returns what the user put into metadata: a copy without the
// server's own keys, nil when nothing is left.
func UserMetadata(m map[string]string) map[string]string {
	var out map[string]string
	for k, v := range m {
		if k == MetaFilter || k == MetaDead || k == MetaKeys || strings.HasPrefix(k, "_nats.") && (k == MetaRequiredLevel || k == MetaLevel || k == MetaVersion) {
			continue
		}
		if out == nil {
			out = make(map[string]string, len(m)+1)
		}
		out[k] = v
	}
	return out
}
