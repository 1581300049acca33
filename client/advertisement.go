package client

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Advertisement is a declaration about messages: who sends (or reads, or
// answers) what, where, and how it looks. docs/advertise.md describes the fields
// in full; those this type lacks are kept in Extra.
type Advertisement struct {
	// Set by the owner. Name and Subject are needed.

	Name        string   `json:"name"`    // the key, together with the owner's team and service
	Subject     string   `json:"subject"` // tokens may be named: quakes.{net}.{type}
	Role        string   `json:"role,omitempty"`
	Kind        string   `json:"kind,omitempty"` // event, state, command, reply
	Summary     string   `json:"summary,omitempty"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Owner       Owner    `json:"owner,omitzero"`
	ContentType string   `json:"content_type,omitempty"`
	Schema      *Schema  `json:"schema,omitempty"`
	Rate        *Rate    `json:"rate,omitempty"`
	Keep        *Keep    `json:"durable,omitempty"`
	Lease       Lease    `json:"lease,omitzero"`

	HeadersSchema json.RawMessage   `json:"headers_schema,omitempty"` // JSON Schema of the headers
	KeyBy         *KeyBy            `json:"key,omitempty"`
	TimeBy        *TimeBy           `json:"time,omitempty"`
	Examples      []json.RawMessage `json:"examples,omitempty"`
	Lifecycle     *Lifecycle        `json:"lifecycle,omitempty"`
	Enforce       string            `json:"enforce,omitempty"`   // off, warn, reject, quarantine
	Exclusive     bool              `json:"exclusive,omitempty"` // only holders may publish
	Lineage       []string          `json:"lineage,omitempty"`   // what it is made from

	// Set by the broker.

	ID       string    `json:"id,omitempty"`
	Wildcard string    `json:"pattern,omitempty"` // Subject with wildcards for the named tokens
	Revision uint64    `json:"revision,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	Changed  time.Time `json:"changed,omitzero"`
	By       string    `json:"by,omitempty"` // the user that put it

	Extra map[string]json.RawMessage `json:"-"` // fields unknown to this type
}

// Owner says who is behind an advertisement.
type Owner struct {
	Team     string `json:"team,omitempty"`
	Contact  string `json:"contact,omitempty"`
	Service  string `json:"service,omitempty"`
	Version  string `json:"version,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// Schema says what payloads look like.
type Schema struct {
	Format  string          `json:"format"`           // json-schema, avro, protobuf, none
	Inline  json.RawMessage `json:"inline,omitempty"` // the schema, as JSON or as a JSON string
	Ref     string          `json:"ref,omitempty"`    // or where it is
	SHA256  string          `json:"sha256,omitempty"` // of Inline, filled in by the broker
	Version string          `json:"version,omitempty"`
	Compat  string          `json:"compat,omitempty"`  // none, backward, forward, full
	Message string          `json:"message,omitempty"` // the payloads' message, of protobuf
	Framing string          `json:"framing,omitempty"` // what payloads of Avro and Protobuf begin with: single-object, raw, confluent
	ID      string          `json:"id,omitempty"`      // of the schema in a registry, with the framing confluent
	Writers json.RawMessage `json:"writers,omitempty"` // of Avro: other schemas that payloads may have been written with; docs/schemas.md
}

// Text is an inline schema as its language wants it: the text of a JSON string, else the
// JSON itself; "" without one.
func (s *Schema) Text() string {
	if s == nil || len(s.Inline) == 0 {
		return ""
	}
	var text string
	if s.Inline[0] == '"' && json.Unmarshal(s.Inline, &text) == nil {
		return text
	}
	return string(s.Inline)
}

// KeyBy says where the key of a message is. One of the three is set.
type KeyBy struct {
	Header  string `json:"header,omitempty"`
	Pointer string `json:"pointer,omitempty"` // JSON pointer into the payload
	Token   string `json:"token,omitempty"`   // a named token of the subject
}

// TimeBy says where the time of a message is: in a header or at a pointer.
type TimeBy struct {
	Header  string `json:"header,omitempty"`
	Pointer string `json:"pointer,omitempty"`
	Unit    string `json:"unit,omitempty"` // rfc3339, s, ms, us, ns
	Zone    string `json:"zone,omitempty"`
}

// Lifecycle says how far an advertisement can be relied on.
type Lifecycle struct {
	Stage      string `json:"stage,omitempty"` // draft, stable, deprecated
	ReplacedBy string `json:"replaced_by,omitempty"`
	Sunset     string `json:"sunset,omitempty"` // a date
}

// Rate is how much is to be expected, in words: "50/s", "64KiB".
type Rate struct {
	Expected     string   `json:"expected,omitempty"`
	Burst        string   `json:"burst,omitempty"`
	MaxPayload   string   `json:"max_payload,omitempty"`
	SilenceAfter Duration `json:"silence_after,omitempty"`
}

// Keep asks for a topic that keeps the messages; the broker creates it with the
// advertisement.
type Keep struct {
	Topic     string   `json:"topic,omitempty"`     // default: the name with "_" for "."
	Retention string   `json:"retention,omitempty"` // limits, interest, workqueue
	MaxAge    Duration `json:"max_age,omitempty"`
	MaxBytes  int64    `json:"max_bytes,omitempty"`
	MaxMsgs   int64    `json:"max_msgs,omitempty"`
	Replicas  int      `json:"replicas,omitempty"`
}

// The lease modes.
const (
	LeaseConnection = "connection" // ends some time after the advertiser's connection
	LeaseTTL        = "ttl"        // ends when it is not renewed in time
	LeasePermanent  = "permanent"  // ends by withdrawal only
)

// Lease is what keeps an advertisement alive.
type Lease struct {
	Mode  string   `json:"mode,omitempty"`  // default connection
	TTL   Duration `json:"ttl,omitempty"`   // default 30 s
	Grace Duration `json:"grace,omitempty"` // default 10 s
}

// Duration is a time.Duration that is written as "30s" in JSON.
type Duration time.Duration

// MarshalJSON writes the duration as Go does.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads "30s", with weeks and days in front too ("7d", "1d12h"), or a number
// of nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var n int64
	if json.Unmarshal(b, &n) == nil {
		*d = Duration(n)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s is neither a duration like \"30s\" nor nanoseconds", b)
	}
	days := time.Duration(0)
	m := weeksAndDays.FindStringSubmatch(s)
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour} {
		n, _ := strconv.Atoi(m[i+1]) // "" is none
		days += time.Duration(min(n, int(math.MaxInt64/unit/2))) * unit
	}
	rest := s[len(m[0]):]
	if rest == "" && m[0] != "" {
		rest = "0"
	}
	parsed, err := time.ParseDuration(rest)
	if err != nil || days > 0 && parsed < 0 || days < 0 || parsed > math.MaxInt64-days {
		return fmt.Errorf("%q is not a duration like 90s, 15m or 7d", s)
	}
	*d = Duration(days + parsed)
	return nil
}

var weeksAndDays = regexp.MustCompile(`^(?:(\d{1,5})w)?(?:(\d{1,6})d)?`)

// plainAdvertisement has the fields without the methods.
type plainAdvertisement Advertisement

// advertisementFields are the names of the fields that the type has.
var advertisementFields = []string{"name", "subject", "role", "kind", "summary", "description", "tags", "owner", "content_type", "schema", "rate", "durable", "lease", "headers_schema", "key", "time", "examples", "lifecycle", "enforce", "exclusive", "lineage", "id", "pattern", "revision", "created", "changed", "by"}

// UnmarshalJSON keeps unknown fields in Extra.
func (a *Advertisement) UnmarshalJSON(b []byte) error {
	var known plainAdvertisement
	if err := json.Unmarshal(b, &known); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, name := range advertisementFields {
		delete(all, name)
	}
	*a = Advertisement(known)
	if len(all) > 0 {
		a.Extra = all
	}
	return nil
}

// MarshalJSON writes the fields of the type and those in Extra.
func (a Advertisement) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(plainAdvertisement(a))
	if err != nil || len(a.Extra) == 0 {
		return b, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	for name, value := range a.Extra {
		if _, known := all[name]; !known {
			all[name] = value
		}
	}
	return json.Marshal(all)
}

// Operator is the operator whose output is advertised, "" where it is no operator's.
func (a *Advertisement) Operator() (name string) {
	_ = json.Unmarshal(a.Extra["operator"], &name) // anything else is no name
	return name
}

// Implicit tells that an operator advertises it without having been asked to: it comes and goes
// with the operator.
func (a *Advertisement) Implicit() bool { return string(a.Extra["implicit"]) == "true" }

// Derived is what an operator knows of how its output looks, nil where it knows nothing. It
// describes: messages are held against Schema only.
func (a *Advertisement) Derived() *Schema {
	var s *Schema
	if raw := a.Extra["derived_schema"]; raw != nil && json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return s
}

// Pattern is the subject with wildcards for its named tokens: {name} is one
// token, {name...} at the end is one or more.
func (a *Advertisement) Pattern() string {
	if a.Wildcard != "" {
		return a.Wildcard
	}
	subject := a.Subject
	if open := strings.LastIndex(subject, "{"); open >= 0 && strings.HasSuffix(subject, "...}") {
		subject = subject[:open] + ">"
	}
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		if strings.HasPrefix(token, "{") && strings.HasSuffix(token, "}") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// Tokens are the values of an advertisement's named tokens.
type Tokens map[string]string

// Fill returns the subject with its named tokens replaced. A value must be one
// token: not empty, without dots, wildcards or white space.
func (a *Advertisement) Fill(tokens Tokens) (string, error) {
	subject := a.Subject
	for name, value := range tokens {
		place, many := "{"+name+"}", "{"+name+"...}"
		switch {
		case strings.Contains(subject, place):
			if !validToken(value) {
				return "", invalid("fill in", a.Subject, "%s %q is not one token of a subject", name, value)
			}
			subject = strings.ReplaceAll(subject, place, value)
		case strings.HasSuffix(subject, many):
			for token := range strings.SplitSeq(value, ".") {
				if !validToken(token) {
					return "", invalid("fill in", a.Subject, "%s %q is not a subject", name, value)
				}
			}
			subject = strings.TrimSuffix(subject, many) + value
		default:
			return "", invalid("fill in", a.Subject, "it has no token {%s}", name)
		}
	}
	if i := strings.IndexByte(subject, '{'); i >= 0 {
		return "", invalid("fill in", a.Subject, "no value for %s", subject[i:])
	}
	return subject, nil
}

func validToken(s string) bool {
	return s != "" && !strings.ContainsAny(s, ". \t\r\n\f\x00{}") && s != "*" && s != ">"
}
