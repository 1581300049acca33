package monitor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/subject"
)

// ConnzOptions says which connections to show and how. The JSON form is that of
// $SYS requests.
type ConnzOptions struct {
	Sort                string    `json:"sort"`
	Username            bool      `json:"auth"`
	Subscriptions       bool      `json:"subscriptions"`
	SubscriptionsDetail bool      `json:"subscriptions_detail"`
	Offset              int       `json:"offset"`
	Limit               int       `json:"limit"`
	CID                 uint64    `json:"cid"`
	MQTTClient          string    `json:"mqtt_client"`
	State               ConnState `json:"state"`
	User                string    `json:"user"`
	Account             string    `json:"acc"`
	FilterSubject       string    `json:"filter_subject"`
}

// ConnState is open (0), closed (1) or any (2).
type ConnState int

// UnmarshalJSON takes the number or the word.
func (s *ConnState) UnmarshalJSON(b []byte) error {
	var n int
	if err := json.Unmarshal(b, &n); err == nil && n >= 0 && n <= 2 {
		*s = ConnState(n)
		return nil
	}
	var w string
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("state wants open, closed or any")
	}
	v, err := parseConnState(w)
	*s = v
	return err
}

func parseConnState(w string) (ConnState, error) {
	switch strings.ToLower(w) {
	case "", "open":
		return ConnState(front.ConnOpen), nil
	case "closed":
		return ConnState(front.ConnClosed), nil
	case "any", "all":
		return ConnState(front.ConnAny), nil
	}
	return 0, fmt.Errorf("error decoding state for %s", w)
}

// Connz is the page of connections.
type Connz struct {
	ID             string     `json:"server_id"`
	Now            time.Time  `json:"now"`
	NumConnections int        `json:"num_connections"`
	Total          int        `json:"total"`
	Offset         int        `json:"offset"`
	Limit          int        `json:"limit"`
	Connections    []ConnInfo `json:"connections"`
}

// ConnInfo is one connection.
type ConnInfo struct {
	CID            uint64      `json:"cid"`
	Kind           string      `json:"kind,omitempty"`
	Type           string      `json:"type,omitempty"`
	IP             string      `json:"ip"`
	Port           int         `json:"port"`
	Start          time.Time   `json:"start"`
	LastActivity   time.Time   `json:"last_activity"`
	Stop           *time.Time  `json:"stop,omitempty"`
	Reason         string      `json:"reason,omitempty"`
	RTT            string      `json:"rtt,omitempty"`
	Uptime         string      `json:"uptime"`
	Idle           string      `json:"idle"`
	Pending        int64       `json:"pending_bytes"`
	InMsgs         int64       `json:"in_msgs"`
	OutMsgs        int64       `json:"out_msgs"`
	InBytes        int64       `json:"in_bytes"`
	OutBytes       int64       `json:"out_bytes"`
	Stalls         int64       `json:"stalls,omitempty"`
	NumSubs        int         `json:"subscriptions"`
	Name           string      `json:"name,omitempty"`
	Lang           string      `json:"lang,omitempty"`
	Version        string      `json:"version,omitempty"`
	TLSVersion     string      `json:"tls_version,omitempty"`
	TLSCipher      string      `json:"tls_cipher_suite,omitempty"`
	TLSFirst       bool        `json:"tls_first,omitempty"`
	AuthorizedUser string      `json:"authorized_user,omitempty"`
	Account        string      `json:"account,omitempty"`
	Subs           []string    `json:"subscriptions_list,omitempty"`
	SubsDetail     []SubDetail `json:"subscriptions_list_detail,omitempty"`
}

// SubDetail is one subscription.
type SubDetail struct {
	Account string `json:"account,omitempty"`
	Subject string `json:"subject"`
	Queue   string `json:"qgroup,omitempty"`
	SID     string `json:"sid"`
	Msgs    int64  `json:"msgs"`
	Max     int64  `json:"max,omitempty"`
	CID     uint64 `json:"cid"`
}

// byStop are the orders that only closed connections have.
var byStop = []string{"stop", "reason"}

