package chaos

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// held is what a node says that it holds of a group.
type held struct{ index, digest float64 }

const digestPatience = 40 * time.Second // markers come every ten

// digests waits until the replicas of the groups have told what they hold at the same
// entry, and compares it. At least one group has to be compared: one in which nothing has
// happened since a restart can't be. Only of brokerd.
func (w *world) digests() {
	w.t.Helper()
	if w.target != herald {
		return
	}
	groups, replicas := 0, 0
	var last map[string]map[string]held
	for end := time.Now().Add(digestPatience); ; pause(200 * time.Millisecond) {
		last = map[string]map[string]held{}
		complete := true
		for _, n := range w.Nodes {
			if n.Running() {
				complete = w.said(n, last) && complete
			}
		}
		groups, replicas = w.sameDigests(last)
		if complete && groups > 0 {
			break
		}
		if time.Now().After(end) {
			w.broken("divergence", "no digests of two replicas at the same entry after %s: %v", digestPatience, last)
			return
		}
	}
	w.note("the digests of %d replicas of %d groups were compared", replicas, groups)
}

// said adds what a node says, by group and node; false when it can't be asked.
func (w *world) said(n *harness.Node, all map[string]map[string]held) bool {
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(fmt.Sprintf("http://%s:%d/metrics", n.Host, n.HTTPPort))
	if err != nil {
		return false
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		metric, label, labelled := strings.Cut(name, `{group="`)
		if !ok || !labelled {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		group := strings.TrimSuffix(label, `"}`)
		if all[group] == nil {
			all[group] = map[string]held{}
		}
		h := all[group][n.Name]
		switch metric {
		case "herald_replica_digest_index":
			h.index = v
		case "herald_replica_digest":
			h.digest = v
		case "herald_replica_divergence_total":
			if v > 0 && !w.damages {
				w.broken("divergence", "%s has found that replicas of group %s hold different things %v times", n.Name, group, v)
			}
			continue
		default:
			continue
		}
		all[group][n.Name] = h
	}
	return true
}

// sameDigests compares what was said at the same entries.
func (w *world) sameDigests(all map[string]map[string]held) (groups, replicas int) {
	for group, of := range all {
		at := map[float64]map[string]float64{}
		for node, h := range of {
			if h.index == 0 {
				continue
			}
			if at[h.index] == nil {
				at[h.index] = map[string]float64{}
			}
			at[h.index][node] = h.digest
		}
		for index, digests := range at {
			if len(digests) < 2 {
				continue
			}
			groups++
			replicas += len(digests)
			different := map[float64]bool{}
			for _, d := range digests {
				different[d] = true
			}
			if len(different) > 1 {
				w.broken("divergence", "group %s at entry %v: %v", group, index, digests)
			}
		}
	}
	return groups, replicas
}
