package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/subject"
)

// SAMPLE shows recent messages, CHECK holds them against a schema. Both read topics where
// they are kept, on a node that has them, and otherwise listen for a while.

const callLook = "adv.look"

// The bounds of both.
const (
	sampleDefault    = 5
	sampleMax        = 1000
	sampleBytesMax   = 512 << 10 // of the messages of an answer
	checkDefault     = 10000
	checkMax         = 200000
	checkFailuresMax = 20 // that are described
	lookBytes        = 1 << 20
	waitDefault      = time.Second
	waitMax          = 30 * time.Second
	slowPatience     = time.Minute
)

var faultSlow = &topics.Fault{Status: 503, ErrCode: 20010, Text: fmt.Sprintf("%d requests read messages already; try again", slowMax)}

// sampleRequest is the request of SAMPLE and of CHECK.
type sampleRequest struct {
	Name    string             `json:"name"`    // of an advertisement
	Owner   *string            `json:"owner"`   //
	Subject string             `json:"subject"` // or a pattern
	Count   int                `json:"count"`   // messages; default 5, of CHECK 10,000
	Last    catalogue.Duration `json:"last"`    // only those of this time; 0: the last ones, however old
	Live    bool               `json:"live"`    // listen, even if they are kept
	Wait    catalogue.Duration `json:"wait"`    // how long to listen; default 1s
	Schema  *catalogue.Schema  `json:"schema"`  // CHECK: instead of the advertised one
}

// shownMessage is a message of an answer. Data that isn't UTF-8 is in Base64.
type shownMessage struct {
	Subject  string            `json:"subject"`
	Headers  map[string]string `json:"headers,omitempty"`
	Data     *string           `json:"data,omitempty"`
	Base64   []byte            `json:"data_base64,omitempty"`
	Topic    string            `json:"topic,omitempty"`
	Sequence uint64            `json:"sequence,omitempty"`
	Time     time.Time         `json:"time"`
}

// checked says how many messages conform.
type checked struct {
	Checked   int            `json:"checked"`
	Failed    int            `json:"failed"`
	ByKeyword map[string]int `json:"by_keyword,omitempty"`
	Failures  []failure      `json:"failures,omitempty"` // the first of them
}

type failure struct {
	Subject  string    `json:"subject"`
	Topic    string    `json:"topic,omitempty"`
	Sequence uint64    `json:"sequence,omitempty"`
	Time     time.Time `json:"time"`
	Pointer  string    `json:"pointer"`
	Keyword  string    `json:"keyword"`
	Message  string    `json:"message"`
}

// sampleReply is the answer.
type sampleReply struct {
	Error    *apiError      `json:"error,omitempty"`
	Pattern  string         `json:"pattern,omitempty"`
	Source   string         `json:"source,omitempty"`  // stored, live
	Messages []shownMessage `json:"messages,omitzero"` // of SAMPLE; [] when there are none
	*checked
}

// lookQuestion asks a node that has a topic for messages of it.
type lookQuestion struct {
	Account string
	Topic   string
	Pattern string
	Since   topics.Nanos   // 0: the last ones
	Count   int            // at most
	Check   *schema.Source // hold them against it rather than returning them
	Headers *schema.Source
}

type lookAnswer struct {
	Messages []shownMessage
	Checked  checked
}

// carryOutSlowly answers SAMPLE and CHECK on goroutines of their own.
func (s *Service) carryOutSlowly(r request) {
	refuse := func() {
		s.end(r.client)
		r.respond(encode(errorReply(faultSlow)))
	}
	select {
	case s.slow <- struct{}{}:
	default:
		refuse()
		return
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.slow
		refuse()
		return
	}
	s.done.Go(func() {
		defer func() { <-s.slow; s.end(r.client) }()
		ctx, cancel := context.WithTimeout(s.ctx, slowPatience)
		defer cancel()
		out, err := s.sample(ctx, &r)
		if err != nil {
			out = sampleReply{Error: errorReply(err).Error}
		}
		r.respond(encode(out))
	})
	s.mu.Unlock()
}

