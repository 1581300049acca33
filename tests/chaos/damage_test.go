package chaos

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// fill publishes until a stream has about so many messages, and stops the load.
func (w *world) fill(stream string, count int) {
	w.t.Helper()
	w.publish(stream, "fill", func(p *publisher) { p.window, p.every = 64, 0 })
	for deadline := time.Now().Add(2 * time.Minute); w.acked() < count; pause(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("only %d of %d messages acknowledged in two minutes", w.acked(), count)
		}
	}
	w.halt()
}

// repaired waits until a node can lead a stream again; a promise of Herald's is
// that a damaged replica is whole within a minute.
func (w *world) repaired(stream string, n *harness.Node, since time.Time) {
	w.t.Helper()
	err := w.lead(stream, n, 90*time.Second)
	took := time.Since(since)
	switch {
	case err != nil:
		w.broken("not repaired", "%v", err)
	case took > time.Minute && w.target == herald:
		w.broken("slow", "%s could lead %s only %s after the damage, more than a minute", n.Name, stream, took.Round(time.Second))
	}
	w.note("%s leads %s after the damage", n.Name, took.Round(10*time.Millisecond))
}

// Test04BitFlips flips bits in what one node has stored of messages: in payloads
// and in what stands before them, of the first, a middle and the last; after a
// clean stop, and while it runs. Nothing is lost or served wrong, whoever leads.
func Test04BitFlips(t *testing.T) {
	for _, c := range []struct {
		name    string
		running bool
		flips   []int // distances from a payload's mark
	}{{"Stopped", false, []int{40, -3, -40}}, {"Running", true, []int{40, -10}}} {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t, 4, harness.ClusterOptions{})
			w.damages = true
			w.create("T", 3, nil)
			w.fill("T", pick(1500, 60000))
			victim := w.Nodes[w.rng.IntN(3)]
			if !c.running {
				for _, n := range w.Nodes {
					n.Stop()
				}
			}
			flipped := 0
			for round := range pick(3, 12) {
				files := holding(victim)
				if len(files) == 0 {
					t.Fatal("no file holds messages")
				}
				path := files[w.rng.IntN(len(files))]
				what, err := flipNear(path, w.rng, []float64{0, 0.5, 1}[round%3], c.flips[round%len(c.flips)])
				w.must(err)
				flipped++
				w.note("%s: %s", victim.Name, what)
			}
			since := time.Now()
			if !c.running {
				w.startDamaged(victim)
			}
			look := w.watch("T")
			w.repaired("T", victim, since)
			pause(pick(500*time.Millisecond, 20*time.Second))
			look.end()
			w.restartEnded()
			w.figure("%d bits", flipped)
			w.audit("T", victim)
		})
	}
}

// restartEnded starts nodes that ended themselves, as whoever supervises them
// would.
func (w *world) restartEnded() {
	for _, n := range w.Nodes {
		if !n.Running() {
			w.note("%s ended by itself and is started again", n.Name)
			w.must(n.Start())
			w.must(n.Ready(time.Minute))
		}
	}
}

// Test05LostFiles takes files of one node away: cut in half, deleted, or the
// whole folder. The node comes back, is filled again, and serves no hole.
func Test05LostFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(w *world, victim *harness.Node) string
	}{
		{"Cut", func(w *world, victim *harness.Node) string {
			path := w.anyHolding(victim)
			info, err := os.Stat(path)
			w.must(err)
			w.must(os.Truncate(path, info.Size()/2))
			return path + " cut in half"
		}},
		{"Deleted", func(w *world, victim *harness.Node) string {
			path := w.anyHolding(victim)
			w.must(os.Remove(path))
			return path + " deleted"
		}},
		{"Folder", func(w *world, victim *harness.Node) string {
			w.must(os.RemoveAll(victim.Store))
			return "the whole store deleted"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t, 5, harness.ClusterOptions{})
			w.create("T", 3, nil)
			w.fill("T", pick(1000, 60000))
			victim := w.Nodes[w.rng.IntN(3)]
			for _, n := range w.Nodes {
				n.Stop()
			}
			w.note("%s: %s", victim.Name, c.do(w, victim))
			since := time.Now()
			w.startDamaged(victim)
			look := w.watch("T")
			w.repaired("T", victim, since)
			look.end()
			w.audit("T", victim)
		})
	}
}

// anyHolding returns the largest file of a node that holds messages.
func (w *world) anyHolding(n *harness.Node) string {
	w.t.Helper()
	best, size := "", int64(-1)
	for _, path := range holding(n) {
		if info, err := os.Stat(path); err == nil && info.Size() > size {
			best, size = path, info.Size()
		}
	}
	if best == "" {
		w.t.Fatal("no file holds messages")
	}
	return best
}

