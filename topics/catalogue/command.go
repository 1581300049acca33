package catalogue

import (
	"encoding/json"

	"github.com/heraldmq/herald/topics"
)

// Op says what a command asks for. The words are part of the log's format.
type Op string

// The commands, with the fields of Command they use.
const (
	OpCreateTopic  Op = "topic.create" // Account, Config, Limits, Groups → *Topic; Result.Created tells whether it is new
	OpUpdateTopic  Op = "topic.update" // Account, Config, Limits → *Topic
	OpSyncedTopic  Op = "topic.synced" // Topic, Revision: the data group has it → *Topic
	OpDeleteTopic  Op = "topic.delete" // Account, Name → *Topic, now Deleting
	OpForgetTopic  Op = "topic.forget" // Topic: the data group has dropped it
	OpMoveTopic    Op = "topic.move"   // Topic, Step; Target with MoveStart, else Revision: the number of the move → *Topic
	OpMark         Op = "mark"         // nothing changes, and every replica says what it holds
	OpPutOperator  Op = "op.put"       // Operator: new (Revision 1), or in place of the one with the Revision before → *Operator
	OpDropOperator Op = "op.drop"      // Account, Name, Revision (0: any) → the *Operator that was
	OpAdvertise    Op = "adv.put"      // Account, ID, By, Body, Revision (of the one it replaces; 0: any or none) → *Advertisement and its Event, none if nothing changed
	OpPutNode      Op = "node.put"     // Node: new, or its state, or its address with its tags, where they are given
	OpPutGroup     Op = "group.put"    // Group: new (Revision 1), or in place of the one with the Revision before
	OpWithdraw     Op = "adv.withdraw" // Account, Owner, Name, Expired, Revision (0: any) → the Event
)

// Command is one change of the catalogue. The log has it as codec.go says; versions before
// wrote JSON, and what is said of the fields here is its form.
type Command struct {
	Op       Op             `json:"op"`
	Time     topics.Nanos   `json:"time"` // when it was proposed
	Account  string         `json:"account,omitempty"`
	Name     string         `json:"name,omitempty"`
	Config   *topics.Config `json:"config,omitempty"`
	Limits   *Limits        `json:"limits,omitempty"`
	Groups   int            `json:"groups,omitempty"` // data groups there are, 1..Groups; GroupsPlanned in a cluster
	Topic    topics.TopicID `json:"topic,omitempty"`
	Revision uint64         `json:"revision,omitempty"`

	Step   MoveStep       `json:"step,omitempty"`
	Target topics.GroupID `json:"target,omitempty"`

	Node  *Node  `json:"node,omitempty"`
	Group *Group `json:"group,omitempty"`

	Operator *Operator `json:"operator,omitempty"`

	ID      string          `json:"id,omitempty"` // for an advertisement that turns out new
	Owner   string          `json:"owner,omitempty"`
	By      string          `json:"by,omitempty"` // the user that advertises
	Body    json.RawMessage `json:"body,omitempty"`
	Expired bool            `json:"expired,omitempty"`
}

// Result is what a command gave.
type Result struct {
	Topic         *Topic
	Created       bool // OpCreateTopic: it wasn't there before
	Advertisement *Advertisement
	Event         *Event // what to tell those who watch advertisements
	Operator      *Operator
	Tables        bool // nodes or groups have changed
	Mark          bool // OpMark
	Fault         *topics.Fault
}
