package state

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// TestCommandsThatComeTogetherShareEntries makes many topics at once, some of which are
// refused: each is answered for itself, and they take fewer entries than commands.
func TestCommandsThatComeTogetherShareEntries(t *testing.T) {
	s := open(t, t.TempDir())
	before := s.CatalogueStats().Applied
	const many = 200
	errs := make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			cfg := conf(fmt.Sprintf("T%d", i), fmt.Sprintf("s.%d", i))
			if i%10 == 9 {
				cfg.Name, cfg.Description = "same", fmt.Sprint(i) // one of them gets the name
				cfg.Subjects = []string{fmt.Sprintf("x.%d", i)}
			}
			_, _, errs[i] = s.CreateTopic(t.Context(), "A", cfg)
		})
	}
	all.Wait()
	same := 0
	for i, err := range errs {
		switch {
		case i%10 != 9 && err != nil:
			t.Errorf("topic %d: %v", i, err)
		case i%10 == 9 && err == nil:
			same++
		case i%10 == 9 && !errors.Is(err, catalogue.FaultNameInUse):
			t.Errorf("topic %d: %v", i, err)
		}
	}
	if same != 1 {
		t.Errorf("the name was given %d times", same)
	}
	if n := s.CatalogueStats().Applied - before; n >= many {
		t.Errorf("%d entries for %d topics", n, many)
	}
	if err := s.reconcile(); err != nil { // waits for what was left to be noted
		t.Fatal(err)
	}
}

// TestWhatCanNotBeProposedIsRefusedBeforeItIsInTheLog would otherwise end every node.
func TestWhatCanNotBeProposedIsRefusedBeforeItIsInTheLog(t *testing.T) {
	s := open(t, t.TempDir())
	for _, cmd := range []*catalogue.Command{{Op: "topic.rename"}, {Op: catalogue.OpCreateTopic, Account: "A"}, {Op: catalogue.OpPutGroup}} {
		if _, err := s.decide(t.Context(), cmd); !errors.Is(err, topics.ErrBadEntry) {
			t.Errorf("%+v: %v", cmd, err)
		}
	}
}

// TestCommandsEndWithTheState closes while some are on their way, and afterwards.
func TestCommandsEndWithTheState(t *testing.T) {
	s := open(t, t.TempDir())
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			_, err := s.decide(context.Background(), &catalogue.Command{Op: catalogue.OpPutNode, Node: &catalogue.Node{Name: fmt.Sprint(i)}})
			if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknown) {
				t.Error(err)
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if _, err := s.decide(t.Context(), &catalogue.Command{Op: catalogue.OpMark}); !errors.Is(err, ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestACreateThatIsAskedForAgainGivesTheSameConsumer is what a retry does that doesn't
// know whether the first request was carried out.
func TestACreateThatIsAskedForAgainGivesTheSameConsumer(t *testing.T) {
	s := open(t, t.TempDir())
	top := s.create(conf("T", "a"))
	cfg := topics.ConsumerConfig{Durable: "c", Name: "c", AckPolicy: topics.AckExplicit, Metadata: map[string]string{"a": "b", "c": "d"}, FilterSubjects: []string{"a"}}
	first, err := s.CreateConsumer(t.Context(), top, "c", cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.FilterSubjects = []string{"a"}
	if again, err := s.CreateConsumer(t.Context(), top, "c", cfg); err != nil || again != first {
		t.Errorf("again: consumer %d, %v; want %d", again, err, first)
	}
	cfg.AckPolicy = topics.AckNone
	var f *topics.Fault
	if _, err := s.CreateConsumer(t.Context(), top, "c", cfg); !errors.As(err, &f) || f.ErrCode != 10148 {
		t.Errorf("another one of that name: %v", err)
	}
}
