package config

import (
	"math"
	"strings"
)

// topKeys are the keys at the top of a file.
func (d *decoder) topKeys(o *Options) []key {
	var keys []key
	for _, part := range [][]key{
		d.listenKeys(o), d.limitKeys(o), d.processKeys(o), d.accessKeys(o), d.foreignKeys(),
	} {
		keys = append(keys, part...)
	}
	return keys
}

// listenKeys say where the broker is met.
func (d *decoder) listenKeys(o *Options) []key {
	return []key{
		{"listen", d.hostPort("listen", &o.Host, &o.Port)},
		{"host|net", d.text("host", &o.Host)},
		{"port", d.number("port", &o.Port, -1, 65535)},
		{"server_name", d.serverName(&o.ServerName)},
		{"client_advertise", d.text("client_advertise", &o.ClientAdvertise)},
		{"http", d.http(&o.HTTP, &o.HTTP.Port)},
		{"https", d.http(&o.HTTP, &o.HTTP.HTTPSPort)},
		{"http_port|monitor_port", d.http(&o.HTTP, &o.HTTP.Port)},
		{"https_port", d.http(&o.HTTP, &o.HTTP.HTTPSPort)},
		{"http_base_path", d.text("http_base_path", &o.HTTP.BasePath)},
		{"websocket|ws", func(n node) { d.websocket(n, &o.Websocket) }},
		{"web", func(n node) { d.web(n, &o.Web) }},
		{"console", func(n node) { d.enabled(n, "console", &o.Console) }},
		{"cluster", func(n node) { d.cluster(n, &o.Cluster) }},
		{"tls", func(n node) { o.TLS = d.tls(n, "tls") }},
		{"allow_non_tls", d.flag("allow_non_tls", &o.AllowNonTLS)},
		{"proxy_protocol", d.refuseTrue("proxy_protocol", "let the proxy pass connections through")},
		{"server_tags", d.texts("server_tags", &o.Tags)},
		{"server_metadata", d.textMap("server_metadata", &o.Metadata)},
	}
}

func (d *decoder) serverName(to *string) func(node) {
	return func(n node) {
		d.text("server_name", to)(n)
		if strings.ContainsAny(*to, " \t\r\n") {
			d.fault(n, "server_name can't contain spaces")
		}
	}
}

func (d *decoder) http(h *HTTP, port *int) func(node) {
	return func(n node) {
		d.hostPort("a monitoring port", &h.Host, port)(n)
		h.At = n.place()
	}
}

func (d *decoder) textMap(name string, to *map[string]string) func(node) {
	return func(n node) {
		m := map[string]string{}
		d.each(n, name, func(k string, v node) {
			var s string
			d.text(name+"."+k, &s)(v)
			m[k] = s
		})
		*to = m
	}
}

// mapAdvice is for what is refused in more than one place.
const mapAdvice = "publish to the other subject, or give a topic a subject_transform"

// limitKeys bound what connections may do.
func (d *decoder) limitKeys(o *Options) []key {
	return []key{
		{"max_connections|max_conn", d.number("max_connections", &o.MaxConnections, -1, math.MaxInt32)},
		{"max_subscriptions|max_subs", d.number("max_subscriptions", &o.MaxSubscriptions, -1, math.MaxInt32)},
		{"max_sub_tokens|max_subscription_tokens", d.number("max_sub_tokens", &o.MaxSubTokens, 0, 255)},
		{"max_control_line", d.bounded("max_control_line", &o.MaxControlLine, 512, 1<<20)},
		{"max_payload", d.bounded("max_payload", &o.MaxPayload, 1, 64<<20)},
		{"max_pending", d.size("max_pending", &o.MaxPending)},
		{"max_closed_clients", d.number("max_closed_clients", &o.MaxClosedClients, 0, 1<<20)},
		{"ping_interval", d.span("ping_interval", &o.PingInterval)},
		{"ping_max", d.number("ping_max", &o.PingMax, 1, 1000)},
		{"write_deadline", d.span("write_deadline", &o.WriteDeadline)},
		{"write_timeout", d.writeTimeout},
		{"no_header_support", d.flag("no_header_support", &o.NoHeaders)},
		{"no_fast_producer_stall", d.flag("no_fast_producer_stall", &o.NoProducerStall)},
		{"lame_duck_duration", d.span("lame_duck_duration", &o.LameDuck)},
		{"lame_duck_grace_period", d.span("lame_duck_grace_period", &o.LameDuckGrace)},
	}
}

