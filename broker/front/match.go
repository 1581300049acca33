package front

import (
	"strings"
	"unsafe"

	"github.com/heraldmq/herald/topics/interest"
	"github.com/heraldmq/herald/topics/subject"
)

const (
	// matchesMax bounds a matcher's cache; a full one starts anew.
	matchesMax = 4096
	// seenSlots is how many subjects met once are remembered, by hash, to
	// tell those worth caching from those that are used once.
	seenSlots = 1024
)

// match is everything a publisher needs to know to deliver messages of one
// subject: made once from the account's interest, with permissions, echo and
// encodings worked out, and used until the stamp is stale.
type match struct {
	stamp   interest.Stamp
	subject string // of an exact match
	// exact: heads are prebuilt for subject. Otherwise the match is for all
	// subjects with a common prefix, and heads are written per message.
	exact    bool
	mixed    bool // of a prefix: the last token makes a difference
	denied   bool // the publisher may not publish to subject
	several  bool // not just one plain route, or nobody
	plain    []*route
	groups   []group
	remotes  []*remoteStage // peers where somebody listens without a queue
	handlers []*sub
	captures []*TopicInterest
	fan      *fan // the plain routes, when one encoding serves all

	once     bool    // matcher.once, made anew for each subject
	gate     *gateAt // that rule is of
	rule     Rule    // what messages must pass, of an exact match
	counting counting
}

// route is the way from one publisher to one subscription.
type route struct {
	sub     *sub
	stage   *stage // nil for the broker's own subscriptions
	head    []byte // "HMSG subject sid ", of an exact match
	limited bool   // deliveries are counted one by one
	headers bool   // the receiver takes headers
	track   bool   // replies become publishable for the receiver
	n       int    // deliveries in this batch, when not limited
}

// matcher is one publisher's cache of matches in one account.
type matcher struct {
	account *Account
	st      *stager
	sess    *session // whose echo and permissions apply; nil for the broker
	kind    int      // matchAll, …

	last   *match
	exact  map[string]*match
	prefix map[string]*match
	seen   *[seenSlots]uint32
	values []*sub // scratch
	once   match  // of a subject met for the first time; made anew for each
}

func (mt *matcher) init(a *Account, st *stager, s *session) {
	// The maps are made on first use: many connections only listen.
	*mt = matcher{account: a, st: st, sess: s}
}

// reset forgets everything, after a change that stamps can't tell.
func (mt *matcher) reset() {
	mt.last = nil
	clear(mt.exact)
	clear(mt.prefix)
}

// find returns the match of a subject. It is valid until the next call.
func (mt *matcher) find(subj []byte) *match {
	if m := mt.last; m != nil && string(subj) == m.subject && m.stamp.Fresh() {
		return m
	}
	if m := mt.exact[string(subj)]; m != nil && m.stamp.Fresh() {
		mt.last = m
		return m
	}
	if m := mt.byPrefix(subj); m != nil {
		return m
	}
	// A handler that answers may be using the match for subjects met once.
	if !mt.again(subj) && mt.st.depth == 0 {
		return mt.buildOnce(subj)
	}
	m := mt.build(string(subj))
	if mt.exact == nil {
		mt.exact = map[string]*match{}
	} else if len(mt.exact) >= matchesMax {
		clear(mt.exact)
	}
	mt.exact[m.subject] = m
	mt.last = m
	return m
}

// again tells whether the subject was met before, not long ago.
func (mt *matcher) again(subj []byte) bool {
	if mt.seen == nil {
		mt.seen = new([seenSlots]uint32)
	}
	h := uint32(2166136261)
	for _, b := range subj {
		h = (h ^ uint32(b)) * 16777619
	}
	slot := &mt.seen[(h^h>>15)%seenSlots]
	if *slot == h {
		return true
	}
	*slot = h
	return false
}

// byPrefix serves subjects that are used once, like reply inboxes: the match
// for the subject without its last token, when that token makes no difference.
// A subject met again is left to the exact cache.
func (mt *matcher) byPrefix(subj []byte) *match {
	if mt.sess != nil && mt.sess.rules() != nil {
		return nil
	}
	dot := lastDot(subj)
	if dot <= 0 {
		return nil
	}
	m := mt.prefix[string(subj[:dot])]
	if m == nil || !m.stamp.Fresh() {
		if m == nil && !mt.again(subj[:dot]) {
			return nil
		}
		if mt.prefix == nil {
			mt.prefix = map[string]*match{}
		} else if len(mt.prefix) >= matchesMax {
			clear(mt.prefix)
		}
		p := string(subj[:dot])
		m = mt.buildPrefix(p)
		mt.prefix[p] = m
	}
	if m.mixed || !plainToken(subj[dot+1:]) || mt.again(subj) {
		return nil
	}
	return m
}

func lastDot(b []byte) int {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '.' {
			return i
		}
	}
	return -1
}

// plainToken tells whether a last token is an ordinary one.
func plainToken(b []byte) bool {
	return len(b) > 0 && !(len(b) == 1 && (b[0] == '*' || b[0] == '>'))
}

