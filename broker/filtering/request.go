package filtering

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/filter"
	"github.com/heraldmq/herald/topics/subject"
)

const (
	requestTime = 5 * time.Second
	pageMax     = 256
	pageBytes   = 512 << 10
)

// Codes of refusals.
const (
	codeBad         = 20100
	codeWhere       = 20101
	codeMayNot      = 20102
	codeTooMany     = 20103
	codeNotFound    = 20104
	codeTaken       = 20105
	codeUnavailable = 20106
)

func bad(format string, args ...any) *topics.Fault {
	return topics.NewFault(400, codeBad, format, args...)
}

// wrong words a condition that doesn't compile.
func wrong(err error) *topics.Fault {
	return topics.NewFault(400, codeWhere, "where: %s", err)
}

// problem is one thing that is wrong with a condition.
type problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

type apiError struct {
	Code        int       `json:"code"`
	ErrCode     uint16    `json:"err_code"`
	Description string    `json:"description"`
	Problems    []problem `json:"problems,omitempty"` // of a condition
}

// view is a registration as it is shown.
type view struct {
	ID      string       `json:"id"`
	Subject string       `json:"subject"`
	Where   string       `json:"where"`
	Codec   string       `json:"codec"`
	Queue   string       `json:"queue,omitempty"`
	Deliver string       `json:"deliver"`
	User    string       `json:"user,omitempty"`
	Created time.Time    `json:"created"`
	Stats   filter.Stats `json:"stats"` // of all nodes
}

// subscribed answers SUBSCRIBE.
type subscribed struct {
	Error   *apiError `json:"error,omitempty"`
	ID      string    `json:"id,omitempty"`
	Subject string    `json:"subject,omitempty"` // to subscribe to
	Queue   string    `json:"queue,omitempty"`   // to subscribe with
	Expires float64   `json:"expires,omitempty"` // seconds it lives while nobody listens
}

// found answers GET, LIST and CANCEL.
type found struct {
	Error     *apiError `json:"error,omitempty"`
	Filter    *view     `json:"filter,omitempty"`
	Filters   []view    `json:"filters,omitempty"`
	Total     *int      `json:"total,omitempty"`
	Cancelled bool      `json:"cancelled,omitempty"`
}

// ask is a request, owning its bytes.
type ask struct {
	account string
	client  *front.ClientInfo
	body    []byte
}

func (s *Service) verbs() map[string]func(context.Context, ask) (any, error) {
	return map[string]func(context.Context, ask) (any, error){
		"SUBSCRIBE": s.subscribe, "LIST": s.list, "GET": s.get, "CANCEL": s.cancelOne,
	}
}

// accept hands a request to a worker.
func (s *Service) accept(m *front.Message, answer func(context.Context, ask) (any, error)) {
	if len(m.Reply) == 0 || m.Client == nil || m.Routed != nil {
		return // nobody would hear the answer; or a client made the broker say it
	}
	own := m.Clone()
	respond := func(v any, err error) {
		if err != nil {
			s.subs.Failed(own.Account, string(own.Subject), err.Error())
			v = found{Error: errorOf(err)}
		}
		b, err := json.Marshal(v)
		if err != nil { // only what was decoded from JSON is in there
			b = fmt.Appendf(nil, `{"error":{"code":500,"err_code":%d,"description":%q}}`, codeBad, err.Error())
		}
		own.Respond(nil, b)
	}
	// The client's permissions are asked while it is there.
	select {
	case s.queue <- func(ctx context.Context) {
		respond(answer(ctx, ask{own.Account.Name(), own.Client, own.Payload}))
	}:
	default:
		respond(nil, topics.NewFault(503, codeUnavailable, "too many requests are waiting; try again"))
	}
}

func errorOf(err error) *apiError {
	var f *topics.Fault
	if !errors.As(err, &f) {
		f = topics.NewFault(503, codeUnavailable, "%s", err)
	}
	return &apiError{Code: f.Status, ErrCode: f.ErrCode, Description: f.Text}
}

