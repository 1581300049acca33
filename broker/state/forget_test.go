package state

import (
	"slices"
	"testing"

	"github.com/heraldmq/herald/topics"
)

func TestConsumersInMemoryDontOutliveTheOnlyNode(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	top := n.create(conf("t", "t"))
	for name, memory := range map[string]bool{"kept": false, "gone": true, "gone2": true} {
		cfg := topics.ConsumerConfig{Name: name, AckPolicy: topics.AckExplicit, DeliverPolicy: topics.DeliverAll, MemoryStorage: memory}
		if _, err := n.CreateConsumer(t.Context(), top, name, cfg); err != nil {
			t.Fatal(err)
		}
	}
	n.close()

	// Until the group is led everything is as it was: what a log entry didn't
	// delete is there on every replica.
	n = openOnly(t, dir)
	top, _ = n.Topic("A", "t")
	if got := top.Data().ConsumerNames(); !slices.Equal(got, []string{"gone", "gone2", "kept"}) {
		t.Fatalf("before it leads: %v", got)
	}
	if err := n.Start(Hooks{}); err != nil {
		t.Fatal(err)
	}
	if got := top.Data().ConsumerNames(); !slices.Equal(got, []string{"kept"}) {
		t.Fatalf("after the start: %v", got)
	}
}
