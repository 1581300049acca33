package sys

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/monitor"
	"github.com/heraldmq/herald/topics/subject"
)

// filter says which servers are meant by a request to all.
type filter struct {
	Name    string   `json:"server_name,omitempty"`
	Cluster string   `json:"cluster,omitempty"`
	Host    string   `json:"host,omitempty"`
	Exact   bool     `json:"exact_match,omitempty"`
	Tags    []string `json:"tags,omitempty"`
	Domain  string   `json:"domain,omitempty"`
}

// meant tells whether this server is.
func (s *Services) meant(f filter) bool {
	o := s.src.Options()
	like := func(want, have string) bool {
		return want == "" || want == have || !f.Exact && strings.Contains(have, want)
	}
	for _, t := range f.Tags {
		if !slices.ContainsFunc(o.Tags, func(have string) bool { return strings.EqualFold(t, have) }) {
			return false
		}
	}
	return like(f.Name, s.src.ServerName) && like(f.Cluster, o.Cluster.Name) && like(f.Host, o.Host) &&
		(f.Domain == "" || f.Domain == o.JetStream.Domain)
}

// ask decodes a request's body; no body means no options.
func ask[T any](m *front.Message) (v T, err error) {
	if len(m.Payload) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(m.Payload, &v); err != nil {
		return v, fmt.Errorf("request body: %w", err)
	}
	return v, nil
}

// serverPage makes a page from a request's body.
type serverPage func(s *Services, m *front.Message) (any, error)

// paged adapts a page with options.
func paged[O, P any](f func(*monitor.Monitor, O) (P, error)) serverPage {
	return func(s *Services, m *front.Message) (any, error) {
		o, err := ask[O](m)
		if err != nil {
			return nil, err
		}
		return f(s.mon, o)
	}
}

// serverPages are what can be asked of a server, by the last token.
var serverPages = map[string]serverPage{
	"IDZ":   func(s *Services, _ *front.Message) (any, error) { return s.idz(), nil },
	"VARZ":  func(s *Services, _ *front.Message) (any, error) { return s.mon.Varz(), nil },
	"SUBSZ": paged((*monitor.Monitor).Subsz),
	"CONNZ": paged((*monitor.Monitor).Connz),
	"JSZ":   paged((*monitor.Monitor).Jsz),
	"HEALTHZ": paged(func(m *monitor.Monitor, o monitor.HealthzOptions) (*monitor.Healthz, error) {
		return m.Healthz(o), nil
	}),
	"ROUTEZ":   func(s *Services, _ *front.Message) (any, error) { return s.mon.Routez(), nil },
	"GATEWAYZ": func(s *Services, _ *front.Message) (any, error) { return s.mon.Gatewayz(), nil },
	"LEAFZ":    func(s *Services, _ *front.Message) (any, error) { return s.mon.Leafz(), nil },
	"ACCOUNTZ": paged((*monitor.Monitor).Accountz),
	"RELOAD":   func(s *Services, _ *front.Message) (any, error) { return nil, s.reload() },
}

// serverID names a server.
type serverID struct {
	Name string `json:"name"`
	Host string `json:"host"`
	ID   string `json:"id"`
}

func (s *Services) idz() serverID {
	return serverID{s.src.ServerName, s.src.Options().Host, s.src.ServerID}
}

// serverRequest answers $SYS.REQ.SERVER.PING[.X] and $SYS.REQ.SERVER.<id>.X.
func (s *Services) serverRequest(m *front.Message) {
	tokens := strings.Split(string(m.Subject), ".")
	what := "STATSZ"
	if len(tokens) > 4 {
		what = tokens[4]
	}
	toAll := tokens[3] == "PING"
	if toAll {
		f, err := ask[filter](m)
		if err != nil {
			s.answer(m, nil, err)
			return
		}
		if !s.meant(f) {
			return
		}
	}
	switch {
	case what == "STATSZ":
		s.send(m, envelope{Server: s.info(), Stats: s.stats()})
	case what == "RELOAD" && toAll, what == "KICK", what == "LDM":
		// RELOAD is for one server; the others have a handler of their own.
	default:
		page := serverPages[what]
		if page == nil {
			s.answer(m, nil, &refusal{http.StatusNotFound, "unknown request " + what})
			return
		}
		v, err := page(s, m)
		if errors.Is(err, monitor.ErrNotMeant) {
			return // the one that is meant answers
		}
		s.answer(m, v, err)
	}
}

func (s *Services) reload() error {
	if s.o.Reload == nil {
		return &refusal{http.StatusBadRequest, "the server has no configuration to read again"}
	}
	return s.o.Reload()
}

