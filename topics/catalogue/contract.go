package catalogue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

// Enforce says what happens to a message that its advertisement does not allow.
type Enforce string

// What is done about a message that is against the schema. A missing one means
// EnforceOff.
const (
	EnforceOff        Enforce = "off"        // nothing is checked
	EnforceWarn       Enforce = "warn"       // delivered, and counted
	EnforceReject     Enforce = "reject"     // neither stored nor delivered; the publisher is told
	EnforceQuarantine Enforce = "quarantine" // stored beside, not delivered
)

// KeyBy says where the key of a message is that its order and its state belong to.
// One of the three is set.
type KeyBy struct {
	Header  string `json:"header,omitempty"`
	Pointer string `json:"pointer,omitempty"` // JSON pointer into the payload
	Token   string `json:"token,omitempty"`   // a named token of the subject
}

// TimeBy says where the time is at which something happened.
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
	Sunset     string `json:"sunset,omitempty"` // when it ends: a date, or RFC 3339
}

// Contract is the part of an advertisement that says how messages must be. A field that
// can't be read is as if it were not there, and named by Advertisement.Check: what is in
// the log or in a snapshot already is taken as it is, by every version alike.
type Contract struct {
	HeadersSchema json.RawMessage   // JSON Schema of the headers, as an object of texts
	KeyBy         *KeyBy            // JSON: key
	TimeBy        *TimeBy           // JSON: time
	Examples      []json.RawMessage // payloads: JSON, or texts where they aren't JSON
	Lifecycle     *Lifecycle
	Enforce       Enforce
	Exclusive     bool     // only holders of the advertisement may publish
	Lineage       []string // subjects and topics it is made from
}

// The bounds of examples.
const (
	ExamplesMax      = 5
	ExampleBytesMax  = 64 << 10 // all together
	quarantinePrefix = "$HERALD.QUARANTINE."
)

// readContract reads the fields of the contract one by one.
func (a *Advertisement) readContract() {
	c := &a.Contract
	for _, f := range []struct {
		name string
		to   any
	}{
		{"headers_schema", &c.HeadersSchema},
		{"key", &c.KeyBy},
		{"time", &c.TimeBy},
		{"examples", &c.Examples},
		{"lifecycle", &c.Lifecycle},
		{"enforce", &c.Enforce},
		{"exclusive", &c.Exclusive},
		{"lineage", &c.Lineage},
	} {
		raw, ok := a.fields[f.name]
		if !ok || string(raw) == "null" {
			continue
		}
		if err := json.Unmarshal(raw, f.to); err != nil && a.problem == nil {
			a.problem = badAdvertisement(f.name, "can't be read: "+JSONProblem(err))
		}
	}
	if !slices.Contains([]Enforce{"", EnforceOff, EnforceWarn, EnforceReject, EnforceQuarantine}, c.Enforce) {
		if a.problem == nil {
			a.problem = badAdvertisement("enforce", "must be off, warn, reject or quarantine")
		}
		c.Enforce = EnforceOff
	}
}

// Check is what has to be right of an advertisement that is new: the fault (20001) names
// the field. What is in the catalogue already has been checked by the version that took
// it in.
func (a *Advertisement) Check() *topics.Fault {
	if a.problem != nil {
		return a.problem
	}
	c := &a.Contract
	if k := c.KeyBy; k != nil {
		if f := a.checkKey(k); f != nil {
			return f
		}
	}
	if t := c.TimeBy; t != nil {
		if (t.Header == "") == (t.Pointer == "") {
			return badAdvertisement("time", "names a header or a pointer, one of them")
		}
		if !slices.Contains([]string{"", "rfc3339", "s", "ms", "us", "ns"}, t.Unit) {
			return badAdvertisement("time.unit", "must be rfc3339, s, ms, us or ns")
		}
	}
	if l := c.Lifecycle; l != nil {
		if !slices.Contains([]string{"", "draft", "stable", "deprecated"}, l.Stage) {
			return badAdvertisement("lifecycle.stage", "must be draft, stable or deprecated")
		}
		if l.Sunset != "" && !isDate(l.Sunset) {
			return badAdvertisement("lifecycle.sunset", "must be a date, as 2027-01-31, or RFC 3339")
		}
	}
	if f := a.checkExamples(); f != nil {
		return f
	}
	if c.Exclusive {
		if a.Role != Publishes && a.Role != Operates {
			return badAdvertisement("exclusive", "is for those who publish")
		}
		if a.Owner.Key() == "" {
			return badAdvertisement("exclusive", "needs an owner.team or owner.service to belong to")
		}
	}
	if c.Exclusive || a.Enforced() {
		if first := subject.Token(a.Pattern, 0); strings.HasPrefix(first, "$") || first == "_INBOX" || first == "*" || first == ">" {
			return badAdvertisement("subject", "what is exclusive or enforced must not begin with $, _INBOX, * or >")
		}
	}
	if a.Enforced() && (a.Role == Consumes || a.Schema == nil || len(a.Schema.Inline) == 0) && len(c.HeadersSchema) == 0 {
		return badAdvertisement("enforce", "needs an inline schema of what is published, or headers_schema")
	}
	return nil
}

