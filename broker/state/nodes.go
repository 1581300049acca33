package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// bornAlone tells whether a directory was made by a node that had neither a name nor
// peers: then its identity is a random text, and any name will do.
func bornAlone(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "NODE"))
	id, _, _ := strings.Cut(string(b), "\n")
	return err == nil && len(id) == len(rand.Text()) && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// CatalogueLeader returns the node that leads group 0, "" when none is known.
func (s *State) CatalogueLeader() string {
	if s.cl != nil {
		return s.cl.leader(topics.CatalogueGroup)
	}
	id, _ := s.meta.Load().Leader()
	return id
}

// LinearizeCatalogue is Group.Linearize for group 0.
func (s *State) LinearizeCatalogue(ctx context.Context) error {
	if !s.IsCatalogueLeader() {
		return replication.ErrNotLeader
	}
	if s.cl == nil {
		return nil
	}
	return s.cl.linearize(ctx, topics.CatalogueGroup)
}

// SyncCatalogue waits until the catalogue of this node, whoever leads group 0, has
// all that was acknowledged before the call.
func (s *State) SyncCatalogue(ctx context.Context) error {
	c := s.cl
	if c == nil {
		return nil
	}
	var here bool
	answer, err := c.callLeader(ctx, topics.CatalogueGroup, methodCommitted, []byte{0, 0, 0, 0}, func() ([]byte, error) {
		here = true
		return []byte{answerDone}, c.linearize(ctx, topics.CatalogueGroup)
	})
	if err != nil || here {
		return err
	}
	b := bodyOf(answer)
	i, err := b.answer()
	if err != nil {
		return err
	}
	meta := s.meta.Load()
	if meta == nil {
		return replication.ErrNotLeader
	}
	return meta.WaitApplied(ctx, i)
}

// TransferCatalogue is Group.Transfer for group 0.
func (s *State) TransferCatalogue(ctx context.Context, to string) error {
	if s.cl == nil {
		return ErrAlone
	}
	return s.cl.transfer(ctx, topics.CatalogueGroup, to)
}

// CatalogueMembers is Group.Members for group 0.
func (s *State) CatalogueMembers() []replication.Member {
	if s.cl == nil {
		return []replication.Member{{Node: s.o.NodeID, Voter: true, Leader: s.IsCatalogueLeader(), Online: true}}
	}
	return s.cl.members(topics.CatalogueGroup)
}

// Clustered tells whether this node has, or could get, peers.
func (s *State) Clustered() bool { return s.cl != nil }

// Nodes returns the nodes of the cluster by name, also those that are removed; a
// node alone is not in any table.
func (s *State) Nodes() (nodes []catalogue.Node) {
	s.catalogue.read(func(c *catalogue.Catalogue) { nodes = c.Nodes() })
	return nodes
}

// StepDown hands over the lead of every group that this node leads, as far as
// others can take it, and takes none from then on.
func (s *State) StepDown(ctx context.Context) error {
	c := s.cl
	if c == nil {
		return nil
	}
	c.lame.Store(true)
	c.tellStatus()
	var errs []error
	hand := func(id topics.GroupID, log *replication.Group) {
		if log == nil {
			return
		}
		if _, leads := log.Leader(); leads && log.Voters() > 1 {
			if err := log.Transfer(ctx, ""); err != nil && !errors.Is(err, replication.ErrNotLeader) {
				errs = append(errs, fmt.Errorf("hand over group %d: %w", id, err))
			}
		}
	}
	for _, r := range s.replicas() {
		hand(r.id, r.repl.Load())
	}
	hand(topics.CatalogueGroup, s.meta.Load())
	return errors.Join(errs...)
}

