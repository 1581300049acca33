package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/topics"
)

// A cluster forms once: exactly one of the first nodes begins group 0, and everybody
// else joins it. Nodes start in any order, may not know all others yet, and may have
// lost their disk and be fresh again where the others are not.
//
// A fresh node waits for all its routes. Then whoever has the smallest name of the
// fresh ones asks the others to let it found; each promises that to one at a time, and
// while it has promised it does not found itself.

// formState is where a node stands.
type formState int

const (
	formUnknown formState = iota // it doesn't know yet
	formFresh                    // it has nothing, and waits
	formDone                     // it has a group 0, or is a member of one
)

const formStatus = "replication.form" // key of the network's status

// formGrace is how long a fresh node without routes waits for others to dial it:
// it may have been one that others were told of, and have lost its disk.
const formGrace = 3 * time.Second

// forming is a node's part in the formation of the cluster.
type forming struct {
	name  string
	kicks chan struct{}

	mu       sync.Mutex
	state    formState
	asking   bool   // it asks the others to let it found
	promised string // whom it lets found
	until    time.Time
}

// A promise outlasts the time in which it can be used.
const (
	formAsk     = 3 * time.Second
	formPromise = 6 * time.Second
)

type formRequest struct{ Release bool }

type formAnswer struct {
	Formed bool
	Yes    bool
}

func (f *forming) kick() { signal(f.kicks) }

// answer tells whether the node that asks may found.
func (f *forming) answer(_ context.Context, from string, body []byte) ([]byte, error) {
	var req formRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("read what %s asks: %w", from, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var a formAnswer
	switch {
	case req.Release:
		if f.promised == from {
			f.promised = ""
		}
	case f.state == formDone:
		a.Formed = true
	case f.state == formUnknown:
	case from > f.name: // it doesn't know this node yet, or not that it is fresh
	case f.promised == "" || f.promised == from || time.Now().After(f.until):
		f.asking = false
		f.promised, f.until = from, time.Now().Add(formPromise)
		a.Yes = true
	}
	return json.Marshal(a)
}

// formPeer is what is known of a peer.
type formPeer struct {
	name  string
	state formState
}

// formStep is what a fresh node does next.
type formStep int

const (
	formWait  formStep = iota
	formJoin           // somebody has formed: wait to be joined
	formFound          // ask the others to let it found
)

// formDecide is the rule: see the comment at the top. pending is how many routes have
// not answered.
func formDecide(self string, promised string, pending int, peers []formPeer, alone bool) (step formStep, fresh int) {
	fresh = 1
	smallest, unknown := true, false
	for _, p := range peers {
		switch p.state {
		case formDone:
			return formJoin, 0
		case formFresh:
			fresh++
			smallest = smallest && self < p.name
		default:
			unknown = true
		}
	}
	switch {
	case pending > 0 || unknown || !smallest || promised != "":
		return formWait, fresh
	case alone && len(peers) == 0: // without routes, and before the time of grace is over
		return formWait, fresh
	}
	return formFound, fresh
}

// formNet is what forming uses of the network.
type formNet interface {
	tell(state formState)
	peers() (peers []formPeer, pending, routes int)
	ask(ctx context.Context, node string, r formRequest) (formAnswer, error)
}

// Form settles, on a started network, who begins the cluster. It returns when this node
// shall found group 0 (StartOptions.Found), and then with how many fresh nodes there
// were, itself included; or when it has a group 0 already, or when another node has
// one, which will let this one join.
func Form(ctx context.Context, n *Node, net *peer.Network) (found bool, expected int, err error) {
	return n.form(ctx, formNetwork{net}, formGrace)
}

func (n *Node) form(ctx context.Context, net formNet, grace time.Duration) (bool, int, error) {
	f := &n.forming
	fresh, err := n.isFresh()
	if err != nil {
		return false, 0, err
	}
	if !fresh {
		f.set(formDone)
		net.tell(formDone)
		return false, 0, nil
	}
	f.set(formFresh)
	net.tell(formFresh)
	over := time.Now().Add(grace)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		peers, pending, routes := net.peers()
		f.forget(peers)
		f.mu.Lock()
		promised := f.promised
		f.mu.Unlock()
		switch step, fresh := formDecide(f.name, promised, pending, peers, routes == 0 && time.Now().Before(over)); step {
		case formJoin:
			return false, 0, nil
		case formFound:
			if f.askAll(ctx, net, peers) {
				return true, fresh, nil
			}
		}
		select {
		case <-tick.C:
		case <-f.kicks:
		case <-ctx.Done():
			return false, 0, fmt.Errorf("form the cluster: %w", ctx.Err())
		}
	}
}

