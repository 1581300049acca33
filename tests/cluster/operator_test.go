package cluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestOutputsAreHeardLive deploys an operator whose outputs are topics of two groups: who
// listens to their subjects hears each output once at whichever node, and the topics have
// each once.
func TestOutputsAreHeardLive(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	nc := w.connect(w.Nodes...)
	js := w.js(nc)
	w.stream(js, "IN", 3)
	near, far := w.stream(js, "NEAR", 3), w.stream(js, "FAR", 1)
	var live []*nats.Subscription
	for _, n := range w.Nodes {
		c := w.connect(n)
		for _, subject := range []string{"NEAR.>", "FAR.>"} {
			s, err := c.SubscribeSync(subject)
			if err != nil {
				t.Fatal(err)
			}
			live = append(live, s)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	spec := `operator: both
inputs: [{topic: IN}]
steps: [{filter: 'true'}]
outputs: [{topic: NEAR, subject: NEAR.x}, {topic: FAR, subject: FAR.x}]
`
	body, err := json.Marshal(map[string]string{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := nc.Request("$HERALD.OP.DEPLOY", body, patience); err != nil || !strings.Contains(string(m.Data), `"created":true`) {
		t.Fatalf("deploy: %v %s", err, m.Data)
	}
	const count = 20
	for i := range count {
		if _, err := js.Publish(w.within(), "IN.x", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("all outputs in the topics", func() bool {
		a, err := near.Info(w.within())
		b, err2 := far.Info(w.within())
		return err == nil && err2 == nil && a.State.Msgs == count && b.State.Msgs == count
	})
	for _, s := range live {
		for i := range count {
			m, err := s.NextMsg(patience)
			if want := fmt.Sprintf(`{"n":%d}`, i); err != nil || string(m.Data) != want {
				t.Fatalf("%s: heard %v %v, wanted %s", s.Subject, m, err, want)
			}
		}
		if n, _, err := s.Pending(); err != nil || n != 0 {
			t.Errorf("%s: %d more, %v", s.Subject, n, err)
		}
	}
}