func (s *Service) sample(ctx context.Context, r *request) (sampleReply, error) {
	var q sampleRequest
	if err := decode(r.payload, &q, true); err != nil {
		return sampleReply{}, badRequest(err)
	}
	check := r.verb == "CHECK"
	look, err := s.lookFor(ctx, r, &q)
	if err != nil {
		return sampleReply{}, err
	}
	if !r.who.MaySample(look.Pattern) && (check || r.who.Restricted() && !r.who.MayDiscover(look.Pattern)) {
		return sampleReply{}, faultMayNot("sample", look.Pattern)
	}
	out := sampleReply{Pattern: look.Pattern}
	if check {
		out.checked = &checked{}
	} else {
		out.Messages = []shownMessage{}
	}
	kept := s.topicsOf(r.account, look.Pattern)
	if len(kept) == 0 || q.Live {
		out.Source = "live"
		withheld, err := s.listen(ctx, r, &q, look, &out)
		if err != nil {
			return sampleReply{}, err
		}
		return out, mayShow(&out, look, withheld)
	}
	out.Source = "stored"
	withheld := false
	for _, t := range kept {
		look.Topic = t.Name()
		a, err := s.lookAt(ctx, t, look)
		if err != nil {
			return sampleReply{}, err
		}
		for _, m := range a.Messages {
			if !r.who.MaySample(m.Subject) {
				withheld = true
				continue
			}
			out.Messages = append(out.Messages, m)
		}
		if check {
			out.add(&a.Checked)
		}
	}
	slices.SortStableFunc(out.Messages, func(a, b shownMessage) int { return a.Time.Compare(b.Time) })
	out.Messages = within(out.Messages, look.Count)
	return out, mayShow(&out, look, withheld)
}

// mayShow refuses when there were messages and the client may look at none of them: an
// empty answer would say that there is nothing.
func mayShow(out *sampleReply, look *lookQuestion, withheld bool) error {
	if withheld && len(out.Messages) == 0 {
		return faultMayNot("sample", look.Pattern)
	}
	return nil
}

// lookFor says what to look for.
func (s *Service) lookFor(ctx context.Context, r *request, q *sampleRequest) (*lookQuestion, error) {
	check := r.verb == "CHECK"
	look := &lookQuestion{Account: r.account, Pattern: q.Subject, Count: min(q.Count, sampleMax)}
	if q.Count <= 0 {
		look.Count = sampleDefault
	}
	if check {
		look.Count = min(q.Count, checkMax)
		if q.Count <= 0 {
			look.Count = checkDefault
		}
	}
	if q.Last > 0 {
		look.Since = topics.NanosOf(time.Now().Add(-time.Duration(q.Last)))
	}
	var a *catalogue.Advertisement
	if q.Name != "" {
		if err := s.linearize(ctx); err != nil {
			return nil, err
		}
		about := *r
		about.payload = encode(map[string]any{"name": q.Name, "owner": q.Owner})
		var err error
		if a, _, err = s.named(about); err != nil {
			return nil, err
		}
		if look.Pattern == "" {
			look.Pattern = a.Pattern
		}
	}
	if pattern, ok := catalogue.Pattern(look.Pattern); ok {
		look.Pattern = pattern
	} else {
		return nil, badRequest(errors.New("a name or a subject is needed"))
	}
	if strings.HasPrefix(look.Pattern, "$") {
		return nil, badRequest(errors.New("the broker's own subjects are not shown"))
	}
	if !check {
		return look, nil
	}
	return look, s.checkBy(look, q, a)
}

// checkBy says what messages are held against.
func (s *Service) checkBy(look *lookQuestion, q *sampleRequest, a *catalogue.Advertisement) error {
	by := q.Schema
	if by == nil && a != nil {
		by = a.Schema
		if len(a.HeadersSchema) > 0 {
			look.Headers = &schema.Source{Format: schema.JSONSchema, Text: string(a.HeadersSchema)}
		}
	}
	if by != nil && by.Text() != "" {
		src := sourceOf(by)
		look.Check = &src
	}
	if look.Check == nil && look.Headers == nil {
		return badRequest(errors.New("there is no schema to check by: give one, or the name of an advertisement that has one inline"))
	}
	for _, src := range []*schema.Source{look.Check, look.Headers} {
		if src == nil {
			continue
		}
		if _, broken := s.compiled(*src); broken != "" {
			return badSchema("schema.inline", broken)
		}
	}
	return nil
}

