package client

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Query says which advertisements [Client.Discover] returns; the zero value is
// all.
type Query struct {
	Subject string // only those whose pattern overlaps this one
	Name    string // only this name
	Team    string // only of this team
	Tag     string // only with this tag
	Role    string // only of this role
	Kind    string // only of this kind

	// By what is really published. A watch does not look at them.

	Silent    bool // only those quiet for longer than they say
	Unused    bool // only those that nobody reads
	Violating bool // only those with messages that don't conform
}

// Matches tells whether an advertisement is one that is asked for, as far as it says so
// itself.
func (q Query) Matches(ad *Advertisement) bool { return q.matches(ad) }

func (q Query) matches(ad *Advertisement) bool {
	return (q.Name == "" || q.Name == ad.Name) &&
		(q.Team == "" || q.Team == ad.Owner.Team) &&
		(q.Tag == "" || slices.Contains(ad.Tags, q.Tag)) &&
		(q.Role == "" || q.Role == ad.Role) &&
		(q.Kind == "" || q.Kind == ad.Kind) &&
		(q.Subject == "" || overlap(q.Subject, ad.Pattern()))
}

// wire is the query as the broker reads it; the team is looked at here.
func (q Query) wire() map[string]any {
	m := map[string]any{}
	if q.Subject != "" {
		m["subject"] = q.Subject
	}
	if q.Name != "" {
		m["name"] = q.Name
	}
	if q.Tag != "" {
		m["tags"] = []string{q.Tag}
	}
	for name, text := range map[string]string{"role": q.Role, "kind": q.Kind} {
		if text != "" {
			m[name] = text
		}
	}
	return m
}

func (q Query) at(offset int) map[string]any {
	m := q.wire()
	m["offset"] = offset
	for name, on := range map[string]bool{"silent": q.Silent, "unused": q.Unused, "violating": q.Violating} {
		if on {
			m[name] = true
		}
	}
	return m
}

// overlap tells whether some subject matches both patterns.
func overlap(a, b string) bool {
	for {
		ta, restA, moreA := strings.Cut(a, ".")
		tb, restB, moreB := strings.Cut(b, ".")
		if ta == ">" && !moreA || tb == ">" && !moreB {
			return true
		}
		if ta != tb && ta != "*" && tb != "*" {
			return false
		}
		if !moreA || !moreB {
			return moreA == moreB
		}
		a, b = restA, restB
	}
}

// Discover returns the advertisements that match, sorted by name, as they were
// at one moment.
func (c *Client) Discover(ctx context.Context, q Query) ([]Advertisement, error) {
	found, err := c.discover(ctx, q, false)
	if err != nil {
		return nil, err
	}
	ads := make([]Advertisement, len(found))
	for i := range found {
		ads[i] = found[i].Advertisement
	}
	return ads, nil
}

func (c *Client) discover(ctx context.Context, q Query, observed bool) ([]Discovered, error) {
	matching := []Discovered{}
	var revision uint64
	for offset, restarts := 0, 0; ; {
		question := q.at(offset)
		if observed {
			question["observed"] = true
		}
		page, err := c.advRequest(ctx, "discover", q.Subject, advList, question)
		if err != nil {
			return nil, err
		}
		if offset > 0 && page.Revision != revision && restarts < discoverRestartsMax {
			// Something changed since the first page, so that this one may not
			// follow it: begin anew.
			offset, restarts, matching = 0, restarts+1, matching[:0]
			continue
		}
		revision = page.Revision
		for i := range page.Advertisements {
			if !q.matches(&page.Advertisements[i]) {
				continue
			}
			d := Discovered{Advertisement: page.Advertisements[i]}
			if i < len(page.Observed) {
				d.Observed = &page.Observed[i]
			}
			matching = append(matching, d)
		}
		offset += len(page.Advertisements)
		if offset >= page.Total || len(page.Advertisements) == 0 {
			slices.SortStableFunc(matching, func(a, b Discovered) int {
				return strings.Compare(a.Advertisement.Name, b.Advertisement.Name)
			})
			return matching, nil
		}
	}
}

// discoverRestartsMax bounds how often a long list is begun anew because
// advertisements change faster than it can be read; then it may have gaps.
const discoverRestartsMax = 8

// Advertisement returns one advertisement by its name. The owner is needed only
// when several advertise under it.
func (c *Client) Advertisement(ctx context.Context, name string, owner Owner) (*Advertisement, error) {
	reply, err := c.advRequest(ctx, "discover", name, advGet, advKey{name, owner.Key()})
	if err != nil {
		return nil, err
	}
	if reply.Advertisement == nil {
		return nil, &Error{Op: "discover", Target: name, Kind: ErrNotFound, Err: errors.New("nobody advertises it")}
	}
	return reply.Advertisement, nil
}

// EventKind says what happened to an advertisement.
type EventKind string

// The kinds of events of a watch.
const (
	Current   EventKind = "current"   // there when the watch began
	Caught    EventKind = "caught-up" // the end of the current ones; no advertisement
	Added     EventKind = "added"
	Changed   EventKind = "changed"
	Expired   EventKind = "expired"
	Withdrawn EventKind = "withdrawn"
)

// Event is one event of a watch.
type Event struct {
	Kind          EventKind      `json:"event"`
	Revision      uint64         `json:"revision,omitempty"`
	Advertisement *Advertisement `json:"advertisement,omitempty"`
}

// Watch is a running watch of the advertisements.
type Watch struct {
	client *Client
	query  Query
	handle func(Event)

	messages chan *nats.Msg
	cancel   context.CancelFunc
	done     chan struct{}
	stop     sync.Once

	// Owned by Watch until run starts, by run then.

	sub      *nats.Subscription
	revision uint64 // of the last change that handle was told of
	known    map[advKey]Advertisement
	now      map[advKey]Advertisement // what is there, until the broker says that this was all
	caught   bool                     // handle has had Caught
}