// Test06Catalogue damages what one node knows about which streams exist, and
// makes that node the leader of everything it can. Whatever it believes, no
// stream goes away.
func Test06Catalogue(t *testing.T) {
	for _, how := range pick([]string{"Flipped", "Deleted"}, []string{"Flipped", "Cut", "Deleted"}) {
		t.Run(how, func(t *testing.T) {
			w := begin(t, 6, harness.ClusterOptions{})
			names := []string{"T"}
			for i := range pick(5, 20) {
				names = append(names, fmt.Sprintf("S%d", i))
			}
			for _, name := range names {
				w.create(name, 3, nil)
			}
			w.fill("T", pick(500, 5000))
			victim := w.Nodes[w.rng.IntN(3)]
			for _, n := range w.Nodes {
				n.Stop()
			}
			w.damageCatalogue(victim, how)
			since := time.Now()
			w.startDamaged(victim)
			w.repaired("T", victim, since)
			w.leadMeta(victim)
			nc := w.connect("names")
			defer nc.Close()
			for _, name := range names {
				began := time.Now()
				if _, err := w.info(nc, name, 30*time.Second); err != nil {
					w.broken("stream gone", "%s: %v", name, err)
				}
				if took := time.Since(began); took > 3*time.Second {
					w.note("asking for %s took %s", name, took)
				}
			}
			w.figure("%d streams", len(names))
			w.audit("T", victim)
		})
	}
}

func (w *world) damageCatalogue(victim *harness.Node, how string) {
	w.t.Helper()
	files := filesOf(victim, isCatalogue(w.target))
	if len(files) == 0 {
		w.t.Fatal("no file holds the catalogue")
	}
	for _, path := range files {
		if isLocal(path) {
			continue
		}
		info, err := os.Stat(path)
		w.must(err)
		what := path + " " + how
		switch how {
		case "Flipped":
			what, err = flipSomewhere(path, w.rng)
		case "Cut":
			err = os.Truncate(path, info.Size()/2)
		default:
			err = os.Remove(path)
		}
		w.must(err)
		w.note("%s: %s", victim.Name, what)
	}
}

// startDamaged starts all nodes and waits until JetStream answers on them. The
// victim may take its time, and may end itself and be started again.
func (w *world) startDamaged(victim *harness.Node) {
	w.t.Helper()
	for _, n := range w.Nodes {
		w.must(n.Start())
	}
	for _, n := range w.others(victim) {
		w.must(n.Ready(time.Minute))
	}
	for try := 1; ; try++ {
		err := victim.Ready(time.Minute)
		if err == nil {
			break
		}
		w.note("start %d: %v", try, err)
		if try == 3 {
			w.broken("does not start", "%s after the damage: %v", victim.Name, err)
			break
		}
		pause(time.Second)
		w.must(victim.Start())
	}
	w.waitJetStream()
}

// leadMeta makes a node lead the catalogue, where that can be asked for.
func (w *world) leadMeta(n *harness.Node) {
	w.t.Helper()
	if w.target != herald {
		return
	}
	began := time.Now()
	w.change("TRANSFER", map[string]any{"group": 0, "to": n.Name}, time.Minute)
	w.until(n.Name+" leads the catalogue", 30*time.Second, func(s status) bool {
		return len(s.Groups) > 0 && s.Groups[0].ID == 0 && s.Groups[0].Leader == n.Name
	})
	w.note("%s leads the catalogue, %s later", n.Name, time.Since(began).Round(10*time.Millisecond))
}

// Test07Votes takes a node's memory of its votes back: an older copy restored,
// damaged or deleted, while it was away from elections. It must not vote on the
// strength of it: what clients see stays linearizable and nothing is lost.
func Test07Votes(t *testing.T) {
	w := begin(t, 7, harness.ClusterOptions{})
	w.create("T", 3, nil)
	w.load("T")
	h := w.exercise("L", 3, 4, pick(15*time.Millisecond, 50*time.Millisecond))
	for round := range pick(3, some(24)) {
		victim := w.Nodes[w.rng.IntN(3)]
		files := filesOf(victim, isVote(w.target))
		if len(files) == 0 {
			t.Fatal("no file holds votes")
		}
		old, err := copyFiles(files)
		w.must(err)
		for range 1 + w.rng.IntN(2) { // elections that the copy knows nothing of
			n := w.leader("T")
			n.Kill()
			w.progress(60 * time.Second)
			w.must(n.Start())
		}
		victim.Kill()
		for path, text := range old {
			switch round % 3 {
			case 0:
				w.must(os.WriteFile(path, text, 0o600))
			case 1:
				_, err := flipSomewhere(path, w.rng)
				w.must(err)
			default:
				w.must(os.Remove(path))
			}
		}
		w.note("%s: votes %s", victim.Name, []string{"rolled back", "damaged", "deleted"}[round%3])
		w.must(victim.Start())
		// The others campaign while it is back with the wrong memory.
		if n := w.leader("T"); n != victim {
			n.Kill()
			pause(time.Second)
			w.must(n.Start())
		}
		w.progress(60 * time.Second)
		w.restartEnded()
		for _, stream := range []string{"T", "L"} { // it has a vote again
			w.must(w.lead(stream, victim, 90*time.Second))
		}
	}
	w.waitJetStream()
	h.finish()
	w.audit("T")
}
