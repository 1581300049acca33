package peer

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// beatingLab is a leader a1 and a follower b1 that says yes up to term 8.
func beatingLab(t *testing.T, hung func() bool) (ta *Transport, heartbeats func() int) {
	t.Helper()
	a := open(t, "a")
	b := open(t, "b", a.Addr().String())
	ta, tb := a.Transport(1, "a1"), b.Transport(1, "b1")
	ta.Beat, ta.Hung = 5*time.Millisecond, hung
	_, heartbeats = follower(t, tb)
	a.Start()
	b.Start()
	wait(t, "the connection", func() bool { return a.link("b") != nil && b.link("a") != nil })
	return ta, heartbeats
}

func beat(t *testing.T, ta *Transport, term uint64) (raft.AppendEntriesResponse, error) {
	t.Helper()
	var resp raft.AppendEntriesResponse
	done := make(chan error, 1)
	go func() { done <- ta.AppendEntries("b1", "b", &raft.AppendEntriesRequest{Term: term}, &resp) }()
	select {
	case err := <-done:
		return resp, err
	case <-time.After(20 * time.Second):
		t.Fatal("a heartbeat doesn't end")
		return resp, nil
	}
}

func pipelineOf(t *testing.T, ta *Transport) raft.AppendPipeline {
	t.Helper()
	p, err := ta.AppendEntriesPipeline("b1", "b")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOneHeartbeatOfRaftStandsForSeveral(t *testing.T) {
	ta, heartbeats := beatingLab(t, nil)
	if resp, err := beat(t, ta, 1); err != nil || !resp.Success || heartbeats() != 1 {
		t.Fatal("without a pipeline:", err, resp, heartbeats())
	}
	p := pipelineOf(t, ta)
	defer p.Close()
	if resp, err := beat(t, ta, 1); err != nil || !resp.Success || heartbeats() != 1+beatsOnce {
		t.Fatal("with a pipeline:", err, resp, heartbeats())
	}
	for range beatsOnce - 1 { // of the last raft hears otherwise
		f := <-p.Consumer()
		if r := f.Response(); f.Error() != nil || !r.Success || r.Term != 1 || len(f.Request().Entries) != 0 || time.Since(f.Start()) > time.Minute {
			t.Errorf("raft heard %+v of %+v", r, f.Request())
		}
	}
	if len(p.Consumer()) > 0 {
		t.Error("raft heard of one too many")
	}
	// A no is raft's to judge.
	if resp, err := beat(t, ta, 9); err != nil || resp.Success || heartbeats() != 2+beatsOnce || len(p.Consumer()) > 0 {
		t.Error("with a no:", err, resp, heartbeats())
	}
}

func TestHeartbeatsEndWithThePipeline(t *testing.T) {
	var p raft.AppendPipeline
	ta, heartbeats := beatingLab(t, func() bool { // asked before the second
		_ = p.Close()
		return false
	})
	p = pipelineOf(t, ta)
	if _, err := beat(t, ta, 1); err != nil || heartbeats() != 2 {
		t.Errorf("%v, %d heartbeats", err, heartbeats())
	}
}

func TestHeartbeatsCeaseWhileTheNodeHangs(t *testing.T) {
	ta, heartbeats := beatingLab(t, func() bool { return true })
	p := pipelineOf(t, ta)
	defer p.Close()
	if _, err := beat(t, ta, 1); !errors.Is(err, errHung) || heartbeats() != 1 {
		t.Fatal(err, heartbeats())
	}
	// Of the first that succeeds again raft hears at once.
	if _, err := beat(t, ta, 1); err != nil || heartbeats() != 2 {
		t.Error(err, heartbeats())
	}
}
