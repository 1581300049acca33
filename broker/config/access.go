package config

import (
	"math"
	"slices"
	"strings"
)

// auth reads an authorization block.
func (d *decoder) auth(n node, a *Auth, what string) {
	a.At = n.place()
	var users []User
	d.block(n, what, []key{
		{"user|username", d.text("user", &a.User)},
		{"pass|password", d.secretText("password", &a.Password)},
		{"token", d.secretText("token", &a.Token)},
		{"timeout", d.span("timeout", &a.Timeout)},
		{"users", func(n node) { users = d.users(n) }},
		{"default_permission|default_permissions|permissions", func(n node) { a.Default = d.permissions(n) }},
		{"auth_callout|auth_hook", d.refuse("auth_callout", "list users in the block")},
		{"proxy_required", d.refuseTrue("proxy_required", "remove it; trusted proxies are not known")},
	})
	a.Users = users
	switch {
	case a.User != "" && a.Token != "":
		d.fault(n, "%s can't have both a token and a user", what)
	case a.User != "" && len(users) > 0, a.Token != "" && len(users) > 0:
		d.fault(n, "%s can't have both users and a single user or token", what)
	case a.User == "" && a.Password != "":
		d.fault(n, "%s has a password but no user", what)
	}
}

// users reads a list of users.
func (d *decoder) users(n node) []User {
	out := []User{}
	d.items(n, func(c node) {
		u := User{At: c.place()}
		if _, ok := c.value.(map[string]any); !ok {
			d.fault(c, "a user wants a block { user, password } or { nkey }, not %s", c.kind())
			return
		}
		d.block(c, "users", []key{
			{"user|username", d.text("user", &u.Name)},
			{"pass|password", d.secretText("password", &u.Password)},
			{"nkey", d.nkey('U', &u.NKey)},
			{"permission|permissions|authorization", func(n node) { u.Permissions = d.permissions(n) }},
			{"allowed_connection_types|connection_types|clients", d.connectionTypes(&u.Connections)},
			{"proxy_required", d.refuseTrue("proxy_required", "remove it; trusted proxies are not known")},
		})
		switch {
		case u.Name == "" && u.NKey == "":
			d.fault(c, "a user wants a name or an nkey")
		case u.Name != "" && u.NKey != "":
			d.fault(c, "a user has a name or an nkey, not both")
		case u.NKey != "" && u.Password != "":
			d.fault(c, "a user with an nkey has no password")
		}
		out = append(out, u)
	})
	return out
}