// bounded reads a size that must lie within limits.
func (d *decoder) bounded(name string, to *int, low, high int64) func(node) {
	return func(n node) {
		v := int64(*to)
		faults := len(d.faults)
		d.size(name, &v)(n)
		if len(d.faults) > faults {
			return
		}
		if v < low || v > high {
			d.fault(n, "%s wants a size from %d to %d bytes, not %d", name, low, high, v)
			return
		}
		*to = int(v)
	}
}

// writeTimeout accepts that a late write closes the connection, which is what
// nats-server's default means for clients.
func (d *decoder) writeTimeout(n node) {
	var v string
	d.oneOf("write_timeout", &v, "default", "close", "retry")(n)
	if v == "retry" {
		d.refuse("write_timeout: retry", "raise write_deadline")(n)
	}
}

// processKeys are about the process: its files and its log.
func (d *decoder) processKeys(o *Options) []key {
	return []key{
		{"debug", d.flag("debug", &o.Log.Debug)},
		{"trace", d.flag("trace", &o.Log.Trace)},
		{"trace_verbose", d.traceAll(o)},
		{"trace_headers", d.ignore("trace_headers", "a trace shows headers with the payload")},
		{"max_traced_msg_len", d.number("max_traced_msg_len", &o.Log.MaxTraced, 0, math.MaxInt32)},
		{"logtime", d.flag("logtime", &o.Log.Time)},
		{"logtime_utc", d.flag("logtime_utc", &o.Log.UTC)},
		{"log_format", d.oneOf("log_format", &o.Log.Format, "text", "json", "logfmt")},
		{"log_file|logfile", d.text("log_file", &o.Log.File)},
		{"logfile_size_limit|log_size_limit", d.size("logfile_size_limit", &o.Log.SizeLimit)},
		{"logfile_max_num|log_max_num", d.number("logfile_max_num", &o.Log.MaxFiles, 0, 1<<20)},
		{"pid_file|pidfile", d.text("pid_file", &o.PidFile)},
		{"ports_file_dir", d.text("ports_file_dir", &o.PortsDir)},
		{"connect_error_reports", d.ignore("connect_error_reports", "a peer that can't be reached is reported once until that changes")},
		{"reconnect_error_reports", d.ignore("reconnect_error_reports", "a peer that can't be reached is reported once until that changes")},
		{"prof_port", d.number("prof_port", &o.ProfPort, 0, 65535)},
		{"prof_block_rate", d.ignore("prof_block_rate", "blocking is not profiled")},
		{"disable_sublist_cache", d.ignore("disable_sublist_cache", "Herald's caches belong to the sessions and need no switch")},
		{"syslog", d.refuseTrue("syslog", "log to stderr (a service manager forwards it) or set log_file")},
		{"remote_syslog", d.refuse("remote_syslog", "log to stderr (a service manager forwards it) or set log_file")},
	}
}

func (d *decoder) traceAll(o *Options) func(node) {
	return func(n node) {
		d.flag("trace_verbose", &o.Log.TraceAll)(n)
		o.Log.Trace = o.Log.Trace || o.Log.TraceAll
	}
}

// refuseTrue refuses a switch only when it is turned on.
func (d *decoder) refuseTrue(name, advice string) func(node) {
	return func(n node) {
		var on bool
		d.flag(name, &on)(n)
		if on {
			d.refuse(name, advice)(n)
		}
	}
}

// accessKeys say who may connect, and turn durable topics on.
func (d *decoder) accessKeys(o *Options) []key {
	return []key{
		{"authorization", func(n node) { d.auth(n, &o.Auth, "authorization") }},
		{"accounts", func(n node) { d.accounts(n, o) }},
		{"system_account|system", d.text("system_account", &o.SystemAccount)},
		{"no_system_account|no_system|no_sys_acc", d.flag("no_system_account", &o.NoSystem)},
		{"no_auth_user", d.text("no_auth_user", &o.NoAuthUser)},
		{"mappings|maps", d.refuse("mappings", mapAdvice)},
		{"jetstream", func(n node) { d.jetStream(n, &o.JetStream) }},
		{"store_dir|storedir", d.text("store_dir", &o.JetStream.StoreDir)},
	}
}