// topicsOf are the topics that keep some of a pattern.
func (s *Service) topicsOf(account, pattern string) (out []*state.Topic) {
	s.o.Catalogue.Topics(account, func(t *state.Topic) bool {
		if slices.ContainsFunc(t.Config().Subjects, func(p string) bool { return subject.Overlap(p, pattern) }) {
			out = append(out, t)
		}
		return true
	})
	return out
}

// lookAt looks at a topic where it is led, or where there is a replica.
func (s *Service) lookAt(ctx context.Context, t *state.Topic, q *lookQuestion) (*lookAnswer, error) {
	leader := ""
	if s.o.Peers != nil {
		leader = s.o.Peers.Leader(t.Group().ID())
	}
	if s.o.Peers == nil || leader == s.o.Peers.Name() || leader == "" && t.Data() != nil {
		return s.lookHere(ctx, q), nil
	}
	if leader == "" {
		return nil, topics.NewFault(503, 20011, "topic %s has no leader now; try again", t.Name())
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	b, err := s.o.Peers.Call(ctx, leader, callLook, body)
	if err != nil {
		return nil, topics.NewFault(503, 20013, "topic %s can't be read: %s", t.Name(), err)
	}
	var a lookAnswer
	return &a, json.Unmarshal(b, &a)
}

// lookHere looks at a topic that is here.
func (s *Service) lookHere(ctx context.Context, q *lookQuestion) *lookAnswer {
	a := &lookAnswer{}
	t, ok := s.o.Catalogue.Topic(q.Account, q.Topic)
	if !ok || t.Data() == nil {
		return a
	}
	data, filter := t.Data(), topics.NewFilter([]string{q.Pattern})
	st := data.State()
	from := st.First
	switch {
	case q.Since > 0:
		from = data.SequenceAt(q.Since)
	case q.Check == nil && q.Headers == nil:
		from = lastOf(data, filter, &st, q.Count)
	case st.Last > topics.Sequence(q.Count):
		from = max(st.First, st.Last-topics.Sequence(q.Count)+1)
	}
	by := s.rulesOf(q)
	for looked := 0; looked < checkMax && from <= st.Last && ctx.Err() == nil; {
		msgs, next, err := data.Read(filter, from, 256, lookBytes, nil)
		for i := range msgs {
			looked++
			if by != nil {
				a.Checked.take(by, &msgs[i], q.Topic)
				continue
			}
			a.Messages = append(a.Messages, shown(&msgs[i], q.Topic))
		}
		a.Messages = within(a.Messages, q.Count)
		if err == nil && len(msgs) == 0 || by != nil && a.Checked.Checked >= q.Count {
			break
		}
		from = next
	}
	return a
}

// counting is what lastOf needs of a topic's store.
type counting interface {
	Count(f *topics.Filter, from topics.Sequence) uint64
}

// lastOf returns from where on there are about n messages that f lets through.
func lastOf(data counting, f *topics.Filter, st *topics.State, n int) topics.Sequence {
	for span := topics.Sequence(n); span < st.Last-min(st.First, st.Last)+1; span *= 4 {
		if from := st.Last - span + 1; data.Count(f, from) >= uint64(n) {
			return from
		}
	}
	return st.First
}

// rulesOf is what a question has messages held against; nil: nothing.
func (s *Service) rulesOf(q *lookQuestion) *rule {
	if q.Check == nil && q.Headers == nil {
		return nil
	}
	r := &rule{ad: &catalogue.Advertisement{}}
	if q.Check != nil {
		r.payload, r.broken = s.compiled(*q.Check)
	}
	if q.Headers != nil {
		r.headers, _ = s.compiled(*q.Headers)
	}
	return r
}

// take holds one message against a rule.
func (c *checked) take(by *rule, m *topics.Message, topic string) {
	c.Checked++
	v := by.check(&front.Message{Subject: []byte(m.Subject), Header: m.Header, Payload: m.Payload}, false)
	if v == nil {
		return
	}
	c.Failed++
	if c.ByKeyword == nil {
		c.ByKeyword = map[string]int{}
	}
	c.ByKeyword[v.Keyword]++
	if len(c.Failures) < checkFailuresMax {
		c.Failures = append(c.Failures, failure{
			Subject: m.Subject, Topic: topic, Sequence: uint64(m.Sequence), Time: timeOf(m.Time),
			Pointer: v.Pointer, Keyword: v.Keyword, Message: v.Message,
		})
	}
}

func timeOf(n topics.Nanos) time.Time { return time.Unix(0, int64(n)).UTC() }

func (c *checked) add(o *checked) {
	c.Checked += o.Checked
	c.Failed += o.Failed
	for k, n := range o.ByKeyword {
		if c.ByKeyword == nil {
			c.ByKeyword = map[string]int{}
		}
		c.ByKeyword[k] += n
	}
	c.Failures = append(c.Failures, o.Failures...)
	c.Failures = c.Failures[:min(len(c.Failures), checkFailuresMax)]
}

func shown(m *topics.Message, topic string) shownMessage {
	out := shownMessage{Subject: m.Subject, Topic: topic, Sequence: uint64(m.Sequence), Time: timeOf(m.Time)}
	out.fill(m.Header, m.Payload)
	return out
}

func (m *shownMessage) fill(header, payload []byte) {
	wire.HeaderEach(header, func(k, v []byte) bool {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		if _, had := m.Headers[string(k)]; !had {
			m.Headers[string(k)] = string(v)
		}
		return true
	})
	if utf8.Valid(payload) {
		text := string(payload)
		m.Data = &text
	} else {
		m.Base64 = payload
	}
}

func (m *shownMessage) size() int {
	n := len(m.Subject) + len(m.Base64) + 128
	if m.Data != nil {
		n += len(strconv.Quote(*m.Data))
	}
	for k, v := range m.Headers {
		n += len(k) + len(v) + 8
	}
	return n
}

// within keeps the last n messages, and of these as many as an answer can hold.
func within(all []shownMessage, n int) []shownMessage {
	all = all[max(0, len(all)-n):]
	size := 0
	for i := len(all) - 1; i >= 0; i-- {
		if size += all[i].size(); size > sampleBytesMax {
			return all[i+1:]
		}
	}
	return all
}

// listen takes what is published for a while, and tells whether there was something that the
// client may not look at.
func (s *Service) listen(ctx context.Context, r *request, q *sampleRequest, look *lookQuestion, out *sampleReply) (withheld bool, err error) {
	s.mu.Lock()
	v := s.accounts[r.account]
	s.mu.Unlock()
	if v == nil {
		return false, faultNotLeader
	}
	wait := time.Duration(q.Wait)
	if wait <= 0 {
		wait = waitDefault
	}
	ctx, cancel := context.WithTimeout(ctx, min(wait, waitMax))
	defer cancel()
	messages := make(chan *front.Message, 64)
	unsubscribe, err := v.bus.listen(look.Pattern, func(m *front.Message) {
		if len(messages) == cap(messages) {
			return // that is enough of them at a time
		}
		select {
		case messages <- m.Clone():
		default:
		}
	})
	if err != nil {
		return false, badRequest(err)
	}
	defer unsubscribe()
	by := s.rulesOf(look)
	for n := 0; n < look.Count; n++ {
		select {
		case <-ctx.Done():
			return withheld, nil
		case m := <-messages:
			first := string(m.Subject)
			own := strings.HasPrefix(first, "$") || strings.HasPrefix(first, "_INBOX.")
			if own || !r.who.MaySample(first) {
				withheld = withheld || !own
				n--
				continue
			}
			at := topics.NanosOf(time.Now())
			if by != nil {
				out.take(by, &topics.Message{Subject: string(m.Subject), Header: m.Header, Payload: m.Payload, Time: at}, "")
				continue
			}
			one := shownMessage{Subject: string(m.Subject), Time: timeOf(at)}
			one.fill(m.Header, m.Payload)
			out.Messages = within(append(out.Messages, one), look.Count)
		}
	}
	return withheld, nil
}