// connOrders are the orders of connections; all but cid, start, lang and reason
// put the largest first.
var connOrders = map[string]func(a, b *front.ConnInfo) int{
	"cid":        func(a, b *front.ConnInfo) int { return cmp.Compare(a.ID, b.ID) },
	"start":      func(a, b *front.ConnInfo) int { return a.Start.Compare(b.Start) },
	"subs":       func(a, b *front.ConnInfo) int { return cmp.Compare(b.Subscriptions, a.Subscriptions) },
	"pending":    func(a, b *front.ConnInfo) int { return cmp.Compare(b.PendingBytes, a.PendingBytes) },
	"msgs_to":    func(a, b *front.ConnInfo) int { return cmp.Compare(b.OutMsgs, a.OutMsgs) },
	"msgs_from":  func(a, b *front.ConnInfo) int { return cmp.Compare(b.InMsgs, a.InMsgs) },
	"bytes_to":   func(a, b *front.ConnInfo) int { return cmp.Compare(b.OutBytes, a.OutBytes) },
	"bytes_from": func(a, b *front.ConnInfo) int { return cmp.Compare(b.InBytes, a.InBytes) },
	"last":       func(a, b *front.ConnInfo) int { return b.LastActivity.Compare(a.LastActivity) },
	"idle":       func(a, b *front.ConnInfo) int { return a.LastActivity.Compare(b.LastActivity) },
	"uptime":     func(a, b *front.ConnInfo) int { return a.Start.Compare(b.Start) },
	"stop":       func(a, b *front.ConnInfo) int { return b.Stop.Compare(a.Stop) },
	"reason":     func(a, b *front.ConnInfo) int { return cmp.Compare(a.Reason, b.Reason) },
	"rtt":        func(a, b *front.ConnInfo) int { return cmp.Compare(b.RTT, a.RTT) },
}

// Connz makes the page of connections. The error is for the asker.
func (m *Monitor) Connz(o ConnzOptions) (*Connz, error) {
	o.Sort = cmp.Or(o.Sort, "cid")
	order := connOrders[o.Sort]
	if order == nil {
		return nil, fmt.Errorf("invalid sorting option: %s", o.Sort)
	}
	if slices.Contains(byStop, o.Sort) && o.State != ConnState(front.ConnClosed) {
		return nil, fmt.Errorf("sort by %s only valid on closed connections", o.Sort)
	}
	if o.FilterSubject != "" && !subject.Valid(o.FilterSubject) {
		return nil, fmt.Errorf("filter_subject %q is not a subject", o.FilterSubject)
	}
	subs := o.Subscriptions || o.SubscriptionsDetail
	list := m.s.Front.Connections(front.ConnState(o.State), subs || o.FilterSubject != "")
	list = slices.DeleteFunc(list, func(c front.ConnInfo) bool {
		return o.CID != 0 && c.ID != o.CID ||
			o.User != "" && c.AuthorizedUser != o.User ||
			o.Account != "" && c.Account != o.Account ||
			o.MQTTClient != "" ||
			o.FilterSubject != "" && !slices.ContainsFunc(c.Subs, func(s front.SubInfo) bool { return subject.Covers(s.Subject, o.FilterSubject) })
	})
	slices.SortStableFunc(list, func(a, b front.ConnInfo) int { return cmp.Or(order(&a, &b), cmp.Compare(a.ID, b.ID)) })
	now := time.Now()
	from, to, limit := page(o.Offset, o.Limit, connzLimit, len(list))
	z := &Connz{
		ID: m.s.ServerID, Now: now.UTC(), Total: len(list), Offset: max(o.Offset, 0), Limit: limit,
		NumConnections: to - from, Connections: make([]ConnInfo, 0, to-from),
	}
	for i := range list[from:to] {
		z.Connections = append(z.Connections, showConn(&list[from+i], now, o))
	}
	return z, nil
}

// showConn turns a connection into a line of the page.
func showConn(c *front.ConnInfo, now time.Time, o ConnzOptions) ConnInfo {
	v := ConnInfo{
		CID: c.ID, Kind: c.Kind, Type: c.Type, IP: c.IP, Port: c.Port,
		Start: c.Start.UTC(), LastActivity: c.LastActivity.UTC(), Reason: string(c.Reason),
		Pending: c.PendingBytes, InMsgs: c.InMsgs, OutMsgs: c.OutMsgs, InBytes: c.InBytes, OutBytes: c.OutBytes,
		Stalls: c.Stalls, NumSubs: c.Subscriptions, Name: c.Name, Lang: c.Lang, Version: c.Version,
		TLSVersion: c.TLSVersion, TLSCipher: c.TLSCipherSuite, TLSFirst: c.TLSFirst,
	}
	end := now
	if !c.Stop.IsZero() {
		stop := c.Stop.UTC()
		v.Stop, end = &stop, c.Stop
	}
	v.Uptime, v.Idle = Uptime(end.Sub(c.Start)), Uptime(end.Sub(c.LastActivity))
	if c.RTT > 0 {
		v.RTT = c.RTT.String()
	}
	if o.Username || o.User != "" || o.Account != "" {
		v.AuthorizedUser = c.AuthorizedUser
		v.Account = c.Account
	}
	for _, s := range c.Subs {
		switch {
		case o.SubscriptionsDetail:
			v.SubsDetail = append(v.SubsDetail, showSub(s))
		case o.Subscriptions:
			v.Subs = append(v.Subs, s.Subject)
		}
	}
	return v
}

func showSub(s front.SubInfo) SubDetail {
	return SubDetail{Account: s.Account, Subject: s.Subject, Queue: s.Queue, SID: s.SID, Msgs: s.Msgs, Max: s.Max, CID: s.CID}
}