// foreignKeys are nats-server's keys for what Herald does not do.
func (d *decoder) foreignKeys() []key {
	const static = "list users in authorization { } or accounts { }"
	keys := []key{
		{"leafnodes|leaf", d.refuse("leafnodes", "connect clients directly, or bridge with a mirror or source")},
		{"gateway", d.refuse("gateway", "run one cluster")},
		{"mqtt", d.refuse("mqtt", "put an MQTT bridge in front")},
		{"ocsp", d.ocsp("ocsp")},
		{"ocsp_cache", d.refuse("ocsp_cache", "remove it; certificates are not checked by OCSP")},
		{"default_js_domain", d.refuse("default_js_domain", "give clients the domain, or set jetstream { domain }")},
		{"proxies", d.refuse("proxies", "use proxy_protocol for addresses and users for identity")},
		{"feature_flags", d.featureFlags},
	}
	for _, name := range []string{
		"operator", "operators", "resolver", "resolver_tls", "resolver_preload", "resolver_pinned_accounts",
		"trusted_keys", "default_sentinel",
	} {
		keys = append(keys, key{name, d.refuse(name, static)})
	}
	return keys
}

// ocsp accepts only its being off.
func (d *decoder) ocsp(name string) func(node) {
	return func(n node) {
		if on, ok := n.value.(bool); ok && !on {
			return
		}
		d.refuse(name, "set it to false; certificates are not checked by OCSP")(n)
	}
}

// featureFlags are switches of nats-server's internals. Those that are on the
// wire are refused when they ask for another form than Herald speaks.
func (d *decoder) featureFlags(n node) {
	onWire := map[string]bool{"js_ack_fc_v2": true, "js_api_reply_v2": true}
	d.each(n, "feature_flags", func(name string, v node) {
		var on bool
		d.flag("feature_flags."+name, &on)(v)
		switch {
		case on && onWire[strings.ToLower(name)]:
			d.refuse("feature_flags."+name, "remove it; subjects keep their first form")(v)
		default:
			d.ignore("feature_flags."+name, "it switches an internal of nats-server")(v)
		}
	})
}

// jetStream reads the block, or "jetstream: enabled".
func (d *decoder) jetStream(n node, js *JetStream) {
	js.At = n.place()
	switch v := n.value.(type) {
	case bool:
		js.Enabled = v
		return
	case string:
		switch strings.ToLower(v) {
		case "enabled", "enable":
			js.Enabled = true
		case "disabled", "disable":
			js.Enabled = false
		default:
			d.fault(n, "jetstream wants enabled, disabled or a block { }, not %s", n.kind())
		}
		return
	}
	js.Enabled = true
	const queue = "Herald bounds its queues by itself"
	const raft = "Herald shares a few groups between all topics"
	d.block(n, "jetstream", []key{
		{"enabled|enable", d.flag("enabled", &js.Enabled)},
		{"strict", d.flag("strict", &js.Strict)},
		{"store_dir|storedir|store", d.text("store_dir", &js.StoreDir)},
		{"sync|sync_interval", d.sync(js)},
		{"max_memory_store|max_mem_store|max_mem", d.share("max_memory_store", &js.MaxMemory)},
		{"max_file_store|max_file", d.share("max_file_store", &js.MaxStore)},
		{"domain", d.domain(&js.Domain)},
		{"limits", func(n node) { d.jetStreamLimits(n, &js.Limits) }},
		{"unique_tag", d.refuse("unique_tag", "servers have no tags; the replicas of a stream are on different servers anyway")},
		{"request_queue_limit", d.number("request_queue_limit", &js.RequestQueue, 0, math.MaxInt32)},
		{"info_queue_limit", d.ignore("info_queue_limit", queue)},
		{"max_outstanding_catchup", d.ignore("max_outstanding_catchup", raft)},
		{"max_buffered_size", d.ignore("max_buffered_size", queue)},
		{"max_buffered_msgs", d.ignore("max_buffered_msgs", queue)},
		{"max_concurrent_io", d.ignore("max_concurrent_io", queue)},
		{"meta_compact", d.ignore("meta_compact", raft)},
		{"meta_compact_size", d.ignore("meta_compact_size", raft)},
		{"meta_compact_sync", d.ignore("meta_compact_sync", raft)},
		{"extension_hint", d.refuse("extension_hint", "a cluster does not extend another's JetStream")},
		{"key|ek|encryption_key", d.refuse("jetstream encryption", "encrypt the disk below the store directory")},
		{"prev_key|prev_ek|prev_encryption_key", d.refuse("jetstream encryption", "encrypt the disk below the store directory")},
		{"cipher", d.refuse("jetstream encryption", "encrypt the disk below the store directory")},
		{"tpm", d.refuse("tpm", "encrypt the disk below the store directory")},
	})
}

