package sys

import (
	"encoding/json"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/monitor"
)

// ServerStats is what STATSZ tells.
type ServerStats struct {
	Start               time.Time              `json:"start"`
	Mem                 int64                  `json:"mem"`
	Cores               int                    `json:"cores"`
	CPU                 float64                `json:"cpu"`
	Connections         int                    `json:"connections"`
	TotalConnections    uint64                 `json:"total_connections"`
	ActiveAccounts      int                    `json:"active_accounts"`
	Subscriptions       uint32                 `json:"subscriptions"`
	Sent                monitor.DataStats      `json:"sent"`
	SentToClients       monitor.DataStats      `json:"sent_to_clients"`
	Received            monitor.DataStats      `json:"received"`
	ReceivedFromClients monitor.DataStats      `json:"received_from_clients"`
	SlowConsumers       int64                  `json:"slow_consumers"`
	SlowConsumerStats   monitor.KindCounts     `json:"slow_consumer_stats"`
	StaleConnections    int64                  `json:"stale_connections,omitempty"`
	StalledClients      int64                  `json:"stalled_clients,omitempty"`
	Routes              []RouteStat            `json:"routes,omitempty"`
	ActiveServers       int                    `json:"active_servers,omitempty"`
	JetStream           *monitor.JetStreamVarz `json:"jetstream,omitempty"`
	MemLimit            int64                  `json:"gomemlimit,omitempty"`
	MaxProcs            int                    `json:"gomaxprocs,omitempty"`
}

// RouteStat counts the live messages exchanged with one other node.
type RouteStat struct {
	ID       uint64            `json:"rid"`
	Name     string            `json:"name,omitempty"`
	Sent     monitor.DataStats `json:"sent"`
	Received monitor.DataStats `json:"received"`
	Pending  int64             `json:"pending"`
}

func (s *Services) stats() *ServerStats {
	v := s.mon.Varz()
	st := &ServerStats{
		Start: v.Start, Mem: v.Mem, Cores: v.Cores, CPU: v.CPU,
		Connections: v.Connections, TotalConnections: v.TotalConnections, Subscriptions: v.Subscriptions,
		Sent: monitor.DataStats{Msgs: v.OutMsgs, Bytes: v.OutBytes}, Received: monitor.DataStats{Msgs: v.InMsgs, Bytes: v.InBytes},
		SlowConsumers: v.SlowConsumers, SlowConsumerStats: v.SlowConsumerStats, StaleConnections: v.StaleConnections,
		StalledClients: v.StalledClients, ActiveServers: 1 + v.Remotes, MemLimit: v.MemLimit, MaxProcs: v.MaxProcs,
	}
	for _, r := range s.mon.Routez().Routes {
		st.Routes = append(st.Routes, RouteStat{
			ID: r.RID, Name: r.RemoteName, Pending: r.Pending,
			Sent: monitor.DataStats{Msgs: r.OutMsgs, Bytes: r.OutBytes}, Received: monitor.DataStats{Msgs: r.InMsgs, Bytes: r.InBytes},
		})
	}
	st.SentToClients, st.ReceivedFromClients = st.Sent, st.Received
	for _, a := range s.src.Front.Accounts() {
		if a.Stats().Connections > 0 {
			st.ActiveAccounts++
		}
	}
	if s.src.Durable() != nil {
		st.JetStream = &v.JetStream
	}
	return st
}

// publishStatsz tells the server's counters to whoever listens.
func (s *Services) publishStatsz() {
	s.tell("$SYS.SERVER."+s.src.ServerID+".STATSZ", func() any {
		return envelope{Server: s.info(), Stats: s.stats()}
	})
}

// tell publishes to the system account if somebody listens. Worker only.
func (s *Services) tell(subject string, make func() any) {
	a := s.src.Front.SystemAccount()
	if a == nil || !a.HasInterest(subject) {
		return
	}
	b, err := json.Marshal(make())
	if err != nil { // everything told here can be marshalled
		s.o.Log.Error("System event could not be encoded", "subject", subject, "error", err)
		return
	}
	a.Publish(subject, "", nil, b)
}

