package state

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// Usage is what an account holds. The reserved bytes are the sums of the
// topics' max_bytes.
type Usage struct {
	Topics, Consumers            int
	FileBytes, MemoryBytes       uint64
	FileMessages, MemoryMessages uint64
	FileReserved, MemoryReserved int64
}

func (u *Usage) add(o Usage) {
	u.Topics += o.Topics
	u.Consumers += o.Consumers
	u.FileBytes += o.FileBytes
	u.MemoryBytes += o.MemoryBytes
	u.FileMessages += o.FileMessages
	u.MemoryMessages += o.MemoryMessages
	u.FileReserved += o.FileReserved
	u.MemoryReserved += o.MemoryReserved
}

// usage sums up what the accounts hold in a replica.
func (r *replica) usage() map[string]Usage {
	all := map[string]Usage{}
	r.data.States(func(t *store.Topic, cfg *topics.Config, st topics.State) {
		u := all[t.Account()]
		u.add(usageOf(cfg, st))
		all[t.Account()] = u
	})
	return all
}

func usageOf(cfg *topics.Config, st topics.State) Usage {
	u := Usage{Topics: 1, Consumers: st.Consumers}
	if cfg.Storage == topics.StoreMemory {
		u.MemoryBytes, u.MemoryMessages, u.MemoryReserved = st.Bytes, st.Messages, max(cfg.MaxBytes, 0)
	} else {
		u.FileBytes, u.FileMessages, u.FileReserved = st.Bytes, st.Messages, max(cfg.MaxBytes, 0)
	}
	return u
}

// Usage returns what an account holds at the moment, in all groups; account "" sums
// up all. What is in groups without a replica here is as of about a second ago.
func (s *State) Usage(account string) Usage {
	var u Usage
	for _, g := range s.groups.list() {
		r := g.local.Load()
		if r == nil {
			u.add(s.cl.usageAway(g.id, account))
			continue
		}
		r.data.States(func(t *store.Topic, cfg *topics.Config, st topics.State) {
			if account == "" || t.Account() == account {
				u.add(usageOf(cfg, st))
			}
		})
	}
	return u
}

// usageElsewhere returns what an account holds in other groups than one, as of about
// a second ago.
func (s *State) usageElsewhere(account string, except *Group) Usage {
	var u Usage
	if s.cl == nil {
		for _, r := range s.replicas() {
			if r.group != except {
				u.add(r.usage()[account])
			}
		}
		return u
	}
	for _, g := range s.groups.list() {
		if g != except {
			u.add(s.cl.usageAway(g.id, account))
		}
	}
	return u
}

// consumersElsewhere returns how many consumers an account has in other groups
// than g, as of at most a second ago where their leaders answer.
func (s *State) consumersElsewhere(account string, g *Group) int {
	if len(s.groups.list()) == 1 {
		return 0
	}
	if s.cl != nil {
		s.cl.freshUsage()
	}
	return s.usageElsewhere(account, g).Consumers
}

// freshUsage has the leaders asked, and waits for what they say, unless they were
// asked a moment ago.
func (c *cluster) freshUsage() {
	c.held.mu.Lock()
	fresh := time.Since(c.held.asked) <= usageFresh
	c.held.mu.Unlock()
	if !fresh {
		c.askUsage()
	}
}

// usageCache is what the accounts hold in each group, as its leader said last.
type usageCache struct {
	mu     sync.Mutex
	groups map[topics.GroupID]map[string]Usage
	asked  time.Time
	busy   bool
}

// usageFresh is how long what the leaders said is good for.
const usageFresh = time.Second

// usageAway returns what an account holds in a group, as its leader said last, and
// has the leaders asked again when that was a while ago. It doesn't wait.
func (c *cluster) usageAway(id topics.GroupID, account string) Usage {
	h := &c.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.busy && time.Since(h.asked) > usageFresh {
		h.busy = c.s.spawn(c.askUsage)
	}
	if account != "" {
		return h.groups[id][account]
	}
	var u Usage
	for _, a := range h.groups[id] {
		u.add(a)
	}
	return u
}

// askUsage asks the leaders.
func (c *cluster) askUsage() {
	ctx, cancel := context.WithTimeout(c.s.ctx, 2*time.Second)
	defer cancel()
	got := c.usageHere()
	for _, name := range c.peers.names() {
		b, err := c.net.Call(ctx, name, methodUsage, nil)
		if err != nil {
			continue // what it said before stands
		}
		var theirs map[topics.GroupID]map[string]Usage
		if err := json.Unmarshal(b, &theirs); err != nil {
			c.s.logError(fmt.Errorf("read what %s says of usage: %w", name, err))
			continue
		}
		maps.Copy(got, theirs)
	}
	h := &c.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.groups == nil {
		h.groups = map[topics.GroupID]map[string]Usage{}
	}
	maps.Copy(h.groups, got)
	h.asked, h.busy = time.Now(), false
}

// usageHere is what the accounts hold in the groups that this node leads.
func (c *cluster) usageHere() map[topics.GroupID]map[string]Usage {
	all := map[topics.GroupID]map[string]Usage{}
	for _, r := range c.s.replicas() {
		if r.isLeader() {
			all[r.id] = r.usage()
		}
	}
	return all
}

func (c *cluster) answerUsage(context.Context, string, []byte) ([]byte, error) {
	return json.Marshal(c.usageHere())
}
