package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics/catalogue"
)

// TestReplicasOfTheCatalogueAreCompared: they agree, and one that holds something else is
// found out.
func TestReplicasOfTheCatalogueAreCompared(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3, func(o *Options) {
		o.tune = func(c *replication.Config) { c.DigestInterval = 100 * time.Millisecond }
	})
	f.create("a", replicated(3, "T", "t.>"))
	leader := func() *member { return f.nodes[f.nodes["a"].CatalogueLeader()] }
	f.wait("all agree", func() (bool, string) {
		n := leader()
		if n == nil {
			return false, "nobody leads"
		}
		st := n.meta.Load().Digests()
		return st.Agreed > 0 && st.Divergences == 0, fmt.Sprintf("%+v", st)
	})
	odd := f.nodes[f.notLeadingCatalogue()]
	odd.catalogue.mu.Lock()
	_, err := odd.catalogue.c.Apply(&catalogue.Command{Op: catalogue.OpPutNode, Node: &catalogue.Node{Name: "nobody"}, Time: 1})
	odd.catalogue.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	// Not on the odd one, which is reset as soon as it is found out.
	for _, n := range f.names() {
		if n != odd.name {
			f.create(n, replicated(3, "U", "u.>"))
			break
		}
	}
	f.wait("the odd one is found out", func() (bool, string) {
		n := leader()
		if n == nil {
			return false, "nobody leads"
		}
		st := n.meta.Load().Digests()
		return st.Divergences > 0, fmt.Sprintf("%+v", st)
	})
}

func (f *fleet) notLeadingCatalogue() string {
	for _, n := range f.names() {
		if !f.nodes[n].IsCatalogueLeader() {
			return n
		}
	}
	return ""
}
