package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// eager makes a fleet flush, trim its log and compare its replicas all the time.
func eager(o *Options) {
	o.FlushBytes, o.TailBytes, o.FlushInterval = 64<<10, 128<<10, time.Second
	o.tune = func(c *replication.Config) {
		c.SnapshotBytes, c.TrailingBytes, c.DigestInterval = 256<<10, 64<<10, 200*time.Millisecond
		c.SegmentBytes = 1 << 20
	}
}

// healing makes a fleet of three with a topic that has some megabytes.
func healing(t *testing.T) *fleet {
	f := startFleet(t, 3, eager)
	f.create("a", replicated(3, "T", "T.>"))
	f.calm()
	f.fill("a", 200)
	return f
}

// fill publishes n messages of 10 KB.
func (f *fleet) fill(on string, n int) {
	f.Helper()
	for i := range n {
		if got := f.publish(on, "T", fmt.Sprint("T.", i%9), "", strings.Repeat(fmt.Sprint(i%10), 10_000)); !strings.Contains(got, `"seq"`) {
			f.Fatalf("publish %d on %s: %q", i, on, got)
		}
	}
}

// others returns the group of T, who leads it and who doesn't.
func (f *fleet) others() (leader string, followers []string) {
	f.Helper()
	f.wait("somebody leads", func() (bool, string) {
		leader, followers = "", nil
		for _, n := range f.names() {
			topic, ok := f.nodes[n].Topic("A", "T")
			switch {
			case ok && topic.Group().IsLeader():
				leader = n
			case ok:
				followers = append(followers, n)
			}
		}
		return leader != "" && len(followers) == len(f.names())-1, leader
	})
	return leader, followers
}

func (f *fleet) replicaOf(n string) *replica {
	f.Helper()
	topic, ok := f.nodes[n].Topic("A", "T")
	if !ok {
		f.Fatal(n, "has no topic")
	}
	return topic.Group().local.Load()
}

// renewed waits until a node has another replica than it had.
func (f *fleet) renewed(n string, old *replica) {
	f.Helper()
	f.wait("the replica of "+n+" is a new one", func() (bool, string) {
		topic, ok := f.nodes[n].Topic("A", "T")
		if !ok {
			return false, "no topic"
		}
		r := topic.Group().local.Load()
		return r != nil && r != old, ""
	})
	kept, err := filepath.Glob(filepath.Join(f.dir, n, "damaged", "*"))
	if err != nil || len(kept) == 0 {
		f.Errorf("nothing of the replica of %s was kept: %v", n, err)
	}
}

// TestALateReplicaIsRefilled: a node misses more than the log keeps, once with what it
// had and once with nothing.
func TestALateReplicaIsRefilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a while")
	}
	f := healing(t)
	for _, wiped := range []bool{false, true} {
		_, followers := f.others()
		late, stays := followers[0], followers[1]
		f.kill(late)
		f.fill(stays, 300)
		if wiped {
			if err := os.RemoveAll(filepath.Join(f.dir, late)); err != nil {
				t.Fatal(err)
			}
		}
		f.join(late)
		f.fill(late, 20)
		f.same("T")
		if wiped {
			continue
		}
		if m, err := filepath.Glob(filepath.Join(f.dir, late, "groups/*/ADOPTED")); err != nil || len(m) == 0 {
			t.Errorf("%s got everything from the log: %v", late, err)
		}
	}
}

// TestDamageIsFoundAndRepaired: a byte of a data file changes while the node runs.
func TestDamageIsFoundAndRepaired(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a while")
	}
	f := healing(t)
	leader, followers := f.others()
	for _, hurt := range []string{followers[0], leader} {
		r := f.replicaOf(hurt)
		if err := r.data.Flush(); err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(r.data.Dir(), "data", "*.run"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		flip(t, names[0], 1000)
		began := time.Now()
		result, err := r.repl.Load().ScrubNow(t.Context())
		if err != nil || result.Found == 0 || result.Bytes < 1<<20 {
			t.Fatalf("scrubbing %s gave %+v, %v", hurt, result, err)
		}
		f.renewed(hurt, r)
		f.fill(hurt, 20)
		f.same("T")
		t.Logf("%s was repaired in %s", hurt, time.Since(began))
		f.calm()
	}
}

// flip changes a bit of a file.
func flip(t *testing.T, name string, at int64) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err = file.ReadAt(b, at); err == nil {
		b[0] ^= 1
		_, err = file.WriteAt(b, at)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestADivergedReplicaIsFoundOut: somebody's memory isn't what it should be.
func TestADivergedReplicaIsFoundOut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a while")
	}
	f := healing(t)
	leader, followers := f.others()
	for _, odd := range []string{followers[0], leader} {
		r := f.replicaOf(odd)
		began := time.Now()
		tamper(t, r)
		why := error(nil)
		for end := time.Now().Add(30 * time.Second); why == nil && time.Now().Before(end); _, why = r.repl.Load().Damaged() {
			f.publish(followers[1], "T", "T.1", "", "x")
		}
		var diverged *replication.DivergedError
		if !errors.As(why, &diverged) {
			t.Fatalf("%s was not found out: %v", odd, why)
		}
		t.Logf("%s was found out in %s", odd, time.Since(began))
		f.renewed(odd, r)
		f.fill(odd, 20)
		f.same("T")
		f.calm()
	}
	for _, n := range f.names() {
		if _, why := f.replicaOf(n).repl.Load().Damaged(); why != nil {
			t.Errorf("%s: %v", n, why)
		}
	}
}

// tamper takes a message out of one replica behind its back.
func tamper(t *testing.T, r *replica) {
	t.Helper()
	var topic topics.TopicID
	for _, id := range r.topicIDs() {
		topic = id
	}
	first, _ := r.data.Topic(topic).Bounds()
	r.data.Begin(r.data.Applied(), topics.Nanos(r.machine.last.Load()), nil)
	ok, fault := r.data.DeleteMessage(topic, first+5)
	r.data.End()
	if !ok {
		t.Fatal(fault)
	}
}
