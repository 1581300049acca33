package config

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"strconv"
	"time"
)

// Hidden stands in Show's output for a secret that is set.
const Hidden = "(hidden)"

// Show returns the options as JSON under the keys of the configuration file, with
// what the file leaves to defaults. Since the file's grammar takes JSON, it is a
// configuration, too, but for its secrets: passwords, tokens, and the values of
// server_metadata and websocket headers are shown as Hidden. Where 0 means a
// built-in bound, 0 is shown. Optional listeners that are off are left out.
func Show(o *Options) []byte {
	m := block{
		"host": o.Host, "port": o.Port, "max_connections": o.MaxConnections, "max_subscriptions": o.MaxSubscriptions,
		"max_sub_tokens": o.MaxSubTokens, "max_control_line": o.MaxControlLine, "max_payload": o.MaxPayload,
		"max_pending": o.MaxPending, "max_closed_clients": o.MaxClosedClients, "ping_interval": span(o.PingInterval),
		"ping_max": o.PingMax, "write_deadline": span(o.WriteDeadline), "no_header_support": o.NoHeaders,
		"no_fast_producer_stall": o.NoProducerStall, "lame_duck_duration": span(o.LameDuck),
		"lame_duck_grace_period": span(o.LameDuckGrace), "no_system_account": o.NoSystem, "allow_non_tls": o.AllowNonTLS,
		"debug": o.Log.Debug, "trace": o.Log.Trace, "trace_verbose": o.Log.TraceAll, "logtime": o.Log.Time,
		"logtime_utc": o.Log.UTC, "log_format": o.Log.Format, "logfile_size_limit": o.Log.SizeLimit,
		"logfile_max_num": o.Log.MaxFiles, "max_traced_msg_len": o.Log.MaxTraced,
		"jetstream": showJetStream(&o.JetStream), "web": showWeb(&o.Web), "console": o.Console,
	}
	m.text("server_name", o.ServerName)
	m.text("client_advertise", o.ClientAdvertise)
	m.text("system_account", o.SystemAccount)
	m.text("no_auth_user", o.NoAuthUser)
	m.text("log_file", o.Log.File)
	m.text("pid_file", o.PidFile)
	m.text("ports_file_dir", o.PortsDir)
	m.text("http_base_path", o.HTTP.BasePath)
	m.texts("server_tags", o.Tags)
	m.hide("server_metadata", o.Metadata)
	if o.HTTP.Port != 0 {
		m["http"] = net.JoinHostPort(o.HTTP.Host, strconv.Itoa(o.HTTP.Port))
	}
	if o.ProfPort != 0 {
		m["prof_port"] = o.ProfPort
	}
	if o.HTTP.HTTPSPort != 0 {
		m["https"] = net.JoinHostPort(o.HTTP.Host, strconv.Itoa(o.HTTP.HTTPSPort))
	}
	m.tls(o.TLS)
	m["authorization"] = showAuth(&o.Auth)
	if o.Websocket.Port != 0 {
		m["websocket"] = showWebsocket(&o.Websocket)
	}
	if o.Cluster.Enabled() {
		m["cluster"] = showCluster(&o.Cluster)
	} else if o.Cluster.Name != "" {
		m["cluster"] = block{"name": o.Cluster.Name}
	}
	if len(o.Accounts) > 0 {
		all := block{}
		for _, a := range o.Accounts {
			all[a.Name] = showAccount(a)
		}
		m["accounts"] = all
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // subjects have a ">"
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		panic(err) // numbers, texts, lists and maps of them always encode
	}
	return b.Bytes()
}

// block is one { } of the file.
type block map[string]any

func (m block) text(key, v string) {
	if v != "" {
		m[key] = v
	}
}

// texts leaves out a nil list only: an empty one is something else.
func (m block) texts(key string, v []string) {
	if v != nil {
		m[key] = v
	}
}

func (m block) secret(key, v string) {
	if v != "" {
		m[key] = Hidden
	}
}

// hide shows the names of a map and none of its values.
func (m block) hide(key string, v map[string]string) {
	if len(v) == 0 {
		return
	}
	names := block{}
	for k := range v {
		names[k] = Hidden
	}
	m[key] = names
}

func span(d time.Duration) string { return d.String() }

func (m block) tls(t *TLS) {
	if t == nil {
		return
	}
	b := block{
		"verify": t.Verify, "verify_and_map": t.VerifyAndMap, "insecure": t.Insecure, "timeout": span(t.Timeout),
		"handshake_first": t.HandshakeFirst, "min_version": "1.2", "connection_rate_limit": t.ConnectionsPerS,
	}
	if t.HandshakeFirst && t.FirstWait > 0 {
		b["handshake_first"] = span(t.FirstWait)
	}
	if t.MinVersion == tls.VersionTLS13 {
		b["min_version"] = "1.3"
	}
	var pairs []block
	for _, p := range t.Certs {
		pairs = append(pairs, block{"cert_file": p.CertFile, "key_file": p.KeyFile})
	}
	b["certs"] = pairs
	b.text("ca_file", t.CAFile)
	b.texts("pinned_certs", t.PinnedCerts)
	b.texts("cipher_suites", namesOf(cipherSuites(), t.CipherSuites))
	b.texts("curve_preferences", namesOf(curves, t.Curves))
	m["tls"] = b
}

