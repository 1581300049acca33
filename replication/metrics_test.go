package replication

import (
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/topics"
)

func gather(t *testing.T, n *Node) map[string]int {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(n)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.Join(append([]string{f.GetName()}, labels...), " ")
			switch {
			case m.GetHistogram() != nil:
				count[name] = int(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				count[name] = int(m.GetCounter().GetValue())
			default:
				count[name] = int(m.GetGauge().GetValue())
			}
		}
	}
	return count
}

func TestMetricsCountWhatTheGroupsDo(t *testing.T) {
	n, err := Open(Config{Dir: t.TempDir(), NodeID: "n1", CatalogBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	meta, err := n.Start(topics.CatalogueGroup, &list{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := n.Start(1, &list{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, g := range []*Group{meta, data} {
		wg.Go(func() {
			for range 10 {
				if _, _, err := g.Propose([]byte("entry")).Result(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 { // while they work
		gather(t, n)
	}
	wg.Wait()
	got := gather(t, n)
	for name, want := range map[string]int{
		"herald_group_commit_seconds 0": 10, "herald_group_commit_seconds 1": 10,
		"herald_group_entry_bytes 1": 10, "herald_group_entries_total 0": 10, "herald_group_entries_total 1": 10,
		"herald_group_leader 0 n1": 1, "herald_group_leader 1 n1": 1,
	} {
		if got[name] != want {
			t.Errorf("%s = %d, want %d", name, got[name], want)
		}
	}
	for _, name := range []string{"herald_log_sync_seconds", "herald_log_batch_bytes", "herald_log_batch_entries", "herald_catalogue_append_seconds"} {
		if got[name] < 10 {
			t.Errorf("%s counts %d, want at least 10", name, got[name])
		}
	}
	if _, ok := got["herald_group_snapshot_age_seconds 1"]; ok {
		t.Error("a group without a snapshot tells its age")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	gather(t, n)
}
