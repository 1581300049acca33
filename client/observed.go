package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Observed is what is really published, beside what is advertised, summed over the
// nodes. docs/advertise.md describes the fields.
type Observed struct {
	Name    string `json:"name,omitempty"`
	Owner   string `json:"owner,omitempty"` // its key
	Pattern string `json:"pattern"`

	Msgs    int64      `json:"msgs"` // since the nodes count
	Bytes   int64      `json:"bytes"`
	Msgs1m  int64      `json:"msgs_1m"`
	Bytes1m int64      `json:"bytes_1m"`
	Msgs1h  int64      `json:"msgs_1h"`
	Bytes1h int64      `json:"bytes_1h"`
	Last    *time.Time `json:"last,omitempty"` // message

	Publishers  int `json:"publishers"` // clients that published within five minutes
	Subscribers int `json:"subscribers"`
	Consumers   int `json:"consumers"`
	Operators   int `json:"operators"`

	ReadBy []string `json:"read_by,omitempty"` // the operators, by name; not all

	Keys        *int64   `json:"keys,omitempty"`     // different ones, estimated
	Subjects    *int64   `json:"subjects,omitempty"` // different ones, estimated
	Checked1h   int64    `json:"checked_1h"`
	Failed1h    int64    `json:"failed_1h"`
	Conformance *float64 `json:"conformance,omitempty"` // percent

	Silent     bool     `json:"silent,omitempty"`
	Unused     bool     `json:"unused,omitempty"`
	Incomplete []string `json:"incomplete,omitempty"` // nodes that did not answer
}

// Readers are all who read it: subscriptions, consumers and operators.
func (o *Observed) Readers() int { return o.Subscribers + o.Consumers + o.Operators }

// Discovered is an advertisement with what is observed of it.
type Discovered struct {
	Advertisement
	Observed *Observed // nil when it wasn't asked for
}

// MarshalJSON writes the advertisement with one field more.
func (d Discovered) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(d.Advertisement)
	if err != nil || d.Observed == nil {
		return b, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	if all["observed"], err = json.Marshal(d.Observed); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// DiscoverObserved is [Client.Discover] with what is really published of each.
func (c *Client) DiscoverObserved(ctx context.Context, q Query) ([]Discovered, error) {
	return c.discover(ctx, q, true)
}

// Undeclared returns what was published within an hour and is not advertised, the most
// used first; pattern "" is all.
func (c *Client) Undeclared(ctx context.Context, pattern string) ([]Observed, error) {
	all := []Observed{}
	for {
		question := map[string]any{"undeclared": true, "offset": len(all)}
		if pattern != "" {
			question["subject"] = pattern
		}
		page, err := c.advRequest(ctx, "discover undeclared traffic", pattern, advList, question)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Undeclared...)
		if len(all) >= page.Total || len(page.Undeclared) == 0 {
			return all, nil
		}
	}
}

// Nearest tells who is there for a subject, and what is like it.
type Nearest struct {
	Subject        string   `json:"subject"`
	Advertisements []string `json:"advertisements"` // that overlap, by name; not all
	Traffic        bool     `json:"traffic"`        // within the last hour
	Subscribers    int      `json:"subscribers"`
	Topics         []string `json:"topics"` // that keep some of it; not all
	Like           []string `json:"like"`   // subjects that are like it, the nearest first
}

// Nearest asks who is there for a subject or pattern.
func (c *Client) Nearest(ctx context.Context, subject string) (*Nearest, error) {
	reply, err := c.advRequest(ctx, "look around", subject, advList, map[string]any{"subject": subject, "nearest": true})
	if err != nil {
		return nil, err
	}
	if reply.Nearest == nil {
		return nil, failed("look around", subject, errors.New("the broker's answer says nothing"))
	}
	return reply.Nearest, nil
}

