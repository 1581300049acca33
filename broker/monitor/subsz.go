package monitor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/subject"
)

// SubszOptions says which subscriptions to show.
type SubszOptions struct {
	Offset        int    `json:"offset"`
	Limit         int    `json:"limit"`
	Subscriptions bool   `json:"subscriptions"`
	Account       string `json:"account,omitempty"`
	Test          string `json:"test,omitempty"` // only those a message on this subject would reach
}

// Subsz is the page of the interest index.
type Subsz struct {
	ID            string      `json:"server_id"`
	Now           time.Time   `json:"now"`
	Subscriptions int         `json:"num_subscriptions"`
	CacheEntries  int         `json:"num_cache"`
	Inserts       uint64      `json:"num_inserts"`
	Removes       uint64      `json:"num_removes"`
	Matches       uint64      `json:"num_matches"`
	CacheHitRate  float64     `json:"cache_hit_rate"`
	MaxFanout     int         `json:"max_fanout"`
	AvgFanout     float64     `json:"avg_fanout"`
	Total         int         `json:"total"`
	Offset        int         `json:"offset"`
	Limit         int         `json:"limit"`
	Subs          []SubDetail `json:"subscriptions_list,omitempty"`
}

// Subsz makes the page of subscriptions. The error is for the asker.
func (m *Monitor) Subsz(o SubszOptions) (*Subsz, error) {
	if o.Test != "" && !subject.ValidLiteral(o.Test) {
		return nil, fmt.Errorf("invalid test subject, must be valid publish subject: %s", o.Test)
	}
	st := m.s.Front.SubsStats()
	z := &Subsz{
		ID: m.s.ServerID, Now: time.Now().UTC(),
		Subscriptions: st.Subscriptions, CacheEntries: st.CacheEntries, Inserts: st.Inserts, Removes: st.Removes,
		Matches: st.Matches, MaxFanout: st.MaxFanout, AvgFanout: st.AvgFanout,
		Offset: max(o.Offset, 0),
	}
	if st.Matches > 0 {
		z.CacheHitRate = float64(st.CacheHits) / float64(st.Matches)
	}
	_, _, z.Limit = page(0, o.Limit, subszLimit, 0)
	if !o.Subscriptions && o.Test == "" {
		return z, nil
	}
	var list []SubDetail
	m.s.Front.Subscriptions(func(s front.SubInfo) bool {
		if (o.Account == "" || s.Account == o.Account) && (o.Test == "" || subject.Match(s.Subject, o.Test)) {
			list = append(list, showSub(s))
		}
		return true
	})
	slices.SortFunc(list, func(a, b SubDetail) int { return cmp.Or(cmp.Compare(a.CID, b.CID), cmp.Compare(a.SID, b.SID)) })
	from, to, _ := page(o.Offset, o.Limit, subszLimit, len(list))
	z.Total, z.Subs = len(list), list[from:to]
	return z, nil
}
