package catalogue

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

// The bounds of advertisements.
const (
	AdvertisementBytesMax = 256 << 10 // one advertisement's JSON
	AdvertisementsMax     = 65536     // of one account
)

// Role says what an advertiser does with the messages of a subject.
type Role string

// The roles. A missing one means Publishes.
const (
	Publishes Role = "publishes"
	Consumes  Role = "consumes"
	Responds  Role = "responds"
	Operates  Role = "operator"
)

// LeaseMode says what keeps an advertisement alive.
type LeaseMode string

// The lease modes. A missing one means LeaseConnection.
const (
	LeaseConnection LeaseMode = "connection" // ends with the advertiser's connection, after the grace
	LeaseTTL        LeaseMode = "ttl"        // ends when it isn't renewed in time, after the grace
	LeasePermanent  LeaseMode = "permanent"  // ends only by withdrawal
)

// Lease is what keeps an advertisement alive.
type Lease struct {
	Mode  LeaseMode `json:"mode"`
	TTL   Duration  `json:"ttl,omitempty"`   // default 30 s
	Grace Duration  `json:"grace,omitempty"` // how long after its end others are told; default 10 s
}

// Owner says who is behind an advertisement.
type Owner struct {
	Team     string `json:"team,omitempty"`
	Contact  string `json:"contact,omitempty"`
	Service  string `json:"service,omitempty"`
	Version  string `json:"version,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// Key returns the part of an owner that advertisements are told apart by: the
// team and the service. Instances and versions of a service are one owner.
func (o *Owner) Key() string {
	if o.Team == "" || o.Service == "" {
		return o.Team + o.Service
	}
	return o.Team + "/" + o.Service
}

// Schema says what the payloads look like.
type Schema struct {
	Format  string          `json:"format"`            // json-schema, avro, protobuf, none
	Inline  json.RawMessage `json:"inline,omitempty"`  // the schema itself, as JSON or as a JSON string
	Ref     string          `json:"ref,omitempty"`     // or where it is
	SHA256  string          `json:"sha256,omitempty"`  // of Inline as it came; filled in when missing
	Message string          `json:"message,omitempty"` // the payloads' message, of protobuf
	Framing string          `json:"framing,omitempty"` // what payloads begin with: single-object, raw, confluent
	ID      string          `json:"id,omitempty"`      // of the schema in a registry, with the framing confluent
	Writers json.RawMessage `json:"writers,omitempty"` // Avro: schemas that payloads may have been written with besides, a list or by id
	Version string          `json:"version,omitempty"`
	Compat  string          `json:"compat,omitempty"` // none, backward, forward, full
}

// Rate is what the advertiser expects to send, in the words it used: "50/s",
// "64KiB", "5m".
type Rate struct {
	Expected     string   `json:"expected,omitempty"`
	Burst        string   `json:"burst,omitempty"`
	MaxPayload   string   `json:"max_payload,omitempty"`
	SilenceAfter Duration `json:"silence_after,omitempty"`
}

// Durable asks for a topic that keeps the messages.
type Durable struct {
	Topic     string           `json:"topic,omitempty"` // default: the name, with "_" for "."
	Retention topics.Retention `json:"retention,omitempty"`
	MaxAge    Duration         `json:"max_age,omitempty"`
	MaxBytes  int64            `json:"max_bytes,omitempty"`
	MaxMsgs   int64            `json:"max_msgs,omitempty"`
	Replicas  int              `json:"replicas,omitempty"`
}

// Definition is an advertisement as its owner wrote it: the fields Herald
// understands. Those it doesn't are kept in the Advertisement and given back.
type Definition struct {
	Name        string   `json:"name"`
	Subject     string   `json:"subject"` // tokens may be named: orders.{region}.created
	Role        Role     `json:"role,omitempty"`
	Kind        string   `json:"kind,omitempty"` // event, state, command, reply
	Summary     string   `json:"summary,omitempty"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Owner       Owner    `json:"owner,omitzero"`
	ContentType string   `json:"content_type,omitempty"`
	Schema      *Schema  `json:"schema,omitempty"`
	Rate        *Rate    `json:"rate,omitempty"`
	Durable     *Durable `json:"durable,omitempty"`
	Lease       Lease    `json:"lease,omitzero"`
}

