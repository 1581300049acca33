package auth

import (
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics/subject"
)

const (
	defaultResponses        = 1
	defaultResponsesExpires = 2 * time.Minute
)

// Rules are compiled Permissions. A nil *Rules allows everything. Immutable.
type Rules struct {
	pubAllow, pubDeny []string
	subAllow, subDeny []entry
	allPub, allSub    bool // no allow list

	// ResponsesMax and ResponsesExpires say how reply subjects that the user
	// was sent may be published to. ResponsesMax 0: not at all; negative: any
	// number of times. ResponsesExpires negative: for ever.
	ResponsesMax     int
	ResponsesExpires time.Duration

	source *Permissions
}

// entry is a pattern, for queue subscriptions only when it names a queue
// (which may itself be a pattern).
type entry struct{ pattern, queue string }

// Compile checks p and returns its rules; nil for nil.
func Compile(p *Permissions) (*Rules, error) {
	if p == nil {
		return nil, nil
	}
	r := &Rules{allPub: true, allSub: true, source: p}
	if s := p.Publish; s != nil {
		r.allPub = s.Allow == nil
		for _, list := range [][]string{s.Allow, s.Deny} {
			for _, pattern := range list {
				if !subject.Valid(pattern) {
					return nil, fmt.Errorf("auth: publish permission %q isn't a subject", pattern)
				}
			}
		}
		r.pubAllow, r.pubDeny = s.Allow, s.Deny
	}
	for _, s := range []*SubjectPermission{p.Advertise, p.Discover, p.Sample, p.Enforce} {
		if s == nil {
			continue
		}
		for _, pattern := range append(s.Allow[:len(s.Allow):len(s.Allow)], s.Deny...) {
			if !subject.Valid(pattern) {
				return nil, fmt.Errorf("auth: permission %q of an advertisement isn't a subject", pattern)
			}
		}
	}
	var err error
	if s := p.Subscribe; s != nil {
		r.allSub = s.Allow == nil
		if r.subAllow, err = entries(s.Allow); err != nil {
			return nil, err
		}
		if r.subDeny, err = entries(s.Deny); err != nil {
			return nil, err
		}
	}
	if resp := p.Responses; resp != nil {
		r.ResponsesMax, r.ResponsesExpires = resp.Max, resp.Expires
		if r.ResponsesMax == 0 {
			r.ResponsesMax = defaultResponses
		}
		if r.ResponsesExpires == 0 {
			r.ResponsesExpires = defaultResponsesExpires
		}
		// Who may answer may publish nothing else unless it is listed.
		if p.Publish == nil || p.Publish.Allow == nil {
			r.allPub = false
		}
	}
	return r, nil
}

func entries(list []string) (out []entry, err error) {
	for _, s := range list {
		f := strings.Fields(s)
		var e entry
		switch len(f) {
		case 1:
			e.pattern = f[0]
		case 2:
			e.pattern, e.queue = f[0], f[1]
		}
		if !subject.Valid(e.pattern) || e.queue != "" && !subject.Valid(e.queue) {
			return nil, fmt.Errorf("auth: subscribe permission %q isn't a subject or a subject and a queue", s)
		}
		out = append(out, e)
	}
	return out, nil
}

// Source is what the rules were compiled from; nil for no restriction.
func (r *Rules) Source() *Permissions {
	if r == nil {
		return nil
	}
	return r.source
}

// Publish tells whether publishing to s is allowed, responses apart.
func (r *Rules) Publish(s string) bool {
	if r == nil {
		return true
	}
	ok := r.allPub
	for i := 0; !ok && i < len(r.pubAllow); i++ {
		ok = subject.Covers(r.pubAllow[i], s)
	}
	for i := 0; ok && i < len(r.pubDeny); i++ {
		ok = !subject.Overlap(r.pubDeny[i], s)
	}
	return ok
}

// Subscribe tells whether subscribing to pattern is allowed, with queue "" for
// a plain subscription. What a wildcard pattern only overlaps with a denied
// one is filtered at delivery: see Filter.
//
// A plain deny holds for queue subscriptions as well. A plain allow does too,
// unless entries that name queues speak of the same subject: then the queue
// must be one of theirs.
func (r *Rules) Subscribe(pattern, queue string) bool {
	if r == nil {
		return true
	}
	ok := r.allSub
	if !ok {
		named, matched := false, false
		for _, e := range r.subAllow {
			if !subject.Covers(e.pattern, pattern) {
				continue
			}
			if e.queue == "" {
				ok = true
			} else {
				named = true
				matched = matched || queue != "" && subject.Match(e.queue, queue)
			}
		}
		if queue != "" && named {
			ok = matched
		}
	}
	for _, e := range r.subDeny {
		if !ok {
			break
		}
		ok = !e.denies(queue) || !subject.Covers(e.pattern, pattern)
	}
	return ok
}

func (e entry) denies(queue string) bool {
	return e.queue == "" || queue != "" && subject.Match(e.queue, queue)
}

// Filter returns the denied patterns that deliveries of the subscription must
// be checked against; nil when there are none.
func (r *Rules) Filter(pattern, queue string) (denied []string) {
	if r == nil || subject.IsLiteral(pattern) {
		return nil
	}
	for _, e := range r.subDeny {
		if e.denies(queue) && subject.Overlap(e.pattern, pattern) {
			denied = append(denied, e.pattern)
		}
	}
	return denied
}
