package front

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/wire"
)

// Reload puts auth, limits and TLS of o in force for new connections, and
// closes or re-permits those that are connected. What can't change while
// running (addresses, names) must be as it is; nothing is changed on an error.
func (s *Server) Reload(o Options) error {
	old := s.opts()
	if o.ServerID == "" {
		o.ServerID = old.ServerID
	}
	if o.ServerName == "" {
		o.ServerName = old.ServerName
	}
	o = o.withDefaults()
	a, err := auth.New(o.Auth)
	if err != nil {
		return err
	}
	errs := []error{o.validate()}
	fixed := func(what string, was, is any) {
		if was != is {
			errs = append(errs, fmt.Errorf("front: reload can't change %s from %v to %v: restart", what, was, is))
		}
	}
	fixed("the listen address", fmt.Sprint(old.Host, ":", old.Port), fmt.Sprint(o.Host, ":", o.Port))
	fixed("the server's name", old.ServerName, o.ServerName)
	fixed("whether there is a websocket listener", old.Websocket != nil, o.Websocket != nil)
	fixed("the system account", s.auth().SystemAccount(), a.SystemAccount())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.put(&o, a)
	gone := s.syncAccounts(a)
	s.mu.Lock()
	open := s.openLocked()
	s.mu.Unlock()
	for _, c := range open {
		s.recheck(c)
	}
	s.shed(open)
	for _, acc := range gone {
		s.log.Info("account dropped by reload", "account", acc.name)
	}
	if c := s.joined(); c != nil {
		c.AddressChanged()
	}
	s.tellInfo()
	return nil
}

// shed closes the newest sessions of those that are more than the limits in
// force let in.
func (s *Server) shed(open []*session) {
	slices.SortFunc(open, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	most, total := s.opts().MaxConnections, 0
	perAccount := map[*Account]int{}
	for _, c := range open {
		a := c.acct.Load()
		if a == nil || a.gone.Load() {
			continue
		}
		total++
		perAccount[a]++
		limit := a.Limits().MaxConnections
		switch {
		case most > 0 && total > most:
			c.kick(wire.TextMaxConnections, ReasonMaxConnections)
		case limit > 0 && perAccount[a] > limit:
			c.kick(wire.TextMaxAccountConns, ReasonMaxAccountConns)
		}
	}
}

// recheck holds a session to the configuration in force: closed when it would
// no longer be let in, subscriptions ended where permissions no longer allow
// them.
func (s *Server) recheck(c *session) {
	id := c.identity.Load()
	a := c.acct.Load()
	if id == nil || a == nil {
		return
	}
	now, err := s.auth().Renew(id, c.connectionType())
	if err != nil || a.gone.Load() {
		c.kick(wire.TextAuthorization, ReasonAuthFailure)
		return
	}
	if now.Rules == id.Rules {
		return
	}
	c.identity.Store(now)
	c.rulesPtr.Store(now.Rules)
	c.reset.Store(true)
	c.mu.Lock()
	all := make([]*sub, 0, len(c.subs))
	for _, u := range c.subs {
		all = append(all, u)
	}
	c.mu.Unlock()
	for _, u := range all {
		c.hold(u, now.Rules)
	}
}

// hold holds one subscription to rules that are newer than it.
func (s *session) hold(u *sub, rules *auth.Rules) {
	if u.closed.Load() {
		return
	}
	if !rules.Subscribe(u.subject, u.queue) {
		s.inject(wire.AppendErr(nil, wire.DeniedSubscribe(u.subject, u.queue)+` (sid "`+u.sid+`")`))
		s.removeSub(u)
		return
	}
	filter := rules.Filter(u.subject, u.queue)
	u.filter.Store(&filter)
	u.account.index.Touch(u.subject)
}
