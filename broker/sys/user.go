package sys

import (
	"cmp"
	"time"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/front"
)

// userInfo answers $SYS.REQ.USER.INFO: who the asker is and what it may do.
// It looks up a few entries of memory, so it is answered where it was asked.
func (s *Services) userInfo(m *front.Message) {
	if len(m.Reply) == 0 || m.Client == nil {
		return
	}
	name := m.Account.Name()
	u := userInfo{UserID: m.Client.User, Account: name, AccountName: name, UserName: m.Client.NameTag}
	u.Permissions = showPermissions(permissionsOf(s.src.Options(), name, m.Client.User))
	s.answer(m, u, nil)
}

type userInfo struct {
	UserID      string       `json:"user"`
	Account     string       `json:"account"`
	AccountName string       `json:"account_name,omitempty"`
	UserName    string       `json:"user_name,omitempty"`
	Permissions *permissions `json:"permissions,omitempty"`
}

type permissions struct {
	Publish   *subjects  `json:"publish"`
	Subscribe *subjects  `json:"subscribe"`
	Responses *responses `json:"responses,omitempty"`
}

type subjects struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

type responses struct {
	Max     int           `json:"max"`
	Expires time.Duration `json:"ttl"`
}

// permissionsOf finds what a user may do, nil for everything.
func permissionsOf(o *config.Options, account, user string) *config.Permissions {
	find := func(users []config.User, def *config.Permissions) (*config.Permissions, bool) {
		for _, u := range users {
			if cmp.Or(u.Name, u.NKey) == user {
				return cmp.Or(u.Permissions, def), true
			}
		}
		return nil, false
	}
	if account == config.GlobalAccount {
		p, _ := find(o.Auth.Users, o.Auth.Default)
		return p
	}
	for _, a := range o.Accounts {
		if a.Name == account {
			p, _ := find(a.Users, a.Default)
			return p
		}
	}
	return nil
}

func showPermissions(p *config.Permissions) *permissions {
	if p == nil {
		return nil
	}
	show := func(s *config.Subjects) *subjects {
		if s == nil {
			return nil
		}
		return &subjects{s.Allow, s.Deny}
	}
	out := &permissions{Publish: show(p.Publish), Subscribe: show(p.Subscribe)}
	if p.Responses != nil {
		out.Responses = &responses{p.Responses.Max, p.Responses.Expires}
	}
	return out
}
