package state

import (
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// What a leader has taken and, since it leads no more, not proposed is handed back:
// what was captured here to this node's forwarder, what others forwarded to them. Only
// plain publishes are: batches (atomic.go, fast.go) end with the lead.

// run is plain publishes of a batch, one after the other, that came the same way.
type run struct {
	from       *sender // nil: they were captured here
	account    *front.Account
	client     bool
	start, end int    // in the batch's buffer
	publish    uint32 // which publish of the entry the first one is
}

// run notes where the publish that was just appended came from.
func (b *batch) run(start int, m *front.Captured, from *sender) {
	if n := len(b.runs); n > 0 {
		if r := &b.runs[n-1]; r.end == start && r.from == from && r.account == m.Account && r.client == (m.Client != nil) {
			r.end = len(b.buf)
			return
		}
	}
	b.runs = append(b.runs, run{from, m.Account, m.Client != nil, start, len(b.buf), b.publishes})
}

// handBack hands back the plain publishes of a batch that was refused for want of the
// lead. Nobody else answers those who wait for them.
func (g *Group) handBack(b *batch) {
	var mine []*parcel
	w := 0
	for i := 0; i < len(b.runs); {
		from := b.runs[i].from
		var parcels []*parcel
		for ; i < len(b.runs) && b.runs[i].from == from; i++ {
			parcels, w = b.handBackRun(&b.runs[i], parcels, w, from != nil)
		}
		if from == nil {
			mine = append(mine, parcels...)
			continue
		}
		for _, p := range parcels { // one: it came as one
			g.s.cl.giveBack(from, p.data)
		}
	}
	if len(mine) > 0 {
		g.forward.handedBack(mine)
	}
}

// handBackRun appends a run to parcels, to a single one if whole says so. w is the
// first wait that may be of it.
func (b *batch) handBackRun(r *run, parcels []*parcel, w int, whole bool) ([]*parcel, int) {
	publish := r.publish
	for at := r.start; at < r.end; publish++ {
		_, body, next, err := topics.NextRecord(b.buf, at)
		if err != nil {
			break // it was written a moment ago
		}
		p, err := topics.ParsePublish(body)
		if err != nil {
			break
		}
		at = next
		m := front.Captured{Topic: p.Topic, Subject: p.Subject, Header: p.Header, Payload: p.Payload, Account: r.account, Mapped: true}
		if r.client {
			m.Client = byClient
		}
		for w < len(b.waits) && b.waits[w].publish < publish {
			w++
		}
		if w < len(b.waits) && b.waits[w].publish == publish {
			wait := &b.waits[w]
			m.Reply = b.replies[wait.reply : wait.reply+wait.length]
			wait.gone = true
		}
		if n := len(parcels); n == 0 || !whole && len(parcels[n-1].data) >= parcelBytes {
			parcels = append(parcels, &parcel{since: time.Now()})
		}
		parcels[len(parcels)-1].append(&m)
	}
	return parcels, w
}
