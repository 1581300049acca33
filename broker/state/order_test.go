package state

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// TestOrderHoldsWhileTheLeadMoves publishes from every node, each in order and without
// waiting, while the lead goes round. What was acknowledged must be stored in order,
// and nobody be refused: a lead that is handed over loses nothing.
func TestOrderHoldsWhileTheLeadMoves(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	topic := f.create("a", replicated(3, "T", "t.>"))
	f.notLeading("T")
	rounds := 9
	if testing.Short() {
		rounds = 4
	}
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	var mu sync.Mutex
	acked, refused := map[string]bool{}, map[string]int{}
	for _, on := range f.names() {
		at, _ := f.nodes[on].Topic("A", "T")
		publishing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Microsecond):
				}
				name := fmt.Sprintf("%s/%d", on, i)
				c := make(chan string, 4)
				f.mu.Lock()
				f.acks["_O."+name] = c
				f.mu.Unlock()
				publishing.Go(func() {
					select {
					case a := <-c:
						mu.Lock()
						defer mu.Unlock()
						if strings.Contains(a, `"seq"`) {
							acked[name] = true
						} else {
							refused[strings.TrimSpace(a)]++
						}
					case <-time.After(15 * time.Second):
					}
				})
				at.Group().Capture([]front.Captured{{
					Topic: at.ID(), Subject: []byte("t.x"), Reply: []byte("_O." + name), Payload: []byte(name),
				}})
			}
		})
	}
	for i := range rounds {
		to := f.names()[i%3]
		f.wait(to+" leads", func() (bool, string) {
			err := topic.Group().Transfer(timed(t), to)
			return topic.Group().Leader() == to, fmt.Sprint(err)
		})
	}
	close(stop)
	publishing.Wait()
	f.same("T")
	last := map[string]int{}
	stored := map[string]bool{}
	st := topic.Data().State()
	for seq := st.First; seq <= st.Last; seq++ {
		m, err := topic.Data().Load(seq)
		if err != nil {
			t.Fatal(err)
		}
		name := string(m.Payload)
		if stored[name] {
			t.Errorf("%s is stored twice", name)
		}
		stored[name] = true
		on, number, _ := strings.Cut(name, "/")
		n := 0
		if _, err := fmt.Sscan(number, &n); err != nil {
			t.Fatal(err)
		}
		if acked[name] {
			if n < last[on] {
				t.Errorf("%s is stored behind %d", name, last[on])
			}
			last[on] = max(last[on], n)
		}
	}
	for name := range acked {
		if !stored[name] {
			t.Errorf("%s was acknowledged and is not stored", name)
		}
	}
	if len(refused) > 0 {
		t.Errorf("refused while the lead was handed over: %v", refused)
	}
	t.Logf("%d acknowledged, %d stored, over %d moves", len(acked), len(stored), rounds)
}

// TestWhatWasTakenAndNotProposedComesBack hands a batch back: in order, mapped once,
// with everybody who waits, to where each message came from.
func TestWhatWasTakenAndNotProposedComesBack(t *testing.T) {
	b := &batch{}
	b.reset()
	add := func(payload, reply string, from *sender) {
		p := topics.Publish{Topic: 1, Subject: []byte("s"), Payload: []byte(payload)}
		start := len(b.buf)
		b.buf = topics.AppendPublish(b.buf, &p)
		b.run(start, &front.Captured{}, from)
		if reply != "" {
			b.wait(wait{publish: b.publishes}, []byte(reply))
		}
		b.publishes++
	}
	other := &sender{node: "x"}
	add("1", "r1", nil)
	add("2", "", nil)
	b.buf = topics.AppendRecord(b.buf, topics.RecordLink, []byte{1, 0, 0, 0})
	b.buf = topics.AppendPublish(b.buf, &topics.Publish{Payload: []byte("of a fast batch")})
	b.wait(wait{publish: b.publishes, fast: &fast{}}, []byte("f"))
	b.publishes++
	add("3", "r3", other)
	add("4", "r4", nil)
	if len(b.runs) != 3 {
		t.Fatalf("%d runs", len(b.runs))
	}
	var got []string
	w := 0
	for i := range b.runs {
		var parcels []*parcel
		parcels, w = b.handBackRun(&b.runs[i], nil, w, true)
		c := &cluster{s: &State{}}
		for _, p := range parcels {
			for _, m := range c.open(p.data) {
				got = append(got, string(m.Payload)+":"+string(m.Reply))
				if !m.Mapped {
					t.Errorf("%s would be mapped again", m.Payload)
				}
			}
		}
	}
	if fmt.Sprint(got) != "[1:r1 2: 3:r3 4:r4]" {
		t.Errorf("%v", got)
	}
	for i := range b.waits {
		if w := &b.waits[i]; w.gone == (w.fast != nil) {
			t.Errorf("wait %d: gone %v", i, w.gone)
		}
	}
}