func (a *Advertisement) checkKey(k *KeyBy) *topics.Fault {
	n := 0
	for _, s := range []string{k.Header, k.Pointer, k.Token} {
		if s != "" {
			n++
		}
	}
	switch {
	case n != 1:
		return badAdvertisement("key", "names a header, a pointer or a token, one of them")
	case k.Pointer != "" && k.Pointer[0] != '/':
		return badAdvertisement("key.pointer", "must be a JSON pointer, as /order/id")
	case k.Token != "" && a.TokenAt(k.Token) < 0:
		return badAdvertisement("key.token", "is no named token of the subject")
	}
	return nil
}

func (a *Advertisement) checkExamples() *topics.Fault {
	if len(a.Examples) > ExamplesMax {
		return badAdvertisement("examples", fmt.Sprintf("at most %d are kept", ExamplesMax))
	}
	size := 0
	for _, e := range a.Examples {
		size += len(e)
	}
	if size > ExampleBytesMax {
		return badAdvertisement("examples", fmt.Sprintf("have %d bytes, at most %d are kept", size, ExampleBytesMax))
	}
	return nil
}

func isDate(s string) bool {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}

// TokenAt returns the place of a named token in the subject, -1 when there is none.
func (a *Advertisement) TokenAt(name string) int {
	for i, t := range strings.Split(a.Subject, ".") {
		if t == "{"+name+"}" {
			return i
		}
	}
	return -1
}

// Fields of advertisements that operators make. No version's catalogue looks at them.
const (
	FieldOperator = "operator"       // whose output it is
	FieldImplicit = "implicit"       // true: nobody asked for it
	FieldDerived  = "derived_schema" // like schema; it describes, and demands nothing
)

// Operator is the operator whose output it is, "" where it isn't made by one.
func (a *Advertisement) Operator() (name string) {
	_ = json.Unmarshal(a.fields[FieldOperator], &name) // anything else is no name
	return name
}

// Implicit tells that an operator made it without being asked to: it gives way to what
// somebody advertises.
func (a *Advertisement) Implicit() bool { return string(a.fields[FieldImplicit]) == "true" }

// ByHand returns an implicit advertisement as it is once somebody has changed it: no longer
// an operator's.
func (a *Advertisement) ByHand() (*Advertisement, *topics.Fault) {
	fields := maps.Clone(a.fields)
	delete(fields, FieldImplicit)
	delete(fields, FieldOperator)
	return ParseAdvertisement(mustEncode(fields))
}

// Contradicted returns what speaks against an advertisement beside those there are, nil when
// nothing does.
func (c *Catalogue) Contradicted(account string, a *Advertisement) *topics.Fault {
	return conflict(a, c.overlappingAdverts(account, a.Pattern))
}

// Enforced tells whether messages are checked.
func (a *Advertisement) Enforced() bool { return a.Enforce != "" && a.Enforce != EnforceOff }

// Decides tells whether the advertisement says how messages must be: it is by one who
// publishes or answers and has a schema.
func (a *Advertisement) Decides() bool {
	return a.Role != Consumes && a.Schema != nil && a.Schema.SHA256 != ""
}

// Quarantine is the subject under which messages on subject are kept that the
// advertisement sent to quarantine.
func (a *Advertisement) Quarantine(on string) string { return quarantinePrefix + a.Name + "." + on }

// QuarantineTopic is the name of the topic that keeps them, and QuarantinePattern what
// it takes in.
func (a *Advertisement) QuarantineTopic() string {
	return "QUARANTINE_" + strings.ReplaceAll(a.Name, ".", "_")
}

// QuarantinePattern is the pattern of the subjects that Quarantine returns.
func (a *Advertisement) QuarantinePattern() string { return quarantinePrefix + a.Name + ".>" }

// MoreSpecific tells whether pattern a says something about part of what b is about,
// and about nothing else.
func MoreSpecific(a, b string) bool { return a != b && subject.Covers(b, a) }

// FaultConflict refuses an advertisement that contradicts one that is there already.
var FaultConflict = &topics.Fault{Status: 409, ErrCode: 20016, Text: "the advertisement is in conflict with another"}

// conflict returns what speaks against a beside the others that overlap with it: the
// older stays. Where one pattern is a part of the other the more specific one decides,
// and there is no conflict of schemas.
func conflict(a *Advertisement, others []*Advertisement) *topics.Fault {
	slices.SortFunc(others, func(x, y *Advertisement) int { return cmp.Compare(x.Revision, y.Revision) })
	for _, o := range others {
		if o.Key() == a.Key() {
			continue
		}
		who := fmt.Sprintf("%s of %q on %s", o.Name, o.Owner.Key(), o.Pattern)
		if (a.Exclusive || o.Exclusive) && publishing(a) && publishing(o) && !sameOwner(a, o) {
			whose := "has these subjects for itself"
			if !o.Exclusive {
				whose = "is published there already, by another owner"
			}
			return topics.NewFault(FaultConflict.Status, FaultConflict.ErrCode, "conflict: %s %s", who, whose)
		}
		if a.Decides() && o.Decides() && a.Schema.SHA256 != o.Schema.SHA256 &&
			!MoreSpecific(a.Pattern, o.Pattern) && !MoreSpecific(o.Pattern, a.Pattern) {
			return topics.NewFault(FaultConflict.Status, FaultConflict.ErrCode,
				"conflict: %s has another schema (sha256 %.12s, not %.12s) for the same subjects", who, o.Schema.SHA256, a.Schema.SHA256)
		}
	}
	return nil
}

func publishing(a *Advertisement) bool { return a.Role == Publishes || a.Role == Operates }

func sameOwner(a, b *Advertisement) bool { return a.Owner.Key() == b.Owner.Key() && a.By == b.By }
