package state

import "time"

// pace tells a queue when to hold a batch back although nothing is in flight.
//
// A publisher that keeps a window of messages unacknowledged publishes again when
// its acks come, and is read in pieces: of a window of 500 the first 380, say.
// Proposed at once, as they must be when all is quiet, they leave the others
// behind, and the two parts would alternate from then on, each with a write to
// disk of its own. So what is open when a batch comes back waits for those who
// have just been acknowledged, but no longer than that batch was under way.
//
// Those who publish at their own rate, or wait for something else before they go
// on, don't come in that time. After each batch held back in vain, twice as many
// are not.
type pace struct {
	began  time.Time // when a batch was proposed last
	flying int       // publishers in flight who wait for a PubAck
	expect int       // how many are to be in the open batch; 0 when it is not held back
	skip   int       // batches not to be held back
	misses int       // batches held back in vain, less those that weren't
}

const (
	holdMax   = time.Millisecond // however long a batch was under way
	missesMax = 6

	// holdPart is which part of a batch's cap is enough for it not to be held back: what an
	// entry costs, whatever is in it, is little for so many, and waiting costs as much.
	holdPart = 4
)

// returned takes note that a batch came back, in which some waited for a PubAck
// and after which some are open, and tells how long to hold those back.
func (p *pace) returned(waits, open int) time.Duration {
	before := p.flying + open
	p.flying -= waits
	switch {
	case open == 0 || open >= before:
		return 0
	case p.skip > 0:
		p.skip--
		return 0
	}
	d := min(time.Since(p.began), holdMax)
	if d > 0 {
		p.expect = before
	}
	return d
}

// holds tells whether an open batch with some waiting publishers is held back.
func (p *pace) holds(waits int) bool { return waits < p.expect }

// proposed takes note that a batch with some waiting publishers goes out.
func (p *pace) proposed(waits int) {
	if p.expect > 0 && waits >= p.expect {
		p.misses = max(p.misses-1, 0)
	}
	p.expect = 0
	p.flying += waits
	p.began = time.Now()
}

// missed takes note that those who were waited for did not come.
func (p *pace) missed() {
	p.expect = 0
	p.misses = min(p.misses+1, missesMax)
	p.skip = 1<<p.misses - 1
}
