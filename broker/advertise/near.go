package advertise

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/subject"
)

// nearMax is how many subjects are named that are like one where nothing is.
const nearMax = 5

// nearest tells who is there for a subject. Nobody and nothing is told from a mistyped
// subject by what is like it.
type nearest struct {
	Subject        string   `json:"subject"`
	Advertisements []string `json:"advertisements,omitempty"` // that overlap, by name
	Traffic        bool     `json:"traffic"`                  // something was published within the last hour
	Subscribers    int      `json:"subscribers"`              // subscriptions of clients
	Topics         []string `json:"topics,omitempty"`         // that keep some of it
	Like           []string `json:"like,omitempty"`           // subjects that are like it, the nearest first
}

func (s *Service) nearest(ctx context.Context, r request, q query) (reply, error) {
	n := &nearest{Subject: q.Subject}
	all, revision := s.o.Catalogue.Advertisements(r.account)
	all = slices.DeleteFunc(all, func(a *catalogue.Advertisement) bool { return !r.sees(a) })
	var over []*catalogue.Advertisement
	var candidates []string
	advertised := map[string]bool{} // patterns
	for _, a := range all {
		advertised[a.Pattern] = true
		if subject.Overlap(a.Pattern, q.Subject) {
			over = append(over, a)
			if len(n.Advertisements) < nearMax {
				n.Advertisements = append(n.Advertisements, a.Name)
			}
		} else {
			candidates = append(candidates, a.Subject)
		}
	}
	seenQ := &seenQuestion{Account: r.account, Keys: noKey, Patterns: []string{q.Subject}}
	answers, _ := s.everywhere(ctx, seenQ)
	for _, list := range answers {
		n.Subscribers += list[0].Subscribers
	}
	for _, o := range s.observed(ctx, r.account, over[:min(len(over), seenAtOnce)]) {
		n.Traffic = n.Traffic || o.Msgs1h > 0
	}
	for _, o := range s.undeclaredIn(ctx, &r, "") {
		if subject.Overlap(o.Pattern, q.Subject) {
			n.Traffic = true
		} else {
			candidates = append(candidates, o.Pattern)
		}
	}
	s.o.Catalogue.Topics(r.account, func(t *state.Topic) bool {
		keeps := false
		for _, p := range t.Config().Subjects {
			switch {
			case subject.Overlap(p, q.Subject):
				keeps = true
			case !advertised[p] && r.who.MayDiscover(p):
				candidates = append(candidates, p)
			}
		}
		if keeps && len(n.Topics) < nearMax {
			n.Topics = append(n.Topics, t.Name())
		}
		return true
	})
	n.Like = like(q.Subject, candidates)
	return reply{Nearest: n, Revision: revision}, nil
}

// like returns the candidates that are most like a subject, the nearest first.
func like(s string, candidates []string) []string {
	type ranked struct {
		subject string
		far     int
	}
	slices.Sort(candidates)
	var list []ranked
	for _, c := range slices.Compact(candidates) {
		if d := distance(s, c); d <= 2+len(s)/4 || strings.HasPrefix(c, firstToken(s)+".") {
			list = append(list, ranked{c, d})
		}
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(a.far, b.far) })
	var out []string
	for _, r := range list[:min(len(list), nearMax)] {
		out = append(out, r.subject)
	}
	return out
}

func firstToken(s string) string { return subject.Token(s, 0) }

// distance is how many bytes have to be changed, added or left out to make b of a
// (Levenshtein); a wildcard or a named token of b stands for any token of a.
func distance(a, b string) int {
	ta, tb := strings.Split(a, "."), strings.Split(b, ".")
	for i := range tb {
		if i < len(ta) && (tb[i] == "*" || strings.HasPrefix(tb[i], "{")) {
			tb[i] = ta[i]
		}
	}
	if n := len(tb); n <= len(ta) && (tb[n-1] == ">" || strings.HasSuffix(b, "...}")) {
		tb = append(tb[:n-1:n-1], ta[n-1:]...)
	}
	a, b = strings.Join(ta, "."), strings.Join(tb, ".")
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			left, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, left+cost)
		}
	}
	return row[len(b)]
}