// watchPause is how long a watch waits before it asks again.
const watchPause = 250 * time.Millisecond

// Watch calls handle, on one goroutine, with each advertisement there is, then
// once with Caught, then with each change. Changes during a loss of the
// connection are noticed after it: nothing is missed, nothing comes twice.
func (c *Client) Watch(ctx context.Context, q Query, handle func(Event)) (*Watch, error) {
	life, cancel := context.WithCancel(context.Background())
	w := &Watch{client: c, query: q, handle: handle, messages: make(chan *nats.Msg, 4096), cancel: cancel, done: make(chan struct{}), known: map[advKey]Advertisement{}}
	err := w.begin(ctx)
	if err == nil && !c.adopt(w) {
		err = &Error{Op: "watch", Target: "advertisements", Kind: ErrClosed, Err: errors.New("the client is closed")}
	}
	if err != nil {
		cancel()
		w.unsubscribe()
		return nil, err
	}
	go w.run(life)
	return w, nil
}

// begin asks the broker to tell what there is and what changes, on an inbox of
// its own, and waits for the broker to agree.
func (w *Watch) begin(ctx context.Context) error {
	ctx, cancel := w.client.bounded(ctx)
	defer cancel()
	w.unsubscribe()
	w.now = map[advKey]Advertisement{}
	inbox := w.client.nc.NewInbox()
	sub, err := w.client.nc.ChanSubscribe(inbox, w.messages)
	if err != nil {
		return failed("watch", "advertisements", err)
	}
	w.sub = sub
	question := w.query.wire()
	question["watch"] = true
	if w.caught {
		question["since"] = w.revision
	}
	body, err := json.Marshal(question)
	if err == nil {
		err = w.client.nc.PublishRequest(advList, inbox, body)
	}
	if err != nil {
		return failed("watch", "advertisements", err)
	}
	for {
		select {
		case <-ctx.Done():
			return failed("watch", "advertisements", ctx.Err())
		case m, open := <-w.messages:
			if !open {
				return failed("watch", "advertisements", nats.ErrConnectionClosed)
			}
			if m.Subject != inbox {
				continue // of the inbox before
			}
			reply, err := advAnswer("watch", "advertisements", m)
			if err == nil && reply.Resumed {
				w.now = nil // only what changed comes
			}
			return err
		}
	}
}

func (w *Watch) unsubscribe() {
	if w.sub != nil {
		_ = w.sub.Unsubscribe() // fails only on a closed connection
		w.sub = nil
	}
}

// Done is closed when handle has returned for the last time.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Close ends the watch and waits until handle has returned for the last time;
// it must not be called from handle.
func (w *Watch) Close() error {
	w.stop.Do(func() {
		w.client.release(w)
		w.cancel()
	})
	<-w.done
	return nil
}

func (w *Watch) run(ctx context.Context) {
	defer close(w.done)
	defer w.unsubscribe()
	nc := w.client.nc
	back := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(back)
	again := time.NewTimer(time.Hour)
	again.Stop()
	defer again.Stop()
	for {
		lost := false
		select {
		case <-ctx.Done():
			return
		case _, open := <-back:
			if !open || nc.IsClosed() {
				return
			}
			lost = true
		case <-again.C:
			lost = true
		case m, open := <-w.messages:
			if !open {
				return
			}
			lost = w.sub != nil && m.Subject == w.sub.Subject && !w.message(m)
		}
		if !lost {
			continue
		}
		if err := w.begin(ctx); err != nil && ctx.Err() == nil {
			w.client.set.onError(err)
			again.Reset(watchPause)
		}
	}
}

func keyOf(ad *Advertisement) advKey { return advKey{ad.Name, ad.Owner.Key()} }

// message takes what the broker tells; false means that the watch is lost and
// has to begin anew.
func (w *Watch) message(m *nats.Msg) bool {
	var e Event
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return false
	}
	switch {
	case e.Kind == Caught:
		if w.now != nil {
			w.compare(e)
			w.now = nil
		}
		w.revision = e.Revision
	case e.Advertisement == nil:
		return false
	case w.now != nil: // Current
		w.now[keyOf(e.Advertisement)] = *e.Advertisement
		if !w.caught {
			w.known[keyOf(e.Advertisement)] = *e.Advertisement
			w.handle(e)
		}
	default:
		w.apply(e)
		w.revision = max(w.revision, e.Revision)
	}
	return true
}

// compare reports what changed while nobody told: the difference between what
// was known and what there is.
func (w *Watch) compare(e Event) {
	if !w.caught {
		w.caught = true
		w.handle(e)
		return
	}
	for key, ad := range w.known {
		if _, still := w.now[key]; !still {
			w.apply(Event{Kind: Withdrawn, Revision: e.Revision, Advertisement: &ad})
		}
	}
	for key, ad := range w.now {
		if old, had := w.known[key]; !had || old.Revision != ad.Revision {
			w.apply(Event{Kind: Added, Revision: ad.Revision, Advertisement: &ad})
		}
	}
}

// apply reports a change, if it matches, and remembers it.
func (w *Watch) apply(e Event) {
	key := keyOf(e.Advertisement)
	_, had := w.known[key]
	switch {
	case e.Kind == Expired || e.Kind == Withdrawn:
		if !had {
			return
		}
		delete(w.known, key)
	case !w.query.matches(e.Advertisement):
		return
	default:
		w.known[key] = *e.Advertisement
		e.Kind = Added
		if had {
			e.Kind = Changed
		}
	}
	w.handle(e)
}
