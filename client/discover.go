package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Query says which advertisements [Client.Discover] returns; the zero value is
// all.
type Query struct {
	Subject string // only those whose pattern overlaps this one
	Name    string // only this name
	Team    string // only of this team
	Tag     string // only with this tag
}

func (q Query) matches(ad *Advertisement) bool {
	return (q.Name == "" || q.Name == ad.Name) &&
		(q.Team == "" || q.Team == ad.Owner.Team) &&
		(q.Tag == "" || slices.Contains(ad.Tags, q.Tag)) &&
		(q.Subject == "" || overlap(q.Subject, ad.Pattern()))
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

// Discover returns the advertisements that match, sorted by name.
func (c *Client) Discover(ctx context.Context, q Query) ([]Advertisement, error) {
	all, _, err := c.list(ctx, q)
	return all, err
}

// list also returns the revision that the list is of.
func (c *Client) list(ctx context.Context, q Query) ([]Advertisement, uint64, error) {
	matching := []Advertisement{}
	for offset := 0; ; {
		page, err := c.advRequest(ctx, "discover", q.Subject, advList, map[string]any{"offset": offset})
		if err != nil {
			return nil, 0, err
		}
		for i := range page.Advertisements {
			if q.matches(&page.Advertisements[i]) {
				matching = append(matching, page.Advertisements[i])
			}
		}
		offset += len(page.Advertisements)
		if offset >= page.Total || len(page.Advertisements) == 0 {
			slices.SortStableFunc(matching, func(a, b Advertisement) int { return strings.Compare(a.Name, b.Name) })
			return matching, page.Revision, nil
		}
	}
}

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

	events chan *nats.Msg
	sub    *nats.Subscription
	cancel context.CancelFunc
	done   chan struct{}
	stop   sync.Once

	// Owned by run.
	known    map[advKey]Advertisement
	revision uint64
}

// Watch calls handle, on one goroutine, with each advertisement there is, then
// once with Caught, then with each change. A change during a loss of the
// connection is noticed after it: nothing is missed, nothing comes twice.
func (c *Client) Watch(ctx context.Context, q Query, handle func(Event)) (*Watch, error) {
	life, cancel := context.WithCancel(context.Background())
	w := &Watch{client: c, query: q, handle: handle, events: make(chan *nats.Msg, 1024), cancel: cancel, done: make(chan struct{}), known: map[advKey]Advertisement{}}
	sub, err := c.nc.ChanSubscribe(advEvents+">", w.events)
	if err != nil {
		cancel()
		return nil, failed("watch", "advertisements", err)
	}
	w.sub = sub
	now, revision, err := c.list(ctx, q)
	if err == nil && !c.adopt(w) {
		err = &Error{Op: "watch", Target: "advertisements", Kind: ErrClosed, Err: errors.New("the client is closed")}
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	go w.run(life, now, revision)
	return w, nil
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

func (w *Watch) run(ctx context.Context, now []Advertisement, revision uint64) {
	defer close(w.done)
	defer func() { _ = w.sub.Unsubscribe() }() // fails only on a closed connection
	back := w.client.nc.StatusChanged(nats.CONNECTED)
	defer w.client.nc.RemoveStatusListener(back)

	w.revision = revision
	for i := range now {
		w.known[keyOf(&now[i])] = now[i]
		w.handle(Event{Current, now[i].Revision, &now[i]})
	}
	w.handle(Event{Kind: Caught, Revision: revision})
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-back:
			if !open {
				back = nil
				continue
			}
			w.resync(ctx)
		case m, open := <-w.events:
			if !open {
				return
			}
			w.event(ctx, m)
		}
	}
}

func keyOf(ad *Advertisement) advKey { return advKey{ad.Name, ad.Owner.Key()} }

// event takes one event from the wire.
func (w *Watch) event(ctx context.Context, m *nats.Msg) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, advEvents), ".")
	var e Event
	if err := json.Unmarshal(m.Data, &e); err != nil || e.Advertisement == nil {
		w.resync(ctx) // not understood: look at the whole instead
		return
	}
	e.Kind = EventKind(kind)
	if e.Revision != 0 && e.Revision <= w.revision {
		return // part of the list already
	}
	w.revision = max(w.revision, e.Revision)
	w.apply(e)
}

// apply reports a change that matches, and remembers it.
func (w *Watch) apply(e Event) {
	key := keyOf(e.Advertisement)
	_, had := w.known[key]
	switch e.Kind {
	case Expired, Withdrawn:
		delete(w.known, key)
		if had {
			w.handle(e)
		}
	case Added, Changed:
		if !w.query.matches(e.Advertisement) {
			if had { // changed so that it no longer matches
				delete(w.known, key)
				e.Kind = Withdrawn
				w.handle(e)
			}
			return
		}
		w.known[key] = *e.Advertisement
		e.Kind = Added
		if had {
			e.Kind = Changed
		}
		w.handle(e)
	}
}

// resync compares what is known with the broker's list, after events may have
// been missed.
func (w *Watch) resync(ctx context.Context) {
	now, revision, err := w.client.list(ctx, w.query)
	if err != nil {
		if ctx.Err() == nil {
			w.client.set.onError(failed("watch", "advertisements", err))
		}
		return // the next reconnect tries again
	}
	w.revision = max(w.revision, revision)
	gone := maps.Clone(w.known)
	for i := range now {
		key := keyOf(&now[i])
		old, had := w.known[key]
		delete(gone, key)
		if !had || old.Revision != now[i].Revision {
			w.apply(Event{Added, now[i].Revision, &now[i]})
		}
	}
	for _, ad := range gone {
		w.apply(Event{Withdrawn, revision, &ad})
	}
}
