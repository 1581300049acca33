package jetstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
)

// callAbreast asks a node to answer when its replicas have come as far as this one's:
// group u32, index u64, any number of them, little-endian. The answer is empty.
const callAbreast = "js.abreast"

// abreastMax is how many questions are on their way to a node at once; what comes
// meanwhile is asked together.
const abreastMax = 2

// abreastTimeout is how long a node may take; those who wait are gone by then.
const abreastTimeout = 5 * time.Second

// abreast asks other nodes whether they have applied what this one has.
type abreast struct {
	s  *Service
	mu sync.Mutex
	of map[string]*abreastNode
}

type abreastNode struct {
	next    *abreastRound // gathers
	running int
}

type abreastRound struct {
	reach map[topics.GroupID]topics.Index
	done  chan struct{} // closed when the node has come so far, or can't be asked
}

// ask returns what is closed once a node has come as far.
func (a *abreast) ask(node string, reach map[topics.GroupID]topics.Index) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.of[node]
	if n == nil {
		n = &abreastNode{}
		if a.of == nil {
			a.of = map[string]*abreastNode{}
		}
		a.of[node] = n
	}
	if n.next == nil {
		n.next = &abreastRound{reach: map[topics.GroupID]topics.Index{}, done: make(chan struct{})}
	}
	r := n.next
	for g, i := range reach {
		r.reach[g] = max(r.reach[g], i)
	}
	if n.running < abreastMax {
		n.running++
		if !a.s.beside(func() { a.run(node, n) }) {
			n.running--
			n.next = nil
			close(r.done)
		}
	}
	return r.done
}

// run asks a node for as long as somebody waits. It is a goroutine.
func (a *abreast) run(node string, n *abreastNode) {
	for {
		a.mu.Lock()
		r := n.next
		n.next = nil
		if r == nil {
			n.running--
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		ctx, cancel := context.WithTimeout(a.s.ctx, abreastTimeout)
		_, _ = a.s.o.Peers.Call(ctx, node, callAbreast, appendReach(nil, r.reach)) // who is gone is not waited for
		cancel()
		close(r.done)
	}
}

func appendReach(dst []byte, reach map[topics.GroupID]topics.Index) []byte {
	for g, i := range reach {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(g))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(i))
	}
	return dst
}

// onAbreast answers when this node has come as far, or the caller doesn't wait longer.
func (s *Service) onAbreast(ctx context.Context, _ string, body []byte) ([]byte, error) {
	for ; len(body) > 0; body = body[12:] {
		if len(body) < 12 {
			return nil, errors.New("how far to come: the question is cut short")
		}
		g, i := topics.GroupID(binary.LittleEndian.Uint32(body)), topics.Index(binary.LittleEndian.Uint64(body[4:]))
		if err := s.o.Peers.Reach(ctx, g, i); err != nil {
			return nil, fmt.Errorf("come to entry %d of group %d: %w", i, g, err)
		}
	}
	return nil, nil
}

// seen waits until the other nodes know of what was changed about a stream of group g, so
// that what a client publishes behind the answer is captured wherever it is connected: the
// node of the one that asked for it is waited for, the others for a moment. They know once
// they have applied what this node has.
func (s *Service) seen(g topics.GroupID, asker string) {
	if !s.clustered() {
		return
	}
	me := s.o.Peers.Name()
	reach := map[topics.GroupID]topics.Index{
		topics.CatalogueGroup: s.o.Peers.Reached(topics.CatalogueGroup), g: s.o.Peers.Reached(g),
	}
	var first <-chan struct{} // asker's
	var others []<-chan struct{}
	for _, node := range s.o.Peers.Nodes() {
		switch {
		case node == me:
		case node == asker:
			first = s.abreast.ask(node, reach)
		default:
			others = append(others, s.abreast.ask(node, reach))
		}
	}
	moment := time.NewTimer(seenElsewhere)
	defer moment.Stop()
	for _, done := range others {
		select {
		case <-done:
			continue
		case <-moment.C:
		}
		break
	}
	if first == nil {
		return
	}
	patience := time.NewTimer(seenPatience)
	defer patience.Stop()
	select {
	case <-first:
	case <-patience.C:
	}
}
