package catalogue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// OperatorState says what an operator is to do.
type OperatorState string

// The states.
const (
	Running OperatorState = "running"
	Paused  OperatorState = "paused" // by somebody's request
	Failed  OperatorState = "failed" // Error says why; it goes on when it is resumed
)

// Operator is an operator that is deployed. It is immutable.
type Operator struct {
	ID      uint64         `json:"id"` // given by the catalogue, never used again
	Account string         `json:"account"`
	Name    string         `json:"name"` // unique in the account
	Version string         `json:"version,omitempty"`
	Group   topics.GroupID `json:"group"` // where it lives: that of its first durable output
	// Groups is where each of its instances lives, if it has several; Group is the first's.
	Groups []topics.GroupID `json:"groups,omitempty"`
	// Layout is one higher each time its instances have become others, or live elsewhere.
	Layout uint32 `json:"layout,omitempty"`
	// Spec is what the graph is made of, in its canonical form, and Digest its SHA-256.
	Spec   json.RawMessage `json:"spec"`
	Digest string          `json:"digest"`
	// Epoch is one higher with each other spec, and when the state is begun anew. Kept
	// is whose state the epoch takes over: places of steps; nil: nobody's.
	Epoch uint64   `json:"epoch"`
	Kept  []uint16 `json:"kept,omitempty"`
	// Keeps is Kept of the last epochs, in their order: one may be over before it has begun
	// where the state is. The catalogue writes it.
	Keeps []Keep `json:"keeps,omitempty"`
	// IDs are the places of the steps' state, by their names.
	IDs map[string]uint16 `json:"ids,omitempty"`
	// Starts is behind which sequence each input begins to be read.
	Starts []topics.Sequence `json:"starts,omitempty"`
	// Inputs are the topics that are read, by their numbers: one that is made anew under its
	// name is another one. Renewed are the epochs with which other ones were taken.
	Inputs  []topics.TopicID `json:"inputs,omitempty"`
	Renewed []Renewed        `json:"renewed,omitempty"`
	// Laid is the epoch that the layout began with, 0 for the first: each instance has taken
	// over its state in it, and none begins without.
	Laid uint64 `json:"laid,omitempty"`
	// Next is what it is about to become; nil: nothing else.
	Next *Succession `json:"next,omitempty"`
	// Revoked is the highest layout that was called off before it took over; its number is
	// never used again.
	Revoked uint32 `json:"revoked,omitempty"`
	// Stays is the group of its first output that it isn't to follow; 0: it follows.
	Stays topics.GroupID `json:"stays,omitempty"`
	// Outbox numbers what is sent to other groups: the epoch in which it was begun anew,
	// because what had been sent was lost; 0: never.
	Outbox uint64 `json:"outbox,omitempty"`
	// From is the savepoint that an epoch began with; nil: none has.
	From *Origin `json:"from,omitempty"`
	// Unadvertised are the outputs, by name, that whoever said its spec may not advertise.
	Unadvertised []string `json:"unadvertised,omitempty"`
	// Shadow is another version that runs beside it and gives nothing; nil: none does.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Lost is set while nobody has its state any more.
	Lost bool `json:"lost,omitempty"`
	// Skip is a record that is passed over: that in front of which it had stopped.
	Skip *Skipped `json:"skip,omitempty"`

	State OperatorState `json:"state"`
	Error string        `json:"error,omitempty"`
	At    *Skipped      `json:"at,omitempty"` // in front of what it has stopped

	Created  topics.Nanos `json:"created"`
	Began    topics.Nanos `json:"began"` // the epoch did
	Changed  topics.Nanos `json:"changed"`
	Revision uint64       `json:"revision"` // one higher with each change, from 1
}

// Keep is whose state an epoch takes over, as in Operator.
type Keep struct {
	Epoch uint64   `json:"epoch"`
	Nodes []uint16 `json:"nodes"`
}

// keepsMax bounds the epochs of which Kept is known.
const keepsMax = 16

// KeptSince returns whose state of an epoch is there still in the one that is in force; ok
// is false where that isn't known any more.
func (o *Operator) KeptSince(epoch uint64) (nodes []uint16, ok bool) {
	at := slices.IndexFunc(o.Keeps, func(k Keep) bool { return k.Epoch == epoch+1 })
	if at < 0 || epoch >= o.Epoch {
		return nil, false
	}
	nodes = slices.Clone(o.Keeps[at].Nodes)
	for _, k := range o.Keeps[at+1:] {
		if k.Nodes == nil {
			nodes = nil
		}
		nodes = slices.DeleteFunc(nodes, func(n uint16) bool { return !slices.Contains(k.Nodes, n) })
	}
	return nodes, true
}

