package delivery

import (
	"strings"
	"time"

	"github.com/heraldmq/herald/topics"
)

// The window of flow control: how many bytes may be on their way to a client. It
// starts small and doubles each time the client says it has caught up.
const (
	windowStart = 2 << 20
	windowMost  = 32 << 20
)

// pushState is what a reader has for a deliver subject. Guarded by the reader's
// mu.
type pushState struct {
	bound   bool // somebody listens
	unwatch func()

	every topics.Nanos // heartbeat; 0: none
	beat  topics.Nanos

	flow        bool
	window      int
	outstanding int // bytes sent and not known to have arrived
	request     string
	requested   int             // bytes outstanding when the request was sent
	through     topics.Sequence // last message before the request

	rate   int64        // bytes per second; 0: no limit
	credit float64      // bytes that may be sent
	filled topics.Nanos // when credit was last filled
}

func (p *pushState) configure(cfg *topics.ConsumerConfig) {
	p.every = topics.Nanos(cfg.Heartbeat)
	p.flow = cfg.FlowControl
	if p.window == 0 {
		p.window = windowStart
	}
	p.rate = int64(cfg.RateLimit / 8)
}

// groupPoll is how often a deliver subject that has listeners, but none of the
// consumer's deliver_group, is looked at.
const groupPoll = 250 * time.Millisecond

// checkInterest finds out whether somebody listens to the deliver subject; with a
// deliver_group it must be a member.
func (r *reader) checkInterest(now topics.Nanos) {
	r.mu.Lock()
	subject, group := r.cfg.DeliverSubject, r.cfg.DeliverGroup
	r.mu.Unlock()
	if subject == "" {
		return
	}
	a := r.e.o.Account(r.topic.account)
	bound := a != nil && a.HasInterest(subject)
	if bound && group != "" {
		if bound = a.QueueInterest(subject, group); !bound {
			// The watch doesn't tell when the group joins those who listen already.
			r.e.clock.set(r, now+topics.Nanos(groupPoll))
		}
	}
	r.mu.Lock()
	p := &r.push
	if bound != p.bound {
		p.bound = bound
		r.active = now
		p.beat = 0
		if bound && p.every > 0 {
			p.beat = now + p.every
		}
		p.outstanding, p.request, p.window = 0, "", windowStart
	}
	r.mu.Unlock()
}

// stalled tells whether the client has as much on the way as it may.
func (p *pushState) stalled() bool { return p.flow && p.outstanding >= p.window }

// allowance returns whether the rate limit lets something through, and when it
// does next.
func (p *pushState) allowance(now topics.Nanos) (ok bool, next topics.Nanos) {
	if p.rate <= 0 {
		return true, 0
	}
	if p.filled == 0 {
		p.filled, p.credit = now, float64(p.rate)/10
	}
	p.credit += float64(p.rate) * time.Duration(now-p.filled).Seconds()
	p.credit = min(p.credit, float64(p.rate)/10)
	p.filled = now
	if p.credit > 0 {
		return true, 0
	}
	wait := topics.Nanos(-p.credit / float64(p.rate) * float64(time.Second))
	return false, now + wait + topics.Nanos(time.Millisecond)
}

// sent notes a message of a size. It returns the subject of a flow control
// request to be sent behind it, "" if none is needed.
func (r *reader) sent(size int, seq topics.Sequence, now topics.Nanos) string {
	p := &r.push
	if p.every > 0 {
		p.beat = now + p.every
	}
	if p.rate > 0 {
		p.credit -= float64(size)
	}
	if !p.flow {
		return ""
	}
	p.outstanding += size
	if p.request != "" || p.outstanding <= p.window/2 {
		return ""
	}
	id := r.e.o.NewID()
	p.request = strings.Join([]string{"$JS.FC", r.topic.name, r.name, id[len(id)-min(len(id), 8):]}, ".")
	p.requested, p.through = p.outstanding, seq
	return p.request
}

// caughtUp notes the answer to a flow control request.
func (p *pushState) caughtUp(subject []byte) (through topics.Sequence, ok bool) {
	if p.request == "" || p.request != string(subject) {
		return 0, false
	}
	p.request = ""
	p.outstanding = max(p.outstanding-p.requested, 0)
	p.window = min(p.window*2, windowMost)
	return p.through, true
}

// pushBeat sends the heartbeat of a push consumer when it is due.
func (r *reader) pushBeat(now topics.Nanos) {
	p := &r.push
	if !p.bound || p.every <= 0 || now < p.beat {
		return
	}
	d := r.c.Delivered()
	r.say(r.cfg.DeliverSubject, idleStatus(d.Consumer, uint64(d.Stream), p.request))
	p.beat = now + p.every
}
