package catalogue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// Move is a topic's way from one group to another:
//
//	decided ──it is copied──► switched ──dropped where it was──► (none)
//
// Until it is switched the topic lives where it did, and the move may be given up. The
// switch is one command; from then on the topic lives in the other group.
type Move struct {
	Number    uint64         `json:"number"` // of the topic's moves, from 1
	Other     topics.GroupID `json:"other"`  // the group it goes to, once switched that it came from
	Switched  bool           `json:"switched,omitempty"`
	Cancelled bool           `json:"cancelled,omitempty"` // it stays where it is
}

// MoveStep says what a command does to a move.
type MoveStep string

// The steps.
const (
	MoveStart  MoveStep = "start"  // to a group that the command names, of as many replicas
	MoveSwitch MoveStep = "switch" // the other group has all of it
	MoveDone   MoveStep = "done"   // only one group has something of it
)

// FaultMoving refuses what can't be while a topic moves.
var FaultMoving = &topics.Fault{Status: 400, ErrCode: 10124, Text: "stream move already in progress"}

// rescale begins the move of a topic whose new config asks for another number of
// replicas than its group has, or for other nodes, and gives the one up that is under way when the config
// asks for what its group is again.
func (c *Catalogue) rescale(t *Topic, cmd *Command) *topics.Fault {
	g := c.groups[t.Group]
	if g == nil {
		return nil // a node alone
	}
	fits := g.Fits(&t.Config)
	m := t.Move
	switch {
	case m == nil && fits:
		return nil
	case m == nil && t.State == Creating:
		return FaultMoving
	case m == nil:
		group, f := c.place(cmd, &t.Config)
		if f != nil {
			return f
		}
		t.begin(group)
		return nil
	case m.Switched && fits:
		return nil
	case m.Switched:
		return FaultMoving
	case fits:
		next := *m
		next.Cancelled = true
		t.Move = &next
		return nil
	}
	if other := c.groups[m.Other]; m.Cancelled || other == nil || !other.Fits(&t.Config) {
		return FaultMoving
	}
	return nil
}

func (t *Topic) begin(to topics.GroupID) {
	t.Moves++
	t.Move = &Move{Number: t.Moves, Other: to}
}

// moveTopic takes a step of a move. One of a move that has ended changes nothing.
func (c *Catalogue) moveTopic(cmd *Command) (Result, error) {
	old := c.topics[cmd.Topic]
	if old == nil {
		return Result{Fault: FaultTopicNotFound}, nil
	}
	t := *old
	m := old.Move
	if cmd.Step != MoveStart && (m == nil || m.Number != cmd.Revision) {
		return Result{Topic: old}, nil
	}
	switch cmd.Step {
	case MoveStart:
		to := c.groups[cmd.Target]
		switch {
		case m != nil || old.State != Live:
			return Result{Fault: FaultMoving}, nil
		case to == nil || !to.Open || !to.Fits(&old.Config):
			return Result{Fault: FaultStale}, nil
		case to.ID == old.Group:
			return Result{Topic: old}, nil
		}
		t.begin(to.ID)
	case MoveSwitch:
		if m.Cancelled || old.State == Deleting {
			return Result{Fault: FaultStale}, nil
		}
		if m.Switched {
			return Result{Topic: old}, nil
		}
		t.Group, t.Move = m.Other, &Move{Number: m.Number, Other: old.Group, Switched: true}
		c.load[old.Group]--
		c.load[t.Group]++
	case MoveDone:
		t.Move = nil
	default:
		return Result{}, fmt.Errorf("%w: step %q of a move is not known to this version", topics.ErrBadEntry, cmd.Step)
	}
	c.put(&t)
	if old.State != Deleting {
		c.names[name{t.Account, t.Config.Name}] = &t
	}
	return Result{Topic: &t}, nil
}

// Moving returns the topics that move and are not to be deleted, by identifier.
func (c *Catalogue) Moving() []*Topic {
	var all []*Topic
	for id := range c.open {
		if t := c.topics[id]; t.Move != nil && t.State != Deleting {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *Topic) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