// connectionTypes reads allowed_connection_types.
func (d *decoder) connectionTypes(to *[]string) func(node) {
	known := []string{"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
	return func(n node) {
		*to = []string{}
		d.items(n, func(c node) {
			var s string
			d.text("allowed_connection_types", &s)(c)
			s = strings.ToUpper(s)
			if !slices.Contains(known, s) {
				d.fault(c, "allowed_connection_types wants some of %s, not %q", strings.Join(known, ", "), s)
				return
			}
			*to = append(*to, s)
		})
	}
}

// permissions reads what a user may publish and subscribe to.
func (d *decoder) permissions(n node) *Permissions {
	p := &Permissions{}
	d.block(n, "permissions", []key{
		{"pub|publish|import", func(n node) { p.Publish = d.subjects(n, false) }},
		{"sub|subscribe|export", func(n node) { p.Subscribe = d.subjects(n, true) }},
		{"publish_allow_responses|allow_responses", func(n node) { p.Responses = d.responses(n) }},
		{"advertise", func(n node) { p.Advertise = d.subjects(n, false) }},
		{"discover", func(n node) { p.Discover = d.subjects(n, false) }},
		{"sample", func(n node) { p.Sample = d.subjects(n, false) }},
		{"enforce", func(n node) { p.Enforce = d.subjects(n, false) }},
	})
	// nats-server's rule: who may answer and was given no publish list may
	// publish nothing else.
	if p.Responses != nil && p.Publish == nil {
		p.Publish = &Subjects{Allow: []string{}}
	}
	return p
}

// subjects reads "a.b", ["a.b", "c.>"] or { allow: …, deny: … }.
func (d *decoder) subjects(n node, queues bool) *Subjects {
	s := &Subjects{}
	list := func(to *[]string) func(node) {
		return func(n node) {
			d.texts("permissions", to)(n)
			for _, p := range *to {
				if words := strings.Fields(p); len(words) == 0 || len(words) > 2 || len(words) == 2 && !queues || !ValidPattern(words[0]) {
					d.fault(n, "permissions want subjects such as \"orders.>\", not %q", p)
				}
			}
		}
	}
	if _, ok := n.value.(map[string]any); ok {
		d.block(n, "permissions", []key{{"allow", list(&s.Allow)}, {"deny", list(&s.Deny)}})
		return s
	}
	list(&s.Allow)(n)
	return s
}

// ValidPattern tells whether a subject pattern is well formed.
func ValidPattern(p string) bool {
	if p == "" || strings.ContainsAny(p, " \t\r\n\f\x00") {
		return false
	}
	tokens := strings.Split(p, ".")
	for i, t := range tokens {
		if t == "" || t == ">" && i != len(tokens)-1 {
			return false
		}
	}
	return true
}

// responses reads allow_responses: true, a number, or { max, expires }.
func (d *decoder) responses(n node) *Responses {
	r := &Responses{Max: 1, Expires: DefaultLameDuck}
	switch v := n.value.(type) {
	case bool:
		if !v {
			return nil
		}
	case map[string]any:
		d.block(n, "allow_responses", []key{
			{"max|max_msgs|max_messages|max_responses", d.number("max", &r.Max, -1, math.MaxInt32)},
			{"expires|expiration|ttl", d.span("expires", &r.Expires)},
		})
	default:
		d.number("allow_responses", &r.Max, -1, math.MaxInt32)(n)
	}
	return r
}

// accounts reads the accounts block: a map of accounts, or a list of names.
func (d *decoder) accounts(n node, o *Options) {
	add := func(name string, v node) *Account {
		a := &Account{Name: name, MaxConnections: -1, MaxSubscriptions: -1, MaxPayload: -1, At: v.place()}
		switch {
		case name == GlobalAccount:
			d.fault(v, "account %q is built in: put its users in authorization { }", name)
		case name == "" || strings.ContainsAny(name, " \t.*>"):
			d.fault(v, "account name %q may not contain spaces, '.', '*' or '>'", name)
		case slices.ContainsFunc(o.Accounts, func(b *Account) bool { return b.Name == name }):
			d.fault(v, "account %q is defined twice", name)
		}
		o.Accounts = append(o.Accounts, a)
		return a
	}
	if _, ok := n.value.([]any); ok {
		d.items(n, func(c node) {
			var name string
			d.text("accounts", &name)(c)
			add(name, c)
		})
	} else {
		d.each(n, "accounts", func(name string, v node) {
			if isVariable(n, name) {
				return
			}
			d.account(v, add(name, v))
		})
	}
	slices.SortFunc(o.Accounts, func(a, b *Account) int { return strings.Compare(a.Name, b.Name) })
}

func (d *decoder) account(n node, a *Account) {
	const foreign = "publish and subscribe within one account, or run a client that forwards"
	d.block(n, "account "+a.Name, []key{
		{"nkey", d.nkey('A', &a.NKey)},
		{"users", func(n node) { a.Users = d.users(n) }},
		{"imports", d.refuseList("imports", foreign)},
		{"exports", d.refuseList("exports", foreign)},
		{"jetstream", func(n node) { a.JetStream = d.accountLimits(n) }},
		{"default_permissions", func(n node) { a.Default = d.permissions(n) }},
		{"mappings|maps", d.refuse("mappings", mapAdvice)},
		{"limits", func(n node) {
			d.block(n, "limits", []key{
				{"max_connections|max_conn", d.number("max_connections", &a.MaxConnections, -1, math.MaxInt32)},
				{"max_subscriptions|max_subs", d.number("max_subscriptions", &a.MaxSubscriptions, -1, math.MaxInt32)},
				{"max_payload|max_pay", d.bounded("max_payload", &a.MaxPayload, 1, 64<<20)},
				{"max_leafnodes|max_leafs", d.ignore("max_leafnodes", "Herald has no leaf nodes")},
			})
		}},
		{"msg_trace|trace_dest", d.refuse("msg_trace", "message tracing is not known")},
	})
}

// refuseList refuses a list that holds anything.
func (d *decoder) refuseList(name, advice string) func(node) {
	return func(n node) {
		if list, ok := n.value.([]any); ok && len(list) == 0 {
			return
		}
		d.refuse(name, advice)(n)
	}
}

// unlimited returns the limits of an account without any.
func unlimited() *AccountLimits {
	return &AccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStream: -1, StoreMaxStream: -1,
	}
}

// accountLimits reads an account's jetstream key: a switch or limits.
func (d *decoder) accountLimits(n node) *AccountLimits {
	l := unlimited()
	switch v := n.value.(type) {
	case bool:
		if !v {
			return nil
		}
		return l
	case string:
		switch strings.ToLower(v) {
		case "enabled", "enable":
			return l
		case "disabled", "disable":
			return nil
		}
		d.fault(n, "jetstream wants enabled, disabled or limits { }, not %s", n.kind())
		return nil
	}
	const most = math.MaxInt32
	d.block(n, "jetstream", []key{
		{"max_memory|max_mem|mem|memory", d.size("max_memory", &l.MaxMemory)},
		{"max_store|max_file|max_disk|store|disk", d.size("max_file", &l.MaxStore)},
		{"max_streams|streams", d.number("max_streams", &l.MaxStreams, -1, most)},
		{"max_consumers|consumers", d.number("max_consumers", &l.MaxConsumers, -1, most)},
		{"max_bytes_required|max_stream_bytes|max_bytes", d.flag("max_bytes_required", &l.MaxBytesRequired)},
		{"mem_max_stream_bytes|memory_max_stream_bytes", d.size("mem_max_stream_bytes", &l.MemoryMaxStream)},
		{"disk_max_stream_bytes|store_max_stream_bytes", d.size("disk_max_stream_bytes", &l.StoreMaxStream)},
		{"max_ack_pending", d.number("max_ack_pending", &l.MaxAckPending, -1, most)},
		{"cluster_traffic", d.ignore("cluster_traffic", "replication does not run in an account")},
	})
	return l
}
