package monitor

import (
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// AccountzOptions names the account to describe; "" lists them.
type AccountzOptions struct {
	Account string `json:"account"`
}

// Accountz is the page of accounts.
type Accountz struct {
	ID            string       `json:"server_id"`
	Now           time.Time    `json:"now"`
	SystemAccount string       `json:"system_account,omitempty"`
	Accounts      []string     `json:"accounts,omitempty"`
	Account       *AccountInfo `json:"account_detail,omitempty"`
}

// AccountInfo describes one account.
type AccountInfo struct {
	Name        string    `json:"account_name"`
	LastUpdate  time.Time `json:"update_time"`
	IsSystem    bool      `json:"is_system,omitempty"`
	Expired     bool      `json:"expired"`
	Complete    bool      `json:"complete"`
	JetStream   bool      `json:"jetstream_enabled"`
	Leafnodes   int       `json:"leafnode_connections"`
	Connections int       `json:"client_connections"`
	Subs        uint32    `json:"subscriptions"`
}

// Accountz makes the page of accounts. The error is for the asker.
func (m *Monitor) Accountz(o AccountzOptions) (*Accountz, error) {
	z := &Accountz{ID: m.s.ServerID, Now: time.Now().UTC(), SystemAccount: m.systemAccount()}
	if o.Account == "" {
		for _, a := range m.s.Front.Accounts() {
			z.Accounts = append(z.Accounts, a.Name())
		}
		return z, nil
	}
	i, err := m.AccountInfo(o.Account)
	z.Account = i
	return z, err
}

// AccountInfo describes one account.
func (m *Monitor) AccountInfo(name string) (*AccountInfo, error) {
	a := m.s.Front.Account(name)
	if a == nil {
		return nil, fmt.Errorf("account %s does not exist", name)
	}
	st := a.Stats()
	return &AccountInfo{
		Name: name, LastUpdate: m.s.Loaded().UTC(), IsSystem: a.System(), Complete: true,
		JetStream:   m.s.Durable() != nil && slices.Contains(m.durableAccounts(), name),
		Connections: st.Connections, Subs: uint32(st.Subscriptions),
	}, nil
}

// AccstatzOptions picks accounts.
type AccstatzOptions struct {
	Accounts      []string `json:"accounts"`
	IncludeUnused bool     `json:"include_unused"`
}

// Accstatz is the page of accounts' counters.
type Accstatz struct {
	ID       string        `json:"server_id"`
	Now      time.Time     `json:"now"`
	Accounts []AccountStat `json:"account_statz"`
}

// AccountStat is one account's counters.
type AccountStat struct {
	Account       string    `json:"acc"`
	Name          string    `json:"name"`
	Connections   int       `json:"conns"`
	Leafnodes     int       `json:"leafnodes"`
	Total         int       `json:"total_conns"`
	Subscriptions uint32    `json:"num_subscriptions"`
	Sent          DataStats `json:"sent"`
	Received      DataStats `json:"received"`
	SlowConsumers int64     `json:"slow_consumers"`
}

// DataStats counts messages and their bytes.
type DataStats struct {
	Msgs  int64 `json:"msgs"`
	Bytes int64 `json:"bytes"`
}

// Accstatz makes the page of accounts' counters.
func (m *Monitor) Accstatz(o AccstatzOptions) *Accstatz {
	z := &Accstatz{ID: m.s.ServerID, Now: time.Now().UTC(), Accounts: []AccountStat{}}
	for _, a := range m.s.Front.Accounts() {
		if len(o.Accounts) > 0 && !slices.Contains(o.Accounts, a.Name()) {
			continue
		}
		st := a.Stats()
		if !o.IncludeUnused && len(o.Accounts) == 0 && st.Connections == 0 {
			continue
		}
		z.Accounts = append(z.Accounts, ShowAccountStats(a.Name(), st))
	}
	return z
}

// ShowAccountStats turns an account's counters into what pages and events show.
func ShowAccountStats(name string, st front.AccountStats) AccountStat {
	return AccountStat{
		Account: name, Name: name, Connections: st.Connections, Total: st.Connections,
		Subscriptions: uint32(st.Subscriptions), SlowConsumers: st.SlowConsumers,
		Sent: DataStats{st.OutMsgs, st.OutBytes}, Received: DataStats{st.InMsgs, st.InBytes},
	}
}
