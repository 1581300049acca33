package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
)

// snapshotManifest is what a data group's snapshot says: the store's files hold
// the group up to Applied, and from format 2 on they can be asked for.
type snapshotManifest struct {
	Format  int            `json:"format"`
	Group   topics.GroupID `json:"group"`
	Applied topics.Index   `json:"applied"`
	Taken   time.Time      `json:"taken,omitzero"`
}

const snapshotFormat = 2

func (m *dataMachine) parseSnapshot(r io.Reader) (snapshotManifest, error) {
	var s snapshotManifest
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return s, fmt.Errorf("read the snapshot of group %d: %w", m.id, err)
	}
	if s.Format > snapshotFormat {
		return s, &disk.NewerError{File: fmt.Sprintf("the snapshot of group %d", m.id), Version: uint32(s.Format), Reads: snapshotFormat}
	}
	if s.Format < 1 || s.Format > snapshotFormat || s.Group != m.id {
		return s, fmt.Errorf("read the snapshot of group %d: it is of format %d for group %d", m.id, s.Format, s.Group)
	}
	return s, nil
}

// Snapshot returns a note: the store's own files hold the messages, and what they
// lack the log has.
func (m *dataMachine) Snapshot() (replication.Snapshot, error) {
	return &manifest{snapshotManifest{Format: snapshotFormat, Group: m.id, Applied: m.data.Applied()}}, nil
}

type manifest struct{ snapshotManifest }

func (s *manifest) Persist(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(s.snapshotManifest); err != nil {
		return fmt.Errorf("write the snapshot of group %d: %w", s.Group, err)
	}
	return nil
}

func (s *manifest) Release() {}

// Restore brings the store up to a snapshot at least. Another replica's files have
// been fetched before (Prefetch); here they take the place of its own, all or none.
// A store that has more than that stays as it is.
func (m *dataMachine) Restore(r io.Reader) error {
	s, err := m.parseSnapshot(r)
	if err != nil {
		return err
	}
	m.refill.interrupt()
	m.refill.mu.Lock()
	defer m.refill.mu.Unlock()
	in, err := m.arriving()
	if err != nil {
		return err
	}
	if !in.Complete() || in.Manifest().Applied < s.Applied || in.Manifest().Applied <= m.data.Applied() {
		if m.data.Applied() >= s.Applied {
			return nil
		}
		return fmt.Errorf("group %d: the files that hold its entries up to %d are missing; restore the group's directory from a backup or from a peer", m.id, s.Applied)
	}
	before := m.census()
	if err := m.data.Adopt(in.Dir(), in.Adopt); err != nil {
		if errors.Is(err, store.ErrOlder) {
			return nil
		}
		var damage *store.CorruptError
		if errors.As(err, &damage) { // of what was fetched: it is fetched again
			err = errors.Join(err, in.Discard())
		}
		return fmt.Errorf("restore group %d: %w", m.id, err)
	}
	m.adopted(before)
	return nil
}

// census is what a group has, by topic and consumer.
type census map[topics.TopicID]topicCensus

type topicCensus struct {
	cfg       *topics.Config
	consumers map[string]topics.ConsumerConfig
}

func (m *dataMachine) census() census {
	all := census{}
	m.data.Topics(func(t *store.Topic) bool {
		c := topicCensus{cfg: t.SharedConfig(), consumers: map[string]topics.ConsumerConfig{}}
		t.Consumers(func(c2 *consumer.Consumer) bool {
			c.consumers[c2.Name()] = c2.Config()
			return true
		})
		all[t.ID()] = c
		return true
	})
	return all
}

// adopted makes anew what the machine keeps beside the store, and tells of what has
// changed. It is called on the goroutine that applies.
func (m *dataMachine) adopted(before census) {
	m.held = holdingsOf(m.data)
	m.resume()
	after := m.census()
	for id := range before {
		if _, is := after[id]; !is {
			m.told.topicChanged(m.id, id, Deleted)
		}
	}
	ids := make([]topics.TopicID, 0, len(after))
	for id, now := range after {
		was, had := before[id]
		switch {
		case !had:
			m.told.topicChanged(m.id, id, Created)
		case !reflect.DeepEqual(was.cfg, now.cfg):
			m.told.topicChanged(m.id, id, Updated)
		}
		for name := range was.consumers {
			if _, is := now.consumers[name]; !is {
				m.told.consumerChanged(id, name, Deleted)
			}
		}
		for name, cfg := range now.consumers {
			if old, had := was.consumers[name]; !had {
				m.told.consumerChanged(id, name, Created)
			} else if !reflect.DeepEqual(old, cfg) {
				m.told.consumerChanged(id, name, Updated)
			}
		}
		ids = append(ids, id)
	}
	m.told.adopted(m.id)
	if len(ids) > 0 {
		m.told.grown(m.id, ids)
	}
}