func (d *decoder) domain(to *string) func(node) {
	return func(n node) {
		d.text("domain", to)(n)
		if strings.ContainsAny(*to, ". *>\t") {
			d.fault(n, "domain must be one word without '.', '*', '>'")
		}
	}
}

// sync reads nats-server's sync_interval. Herald syncs before every
// acknowledgement whatever it says: "always" is what it does, and an interval
// asks for less than it keeps.
func (d *decoder) sync(js *JetStream) func(node) {
	return func(n node) {
		if s, ok := n.value.(string); ok && strings.EqualFold(s, "always") {
			js.SyncAlways = true
			return
		}
		faults := len(d.faults)
		d.span("sync_interval", &js.SyncInterval)(n)
		if len(d.faults) == faults {
			d.warn(n, "sync_interval is ignored: Herald syncs to disk before it acknowledges")
		}
	}
}

// share reads a size, or a percentage of the machine ("80%"), which Herald
// takes as "as the machine allows" only at 100 %.
func (d *decoder) share(name string, to *int64) func(node) {
	return func(n node) {
		if s, ok := n.value.(string); ok && strings.HasSuffix(s, "%") {
			d.fault(n, "%s in percent is not supported by Herald: give a size such as 10GB", name)
			return
		}
		d.size(name, to)(n)
	}
}

func (d *decoder) jetStreamLimits(n node, l *JetStreamLimits) {
	const most = math.MaxInt32
	d.block(n, "limits", []key{
		{"max_ack_pending", d.number("max_ack_pending", &l.MaxAckPending, -1, most)},
		{"max_ha_assets", d.number("max_ha_assets", &l.MaxHAAssets, 0, most)},
		{"max_request_batch", d.number("max_request_batch", &l.MaxRequestBatch, 0, most)},
		{"default_max_consumers", d.number("default_max_consumers", &l.DefaultMaxConsumers, -1, most)},
		{"duplicate_window", d.span("duplicate_window", &l.DuplicateWindow)},
		{"batch", func(n node) {
			d.block(n, "batch", []key{
				{"max_inflight_per_stream", d.number("max_inflight_per_stream", &l.BatchPerStream, 0, most)},
				{"max_inflight_total", d.number("max_inflight_total", &l.BatchTotal, 0, most)},
				{"max_msgs", d.number("max_msgs", &l.BatchMessages, 0, most)},
				{"timeout", d.span("timeout", &l.BatchTimeout)},
			})
		}},
	})
}

// websocket reads the block of the websocket listener.
func (d *decoder) websocket(n node, w *Websocket) {
	w.At = n.place()
	d.block(n, "websocket", []key{
		{"listen", d.hostPort("listen", &w.Host, &w.Port)},
		{"host|net", d.text("host", &w.Host)},
		{"port", d.number("port", &w.Port, -1, 65535)},
		{"advertise", d.text("advertise", &w.Advertise)},
		{"no_tls", d.flag("no_tls", &w.NoTLS)},
		{"tls", func(n node) { w.TLS = d.tls(n, "websocket tls") }},
		{"same_origin", d.flag("same_origin", &w.SameOrigin)},
		{"allowed_origins|allowed_origin|allow_origins|allow_origin|origins|origin", d.texts("allowed_origins", &w.AllowedOrigins)},
		{"handshake_timeout", d.span("handshake_timeout", &w.HandshakeTimeout)},
		{"compress|compression", d.flag("compression", &w.Compression)},
		{"ping_interval", d.span("ping_interval", &w.PingInterval)},
		{"authorization|authentication", d.refuse("websocket authorization", "list users in authorization { } or accounts { }, with allowed_connection_types where they differ")},
		{"no_auth_user", d.text("no_auth_user", &w.NoAuthUser)},
		{"jwt_cookie", d.refuse("jwt_cookie", "use user_cookie and pass_cookie, or token_cookie")},
		{"user_cookie", d.text("user_cookie", &w.UserCookie)},
		{"pass_cookie", d.text("pass_cookie", &w.PassCookie)},
		{"token_cookie", d.text("token_cookie", &w.TokenCookie)},
		{"headers", d.textMap("headers", &w.Headers)},
	})
	if w.Port == 0 {
		d.fault(n, "websocket wants a port (-1 = any free one)")
	}
	if w.TLS == nil && !w.NoTLS {
		d.fault(n, "websocket wants tls { cert_file, key_file }, or no_tls: true for plain connections")
	}
}