func (mt *matcher) build(s string) *match {
	m := &match{stamp: mt.account.index.Stamp(s), subject: s, exact: true}
	mt.match(m)
	return m
}

// buildOnce is build for a subject that may never come again: nothing is kept,
// so nothing is allocated where only handlers and topics listen.
func (mt *matcher) buildOnce(subj []byte) *match {
	m := &mt.once
	*m = match{
		once:    true,
		subject: unsafe.String(unsafe.SliceData(subj), len(subj)), // for this call only
		plain:   m.plain[:0], groups: m.groups[:0], handlers: m.handlers[:0], captures: m.captures[:0],
		remotes: m.remotes[:0],
	}
	mt.match(m)
	m.subject = ""
	return m
}

func (mt *matcher) match(m *match) {
	m.denied = mt.sess != nil && !mt.sess.rules().Publish(m.subject)
	// A subject with an empty token is nobody's, not even that of "*".
	if !m.denied && !emptyToken(m.subject) {
		mt.values = mt.account.index.Match(m.subject, mt.values[:0])
		mt.fill(m)
	}
}

func emptyToken(s string) bool {
	return s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..")
}

// buildPrefix makes the match of all subjects that are p and one more token.
func (mt *matcher) buildPrefix(p string) *match {
	m := &match{stamp: mt.account.index.Stamp(p)}
	if emptyToken(p) {
		return m
	}
	var ok bool
	if mt.values, ok = mt.account.index.MatchPrefix(p, mt.values[:0]); !ok {
		m.mixed = true
		return m
	}
	for _, u := range mt.values {
		if u.filtered() {
			m.mixed = true
			return m
		}
	}
	mt.fill(m)
	return m
}

// fill sorts the matched values into m.
func (mt *matcher) fill(m *match) {
	var queues map[string]int
	for _, u := range mt.values {
		switch {
		case mt.leavesOut(u) || m.subject != "" && !u.wants(m.subject):
			continue
		case u.topic != nil:
			m.addCapture(u.topic)
			continue
		case u.queue != "":
			i, ok := queues[u.queue]
			if !ok {
				if queues == nil {
					queues = map[string]int{}
				}
				i = len(m.groups)
				queues[u.queue] = i
				m.groups = append(m.groups, group{queue: u.queue})
			}
			mt.addMember(m, &m.groups[i], u)
		case u.handler != nil:
			m.handlers = append(m.handlers, u)
		case u.remote != nil:
			m.addRemote(mt.st.remoteStageFor(u.remote))
		default:
			m.plain = append(m.plain, mt.route(m, u))
		}
	}
	clear(mt.values)
	m.several = len(m.plain) > 1 || len(m.groups) > 0 || len(m.handlers) > 0 || len(m.remotes) > 0
	if len(m.plain) > 1 {
		m.fan = mt.st.fanFor(m.plain)
	}
}

// leavesOut tells whether u gets nothing from this publisher.
func (mt *matcher) leavesOut(u *sub) bool {
	switch {
	case u.closed.Load():
		return true
	case u.sess != nil && u.sess == mt.sess && !mt.sess.connect.Echo:
		return true
	case u.remote != nil && u.remote.gone.Load():
		return true
	case mt.kind == matchHere:
		return u.topic != nil || u.remote != nil || u.local
	case mt.kind == matchServices:
		return u.handler == nil
	case mt.kind == matchAgain:
		return u.topic != nil || u.remote != nil && u.remote.name == mt.st.from
	}
	return false
}

func (m *match) addRemote(g *remoteStage) {
	for _, have := range m.remotes {
		if have == g {
			return
		}
	}
	m.remotes = append(m.remotes, g)
}

func (m *match) addCapture(t *TopicInterest) {
	for _, have := range m.captures {
		if have == t {
			return
		}
	}
	m.captures = append(m.captures, t)
}

func (mt *matcher) route(m *match, u *sub) *route {
	r := &route{sub: u, limited: u.max.Load() > 0}
	if u.sess == nil {
		return r
	}
	r.stage = mt.st.stageFor(u.sess)
	rules := u.sess.rules()
	r.headers = u.sess.headers.Load()
	r.track = rules != nil && rules.ResponsesMax != 0
	if m.exact {
		r.head = appendHead(make([]byte, 0, len(m.subject)+len(u.sid)+7), m.subject, u.sid)
	}
	return r
}

// appendHead appends the longer of the two heads; without its first byte it is
// that of MSG.
func appendHead[S string | []byte](dst []byte, subj S, sid string) []byte {
	dst = append(dst, "HMSG "...)
	dst = append(dst, subj...)
	dst = append(dst, ' ')
	dst = append(dst, sid...)
	return append(dst, ' ')
}

// validPublish tells whether a client in pedantic mode may publish to s
// without being told off.
func validPublish(s string) bool {
	return subject.ValidLiteral(s) && !strings.ContainsRune(s, 0)
}