// Key tells the advertisements of an account apart.
type Key struct{ Name, Owner string }

// Advertisement is one advertisement of the catalogue. It is immutable.
type Advertisement struct {
	Definition
	Contract
	Account  string
	By       string       // the user that put it, "" for one without a name
	ID       string       // given by the server, for good
	Pattern  string       // Subject with "*" and ">" for the named tokens
	Revision uint64       // of the catalogue's advertisements when it last changed
	Created  topics.Nanos // when the name was first advertised
	Changed  topics.Nanos

	fields  map[string]json.RawMessage // all that the owner wrote
	body    []byte                     // fields as canonical JSON
	problem *topics.Fault              // of the contract, see Check

	encoded atomic.Pointer[[]byte] // what MarshalJSON returned, if it isn't long
}

// Key returns what tells the advertisement apart in its account.
func (a *Advertisement) Key() Key { return Key{a.Name, a.Owner.Key()} }

// Body returns what the owner wrote as canonical JSON, with the defaults and
// without the instance: what is proposed, kept and compared. The caller must not
// change it.
func (a *Advertisement) Body() []byte { return a.body }

// MarshalJSON returns the body with what the server knows: id, pattern, revision,
// created, changed, and by where a user with a name put it. Equal advertisements give
// equal bytes.
func (a *Advertisement) MarshalJSON() ([]byte, error) {
	if b := a.encoded.Load(); b != nil {
		return *b, nil
	}
	b, err := a.encode()
	if err == nil && len(b) <= encodedMax {
		a.encoded.Store(&b)
	}
	return b, err
}

// encodedMax is up to which length the JSON of an advertisement is kept: lists of them are
// asked for often.
const encodedMax = 8 << 10

func (a *Advertisement) encode() ([]byte, error) {
	all := maps.Clone(a.fields)
	if a.By != "" {
		all["by"] = mustEncode(a.By)
	}
	for k, v := range map[string]any{
		"id": a.ID, "pattern": a.Pattern, "revision": a.Revision, "created": stamp(a.Created), "changed": stamp(a.Changed),
	} {
		all[k] = mustEncode(v)
	}
	return json.Marshal(all)
}

// serverFields are those MarshalJSON adds; an owner who sends back what it got
// doesn't change anything by them. force is a word to the service, not a part.
var serverFields = []string{"id", "pattern", "revision", "created", "changed", "by", "force"}

// ParseAdvertisement reads and checks what an owner wrote. The fault says which
// field is wrong and how (20001, 20003).
func ParseAdvertisement(body []byte) (*Advertisement, *topics.Fault) {
	if len(body) > AdvertisementBytesMax {
		return nil, topics.NewFault(413, 20003, "advertisement has %d bytes, at most %d are allowed", len(body), AdvertisementBytesMax)
	}
	a := &Advertisement{}
	if err := json.Unmarshal(body, &a.fields); err != nil || a.fields == nil {
		return nil, badAdvertisement("", "is not a JSON object")
	}
	if err := json.Unmarshal(body, &a.Definition); err != nil {
		return nil, badAdvertisement("", JSONProblem(err))
	}
	for _, f := range serverFields {
		delete(a.fields, f)
	}
	a.readContract()
	if a.Owner.Instance != "" { // who holds it, not what it says: instances share one advertisement
		if a.fields["owner"] = withoutField(a.fields["owner"], "instance"); string(a.fields["owner"]) == "{}" {
			delete(a.fields, "owner")
		}
	}
	if f := a.check(); f != nil {
		return nil, f
	}
	a.complete()
	canonical, err := json.Marshal(a.fields)
	if err != nil {
		return nil, badAdvertisement("", err.Error())
	}
	a.body = canonical
	return a, nil
}

