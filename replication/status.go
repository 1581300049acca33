package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

// report is what a replica says about itself. It is made without asking raft's main
// goroutine, so that a slow disk doesn't delay it.
type report struct {
	group   topics.GroupID
	replica string
	leader  string // node that leads, as far as this one knows
	others  bool   // it knows of a voter on another node
	full    bool   // its disk has no space
	term    uint64
	// The last entry of the log and its term, what is known to be committed, what has
	// been applied.
	last, lastTerm, committed, applied uint64

	// Set by the receiver: when it came, and what the receiver's own log held when it
	// asked.
	at   time.Time
	mine uint64
}

func (r *report) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(r.group))
	for _, s := range []string{r.replica, r.leader} {
		b = append(le.AppendUint16(b, uint16(len(s))), s...)
	}
	flags := byte(0)
	if r.others {
		flags |= 1
	}
	if r.full {
		flags |= 2
	}
	b = append(b, flags)
	for _, v := range []uint64{r.term, r.last, r.lastTerm, r.committed, r.applied} {
		b = le.AppendUint64(b, v)
	}
	return b
}

var errShortReport = errors.New("a report of a replica is cut short")

func parseReports(b []byte) ([]report, error) {
	le := binary.LittleEndian
	var reports []report
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, errShortReport
		}
		r := report{group: topics.GroupID(le.Uint32(b))}
		b = b[4:]
		for _, s := range []*string{&r.replica, &r.leader} {
			if len(b) < 2 || len(b) < 2+int(le.Uint16(b)) {
				return nil, errShortReport
			}
			n := 2 + int(le.Uint16(b))
			*s, b = string(b[2:n]), b[n:]
		}
		if len(b) < 41 {
			return nil, errShortReport
		}
		r.others, r.full, b = b[0]&1 != 0, b[0]&2 != 0, b[1:]
		for _, v := range []*uint64{&r.term, &r.last, &r.lastTerm, &r.committed, &r.applied} {
			*v, b = le.Uint64(b), b[8:]
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// report describes the group here.
func (g *Group) report() report {
	leader, _ := g.Leader()
	// The term last: who asks, to learn whether there is a newer one, must not get
	// an older one than when it asked.
	r := report{group: g.id, replica: g.replica, leader: leader, committed: g.raft.CommitIndex(), applied: g.applied.Load(), full: g.noSpace()}
	r.last, r.lastTerm = g.tip()
	for _, s := range g.servers() {
		r.others = r.others || s.Suffrage == raft.Voter && string(s.ID) != g.replica && string(s.Address) != g.node.name()
	}
	r.term = g.raft.CurrentTerm()
	return r
}

// answerStatus answers with the reports of the groups that are asked for, each four
// bytes, or of all.
func (n *Node) answerStatus(_ context.Context, _ string, body []byte) ([]byte, error) {
	var b []byte
	if len(body) == 0 {
		for _, g := range n.running() {
			r := g.report()
			b = r.append(b)
		}
		return b, nil
	}
	for ; len(body) >= 4; body = body[4:] {
		if g := n.group(topics.GroupID(binary.LittleEndian.Uint32(body))); g != nil {
			r := g.report()
			b = r.append(b)
		}
	}
	return b, nil
}

// reports is the latest of every peer.
type reports struct {
	mu   sync.Mutex
	of   map[string]map[topics.GroupID]report
	seen map[string]time.Time
}

func (r *reports) get(node string, group topics.GroupID) (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep, ok := r.of[node][group]
	return rep, ok
}

func (r *reports) put(node string, all bool, list []report, mine map[topics.GroupID]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of, r.seen = map[string]map[topics.GroupID]report{}, map[string]time.Time{}
	}
	m := r.of[node]
	if m == nil || all {
		m = map[topics.GroupID]report{}
		r.of[node] = m
	}
	now := time.Now()
	for _, rep := range list {
		rep.at, rep.mine = now, mine[rep.group]
		m[rep.group] = rep
	}
	if all {
		r.seen[node] = now
	}
}

// ask fetches the report of one group from a node.
func (n *Node) ask(ctx context.Context, node string, group topics.GroupID) (report, error) {
	mine := map[topics.GroupID]uint64{}
	if g := n.group(group); g != nil {
		mine[group], _ = g.tip()
	}
	b, err := n.links.Call(ctx, node, methodStatus, binary.LittleEndian.AppendUint32(nil, uint32(group)))
	if err != nil {
		return report{}, err
	}
	list, err := parseReports(b)
	if err != nil {
		return report{}, fmt.Errorf("ask %s about group %d: %w", node, group, err)
	}
	if len(list) != 1 || list[0].group != group {
		return report{}, fmt.Errorf("ask %s about group %d: it doesn't run there", node, group)
	}
	n.reports.put(node, false, list, mine)
	list[0].at = time.Now()
	return list[0], nil
}

const (
	surveyEvery = time.Second
	askTimeout  = 2 * time.Second
)

// survey asks the peers about all groups, once a second while this node leads one
// that has other members. It is a goroutine.
func (n *Node) survey() {
	tick := time.NewTicker(surveyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.stop:
			return
		}
		nodes, mine := map[string]bool{}, map[topics.GroupID]uint64{}
		for _, g := range n.running() {
			if _, leads := g.Leader(); !leads {
				continue
			}
			mine[g.id], _ = g.tip()
			for _, s := range g.servers() {
				if node := string(s.Address); node != n.name() && n.links.Online(node) {
					nodes[node] = true
				}
			}
		}
		var asking sync.WaitGroup
		for node := range nodes {
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(n.ctx, askTimeout)
				defer cancel()
				b, err := n.links.Call(ctx, node, methodStatus, nil)
				if err != nil {
					return // it is known by its silence
				}
				if list, err := parseReports(b); err == nil {
					n.reports.put(node, true, list, mine)
				}
			})
		}
		asking.Wait()
	}
}
