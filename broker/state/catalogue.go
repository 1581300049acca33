package state

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// catalogueMachine applies the entries of group 0. It implements
// replication.StateMachine; it has no files of its own, group 0's log and
// snapshots are its memory.
type catalogueMachine struct {
	fatal    func(error)
	told     func(catalogue.Event) // these run where entries are applied, without lock
	topic    func(*catalogue.Topic)
	table    func() // nodes or groups changed
	operator func(*catalogue.Operator)
	other    func() // it is all another one

	marked  atomic.Pointer[func(replication.Mark)] // told of markers
	marking atomic.Bool                            // one is being summed up
	spawn   func(func()) bool                      // runs what Close waits for

	mu sync.RWMutex
	c  *catalogue.Catalogue
	// next is filled by the others after a reset, and takes the place of c once it has
	// all: what is served meanwhile is old, but whole. nil: entries go to c.
	next *catalogue.Catalogue
}

// filling returns the catalogue that entries go to. m.mu is held.
func (m *catalogueMachine) filling() *catalogue.Catalogue {
	if m.next != nil {
		return m.next
	}
	return m.c
}

// refill has entries go to an empty catalogue.
func (m *catalogueMachine) refill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = catalogue.New()
}

// refilled serves the catalogue that has been filled, if there is one.
func (m *catalogueMachine) refilled() {
	m.mu.Lock()
	there := m.next != nil
	if there {
		m.c, m.next = m.next, nil
	}
	m.mu.Unlock()
	if there && m.other != nil {
		m.other()
	}
}

// Applied returns 0: everything is in the snapshot and the log.
func (m *catalogueMachine) Applied() topics.Index { return 0 }

// Apply applies committed entries; what each gave is a []catalogue.Result.
func (m *catalogueMachine) Apply(entries []replication.Entry) []any {
	out := make([]any, len(entries))
	for i := range entries {
		all, served, err := m.applyEntry(entries[i].Index, entries[i].Data)
		if err != nil {
			m.fatal(fmt.Errorf("apply entry %d of the catalogue: %w", entries[i].Index, err))
			return out
		}
		out[i] = all
		for n := range all {
			if served {
				m.tell(&all[n])
			}
		}
	}
	return out
}

func (m *catalogueMachine) tell(r *catalogue.Result) {
	if r.Event != nil {
		m.told(*r.Event)
	}
	if r.Topic != nil && m.topic != nil {
		m.topic(r.Topic)
	}
	if r.Operator != nil && m.operator != nil {
		m.operator(r.Operator)
	}
	if r.Tables && m.table != nil {
		m.table()
	}
}

func (m *catalogueMachine) applyEntry(i topics.Index, entry []byte) (all []catalogue.Result, served bool, err error) {
	commands, err := catalogue.DecodeEntry(entry)
	if err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all = make([]catalogue.Result, len(commands))
	for n, cmd := range commands {
		if all[n], err = m.filling().Apply(cmd); err != nil {
			return nil, false, err
		}
		if all[n].Mark {
			m.mark(i)
		}
	}
	return all, m.next == nil, nil
}

// Snapshot returns the catalogue as it is now.
func (m *catalogueMachine) Snapshot() (replication.Snapshot, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return frozen{m.filling().Freeze()}, nil
}

type frozen struct{ *catalogue.Frozen }

func (f frozen) Persist(w io.Writer) error {
	_, err := f.WriteTo(w)
	return err
}

func (f frozen) Release() {}

// Restore replaces the catalogue by a snapshot.
func (m *catalogueMachine) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read the catalogue's snapshot: %w", err)
	}
	m.mu.Lock()
	err = m.filling().UnmarshalBinary(b)
	served := m.next == nil
	m.mu.Unlock()
	if err == nil && served && m.other != nil {
		m.other()
	}
	return err
}

// read calls f with the catalogue, which f must neither change nor keep.
func (m *catalogueMachine) read(f func(*catalogue.Catalogue)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.c)
}

// IsCatalogueLeader tells whether this node leads group 0, and has applied all that
// was committed before it did.
func (s *State) IsCatalogueLeader() bool {
	meta := s.meta.Load()
	if meta == nil || s.cl != nil && !s.cl.leading.Load() {
		return false
	}
	_, leads := meta.Leader()
	return leads
}

// Metrics returns what the logs measure, for /metrics. It may
// be asked at any time, also after Close.
func (s *State) Metrics() prometheus.Collector { return s.metrics }

// CatalogueStats returns the state of group 0's log, for monitoring.
func (s *State) CatalogueStats() replication.Stats {
	if meta := s.meta.Load(); meta != nil {
		return meta.Stats()
	}
	return replication.Stats{}
}

// Put is an advertisement to be put.
type Put struct {
	Account string
	ID      string // names it if it is new
	By      string // the user that puts it, "" for one without a name
	Body    []byte // as its owner wrote it
	// Revision, when not 0, is that of the advertisement it takes the place of: fault
	// 20017 when that has another by now.
	Revision uint64
}

// Advertise puts an advertisement into the catalogue: new, or in place of the one with
// the same owner and name. Leases are for the caller to keep (broker/advertise). event
// is nil when nothing changed.
func (s *State) Advertise(ctx context.Context, p Put) (*catalogue.Advertisement, *catalogue.Event, error) {
	r, err := s.decide(ctx, &catalogue.Command{
		Op: catalogue.OpAdvertise, Account: p.Account, ID: p.ID, By: p.By, Body: p.Body, Revision: p.Revision,
	})
	if err != nil {
		return nil, nil, err
	}
	return r.Advertisement, r.Event, nil
}

// Advertisement returns one advertisement of an account; nil when there is none.
func (s *State) Advertisement(account string, k catalogue.Key) (a *catalogue.Advertisement) {
	s.catalogue.read(func(c *catalogue.Catalogue) { a = c.Advertisement(account, k) })
	return a
}

// Contradicted returns what speaks against an advertisement beside those of the account; nil:
// nothing does.
func (s *State) Contradicted(account string, a *catalogue.Advertisement) (f *topics.Fault) {
	s.catalogue.read(func(c *catalogue.Catalogue) { f = c.Contradicted(account, a) })
	return f
}

// AdvertisementRevision is the revision of the advertisements of all accounts.
func (s *State) AdvertisementRevision() (n uint64) {
	s.catalogue.read(func(c *catalogue.Catalogue) { n = c.Revision() })
	return n
}

// Withdraw takes an advertisement away; fault 20002 when there is none. expired
// tells that its lease ran out, rather than that its owner asked for it; then
// only that revision goes, so that a change in between saves it.
func (s *State) Withdraw(ctx context.Context, a *catalogue.Advertisement, expired bool) error {
	cmd := &catalogue.Command{
		Op: catalogue.OpWithdraw, Account: a.Account, Owner: a.Owner.Key(), Name: a.Name, Expired: expired,
	}
	if expired {
		cmd.Revision = a.Revision
	}
	_, err := s.decide(ctx, cmd)
	return err
}

// Advertisements returns an account's advertisements by name and owner, and the
// revision of the catalogue they are of. Account "" gives those of all accounts.
func (s *State) Advertisements(account string) (all []*catalogue.Advertisement, revision uint64) {
	s.catalogue.read(func(c *catalogue.Catalogue) {
		revision = c.Revision()
		if account != "" {
			all = c.Advertisements(account)
			return
		}
		for _, a := range c.AdvertisingAccounts() {
			all = append(all, c.Advertisements(a)...)
		}
	})
	return all, revision
}