// complete writes the defaults into the fields, so that an owner who sends back
// what it got changes nothing. What the fields have that Herald doesn't know stays.
func (a *Advertisement) complete() {
	a.fields["role"] = mustEncode(a.Role)
	a.fields["lease"] = withFields(a.fields["lease"], map[string]any{"mode": a.Lease.Mode, "ttl": a.Lease.TTL, "grace": a.Lease.Grace})
	if a.Schema != nil && a.Schema.SHA256 != "" {
		a.fields["schema"] = withFields(a.fields["schema"], map[string]any{"sha256": a.Schema.SHA256})
	}
	if a.Durable != nil {
		a.fields["durable"] = withFields(a.fields["durable"], map[string]any{"topic": a.Durable.Topic, "retention": a.Durable.Retention})
	}
}

func badAdvertisement(field, how string) *topics.Fault {
	if field == "" {
		return topics.NewFault(400, 20001, "advertisement is not valid: %s", how)
	}
	return topics.NewFault(400, 20001, "advertisement is not valid: %s: %s", field, how)
}

// check validates the definition and fills in what follows from it.
func (a *Advertisement) check() *topics.Fault {
	if !validName(a.Name) {
		return badAdvertisement("name", "must be 1 to 255 of A-Z a-z 0-9 _ - and . between them")
	}
	pattern, ok := Pattern(a.Subject)
	if !ok {
		return badAdvertisement("subject", "must be a subject whose tokens may be named, as in orders.{region}.created")
	}
	a.Pattern = pattern
	a.Role = cmp.Or(a.Role, Publishes)
	if !slices.Contains([]Role{Publishes, Consumes, Responds, Operates}, a.Role) {
		return badAdvertisement("role", "must be publishes, consumes, responds or operator")
	}
	if !slices.Contains([]string{"", "event", "state", "command", "reply"}, a.Kind) {
		return badAdvertisement("kind", "must be event, state, command or reply")
	}
	if subject.HasControl(a.Owner.Key()) {
		return badAdvertisement("owner", "team and service must not have white space")
	}
	if f := a.checkLease(); f != nil {
		return f
	}
	if f := a.checkSchema(); f != nil {
		return f
	}
	if d := a.Durable; d != nil {
		d.Topic = cmp.Or(d.Topic, strings.ReplaceAll(a.Name, ".", "_"))
		if strings.ContainsAny(d.Topic, ".*>/\\") || subject.HasControl(d.Topic) || len(d.Topic) > 255 {
			return badAdvertisement("durable.topic", "must be a topic's name: no space . * > / \\")
		}
		d.Retention = cmp.Or(d.Retention, topics.RetainLimits)
		if !slices.Contains([]topics.Retention{topics.RetainLimits, topics.RetainInterest, topics.RetainWorkQueue}, d.Retention) {
			return badAdvertisement("durable.retention", "must be limits, interest or workqueue")
		}
	}
	return nil
}

func (a *Advertisement) checkLease() *topics.Fault {
	l := &a.Lease
	l.Mode = cmp.Or(l.Mode, LeaseConnection)
	switch l.Mode {
	case LeasePermanent:
		l.TTL, l.Grace = 0, 0
		return nil
	case LeaseConnection, LeaseTTL:
	default:
		return badAdvertisement("lease.mode", "must be connection, ttl or permanent")
	}
	l.TTL = cmp.Or(l.TTL, Duration(30*time.Second))
	l.Grace = cmp.Or(l.Grace, Duration(10*time.Second))
	if l.TTL < Duration(time.Second) || l.TTL > Duration(24*time.Hour) {
		return badAdvertisement("lease.ttl", "must be between 1s and 24h")
	}
	if l.Grace < 0 || l.Grace > Duration(24*time.Hour) {
		return badAdvertisement("lease.grace", "must be between 0s and 24h")
	}
	return nil
}