// Origin is a savepoint that an epoch begins with.
type Origin struct {
	Epoch     uint64 `json:"epoch"`
	Operator  string `json:"operator"` // whose it is
	Savepoint string `json:"savepoint"`
	Object    string `json:"object"` // what holds it
	// Resend are the topics, by name, to which is sent what waits in the savepoint: nobody
	// else does it; nil: somebody does.
	Resend map[string]topics.TopicID `json:"resend,omitempty"`
}

// Succession is other instances of an operator, elsewhere or of another spec, that are to
// take over from those there are, once all of these have read up to the same place.
type Succession struct {
	Layout  uint32            `json:"layout"`
	Groups  []topics.GroupID  `json:"groups"` // one for each instance
	Version string            `json:"version,omitempty"`
	Spec    json.RawMessage   `json:"spec"`
	Digest  string            `json:"digest"`
	IDs     map[string]uint16 `json:"ids,omitempty"`
	// Kept is whose state is taken over: places of steps; nil: everybody's.
	Kept []uint16 `json:"kept,omitempty"`
	// Shadow is the version that runs beside it then; nil: none does.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Promotes is the digest of the shadow whose state they take over; "": that of the
	// operator.
	Promotes string `json:"promotes,omitempty"`
	// Follows is the topic whose group they are to live in; "": that isn't why they come.
	Follows string `json:"follows,omitempty"`
	// Cut is up to where each input is read by those before; nil: that isn't known yet.
	Cut   []topics.Sequence `json:"cut,omitempty"`
	Began topics.Nanos      `json:"began,omitempty"`
}

// Lives makes the operator, another version of old, live where old does.
func (o *Operator) Lives(old *Operator) {
	o.Group, o.Groups, o.Layout, o.Laid = old.Group, old.Groups, old.Layout, old.Laid
	o.Revoked, o.Stays, o.Outbox = old.Revoked, old.Stays, old.Outbox
	o.Renewed = old.Renewed
}

// Renewed is an epoch with which inputs became other topics: they are read from their
// beginning.
type Renewed struct {
	Epoch  uint64 `json:"epoch"`
	Inputs []int  `json:"inputs"`
}

// Renew notes that in the operator's epoch inputs are other topics than before.
func (o *Operator) Renew(inputs []int) {
	o.Renewed = append(slices.Clone(o.Renewed[max(0, len(o.Renewed)-keepsMax+1):]), Renewed{o.Epoch, inputs})
	o.Starts = slices.Clone(o.Starts)
	for _, i := range inputs {
		if i < len(o.Starts) {
			o.Starts[i] = 0
		}
	}
}

// RenewedSince returns the inputs that have become other topics behind an epoch.
func (o *Operator) RenewedSince(epoch uint64) (inputs []int) {
	for _, r := range o.Renewed {
		if r.Epoch > epoch && r.Epoch <= o.Epoch {
			inputs = append(inputs, r.Inputs...)
		}
	}
	return inputs
}

// Revoke returns the operator as it is once those that come are called off.
func (o *Operator) Revoke() *Operator {
	r := *o
	r.Revoked, r.Next = r.Next.Layout, nil
	r.Revision++
	return &r
}

// NextLayout returns a number for other instances, one that has never been used.
func (o *Operator) NextLayout() uint32 { return max(o.Layout, o.Revoked) + 1 }

// Succeed returns the operator as it is once those that come have taken over.
func (o *Operator) Succeed() *Operator {
	s := *o
	n := s.Next
	s.Group, s.Groups, s.Layout = n.Groups[0], nil, n.Layout
	if len(n.Groups) > 1 {
		s.Groups = n.Groups
	}
	s.Version, s.Spec, s.Digest, s.IDs = n.Version, n.Spec, n.Digest, n.IDs
	s.Epoch++
	s.Laid, s.Kept, s.Skip, s.Next, s.Shadow, s.Stays = s.Epoch, []uint16{}, nil, nil, n.Shadow, 0
	s.Revision++
	return &s
}

