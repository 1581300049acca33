package chaos

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/tests/harness"
)

// status is the part of $HERALD.CLUSTER.STATUS that is looked at here.
type status struct {
	Healthy bool     `json:"healthy"`
	Advice  []string `json:"advice"`
	Nodes   []struct {
		Name   string `json:"name"`
		State  string `json:"state"`
		Online bool   `json:"online"`
		Groups int    `json:"groups"`
	} `json:"nodes"`
	Groups []struct {
		ID      int    `json:"id"`
		Leader  string `json:"leader"`
		Members []struct {
			Node    string `json:"node"`
			Replica string `json:"replica"`
			Voter   bool   `json:"voter"`
			Online  bool   `json:"online"`
			Lag     uint64 `json:"lag"`
		} `json:"members"`
	} `json:"groups"`
}

// state returns a node's state, "" if it isn't known.
func (s status) state(name string) string {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n.State
		}
	}
	return ""
}

// replicas returns the replicas that a node has and that vote and are close behind, by
// group.
func (s status) replicas(name string) map[int]string {
	of := map[int]string{}
	for _, g := range s.Groups {
		for _, m := range g.Members {
			if m.Node == name && m.Voter && m.Online && m.Lag < 100 {
				of[g.ID] = m.Replica
			}
		}
	}
	return of
}

// clusterAsk sends a request about the cluster and decodes the answer.
func clusterAsk(nc *nats.Conn, verb string, body map[string]any, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	m, err := nc.Request("$HERALD.CLUSTER."+verb, text, 20*time.Second)
	if err != nil {
		return err
	}
	var r struct {
		Error *struct {
			Code int    `json:"code"`
			Text string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return err
	}
	if r.Error != nil {
		return fmt.Errorf("%s: %d %s", verb, r.Error.Code, r.Error.Text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(m.Data, answer)
}

// until asks for the cluster's state until it is as wanted.
func (w *world) until(what string, patience time.Duration, ok func(status) bool) bool {
	w.t.Helper()
	nc := w.connect("until")
	defer nc.Close()
	var last status
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause(100 * time.Millisecond) {
		var s status
		if err = clusterAsk(nc, "STATUS", nil, &s); err == nil {
			if last = s; ok(s) {
				return true
			}
		}
	}
	w.broken("members", "not %s after %s: %v; nodes %v; advice %v", what, patience, err, last.Nodes, last.Advice)
	return false
}

// change asks for a change of the cluster until it is accepted.
func (w *world) change(verb string, body map[string]any, patience time.Duration) {
	w.t.Helper()
	nc := w.connect("change")
	defer nc.Close()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause(200 * time.Millisecond) {
		if err = clusterAsk(nc, verb, body, nil); err == nil {
			return
		}
	}
	w.broken("members", "%s %v: %v", verb, body, err)
}

// Test17Members replaces one node after the other under load: a fresh node
// joins, an old one is drained and removed, while others are killed or cut off.
// Nothing is lost, and a removed node can't disturb the rest.
func Test17Members(t *testing.T) {
	w := begin(t, 17, harness.ClusterOptions{})
	if w.target != herald {
		t.Skip("SKIPPED: membership is asked for by $HERALD.CLUSTER.>")
	}
	w.create("T", 3, nil)
	w.load("T")
	for round := range pick(1, 6) {
		fresh, err := w.Add()
		w.must(err)
		w.must(fresh.Start())
		if !w.until(fresh.Name+" active", time.Minute, func(s status) bool { return s.state(fresh.Name) == "active" }) {
			break
		}
		w.progress(30 * time.Second)
		old := w.shuffled(w.others(fresh))[0]
		w.note("%s joined, %s is drained", fresh.Name, old.Name)
		w.change("DRAIN", map[string]any{"node": old.Name}, time.Minute)
		w.disturb(round, w.shuffled(w.others(old, fresh))[0])
		drained := w.until(old.Name+" drained", 3*time.Minute, func(s status) bool { return s.state(old.Name) == "drained" })
		w.progress(30 * time.Second)
		if !drained {
			break
		}
		running := w.rng.IntN(2) == 0
		if !running {
			old.Kill()
		}
		w.change("REMOVE", map[string]any{"node": old.Name, "force": running}, time.Minute)
		w.until(old.Name+" removed", time.Minute, func(s status) bool { return s.state(old.Name) == "removed" || s.state(old.Name) == "" })
		if !running {
			w.must(old.Start()) // it comes back and was not told
		}
		pause(pick(2*time.Second, 15*time.Second))
		w.progress(30 * time.Second)
		old.Kill()
		w.Forget(old)
	}
	w.figure("%d nodes replaced", pick(1, 6))
	w.audit("T")
}

// disturb kills a node or cuts it off for a while.
func (w *world) disturb(round int, n *harness.Node) {
	if round%2 == 0 || w.CanCut() != nil {
		n.Kill()
		pause(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		w.must(n.Start())
		return
	}
	w.must(w.Allow(func(a, b *harness.Node) bool { return a != n && b != n }))
	pause(time.Duration(500+w.rng.IntN(3000)) * time.Millisecond)
	w.must(w.Heal())
}

// Test17Replicas changes how many replicas a stream has, 3 to 1 to 3, under load.
func Test17Replicas(t *testing.T) {
	w := begin(t, 17, harness.ClusterOptions{})
	w.create("T", 3, nil)
	w.load("T")
	nc := w.connect("update")
	for range pick(1, 5) {
		for _, replicas := range []int{1, 3} {
			w.progress(30 * time.Second)
			cfg := map[string]any{
				"name": "T", "subjects": []string{"t.>"}, "retention": "limits", "storage": "file", "num_replicas": replicas,
				"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1, "discard": "old", "duplicate_window": 10 * time.Minute,
			}
			if err := w.ask(nc, 30*time.Second, "STREAM.UPDATE.T", cfg, nil); err != nil {
				w.note("replicas to %d: %v", replicas, err)
				w.figure("refused: %v", err)
				w.audit("T")
				return
			}
			if replicas == 3 {
				for _, n := range w.Nodes {
					w.must(w.lead("T", n, time.Minute))
				}
			}
		}
	}
	w.audit("T")
}