func decode(body []byte, into any) *topics.Fault {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return bad("the request is not valid: %s", catalogue.JSONProblem(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("the request is not valid: there is something behind the JSON object")
	}
	return nil
}

// wanted is the request of SUBSCRIBE.
type wanted struct {
	Subject string `json:"subject"`
	Where   string `json:"where"`
	Codec   codec  `json:"codec"`
	Queue   string `json:"queue"`
	Deliver string `json:"deliver"` // an inbox of the requester; "": one is made up
	ID      string `json:"id"`      // of an earlier answer, to go on under the same subject
}

// codec names how payloads are read: a string, or an object that has a schema.
type codec string

// UnmarshalJSON implements json.Unmarshaler.
func (c *codec) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		*c = codec(b)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New("the codec is a string or an object")
	}
	*c = codec(s)
	return nil
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9]{22,32}$`)

// registration checks what is wanted by whom.
func (w *wanted) registration(a ask) (r Registration, fault *topics.Fault) {
	switch {
	case !subject.Valid(w.Subject):
		return r, bad("subject: %q is not a subject or pattern", w.Subject)
	case w.Queue != "" && (!subject.Valid(w.Queue) || strings.ContainsAny(w.Queue, "*>")):
		return r, bad("queue: %q is not a queue group", w.Queue)
	case !a.client.MaySubscribe(w.Subject, w.Queue):
		return r, topics.NewFault(403, codeMayNot, "subject: you may not subscribe to %s", w.Subject)
	case w.ID != "" && !idForm.MatchString(w.ID):
		return r, bad("id: it is one that an answer gave")
	case w.Queue != "" && (w.ID != "" || w.Deliver != ""):
		return r, bad("queue: the subject of a queue group is the same for all members, so neither id nor deliver go with it")
	}
	codec, err := filter.Canonical(string(w.Codec))
	if err != nil {
		return r, bad("codec: %v", err)
	}
	r = Registration{
		Account: a.account, Subject: w.Subject, Where: w.Where, Codec: codec, Queue: w.Queue,
		Deny: denied(a.client, w.Subject), User: a.client.User, Created: time.Now().UTC(), ID: cmp.Or(w.ID, nuid.Next()),
	}
	if w.Queue != "" {
		r.ID = sharedID(&r)
	}
	r.Deliver = Prefix + r.ID
	if w.Deliver == "" {
		return r, nil
	}
	if r.Deliver = w.Deliver; !strings.HasPrefix(w.Deliver, "_") || !subject.IsLiteral(w.Deliver) || !subject.Valid(w.Deliver) {
		return r, bad("deliver: %q is not an inbox, whose first token begins with _", w.Deliver)
	}
	if !a.client.MaySubscribe(w.Deliver, "") {
		return r, topics.NewFault(403, codeMayNot, "deliver: you may not subscribe to %s", w.Deliver)
	}
	return r, nil
}

// sharedID is the id that all members of a queue group get, whichever node they ask.
func sharedID(r *Registration) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{r.Account, r.Subject, strings.TrimSpace(r.Where), r.Codec, r.Queue}, r.Deny...), "\x00")))
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16])
}

// denied are the patterns that a client's permissions deny of a subject it may
// subscribe to: such messages are kept from a plain subscription as well.
func denied(c *front.ClientInfo, pattern string) (out []string) {
	p := c.Permissions()
	if p == nil || p.Subscribe == nil {
		return nil
	}
	for _, d := range p.Subscribe.Deny {
		d, _, _ = strings.Cut(d, " ") // the queue it is for
		if subject.Overlap(d, pattern) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Service) subscribe(ctx context.Context, a ask) (any, error) {
	var w wanted
	if f := decode(a.body, &w); f != nil {
		return nil, f
	}
	r, fault := w.registration(a)
	if fault != nil {
		return nil, fault
	}
	f, err := s.o.Filters.Get(w.Where, r.Codec)
	if err != nil {
		return subscribed{Error: whereError(err)}, nil
	}
	defer f.Release()
	if f.UsesPlace() {
		return nil, wrong(errors.New("time and seq are a stored message's place in its topic, which a live message doesn't have: read the topic, or compare a field or header"))
	}
	l, err := s.put(r)
	if err != nil {
		return nil, err
	}
	s.tell(ctx, l.Registration)
	return subscribed{ID: l.ID, Subject: l.Deliver, Queue: l.Queue, Expires: s.o.Grace.Seconds()}, nil
}

// whereError shows each problem of a condition with its place.
func whereError(err error) *apiError {
	e := errorOf(wrong(err))
	var x *expr.Error
	if errors.As(err, &x) {
		for _, p := range x.Problems {
			e.Problems = append(e.Problems, problem{p.Line, p.Column, p.Message})
		}
	}
	return e
}

// visible are the registrations that a client may know of: those of subjects it may
// subscribe to. By id.
func (s *Service) visible(a ask) []*live {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*live
	if v := s.accounts[a.account]; v != nil {
		for _, l := range v.all {
			if a.client.MaySubscribe(l.Subject, l.Queue) {
				out = append(out, l)
			}
		}
	}
	slices.SortFunc(out, func(x, y *live) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
	})
	return out
}

func (l *live) view() view {
	return view{l.ID, l.Subject, l.Where, l.Codec, l.Queue, l.Deliver, l.User, l.Created, l.tally.Stats()}
}

func (s *Service) list(ctx context.Context, a ask) (any, error) {
	var q struct {
		Subject string `json:"subject"` // a pattern that overlaps the filtered one
		Offset  int    `json:"offset"`
		Limit   int    `json:"limit"`
	}
	if f := decode(a.body, &q); f != nil {
		return nil, f
	}
	all := s.visible(a)
	if q.Subject != "" {
		if !subject.Valid(q.Subject) {
			return nil, bad("subject: %q is not a subject or pattern", q.Subject)
		}
		all = slices.DeleteFunc(all, func(l *live) bool { return !subject.Overlap(l.Subject, q.Subject) })
	}
	total := len(all)
	all = all[min(max(q.Offset, 0), total):]
	all = all[:min(len(all), cmp.Or(max(q.Limit, 0), pageMax), pageMax)]
	out := found{Total: &total, Filters: []view{}}
	size := 0
	for _, l := range all {
		if size += len(l.Where) + len(l.Subject) + 1024; size > pageBytes && len(out.Filters) > 0 {
			break
		}
		out.Filters = append(out.Filters, l.view())
	}
	s.sum(ctx, a.account, out.Filters)
	return out, nil
}

// named finds the registration that a request names.
func (s *Service) named(a ask) (*live, error) {
	var q struct {
		ID string `json:"id"`
	}
	if f := decode(a.body, &q); f != nil {
		return nil, f
	}
	for _, l := range s.visible(a) {
		if l.ID == q.ID {
			return l, nil
		}
	}
	return nil, topics.NewFault(404, codeNotFound, "there is no filtered subscription %q (any more); LIST shows which there are", q.ID)
}

func (s *Service) get(ctx context.Context, a ask) (any, error) {
	l, err := s.named(a)
	if err != nil {
		return nil, err
	}
	one := []view{l.view()}
	s.sum(ctx, a.account, one)
	return found{Filter: &one[0]}, nil
}

func (s *Service) cancelOne(ctx context.Context, a ask) (any, error) {
	l, err := s.named(a)
	if err != nil {
		return nil, err
	}
	s.remove(a.account, l.ID)
	s.tellEnd(ctx, a.account, l.ID)
	return found{Cancelled: true}, nil
}
