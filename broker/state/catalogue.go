package state

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// catalogueMachine applies the entries of group 0. It implements
// replication.StateMachine; it has no files of its own, group 0's log and
// snapshots are its memory.
type catalogueMachine struct {
	fatal func(error)
	told  func(catalogue.Event) // runs where entries are applied, without lock

	mu sync.RWMutex
	c  *catalogue.Catalogue
}

// Applied returns 0: everything is in the snapshot and the log.
func (m *catalogueMachine) Applied() topics.Index { return 0 }

// Apply applies committed commands; each result is a catalogue.Result.
func (m *catalogueMachine) Apply(entries []replication.Entry) []any {
	out := make([]any, len(entries))
	for i := range entries {
		r, err := m.applyOne(entries[i].Data)
		if err != nil {
			m.fatal(fmt.Errorf("apply entry %d of the catalogue: %w", entries[i].Index, err))
			return out
		}
		out[i] = r
		if r.Event != nil {
			m.told(*r.Event)
		}
	}
	return out
}

func (m *catalogueMachine) applyOne(entry []byte) (catalogue.Result, error) {
	cmd, err := catalogue.DecodeCommand(entry)
	if err != nil {
		return catalogue.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.c.Apply(cmd)
}

// Snapshot returns the catalogue as it is now.
func (m *catalogueMachine) Snapshot() (replication.Snapshot, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return frozen{m.c.Freeze()}, nil
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
	defer m.mu.Unlock()
	return m.c.UnmarshalBinary(b)
}

// read calls f with the catalogue, which f must neither change nor keep.
func (m *catalogueMachine) read(f func(*catalogue.Catalogue)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.c)
}

// decide proposes a command to group 0 and waits for its result. When ctx ends
// first the outcome is not known.
func (s *State) decide(ctx context.Context, cmd *catalogue.Command) (catalogue.Result, error) {
	p, err := s.propose(cmd)
	if err != nil {
		return catalogue.Result{}, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return catalogue.Result{}, fmt.Errorf("%s: %w: %w", cmd.Op, ErrUnknown, context.Cause(ctx))
	}
	_, result, err := p.Result()
	if err != nil {
		return catalogue.Result{}, outcome(err)
	}
	r, ok := result.(catalogue.Result)
	if !ok {
		return catalogue.Result{}, ErrUnknown // applying it was fatal
	}
	if r.Fault != nil {
		return r, r.Fault
	}
	return r, nil
}

func (s *State) propose(cmd *catalogue.Command) (*replication.Proposal, error) {
	cmd.Time = s.o.Now()
	entry, err := cmd.Encode()
	if err != nil {
		return nil, err
	}
	return s.meta.Propose(entry), nil
}

// IsCatalogueLeader tells whether this node leads group 0.
func (s *State) IsCatalogueLeader() bool {
	_, leads := s.meta.Leader()
	return leads
}

// Metrics returns what the logs measure, for /metrics. It may
// be asked at any time, also after Close.
func (s *State) Metrics() prometheus.Collector { return s.metrics }

// CatalogueStats returns the state of group 0's log, for monitoring.
func (s *State) CatalogueStats() replication.Stats { return s.meta.Stats() }

// Advertise puts an advertisement, as its owner wrote it, into the catalogue:
// new, or in place of the one with the same owner and name. Leases are for the
// caller to keep (broker/advertise). id names it if it is new. event is nil when
// nothing changed.
func (s *State) Advertise(ctx context.Context, account, id string, body []byte) (*catalogue.Advertisement, *catalogue.Event, error) {
	r, err := s.decide(ctx, &catalogue.Command{Op: catalogue.OpAdvertise, Account: account, ID: id, Body: body})
	if err != nil {
		return nil, nil, err
	}
	return r.Advertisement, r.Event, nil
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