func namesOf(known map[string]uint16, ids []uint16) []string {
	var out []string
	for _, id := range ids {
		for name, k := range known {
			if k == id {
				out = append(out, name)
			}
		}
	}
	return out
}

func showJetStream(js *JetStream) block {
	l := &js.Limits
	b := block{
		"enabled": js.Enabled, "strict": js.Strict, "store_dir": js.StoreDir, "max_memory_store": js.MaxMemory,
		"max_file_store": js.MaxStore, "request_queue_limit": js.RequestQueue, "sync_interval": "always", // whatever was asked for
		"limits": block{
			"max_ack_pending": l.MaxAckPending, "max_ha_assets": l.MaxHAAssets, "max_request_batch": l.MaxRequestBatch,
			"default_max_consumers": l.DefaultMaxConsumers, "duplicate_window": span(l.DuplicateWindow),
			"batch": block{
				"max_inflight_per_stream": l.BatchPerStream, "max_inflight_total": l.BatchTotal,
				"max_msgs": l.BatchMessages, "timeout": span(l.BatchTimeout),
			},
		},
	}
	b.text("domain", js.Domain)
	return b
}

func showWeb(w *Web) block {
	b := block{
		"enabled": w.Enabled, "same_origin": w.SameOrigin, "max_connections": w.MaxConnections, "max_pending": w.MaxPending,
		"heartbeat": span(w.Heartbeat), "write_deadline": span(w.WriteDeadline),
	}
	b.texts("allowed_origins", w.AllowedOrigins)
	b.text("user_cookie", w.UserCookie)
	b.text("pass_cookie", w.PassCookie)
	b.text("token_cookie", w.TokenCookie)
	return b
}

func showWebsocket(w *Websocket) block {
	b := block{
		"host": w.Host, "port": w.Port, "no_tls": w.NoTLS, "same_origin": w.SameOrigin, "compression": w.Compression,
		"handshake_timeout": span(w.HandshakeTimeout), "ping_interval": span(w.PingInterval),
	}
	b.text("advertise", w.Advertise)
	b.texts("allowed_origins", w.AllowedOrigins)
	b.text("no_auth_user", w.NoAuthUser)
	b.text("user_cookie", w.UserCookie)
	b.text("pass_cookie", w.PassCookie)
	b.text("token_cookie", w.TokenCookie)
	b.hide("headers", w.Headers)
	b.tls(w.TLS)
	return b
}

func showCluster(c *Cluster) block {
	b := block{"host": c.Host, "port": c.Port, "no_advertise": c.NoAdvertise, "write_first": c.WriteFirst}
	b.text("name", c.Name)
	b.text("advertise", c.Advertise)
	if len(c.Routes) > 0 {
		var routes []string
		for _, r := range c.Routes {
			routes = append(routes, "nats-route://"+r)
		}
		b["routes"] = routes
	}
	if c.Secret() != "" {
		a := block{"timeout": span(c.AuthTimeout)}
		a.text("user", c.User)
		a.secret("password", c.Password)
		b["authorization"] = a
	}
	b.tls(c.TLS)
	return b
}

func showAuth(a *Auth) block {
	b := block{"timeout": span(a.Timeout)}
	b.text("user", a.User)
	b.secret("password", a.Password)
	b.secret("token", a.Token)
	if a.Default != nil {
		b["default_permissions"] = showPermissions(a.Default)
	}
	b.users(a.Users)
	return b
}

func (m block) users(users []User) {
	if len(users) == 0 {
		return
	}
	var list []block
	for _, u := range users {
		b := block{}
		b.text("user", u.Name)
		b.secret("password", u.Password)
		b.text("nkey", u.NKey) // the public half
		b.texts("allowed_connection_types", u.Connections)
		if u.Permissions != nil {
			b["permissions"] = showPermissions(u.Permissions)
		}
		list = append(list, b)
	}
	m["users"] = list
}

func showPermissions(p *Permissions) block {
	b := block{}
	for key, s := range map[string]*Subjects{
		"publish": p.Publish, "subscribe": p.Subscribe, "advertise": p.Advertise, "discover": p.Discover,
		"sample": p.Sample, "enforce": p.Enforce,
	} {
		if s != nil {
			lists := block{}
			lists.texts("allow", s.Allow)
			lists.texts("deny", s.Deny)
			b[key] = lists
		}
	}
	if r := p.Responses; r != nil {
		b["allow_responses"] = block{"max": r.Max, "expires": span(r.Expires)}
	}
	return b
}

func showAccount(a *Account) block {
	limits := block{"max_connections": a.MaxConnections, "max_subscriptions": a.MaxSubscriptions}
	if a.MaxPayload > 0 {
		limits["max_payload"] = a.MaxPayload
	}
	b := block{"limits": limits, "jetstream": "disabled"}
	b.text("nkey", a.NKey)
	if a.Default != nil {
		b["default_permissions"] = showPermissions(a.Default)
	}
	if l := a.JetStream; l != nil {
		b["jetstream"] = block{
			"max_memory": l.MaxMemory, "max_file": l.MaxStore, "max_streams": l.MaxStreams, "max_consumers": l.MaxConsumers,
			"max_ack_pending": l.MaxAckPending, "max_bytes_required": l.MaxBytesRequired,
			"mem_max_stream_bytes": l.MemoryMaxStream, "disk_max_stream_bytes": l.StoreMaxStream,
		}
	}
	b.users(a.Users)
	return b
}
