package advertise

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/observe"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/interest"
	"github.com/heraldmq/herald/topics/subject"
)

// Each node counts what is published on it, and who listens there; whoever is asked sums
// it up over the nodes.

const (
	callSeen     = "adv.seen"
	seenPatience = 2 * time.Second // for other nodes to say what they have seen
	readByMax    = 10
	seenAtOnce   = 1000 // advertisements asked about in one call
)

// Observed is what is really published, beside what is advertised.
type Observed struct {
	Name    string `json:"name,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Pattern string `json:"pattern"`

	Msgs    int64      `json:"msgs"` // since the nodes have counted
	Bytes   int64      `json:"bytes"`
	Msgs1m  int64      `json:"msgs_1m"` // in the last minute
	Bytes1m int64      `json:"bytes_1m"`
	Msgs1h  int64      `json:"msgs_1h"`
	Bytes1h int64      `json:"bytes_1h"`
	Last    *time.Time `json:"last,omitempty"` // message

	Publishers  int `json:"publishers"`  // clients that published within five minutes
	Subscribers int `json:"subscribers"` // subscriptions of clients
	Consumers   int `json:"consumers"`   // of topics that keep some of it
	Operators   int `json:"operators"`   // that read it

	ReadBy []string `json:"read_by,omitempty"` // the operators, by name, at most ten

	Keys        *int64   `json:"keys,omitempty"`        // different ones, estimated
	Subjects    *int64   `json:"subjects,omitempty"`    // different ones, estimated; without a key
	Checked1h   int64    `json:"checked_1h"`            // messages held against the schema; samples when nothing is enforced
	Failed1h    int64    `json:"failed_1h"`             // of these
	Conformance *float64 `json:"conformance,omitempty"` // percent of them that conform

	Silent     bool     `json:"silent,omitempty"` // for longer than silence_after
	Unused     bool     `json:"unused,omitempty"` // nobody subscribes, consumes or computes
	Incomplete []string `json:"incomplete,omitempty"`
}

// Reader is something in the broker that reads subjects.
type Reader struct {
	Name     string
	Patterns []string
}

// seenQuestion asks a node what it has seen.
type seenQuestion struct {
	Account    string          `json:"account"`
	Keys       []catalogue.Key `json:"keys,omitempty"`
	Patterns   []string        `json:"patterns,omitempty"` // of Keys
	Undeclared bool            `json:"undeclared,omitempty"`
}

// seen is what one node has seen of one advertisement.
type seen struct {
	observe.Stats
	Subscribers int `json:"subscribers"`
	Consumers   int `json:"consumers"`
}

// seenHere answers for this node, in the order of the keys.
func (s *Service) seenHere(q *seenQuestion) []seen {
	s.mu.Lock()
	v := s.accounts[q.Account]
	s.mu.Unlock()
	if v == nil {
		return make([]seen, len(q.Keys))
	}
	if q.Undeclared {
		var out []seen
		for _, st := range v.seen.Undeclared() {
			out = append(out, seen{Stats: st, Subscribers: v.bus.subscribers(st.Pattern)})
		}
		return out
	}
	consumers := s.consumersHere(q.Account)
	out := make([]seen, len(q.Keys))
	for i, k := range q.Keys {
		if t := v.seen.Of(k); t != nil {
			out[i].Stats = t.Stats()
		}
		out[i].Subscribers = v.bus.subscribers(q.Patterns[i])
		out[i].Consumers = len(slices.Compact(slices.Sorted(slices.Values(consumers.Overlapping(q.Patterns[i], nil)))))
	}
	return out
}

// consumersHere are the consumers of the topics that are led here, by what they read.
func (s *Service) consumersHere(account string) *interest.Index[string] {
	x := &interest.Index[string]{}
	s.o.Catalogue.Topics(account, func(t *state.Topic) bool {
		data := t.Data()
		if data == nil || !t.Group().IsLeader() || data.State().Consumers == 0 {
			return true
		}
		data.Consumers(func(c *consumer.Consumer) bool {
			cfg := c.Config()
			filters := cfg.Filters()
			if len(filters) == 0 {
				filters = t.Config().Subjects
			}
			for _, f := range filters {
				x.Add(f, t.Name()+" "+c.Name())
			}
			return true
		})
		return true
	})
	return x
}

// answerSeen answers what other nodes ask about what was seen here.
func (s *Service) answerSeen() {
	s.o.Peers.Handle(callSeen, func(_ context.Context, _ string, body []byte) ([]byte, error) {
		var q seenQuestion
		if err := json.Unmarshal(body, &q); err != nil || len(q.Patterns) != len(q.Keys) {
			return nil, fmt.Errorf("%s: not a question: %w", callSeen, err)
		}
		return json.Marshal(s.seenHere(&q))
	})
	s.o.Peers.Handle(callLook, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		var q lookQuestion
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, fmt.Errorf("%s: %w", callLook, err)
		}
		return json.Marshal(s.lookHere(ctx, &q))
	})
}

// everywhere asks all nodes, this one included, and names those that didn't answer.
func (s *Service) everywhere(ctx context.Context, q *seenQuestion) (answers [][]seen, missing []string) {
	answers = append(answers, s.seenHere(q))
	if s.o.Peers == nil {
		return answers, nil
	}
	body, err := json.Marshal(q)
	if err != nil {
		return answers, s.o.Peers.Nodes()
	}
	ctx, cancel := context.WithTimeout(ctx, seenPatience)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range s.o.Peers.Nodes() {
		if node == s.o.Peers.Name() {
			continue
		}
		wg.Go(func() {
			var list []seen
			b, err := s.o.Peers.Call(ctx, node, callSeen, body)
			if err == nil {
				err = json.Unmarshal(b, &list)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !q.Undeclared && len(list) != len(q.Keys) {
				missing = append(missing, node)
				return
			}
			answers = append(answers, list)
		})
	}
	wg.Wait()
	slices.Sort(missing)
	return answers, missing
}

// observed sums up over the nodes what was seen of advertisements.
func (s *Service) observed(ctx context.Context, account string, all []*catalogue.Advertisement) map[catalogue.Key]*Observed {
	out := make(map[catalogue.Key]*Observed, len(all))
	_, revision := s.o.Catalogue.Advertisements("-") // of no account: just the revision
	s.reach(ctx, revision)                           // what is shown is counted here from now on
	readers := s.readers(account)
	for part := range slices.Chunk(all, seenAtOnce) {
		q := &seenQuestion{Account: account}
		for _, a := range part {
			q.Keys, q.Patterns = append(q.Keys, a.Key()), append(q.Patterns, a.Pattern)
		}
		answers, missing := s.everywhere(ctx, q)
		for i, a := range part {
			var sum seen
			for _, list := range answers {
				sum.add(&list[i])
			}
			o := sum.observed()
			o.Name, o.Owner, o.Pattern, o.Incomplete = a.Name, a.Owner.Key(), a.Pattern, missing
			names := slices.Compact(slices.Sorted(slices.Values(readers.Overlapping(a.Pattern, nil))))
			o.Operators, o.ReadBy = len(names), names[:min(len(names), readByMax)]
			o.Unused = a.Role != catalogue.Consumes && o.Subscribers+o.Consumers+o.Operators == 0
			o.Silent = a.Role != catalogue.Consumes && s.isSilent(a, o.Last)
			out[a.Key()] = o
		}
	}
	return out
}

// readers are the operators by what they read.
func (s *Service) readers(account string) *interest.Index[string] {
	x := &interest.Index[string]{}
	if s.o.Readers == nil {
		return x
	}
	for _, r := range s.o.Readers(account) {
		for _, p := range r.Patterns {
			x.Add(p, r.Name)
		}
	}
	return x
}

// isSilent tells whether nothing was published for longer than was advertised.
func (s *Service) isSilent(a *catalogue.Advertisement, last *time.Time) bool {
	if a.Rate == nil || a.Rate.SilenceAfter <= 0 {
		return false
	}
	since := time.Unix(0, int64(a.Changed))
	if s.started.After(since) {
		since = s.started
	}
	if last != nil && last.After(since) {
		since = *last
	}
	return time.Since(since) > time.Duration(a.Rate.SilenceAfter)
}

func (n *seen) add(o *seen) {
	n.Merge(&o.Stats)
	n.Subscribers += o.Subscribers
	n.Consumers += o.Consumers
}

func (n *seen) observed() *Observed {
	o := &Observed{
		Pattern: n.Pattern, Msgs: n.Msgs, Bytes: n.Bytes, Msgs1m: n.Msgs1m, Bytes1m: n.Bytes1m, Msgs1h: n.Msgs1h, Bytes1h: n.Bytes1h,
		Publishers: n.Publishers, Subscribers: n.Subscribers, Consumers: n.Consumers, Checked1h: n.Checked1h, Failed1h: n.Failed1h,
	}
	if !n.Last.IsZero() {
		last := n.Last.UTC()
		o.Last = &last
	}
	if n.Checked1h > 0 {
		percent := math.Round(float64(n.Checked1h-n.Failed1h)/float64(n.Checked1h)*1e4) / 100
		o.Conformance = &percent
	}
	if len(n.Registers) > 0 {
		distinct := n.Distinct()
		if n.ByKey {
			o.Keys = &distinct
		} else {
			o.Subjects = &distinct
		}
	}
	return o
}

// undeclared lists what is published and not advertised.
func (s *Service) undeclared(ctx context.Context, r request, q query) (reply, error) {
	list := s.undeclaredIn(ctx, &r, q.Subject)
	total, offset := len(list), min(max(q.Offset, 0), len(list))
	list = list[offset:]
	list = list[:min(len(list), cmp.Or(max(q.Limit, 0), pageMax), pageMax)]
	return reply{Undeclared: list, Total: &total, Offset: &offset}, nil
}

// undeclaredIn is what is published and not advertised, as far as the client may see it,
// the most used first.
func (s *Service) undeclaredIn(ctx context.Context, r *request, overlapping string) []*Observed {
	answers, missing := s.everywhere(ctx, &seenQuestion{Account: r.account, Undeclared: true})
	sums := map[string]*seen{}
	for _, list := range answers {
		for i := range list {
			p := list[i].Pattern
			if sums[p] == nil {
				sums[p] = &seen{Stats: observe.Stats{Pattern: p}}
			}
			sums[p].add(&list[i])
		}
	}
	out := []*Observed{}
	for p, sum := range sums {
		if overlapping != "" && !subject.Overlap(overlapping, p) || !r.who.MayDiscover(p) {
			continue
		}
		o := sum.observed()
		o.Incomplete = missing
		o.Unused = o.Subscribers == 0
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *Observed) int {
		return cmp.Or(cmp.Compare(b.Msgs1h, a.Msgs1h), cmp.Compare(a.Pattern, b.Pattern))
	})
	return out
}

// addSeen adds to the answer of GET what was asked for besides.
func (s *Service) addSeen(ctx context.Context, r *request, answer []byte) (out []byte, changed bool) {
	var q named
	if decode(r.payload, &q, true) != nil || !q.Observed && !q.Subscribers {
		return nil, false
	}
	var all map[string]json.RawMessage
	a, _, err := s.named(*r)
	if err != nil || json.Unmarshal(answer, &all) != nil || all["error"] != nil {
		return nil, false
	}
	o := s.observed(ctx, r.account, []*catalogue.Advertisement{a})[a.Key()]
	if q.Observed {
		all["observed"] = encode(o)
	}
	if q.Subscribers {
		n, err := s.watchReaders(r, a.Pattern, o.Subscribers+o.Consumers+o.Operators)
		if err != nil {
			return encode(errorReply(err)), true
		}
		all["subscribers"] = encode(n)
	}
	return encode(all), true
}