// Ready tells whether what clients want changed can be: the cluster is formed,
// the catalogue here is up to date, and so is every replica. Otherwise why says
// what is missing.
//
// While a node is young it also waits for groups that are being made: until all their
// replicas vote, the loss of one node may leave such a group without a majority. It
// doesn't wait for ever: such a group holds nothing.
func (s *State) Ready() (ready bool, why string) {
	c := s.cl
	if c == nil {
		return true, ""
	}
	meta := s.meta.Load()
	switch {
	case meta == nil:
		if w := c.why.Load(); w != nil {
			return false, *w
		}
		return false, "the cluster is not formed yet"
	case c.leader(topics.CatalogueGroup) == "":
		return false, "nobody is known to lead the catalogue"
	case !c.metaOK.Load():
		return false, "the catalogue of this node is not up to date yet"
	}
	if _, led := c.led(topics.CatalogueGroup); len(led.Voters) < int(c.expected.Load()) {
		return false, fmt.Sprintf("the cluster is being formed: %d of %d nodes vote", len(led.Voters), c.expected.Load())
	}
	groups := s.tables().groups
	forming := time.Since(c.began) < openingMax
	if forming && len(groups) == 0 && c.expected.Load() >= 3 { // which get groups of three at once
		return false, "the groups for topics are not made yet"
	}
	for _, e := range groups {
		if forming && !e.Open {
			return false, fmt.Sprintf("group %d is being made: not all who are to hold it vote", e.ID)
		}
		if !e.Holds(c.me) {
			continue
		}
		g := s.groups.get(s, e.ID)
		switch r := g.local.Load(); {
		case g.Why() != "":
			return false, g.Why()
		case r == nil:
			return false, fmt.Sprintf("the replica of group %d is not started yet", e.ID)
		case !r.current.Load():
			return false, fmt.Sprintf("the replica of group %d is not up to date yet", e.ID)
		}
	}
	return true, ""
}

// openingMax is how long a node that starts waits for groups that are being made.
const openingMax = 15 * time.Second

// AddNode lets a node take part that was drained or removed.
func (s *State) AddNode(ctx context.Context, name string) error {
	return s.putNodeState(ctx, name, catalogue.Active)
}

// DrainNode has all replicas and leads moved off a node. It returns once that is
// decided; Group.Nodes tells how far it has come.
func (s *State) DrainNode(ctx context.Context, name string) error {
	return s.putNodeState(ctx, name, catalogue.Draining)
}

// RemoveNode takes a node out of the cluster: others take over its replicas where
// they can, and its name is refused until it is added again. One that is connected
// is drained first; when that takes longer than ctx, or no other node can take what
// it has, it stays draining.
func (s *State) RemoveNode(ctx context.Context, name string) error {
	c := s.cl
	if c == nil {
		return ErrAlone
	}
	if name == c.me && c.removed.Load() {
		return nil
	}
	if c.online(name) {
		if err := s.DrainNode(ctx, name); err != nil {
			return err
		}
		for s.holds(name) {
			if !c.pause(ctx, 100*time.Millisecond) {
				return fmt.Errorf("node %s still holds replicas; it is being drained, remove it once it is empty: %w", name, context.Cause(ctx))
			}
		}
	}
	if name == c.me && s.CatalogueLeader() == c.me {
		if err := s.TransferCatalogue(ctx, ""); err != nil {
			return err
		}
	}
	if name == c.me {
		return c.removeSelf(ctx)
	}
	return s.putNodeState(ctx, name, catalogue.Removed)
}

func (s *State) holds(node string) bool {
	return slices.ContainsFunc(s.tables().groups, func(g *catalogue.Group) bool { return g.Holds(node) })
}

func (s *State) putNodeState(ctx context.Context, name string, state catalogue.NodeState) error {
	if s.cl == nil {
		return ErrAlone
	}
	_, err := s.decide(ctx, &catalogue.Command{Op: catalogue.OpPutNode, Node: &catalogue.Node{Name: name, State: state}})
	return err
}

// Now returns the time that entries get: the system's, or in a cluster the one that
// its nodes agree on (clock.go).
func (s *State) Now() topics.Nanos { return s.now() }

func (s *State) now() topics.Nanos {
	if s.cl != nil {
		return s.cl.clock.now()
	}
	return s.rawNow()
}

func (s *State) rawNow() topics.Nanos { return s.o.Now() + topics.Nanos(s.o.ClockOffset) }