// askAll asks all others to let this node found, and tells whether they do.
func (f *forming) askAll(ctx context.Context, net formNet, peers []formPeer) bool {
	f.mu.Lock()
	if f.promised != "" {
		f.mu.Unlock()
		return false
	}
	f.asking = true
	f.mu.Unlock()
	all := true
	asked, cancel := context.WithTimeout(ctx, formAsk)
	defer cancel()
	for _, p := range peers {
		if a, err := net.ask(asked, p.name, formRequest{}); err != nil || !a.Yes {
			all = false
			break
		}
	}
	now, _, _ := net.peers()
	same := slices.EqualFunc(peers, now, func(a, b formPeer) bool { return a == b })
	f.mu.Lock()
	won := all && same && f.asking && f.promised == "" && asked.Err() == nil
	f.asking = false
	if won {
		f.state = formDone
	}
	f.mu.Unlock()
	if won {
		net.tell(formDone)
		return true
	}
	for _, p := range peers {
		_, _ = net.ask(ctx, p.name, formRequest{Release: true}) // who isn't reached forgets it when the connection ends
	}
	return false
}

func (f *forming) set(s formState) {
	f.mu.Lock()
	f.state = s
	f.mu.Unlock()
}

// formed notes, and tells the others, that this node has been let into the cluster: a
// fresh one that meets it joins, whoever else is there.
func (n *Node) formed() {
	f := &n.forming
	f.mu.Lock()
	before := f.state
	f.state = formDone
	f.mu.Unlock()
	if before != formDone && n.cfg.Network != nil {
		formNetwork{n.cfg.Network}.tell(formDone)
	}
}

// forget takes back a promise to a node that has gone.
func (f *forming) forget(peers []formPeer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().After(f.until) || !slices.ContainsFunc(peers, func(p formPeer) bool { return p.name == f.promised }) {
		f.promised = ""
	}
}

// isFresh tells whether this node never took part in group 0. A replica that has only
// been started, and waits to be joined, hasn't.
func (n *Node) isFresh() (bool, error) {
	dir := filepath.Join(n.cfg.Dir, "stable")
	files, err := n.cfg.FS.List(dir)
	if err != nil {
		return false, fmt.Errorf("look for group 0: %w", err)
	}
	if !slices.Contains(files, fmt.Sprint(topics.CatalogueGroup)) {
		return true, nil
	}
	votes, err := stable.Open(n.cfg.FS, dir, n.cfg.NodeID, uint32(topics.CatalogueGroup), "")
	var damaged *stable.MayNotVoteError
	if errors.As(err, &damaged) {
		return false, nil // it did
	}
	if err != nil {
		return false, fmt.Errorf("look for group 0: %w", err)
	}
	_, err = votes.GetUint64([]byte("CurrentTerm"))
	return err != nil, votes.Close()
}

// formNetwork is the formNet of a real network.
type formNetwork struct{ *peer.Network }

func (n formNetwork) tell(s formState) { n.SetStatus(formStatus, []byte{byte(s)}) }

func (n formNetwork) peers() (peers []formPeer, pending, routes int) {
	for _, p := range n.Peers() {
		s := formUnknown
		if b := p.Status[formStatus]; len(b) == 1 {
			s = formState(b[0])
		}
		peers = append(peers, formPeer{p.Name, s})
	}
	for _, r := range n.Network.Routes() {
		if r.Self {
			continue
		}
		routes++
		if !r.Connected {
			pending++
		}
	}
	return peers, pending, routes
}

func (n formNetwork) ask(ctx context.Context, node string, r formRequest) (a formAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	b, err := n.Call(ctx, node, methodForm, body)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}