// Shadow is a version of an operator that is tried: as in Operator.
type Shadow struct {
	Version string            `json:"version,omitempty"`
	Spec    json.RawMessage   `json:"spec"`
	Digest  string            `json:"digest"`
	IDs     map[string]uint16 `json:"ids,omitempty"`
	Kept    []uint16          `json:"kept,omitempty"`
}

// Skipped is one record of an input.
type Skipped struct {
	Input    int             `json:"input"`
	Sequence topics.Sequence `json:"sequence"`
	// Instance is whose it is, from 1; 0: all instances'.
	Instance int `json:"instance,omitempty"`
}

// Homes returns the groups of the operator's instances, one or several.
func (o *Operator) Homes() []topics.GroupID {
	if len(o.Groups) > 0 {
		return o.Groups
	}
	return []topics.GroupID{o.Group}
}

// InstancesMax bounds the instances of an operator.
const InstancesMax = 120

// OperatorsMax bounds the operators of an account.
const OperatorsMax = 1000

// The refusals of operators.
var (
	FaultNoOperator       = &topics.Fault{Status: 404, ErrCode: 20050, Text: "there is no such operator"}
	FaultOperatorChanged  = &topics.Fault{Status: 409, ErrCode: 20051, Text: "the operator has been changed meanwhile"}
	FaultTooManyOperators = &topics.Fault{Status: 400, ErrCode: 20052, Text: "the account has as many operators as it may"}
)

func (o *Operator) valid() bool {
	return o != nil && o.Name != "" && o.Group != topics.CatalogueGroup && o.Epoch != 0
}

// putOperator enters an operator (Revision 1), or changes it if it still has the revision
// before the command's. The catalogue sets its number and its times.
func (c *Catalogue) putOperator(cmd *Command) (Result, error) {
	if !cmd.Operator.valid() {
		return Result{}, fmt.Errorf("%w: %s without an operator", topics.ErrBadEntry, cmd.Op)
	}
	o := *cmd.Operator
	k := name{o.Account, o.Name}
	old := c.operators[k]
	switch {
	case old == nil && o.Revision != 1, old != nil && o.Revision != old.Revision+1:
		return Result{Fault: FaultOperatorChanged}, nil
	case old == nil && len(c.OperatorsOf(o.Account)) >= OperatorsMax:
		return Result{Fault: FaultTooManyOperators}, nil
	case old == nil:
		c.lastOperator++
		o.ID, o.Created, o.Began, o.Keeps = c.lastOperator, c.clock, c.clock, nil
	default:
		o.ID, o.Created, o.Began, o.Keeps = old.ID, old.Created, old.Began, old.Keeps
		if o.Epoch != old.Epoch {
			o.Began = c.clock
			o.Keeps = append(slices.Clone(old.Keeps[max(0, len(old.Keeps)-keepsMax+1):]), Keep{o.Epoch, o.Kept})
		}
	}
	o.Changed = c.clock
	c.operators[k] = &o
	return Result{Operator: &o}, nil
}

// dropOperator takes an operator away, if it still has the command's revision (0: any).
func (c *Catalogue) dropOperator(cmd *Command) Result {
	k := name{cmd.Account, cmd.Name}
	old := c.operators[k]
	switch {
	case old == nil:
		return Result{Fault: FaultNoOperator}
	case cmd.Revision != 0 && cmd.Revision != old.Revision:
		return Result{Fault: FaultOperatorChanged}
	}
	delete(c.operators, k)
	return Result{Operator: old}
}

// Operator returns an operator by name, nil when there is none.
func (c *Catalogue) Operator(account, operator string) *Operator {
	return c.operators[name{account, operator}]
}

// Operators returns all operators by number.
func (c *Catalogue) Operators() []*Operator {
	all := slices.Collect(maps.Values(c.operators))
	slices.SortFunc(all, func(a, b *Operator) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// OperatorsOf returns an account's operators by name.
func (c *Catalogue) OperatorsOf(account string) (all []*Operator) {
	for k, o := range c.operators {
		if k.account == account {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *Operator) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// restoreOperators takes a snapshot's.
func (c *Catalogue) restoreOperators(s *snapshot) error {
	c.lastOperator = s.LastOperator
	for _, o := range s.Operators {
		if o == nil || o.ID == 0 || o.ID > s.LastOperator || o.Name == "" {
			return &CorruptError{"an operator's number is out of range"}
		}
		c.operators[name{o.Account, o.Name}] = o
	}
	return nil
}