// SampleQuery says which messages [Client.Sample] shows and [Client.CheckMessages]
// checks. Name (with Owner) or Subject is needed.
type SampleQuery struct {
	Name    string        // of an advertisement
	Owner   Owner         // needed when several advertise the name
	Subject string        // a pattern
	Count   int           // messages; 0: 5 to show, 10,000 to check
	Last    time.Duration // only those of this time; 0: however old
	Live    bool          // those to come, even if they are kept
	Wait    time.Duration // how long for those to come; 0: 1 s, at most 30 s
	Schema  *Schema       // to check by, instead of the advertised one
}

func (q *SampleQuery) wire() map[string]any {
	m := map[string]any{}
	for name, v := range map[string]string{"name": q.Name, "subject": q.Subject, "owner": q.Owner.Key()} {
		if v != "" {
			m[name] = v
		}
	}
	if q.Count > 0 {
		m["count"] = q.Count
	}
	if q.Last > 0 {
		m["last"] = q.Last.String()
	}
	if q.Wait > 0 {
		m["wait"] = q.Wait.String()
	}
	if q.Live {
		m["live"] = true
	}
	if q.Schema != nil {
		m["schema"] = q.Schema
	}
	return m
}

// SampledMessage is a message that was looked at.
type SampledMessage struct {
	Subject  string            `json:"subject"`
	Headers  map[string]string `json:"headers,omitempty"` // of several values the first
	Text     *string           `json:"data,omitempty"`    // the payload, where it is UTF-8
	Bytes    []byte            `json:"data_base64,omitempty"`
	Topic    string            `json:"topic,omitempty"`
	Sequence uint64            `json:"sequence,omitempty"`
	Time     time.Time         `json:"time"`
}

// Payload is the payload.
func (m *SampledMessage) Payload() []byte {
	if m.Text != nil {
		return []byte(*m.Text)
	}
	return m.Bytes
}

// Sample is what was looked at.
type Sample struct {
	Pattern  string           `json:"pattern"`
	Source   string           `json:"source"` // stored, live
	Messages []SampledMessage `json:"messages"`
}

// Checked is how many messages conform.
type Checked struct {
	Pattern   string         `json:"pattern"`
	Source    string         `json:"source"` // stored, live
	Checked   int            `json:"checked"`
	Failed    int            `json:"failed"`
	ByKeyword map[string]int `json:"by_keyword,omitempty"`
	Failures  []Failure      `json:"failures,omitempty"` // the first 20
}

// Failure is a message that does not conform.
type Failure struct {
	Subject  string    `json:"subject"`
	Topic    string    `json:"topic,omitempty"`
	Sequence uint64    `json:"sequence,omitempty"`
	Time     time.Time `json:"time"`
	Pointer  string    `json:"pointer"`
	Keyword  string    `json:"keyword"`
	Message  string    `json:"message"`
}

// Sample shows recent messages: of topics that keep them, else those published within
// Wait.
func (c *Client) Sample(ctx context.Context, q SampleQuery) (*Sample, error) {
	var out Sample
	return &out, c.look(ctx, "sample", advSample, q, &out)
}

// CheckMessages holds recent messages against a schema: what enforcing it would do,
// before it does.
func (c *Client) CheckMessages(ctx context.Context, q SampleQuery) (*Checked, error) {
	var out Checked
	return &out, c.look(ctx, "check", advCheck, q, &out)
}

// lookPatience is how long the broker may take to look at many messages.
const lookPatience = 60 * time.Second

func (c *Client) look(ctx context.Context, op, subject string, q SampleQuery, out any) error {
	target := q.Name
	if target == "" {
		target = q.Subject
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookPatience)
		defer cancel()
	}
	body, err := json.Marshal(q.wire())
	if err != nil {
		return failed(op, target, err)
	}
	m, err := c.nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		err = errNoService
	}
	if err != nil {
		return failed(op, target, err)
	}
	var refused struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &refused); err != nil {
		return failed(op, target, fmt.Errorf("answer of the advertise service: %w", err))
	}
	if refused.Error != nil {
		return failed(op, target, refused.Error)
	}
	return failed(op, target, json.Unmarshal(m.Data, out))
}
