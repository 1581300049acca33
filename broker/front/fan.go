package front

import "encoding/binary"

const (
	// fanRunMin: when fewer messages than this in a row go to one set of
	// receivers, sharing doesn't pay; it is then left off for fanRest messages.
	fanRunMin = 4
	fanRest   = 4096
)

// fan is a set of subscriptions whose messages are byte for byte the same,
// because all have the same sid: encoded once, queued everywhere.
type fan struct {
	subs    []*sub
	targets []*session
	headers bool // all take headers
	spool   spool
	msgs    int
}

// fanFor returns the set for routes, nil when they can't share. (A session is
// in it once at most: its sids differ.)
func (st *stager) fanFor(routes []*route) *fan {
	if len(routes) > fanTargetsMax {
		return nil
	}
	var space [256]byte
	key, headers := space[:0], true
	for _, r := range routes {
		if r.stage == nil || r.limited || r.track || r.sub.sid != routes[0].sub.sid || r.stage.target == st.self {
			return nil
		}
		if r.headers != routes[0].headers {
			return nil
		}
		headers = headers && r.headers
		key = binary.LittleEndian.AppendUint64(key, r.sub.id)
	}
	if have := st.fans[string(key)]; have != nil {
		return have
	}
	f := &fan{headers: headers}
	for _, r := range routes {
		f.subs = append(f.subs, r.sub)
		f.targets = append(f.targets, r.stage.target)
	}
	if len(st.fans) >= matchesMax {
		clear(st.fans)
	}
	if st.fans == nil {
		st.fans = map[string]*fan{}
	}
	st.fans[string(key)] = f
	return f
}
