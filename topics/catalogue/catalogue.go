package catalogue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/interest"
)

// Catalogue is which topics and advertisements exist. The zero value isn't
// usable; see New.
type Catalogue struct {
	nextTopic topics.TopicID // the next topic's identifier
	revision  uint64         // of the advertisements: one higher with each change of any
	clock     topics.Nanos   // time of the last command; never goes back

	topics   map[topics.TopicID]*Topic
	open     map[topics.TopicID]bool // those not settled, or moving
	sum      uint64                  // of the sums of topics
	names    map[name]*Topic         // those not Deleting
	load     map[topics.GroupID]int  // entries of topics by group
	accounts map[string]*account
	adverts  map[string]map[Key]*Advertisement // by account
	patterns map[string]*interest.Index[*Advertisement]
	nodes    map[string]Node
	groups   map[topics.GroupID]*Group

	operators    map[name]*Operator
	lastOperator uint64 // the number given last

	metadata map[string]string // of the topic made last; see shared
}

// account is what one account has; it exists while it has a topic that is not
// Deleting.
type account struct {
	topics   int
	reserved map[topics.Storage]int64
	subjects interest.Index[topics.TopicID] // who asks for what
}

func newAccount() *account { return &account{reserved: map[topics.Storage]int64{}} }

// New returns an empty catalogue.
func New() *Catalogue {
	return &Catalogue{
		nextTopic: 1,
		topics:    map[topics.TopicID]*Topic{},
		open:      map[topics.TopicID]bool{},
		names:     map[name]*Topic{},
		load:      map[topics.GroupID]int{},
		accounts:  map[string]*account{},
		adverts:   map[string]map[Key]*Advertisement{},
		patterns:  map[string]*interest.Index[*Advertisement]{},
		nodes:     map[string]Node{},
		groups:    map[topics.GroupID]*Group{},
		operators: map[name]*Operator{},
	}
}

// Apply carries out one command. An error means that the command makes no sense
// to this program (topics.ErrBadEntry); a refusal is in Result.Fault, and then
// nothing has changed.
func (c *Catalogue) Apply(cmd *Command) (Result, error) {
	c.clock = max(c.clock, cmd.Time) // a marker has none
	switch cmd.Op {
	case OpCreateTopic:
		return c.createTopic(cmd)
	case OpUpdateTopic:
		return c.updateTopic(cmd)
	case OpSyncedTopic:
		return c.syncedTopic(cmd), nil
	case OpDeleteTopic:
		return c.deleteTopic(cmd), nil
	case OpForgetTopic:
		return c.forgetTopic(cmd), nil
	case OpMoveTopic:
		return c.moveTopic(cmd)
	case OpMark:
		return Result{Mark: true}, nil
	case OpPutOperator:
		return c.putOperator(cmd)
	case OpDropOperator:
		return c.dropOperator(cmd), nil
	case OpAdvertise:
		return c.advertise(cmd), nil
	case OpWithdraw:
		return c.withdraw(cmd), nil
	case OpPutNode:
		return c.putNode(cmd)
	case OpPutGroup:
		return c.putGroup(cmd)
	}
	return Result{}, fmt.Errorf("%w: catalogue command %q is not known to this version", topics.ErrBadEntry, cmd.Op)
}

func (c *Catalogue) createTopic(cmd *Command) (Result, error) {
	cfg, err := commandConfig(cmd)
	if err != nil {
		return Result{}, err
	}
	if t := c.names[name{cmd.Account, cfg.Name}]; t != nil {
		if sameConfig(&t.Config, cfg) {
			return Result{Topic: t}, nil
		}
		return Result{Fault: FaultNameInUse}, nil
	}
	a := c.accounts[cmd.Account]
	if a == nil {
		a = newAccount()
	}
	if cmd.Limits != nil {
		if f := cmd.Limits.allow(cfg, a.topics, a.reserved[cfg.Storage]); f != nil {
			return Result{Fault: f}, nil
		}
	}
	if a.overlaps(cfg.Subjects, 0) {
		return Result{Fault: FaultOverlap}, nil
	}
	group, f := c.place(cmd, cfg)
	if f != nil {
		return Result{Fault: f}, nil
	}
	t := &Topic{
		ID: c.nextTopic, Group: group, Account: cmd.Account, Config: *cfg,
		Created: c.clock, State: Creating, Revision: 1,
	}
	c.nextTopic++
	c.accounts[cmd.Account] = a
	c.enter(t)
	c.claim(t)
	return Result{Topic: t, Created: true}, nil
}

func (c *Catalogue) updateTopic(cmd *Command) (Result, error) {
	cfg, err := commandConfig(cmd)
	if err != nil {
		return Result{}, err
	}
	old := c.names[name{cmd.Account, cfg.Name}]
	if old == nil {
		return Result{Fault: FaultTopicNotFound}, nil
	}
	if sameConfig(&old.Config, cfg) {
		return Result{Topic: old}, nil
	}
	a := c.accounts[cmd.Account]
	if cmd.Limits != nil {
		others := a.reserved[cfg.Storage]
		if old.Config.Storage == cfg.Storage {
			others -= max(old.Config.MaxBytes, 0)
		}
		// A topic that isn't growing may stay, even if the limits have shrunk since.
		if f := cmd.Limits.allow(cfg, a.topics-1, others); f != nil && (cfg.MaxBytes <= 0 || cfg.MaxBytes > old.Config.MaxBytes) {
			return Result{Fault: f}, nil
		}
	}
	if a.overlaps(cfg.Subjects, old.ID) {
		return Result{Fault: FaultOverlap}, nil
	}
	t := *old
	t.Config, t.Revision = *cfg, old.Revision+1
	if f := c.rescale(&t, cmd); f != nil {
		return Result{Fault: f}, nil
	}
	c.release(old)
	c.accounts[cmd.Account] = a
	c.put(&t)
	c.claim(&t)
	return Result{Topic: &t}, nil
}

