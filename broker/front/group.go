package front

import "math/rand/v2"

// group is a queue group: its members here, and how many there are elsewhere.
type group struct {
	queue string
	here  []*route
	there []farMembers
	far   int
}

// farMembers are those on one peer.
type farMembers struct {
	stage  *remoteStage
	weight int
}

func (mt *matcher) addMember(m *match, g *group, u *sub) {
	if u.remote == nil {
		g.here = append(g.here, mt.route(m, u))
		return
	}
	stage, weight := mt.st.remoteStageFor(u.remote), int(u.weight.Load())
	g.far += weight
	for i := range g.there {
		if g.there[i].stage == stage {
			g.there[i].weight += weight // by another pattern
			return
		}
	}
	g.there = append(g.there, farMembers{stage, weight})
}

// member gives o to one member of a queue group: a random one of all nodes, or the
// next that takes it.
func (st *stager) member(m *match, g *group, o *outgoing) bool {
	start, far := 0, 0
	if total := len(g.here) + g.far; total > 1 {
		start = rand.IntN(total)
	}
	if start >= len(g.here) && g.far > 0 {
		far = start - len(g.here)
		if st.memberThere(g, far) {
			return true
		}
		start = 0
	}
	for i := range g.here {
		r := g.here[(start+i)%len(g.here)]
		if r.sub.handler != nil {
			st.handle(r.sub, o)
			return true
		}
		if r.stage.target.ended.Load() {
			continue
		}
		if o.Tail == nil {
			st.writeTail(o)
		}
		if st.fan != nil {
			st.leaveFan()
		}
		if st.one(m, r, o) {
			return true
		}
	}
	return st.memberThere(g, far)
}

// memberThere picks the peer that has the n-th of the members elsewhere, or the
// next that is still there.
func (st *stager) memberThere(g *group, n int) bool {
	if g.far == 0 {
		return false
	}
	at := 0
	for at < len(g.there)-1 && n >= g.there[at].weight {
		n -= g.there[at].weight
		at++
	}
	for i := range g.there {
		r := &g.there[(at+i)%len(g.there)]
		if !r.stage.target.gone.Load() {
			st.picks = append(st.picks, pick{r.stage, g.queue})
			return true
		}
	}
	return false
}