func (a *Advertisement) checkSchema() *topics.Fault {
	s := a.Schema
	if s == nil {
		return nil
	}
	if !slices.Contains([]string{"json-schema", "avro", "protobuf", "none"}, s.Format) {
		return badAdvertisement("schema.format", "must be json-schema, avro, protobuf or none")
	}
	if !slices.Contains([]string{"", "none", "backward", "forward", "full"}, s.Compat) {
		return badAdvertisement("schema.compat", "must be none, backward, forward or full")
	}
	if len(s.Inline) > 0 && s.Ref != "" {
		return badAdvertisement("schema", "has both inline and ref")
	}
	if len(s.Inline) == 0 {
		return nil
	}
	text, err := schemaText(s.Inline)
	if err != nil {
		return badAdvertisement("schema.inline", err.Error())
	}
	digest := digestOf(text)
	if s.SHA256 != "" && !strings.EqualFold(s.SHA256, digest) && !strings.EqualFold(s.SHA256, digestOf(unescaped(s.Inline))) {
		return badAdvertisement("schema.sha256", "is not the digest of the inline schema, which is "+digest)
	}
	s.SHA256 = digest
	return nil
}

// Text returns an inline schema as its language wants it: the text of a JSON string, else
// the JSON itself; "" when there is none.
func (s *Schema) Text() string {
	if s == nil || len(s.Inline) == 0 {
		return ""
	}
	text, err := schemaText(s.Inline)
	if err != nil {
		return ""
	}
	return string(text)
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// schemaText returns what the digest of an inline schema is of: the text of a JSON
// string (a schema that isn't JSON comes as one), else the JSON without white space,
// with <, > and & escaped. JSON that goes through Go's encoder comes out with them
// escaped, so that the digest has to be that of both.
func schemaText(inline json.RawMessage) ([]byte, error) {
	if inline[0] == '"' {
		var t string
		err := json.Unmarshal(inline, &t)
		return []byte(t), err
	}
	var b, escaped bytes.Buffer
	if err := json.Compact(&b, inline); err != nil {
		return nil, err
	}
	json.HTMLEscape(&escaped, b.Bytes())
	return escaped.Bytes(), nil
}

// unescaped is the JSON without white space, as somebody who knows nothing of escaping
// takes the digest of it.
func unescaped(inline json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, inline) != nil {
		return nil
	}
	return b.Bytes()
}

// Pattern turns a subject with named tokens into one with wildcards: {name}
// becomes "*", and {name...} at the end becomes ">". ok tells whether s is valid.
func Pattern(s string) (pattern string, ok bool) {
	tokens := strings.Split(s, ".")
	// The dots of {name...} split it: three empty or brace tokens at the end.
	if n := len(tokens); n >= 4 && tokens[n-1] == "}" && tokens[n-2] == "" && tokens[n-3] == "" && strings.HasPrefix(tokens[n-4], "{") {
		if !validParameter(tokens[n-4][1:]) {
			return "", false
		}
		tokens = append(tokens[:n-4], ">")
	}
	for i, t := range tokens {
		if !strings.ContainsAny(t, "{}") {
			continue
		}
		if len(t) < 3 || t[0] != '{' || t[len(t)-1] != '}' || !validParameter(t[1:len(t)-1]) {
			return "", false
		}
		tokens[i] = "*"
	}
	pattern = strings.Join(tokens, ".")
	return pattern, subject.Valid(pattern)
}

func validParameter(s string) bool {
	for _, r := range s {
		if r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return s != ""
}

func validName(s string) bool {
	if len(s) > 255 {
		return false
	}
	for tok := range strings.SplitSeq(s, ".") {
		if !validParameter(tok) {
			return false
		}
	}
	return true
}

func withoutField(object json.RawMessage, field string) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return object
	}
	delete(all, field)
	b, err := json.Marshal(all)
	if err != nil {
		return object
	}
	return b
}

// withFields sets fields of a JSON object; anything else becomes an object of
// just them.
func withFields(object json.RawMessage, fields map[string]any) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil || all == nil {
		all = map[string]json.RawMessage{}
	}
	for k, v := range fields {
		all[k] = mustEncode(v)
	}
	return mustEncode(all)
}

// mustEncode is for values that always encode: texts, numbers, times, JSON.
func mustEncode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}

func stamp(t topics.Nanos) time.Time { return time.Unix(0, int64(t)).UTC() }