func (c *Catalogue) syncedTopic(cmd *Command) Result {
	old := c.topics[cmd.Topic]
	if old == nil || old.State == Deleting || cmd.Revision <= old.Synced || cmd.Revision > old.Revision {
		return Result{Topic: old}
	}
	t := *old
	t.State, t.Synced = Live, cmd.Revision
	c.put(&t)
	c.names[name{t.Account, t.Config.Name}] = &t
	return Result{Topic: &t}
}

func (c *Catalogue) deleteTopic(cmd *Command) Result {
	old := c.names[name{cmd.Account, cmd.Name}]
	if old == nil {
		return Result{Fault: FaultTopicNotFound}
	}
	c.release(old)
	t := *old
	t.State = Deleting
	c.put(&t)
	return Result{Topic: &t}
}

func (c *Catalogue) forgetTopic(cmd *Command) Result {
	t := c.topics[cmd.Topic]
	if t == nil || t.State != Deleting {
		return Result{Topic: t}
	}
	delete(c.topics, t.ID)
	delete(c.open, t.ID)
	c.sum -= t.sum()
	c.load[t.Group]--
	return Result{Topic: t}
}

// enter adds a topic that isn't there yet.
func (c *Catalogue) enter(t *Topic) {
	t.Config.Metadata = c.shared(t.Config.Metadata)
	c.put(t)
	c.load[t.Group]++
}

// put enters a topic in place of what there was under its identifier.
func (c *Catalogue) put(t *Topic) {
	if old := c.topics[t.ID]; old != nil {
		c.sum -= old.sum()
	}
	c.topics[t.ID] = t
	c.sum += t.sum()
	if t.Settled() && t.Move == nil {
		delete(c.open, t.ID)
	} else {
		c.open[t.ID] = true
	}
}

// shared returns metadata equal to m: the same map for topics made one after the
// other, which mostly have the same. Nobody changes it.
func (c *Catalogue) shared(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	if maps.Equal(m, c.metadata) {
		return c.metadata
	}
	c.metadata = m
	return m
}

// leastUsed picks the data group with the fewest topics.
func (c *Catalogue) leastUsed(groups int) topics.GroupID {
	best := topics.GroupID(1)
	for g := topics.GroupID(2); int(g) <= groups; g++ {
		if c.load[g] < c.load[best] {
			best = g
		}
	}
	return best
}

// claim enters a topic's name, subjects and reserved bytes.
func (c *Catalogue) claim(t *Topic) {
	a := c.accounts[t.Account]
	c.names[name{t.Account, t.Config.Name}] = t
	a.topics++
	a.reserved[t.Config.Storage] += max(t.Config.MaxBytes, 0)
	for _, s := range t.Config.Subjects {
		a.subjects.Add(s, t.ID)
	}
}

// release undoes claim.
func (c *Catalogue) release(t *Topic) {
	a := c.accounts[t.Account]
	delete(c.names, name{t.Account, t.Config.Name})
	a.reserved[t.Config.Storage] -= max(t.Config.MaxBytes, 0)
	for _, s := range t.Config.Subjects {
		a.subjects.Remove(s, t.ID)
	}
	if a.topics--; a.topics == 0 {
		delete(c.accounts, t.Account)
	}
}

// overlaps tells whether a topic other than except asks for a message that one
// of subjects asks for.
func (a *account) overlaps(subjects []string, except topics.TopicID) bool {
	for _, s := range subjects {
		if a.subjects.OverlapsOther(s, except) {
			return true
		}
	}
	return false
}

// Topic returns a topic by identifier, whatever its state; nil when there is none.
func (c *Catalogue) Topic(id topics.TopicID) *Topic { return c.topics[id] }

// Deleted tells whether there was a topic with an identifier, which never again is.
func (c *Catalogue) Deleted(id topics.TopicID) bool {
	t := c.topics[id]
	return id < c.nextTopic && (t == nil || t.State == Deleting)
}

// Find returns the topic that has a name in an account; nil when there is none.
func (c *Catalogue) Find(account, topic string) *Topic { return c.names[name{account, topic}] }

// Topics returns all topics, whatever their state, by identifier.
func (c *Catalogue) Topics() []*Topic {
	all := make([]*Topic, 0, len(c.topics))
	for _, t := range c.topics {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *Topic) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Unsettled returns the topics that are half done, by identifier.
func (c *Catalogue) Unsettled() []topics.TopicID {
	var ids []topics.TopicID
	for id := range c.open {
		if !c.topics[id].Settled() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Reserved returns how many topics an account has and the sum of their
// max_bytes by storage kind.
func (c *Catalogue) Reserved(of string) (count int, file, memory int64) {
	a := c.accounts[of]
	if a == nil {
		return 0, 0, 0
	}
	return a.topics, a.reserved[topics.StoreFile], a.reserved[topics.StoreMemory]
}

func commandConfig(cmd *Command) (*topics.Config, error) {
	if cmd.Config == nil || cmd.Config.Name == "" {
		return nil, fmt.Errorf("%w: %s without a named config", topics.ErrBadEntry, cmd.Op)
	}
	return cmd.Config, nil
}

// sameConfig compares by the wire form, to which a missing and an empty list
// are the same.
func sameConfig(a, b *topics.Config) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