// typed opens every event.
type typed struct {
	Type string    `json:"type"`
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

func (s *Services) typed(kind string) typed {
	return typed{"io.nats.server.advisory.v1." + kind, s.ids.Next(), time.Now().UTC()}
}

// clientInfo is a client as events show it.
type clientInfo struct {
	Start   time.Time     `json:"start"`
	Host    string        `json:"host,omitempty"`
	ID      uint64        `json:"id,omitempty"`
	Account string        `json:"acc,omitempty"`
	User    string        `json:"user,omitempty"`
	Name    string        `json:"name,omitempty"`
	Lang    string        `json:"lang,omitempty"`
	Version string        `json:"ver,omitempty"`
	RTT     time.Duration `json:"rtt,omitempty"`
	Stop    *time.Time    `json:"stop,omitempty"`
	Kind    string        `json:"kind,omitempty"`
	Type    string        `json:"client_type,omitempty"`
}

func showClient(c *front.ClientInfo) clientInfo {
	return clientInfo{
		Start: c.Start.UTC(), Host: c.Host, ID: c.ID, Account: c.Account, User: c.User, Name: c.Name, Lang: c.Lang,
		Version: c.Version, RTT: c.RTT(), Kind: c.Kind, Type: c.Type,
	}
}

type connectEvent struct {
	typed
	Server ServerInfo `json:"server"`
	Client clientInfo `json:"client"`
}

type disconnectEvent struct {
	typed
	Server   ServerInfo        `json:"server"`
	Client   clientInfo        `json:"client"`
	Sent     monitor.DataStats `json:"sent"`
	Received monitor.DataStats `json:"received"`
	Reason   string            `json:"reason"`
}

type connsEvent struct {
	typed
	Server ServerInfo `json:"server"`
	monitor.AccountStat
}

// Connected tells that a client has logged in. It does not block.
func (s *Services) Connected(c *front.ClientInfo) {
	s.later(func() {
		s.tell("$SYS.ACCOUNT."+c.Account+".CONNECT", func() any {
			return connectEvent{s.typed("client_connect"), s.info(), showClient(c)}
		})
		s.tellConns(c.Account)
	})
}

// Disconnected tells that a client has gone. It does not block.
func (s *Services) Disconnected(c *front.ClientInfo, i front.ConnInfo) {
	s.later(func() {
		s.tell("$SYS.ACCOUNT."+c.Account+".DISCONNECT", func() any { return s.gone(c, i) })
		s.tellConns(c.Account)
	})
}

// AuthFailed tells that a client was refused. It does not block.
func (s *Services) AuthFailed(c *front.ClientInfo, i front.ConnInfo) {
	s.later(func() {
		s.tell("$SYS.SERVER."+s.src.ServerID+".CLIENT.AUTH.ERR", func() any { return s.gone(c, i) })
		s.tell("$SYS.ACCOUNT.CLIENT.AUTH.ERR", func() any { return s.gone(c, i) })
	})
}

func (s *Services) gone(c *front.ClientInfo, i front.ConnInfo) disconnectEvent {
	e := disconnectEvent{
		typed: s.typed("client_disconnect"), Server: s.info(), Client: showClient(c), Reason: string(i.Reason),
		Sent: monitor.DataStats{Msgs: i.OutMsgs, Bytes: i.OutBytes}, Received: monitor.DataStats{Msgs: i.InMsgs, Bytes: i.InBytes},
	}
	if !i.Stop.IsZero() {
		stop := i.Stop.UTC()
		e.Client.Stop = &stop
	}
	return e
}

// tellConns tells how many connections an account has, under both its subjects.
func (s *Services) tellConns(account string) {
	event := func() any {
		a := s.src.Front.Account(account)
		if a == nil { // it went with a reload
			return connsEvent{s.typed("account_connections"), s.info(), monitor.AccountStat{Account: account, Name: account}}
		}
		return connsEvent{s.typed("account_connections"), s.info(), monitor.ShowAccountStats(account, a.Stats())}
	}
	s.tell("$SYS.ACCOUNT."+account+".SERVER.CONNS", event)
	s.tell("$SYS.SERVER.ACCOUNT."+account+".CONNS", event)
}

// LameDuck and Shutdown tell that the server is going. They block until the
// worker has told it.
func (s *Services) LameDuck() { s.announce("LAMEDUCK") }

// Shutdown: see LameDuck.
func (s *Services) Shutdown() { s.announce("SHUTDOWN") }

func (s *Services) announce(what string) {
	done := make(chan struct{})
	f := func() {
		defer close(done)
		s.tell("$SYS.SERVER."+s.src.ServerID+"."+what, func() any { return s.info() })
	}
	select {
	case s.queue <- f:
		<-done
	default: // a full queue is no reason to hold up the end
	}
}