// oneClient answers $SYS.REQ.SERVER.<id>.KICK and .LDM for {"cid": n}.
func (s *Services) oneClient(m *front.Message) {
	o, err := ask[struct {
		CID uint64 `json:"cid"`
	}](m)
	if err == nil {
		act := s.src.Front.Kick
		if strings.HasSuffix(string(m.Subject), ".LDM") {
			act = s.src.Front.LDM
		}
		if !act(o.CID) {
			err = &refusal{http.StatusBadRequest, fmt.Sprintf("no such client id: %d", o.CID)}
		}
	}
	s.answer(m, nil, err)
}

// accountRequest answers $SYS.REQ.ACCOUNT.<account>.X, in the system account.
func (s *Services) accountRequest(m *front.Message) {
	tokens := strings.Split(string(m.Subject), ".")
	name, what := tokens[3], tokens[4]
	if name == "PING" {
		return // accountPing has it
	}
	v, err := s.accountPage(name, what, m)
	s.answer(m, v, err)
}

func (s *Services) accountPage(name, what string, m *front.Message) (any, error) {
	if s.src.Front.Account(name) == nil {
		return nil, &refusal{http.StatusNotFound, fmt.Sprintf("account %s does not exist", name)}
	}
	switch what {
	case "INFO":
		return s.mon.AccountInfo(name)
	case "CONNZ":
		o, err := ask[monitor.ConnzOptions](m)
		if err != nil {
			return nil, err
		}
		o.Account = name
		return s.mon.Connz(o)
	case "SUBSZ":
		o, err := ask[monitor.SubszOptions](m)
		if err != nil {
			return nil, err
		}
		o.Account = name
		return s.mon.Subsz(o)
	case "JSZ":
		o, err := ask[monitor.JszOptions](m)
		if err != nil {
			return nil, err
		}
		o.Account = name
		return s.mon.Jsz(o)
	case "LEAFZ":
		return s.mon.Leafz(), nil
	case "STATZ":
		return s.mon.Accstatz(monitor.AccstatzOptions{Accounts: []string{name}}), nil
	case "CONNS":
		return monitor.ShowAccountStats(name, s.src.Front.Account(name).Stats()), nil
	}
	return nil, &refusal{http.StatusNotFound, "unknown request " + what}
}

// accountPing answers $SYS.REQ.ACCOUNT.PING.{CONNZ,STATZ} and, outside the
// system account, $SYS.REQ.SERVER.PING.CONNZ: about the asker's own account;
// the system account sees all.
func (s *Services) accountPing(m *front.Message) {
	own := m.Account.Name()
	if strings.HasSuffix(string(m.Subject), ".STATZ") {
		o, err := ask[monitor.AccstatzOptions](m)
		if err != nil {
			s.answer(m, nil, err)
			return
		}
		if !m.Account.System() {
			o.Accounts = []string{own}
		}
		s.answer(m, s.mon.Accstatz(o), nil)
		return
	}
	o, err := ask[monitor.ConnzOptions](m)
	if err != nil {
		s.answer(m, nil, err)
		return
	}
	if !m.Account.System() {
		o.Account = own
	}
	v, err := s.mon.Connz(o)
	s.answer(m, v, err)
}

// subscribers answers $SYS.DEBUG.SUBSCRIBERS and $SYS.REQ.ACCOUNT.NSUBS: how
// many subscriptions of the account would get a message. The body is a subject,
// perhaps with a queue, or {"subject", "queue"}; the answer is a number.
func (s *Services) subscribers(m *front.Message) {
	var q struct {
		Account string `json:"acc"`
		Subject string `json:"subject"`
		Queue   string `json:"queue"`
	}
	if len(m.Payload) > 0 && m.Payload[0] == '{' {
		if err := json.Unmarshal(m.Payload, &q); err != nil {
			s.answer(m, nil, fmt.Errorf("request body: %w", err))
			return
		}
	} else if words := strings.Fields(string(m.Payload)); len(words) > 0 {
		q.Subject = words[0]
		if len(words) > 1 {
			q.Queue = words[1]
		}
	}
	if q.Account == "" || !m.Account.System() {
		q.Account = m.Account.Name()
	}
	n := 0
	s.src.Front.Subscriptions(func(i front.SubInfo) bool {
		if i.Account == q.Account && (q.Queue == "" || i.Queue == q.Queue) &&
			subject.Overlap(i.Subject, q.Subject) {
			n++
		}
		return true
	})
	m.Respond(nil, strconv.AppendInt(nil, int64(n), 10))
}
