package catalogue

import (
	"github.com/heraldmq/herald/topics"
)

// State says how far a topic has come in both its groups.
type State string

// The states.
const (
	Creating State = "creating" // decided; the data group may not have it yet
	Live     State = "live"     // the data group has it
	Deleting State = "deleting" // to be dropped; its name and subjects are free already
)

// Topic is what the catalogue knows about a topic. It is immutable.
type Topic struct {
	ID       topics.TopicID `json:"id"`
	Group    topics.GroupID `json:"group"`
	Account  string         `json:"account"`
	Config   topics.Config  `json:"config"`
	Created  topics.Nanos   `json:"created"`
	State    State          `json:"state"`
	Revision uint64         `json:"revision"`        // of Config, from 1
	Synced   uint64         `json:"synced"`          // highest revision the data group is known to have
	Moves    uint64         `json:"moves,omitempty"` // that have been begun, ended or not
	Move     *Move          `json:"move,omitempty"`  // the one under way
}

// Settled tells whether the data group is known to have what the catalogue says.
func (t *Topic) Settled() bool { return t.State == Live && t.Synced == t.Revision }

// name is a topic's or an advertisement's place in its account.
type name struct{ account, name string }
