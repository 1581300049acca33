package config

import "strings"

// help is what only a person can say of a key. def tells a default that config show
// doesn't.
type help struct{ does, example, def string }

// shared are blocks that stand in more than one place.
var shared = []string{"certs", "tls", "users", "permissions"}

// helpOn finds the help on a key, also where its block is known by another place.
func helpOn(key string) (help, bool) {
	if h, ok := helps[key]; ok {
		return h, true
	}
	for _, name := range []string{"default_permissions", "default_permission", "permission"} {
		key = strings.Replace(key+".", "."+name+".", ".permissions.", 1)
		key = strings.TrimSuffix(key, ".")
	}
	for _, block := range shared {
		if i := strings.LastIndex(key+".", "."+block+"."); i > 0 {
			if h, ok := helps[key[i+1:]]; ok {
				h.example = placed(key, h.example)
				return h, true
			}
		}
	}
	return help{}, false
}

// placed puts the example of a shared block to where the key stands.
func placed(key, example string) string {
	if rest, ok := strings.CutPrefix(example, "authorization { "); ok && strings.HasPrefix(key, "accounts.") {
		return "accounts { NAME { " + rest + " }"
	}
	if !strings.HasPrefix(example, "tls {") {
		return example
	}
	switch {
	case strings.HasPrefix(key, "websocket."):
		return "websocket { port: 8080, " + example + " }"
	case strings.HasPrefix(key, "cluster."):
		if !strings.Contains(example, "ca_file") {
			example = strings.Replace(example, "tls {", `tls { ca_file: "ca.pem",`, 1)
		}
		return "server_name: n1, cluster { port: 6222, " + example + " }"
	}
	return example
}

const (
	httpDoes = "Serves nats-server's monitoring pages, /metrics, health checks, the console and, if web is on, /subscribe and /publish"
	origins  = "Web pages that may connect beside those of the listener's own host"
	cookie   = "Name of a cookie that is taken for "
)

var helps = map[string]help{
	"listen":                    {"Where clients connect: host and port in one", `listen: "127.0.0.1:4222"`, "127.0.0.1:4222"},
	"host":                      {"Interface for clients. Loopback unless said otherwise, so that nobody is let in by accident", `host: "0.0.0.0"`, ""},
	"port":                      {"Port for clients; -1 takes any free one", `port: 4223`, ""},
	"server_name":               {"Name of this server: unique in its cluster, and kept for good, as the others know it by it", `server_name: "n1"`, "an id, new at each start"},
	"client_advertise":          {"Address that clients are told instead of the listener's, behind NAT for example", `client_advertise: "broker.example:4222"`, ""},
	"http":                      {httpDoes, `http: "127.0.0.1:8222"`, "off"},
	"https":                     {"The same with TLS, by the tls block", `https: "0.0.0.0:8443", tls { cert_file: "server.pem", key_file: "server-key.pem" }`, "off"},
	"http_port":                 {httpDoes, `http_port: 8222`, "off"},
	"https_port":                {"The same with TLS, by the tls block", `https_port: 8443, tls { cert_file: "server.pem", key_file: "server-key.pem" }`, "off"},
	"http_base_path":            {"Stands in front of every path of the HTTP port", `http_base_path: "/herald"`, ""},
	"websocket":                 {"A listener for NATS clients by websocket", `websocket { port: 8080, no_tls: true }`, "off"},
	"websocket.listen":          {"Where websocket clients connect", `websocket { listen: "0.0.0.0:8080", no_tls: true }`, ""},
	"websocket.host":            {"Interface for websocket clients", `websocket { host: "0.0.0.0", port: 8080, no_tls: true }`, ""},
	"websocket.port":            {"Port for websocket clients; -1 takes any free one", `websocket { port: 8080, no_tls: true }`, "off"},
	"websocket.advertise":       {"Address that websocket clients are told instead of the listener's", `websocket { port: 8080, no_tls: true, advertise: "ws.example:443" }`, ""},
	"websocket.no_tls":          {"Speak plain websocket: something in front ends TLS, or nobody listens", `websocket { port: 8080, no_tls: true }`, ""},
	"websocket.same_origin":     {"Only pages of the listener's own host may connect, and allowed_origins", `websocket { port: 8080, no_tls: true, same_origin: false }`, ""},
	"websocket.allowed_origins": {origins, `websocket { port: 8080, no_tls: true, allowed_origins: ["https://app.example"] }`, ""},
	"websocket.handshake_timeout": {
		"How long a client may take to become a websocket", `websocket { port: 8080, no_tls: true, handshake_timeout: "5s" }`, "",
	},
	"websocket.compress":      {"Compress frames, for clients that ask", `websocket { port: 8080, no_tls: true, compression: true }`, ""},
	"websocket.ping_interval": {"Between the pings of websocket clients; 0 is ping_interval", `websocket { port: 8080, no_tls: true, ping_interval: "30s" }`, ""},
	"websocket.no_auth_user":  {"User that websocket clients without credentials are", `authorization { users: [{user: web, password: "x"}] }, websocket { port: 8080, no_tls: true, no_auth_user: web }`, ""},
	"websocket.user_cookie":   {cookie + "the user", `websocket { port: 8080, no_tls: true, user_cookie: "u" }`, ""},
	"websocket.pass_cookie":   {cookie + "the password", `websocket { port: 8080, no_tls: true, pass_cookie: "p" }`, ""},
	"websocket.token_cookie":  {cookie + "the token", `websocket { port: 8080, no_tls: true, token_cookie: "t" }`, ""},
	"websocket.headers":       {"Headers of the answer to the handshake", `websocket { port: 8080, no_tls: true, headers { "X-Node": "n1" } }`, ""},
	"web":                     {"Serves /subscribe and /publish on the HTTP port, for browsers and curl: docs/web.md. Off also on loopback, which pages in a browser reach", `web: enabled`, ""},
	"web.enabled":             {"Turns the block on or off", `web { enabled: true }`, ""},
	"web.same_origin":         {"Only pages of the same host may use it, and allowed_origins; false lets in any page, without cookies", `web { same_origin: false }`, ""},
	"web.allowed_origins":     {"Web pages that may use it beside those of the same host; the console's, too", `web { allowed_origins: ["https://app.example"] }`, ""},
	"web.user_cookie":         {cookie + "the user", `web { user_cookie: "u" }`, ""},
	"web.pass_cookie":         {cookie + "the password", `web { pass_cookie: "p" }`, ""},
	"web.token_cookie":        {cookie + "the token", `web { token_cookie: "t" }`, ""},
	"web.max_connections":     {"Subscribers at once; others get 503", `web { max_connections: 100 }`, "4096"},
	"web.max_pending":         {"Bytes that may wait for one subscriber; a live one with more is cut as too slow", `web { max_pending: 1MB }`, "8388608"},
	"web.heartbeat":           {"Between signs of life", `web { heartbeat: "30s" }`, `"15s"`},
	"web.write_deadline":      {"How long one write to a subscriber may take before it is cut", `web { write_deadline: "5s" }`, "write_deadline"},
	"console":                 {"The page at /console/ of the HTTP port: it shows what is there, as the user who signs in, and only reads. Where nobody needs to sign in it is served on loopback only", `console: disabled`, ""},

	"cluster":                    {"Joins this node to others: docs/cluster.md", `server_name: n1, cluster { name: c, listen: "0.0.0.0:6222", routes: ["nats-route://n2:6222"], authorization { user: u, password: "secret" } }`, "off"},
	"cluster.name":               {"Name of the cluster: the same on all nodes", `cluster { name: "main" }`, DefaultClusterName},
	"cluster.listen":             {"Where other nodes connect", `server_name: n1, cluster { listen: "127.0.0.1:6222" }`, ""},
	"cluster.host":               {"Interface for other nodes", `server_name: n1, cluster { host: "127.0.0.1", port: 6222 }`, ""},
	"cluster.port":               {"Port for other nodes; -1 takes any free one", `server_name: n1, cluster { port: 6223 }`, "6222 in a block"},
	"cluster.advertise":          {"Address that other nodes are told instead of the listener's", `server_name: n1, cluster { port: 6222, advertise: "n1.example:6222" }`, ""},
	"cluster.no_advertise":       {"Don't tell clients of the other nodes: they then fail over only to those they were given", `server_name: n1, cluster { port: 6222, no_advertise: true }`, ""},
	"cluster.write_first":        {"A leader sends entries when it has written them, not while it writes: slower, for comparison", `server_name: n1, cluster { port: 6222, write_first: true }`, ""},
	"cluster.routes":             {"Addresses of other nodes; one that is there is enough, the others are heard of", `server_name: n1, cluster { port: 6222, routes: ["nats-route://n2:6222", "nats-route://n3:6222"] }`, ""},
	"cluster.authorization":      {"The secret that nodes prove to each other to know, before anything is read", `server_name: n1, cluster { port: 6222, authorization { user: u, password: "secret" } }`, ""},
	"cluster.authorization.user": {"Part of the secret", `server_name: n1, cluster { port: 6222, authorization { user: u, password: "secret" } }`, ""},
	"cluster.authorization.pass": {"Part of the secret", `server_name: n1, cluster { port: 6222, authorization { user: u, password: "secret" } }`, ""},
	"cluster.authorization.token": {
		"The secret, instead of user and password", `server_name: n1, cluster { port: 6222, authorization { token: "secret" } }`, "",
	},
	"cluster.authorization.timeout": {"How long a node may take to prove itself", `server_name: n1, cluster { port: 6222, authorization { token: "secret", timeout: 5 } }`, ""},

	"tls":                       {"Speak TLS to clients", `tls { cert_file: "server.pem", key_file: "server-key.pem" }`, "off"},
	"tls.cert_file":             {"Certificate, PEM", `tls { cert_file: "server.pem", key_file: "server-key.pem" }`, ""},
	"tls.key_file":              {"Its private key, PEM", `tls { cert_file: "server.pem", key_file: "server-key.pem" }`, ""},
	"tls.certs":                 {"Several pairs of certificate and key, chosen by the name that is asked for", `tls { certs: [{ cert_file: "a.pem", key_file: "a-key.pem" }] }`, ""},
	"tls.certs.cert_file":       {"Certificate, PEM", `tls { certs: [{ cert_file: "a.pem", key_file: "a-key.pem" }] }`, ""},
	"tls.certs.key_file":        {"Its private key, PEM", `tls { certs: [{ cert_file: "a.pem", key_file: "a-key.pem" }] }`, ""},
	"certs.cert_file":           {"Certificate, PEM", `tls { certs: [{ cert_file: "a.pem", key_file: "a-key.pem" }] }`, ""},
	"certs.key_file":            {"Its private key, PEM", `tls { certs: [{ cert_file: "a.pem", key_file: "a-key.pem" }] }`, ""},
	"tls.ca_file":               {"Authority of the others' certificates, PEM", `tls { cert_file: "server.pem", key_file: "server-key.pem", ca_file: "ca.pem", verify: true }`, ""},
	"tls.verify":                {"The other side must show a certificate of that authority", `tls { cert_file: "server.pem", key_file: "server-key.pem", ca_file: "ca.pem", verify: true }`, "false"},
	"tls.verify_and_map":        {"The same, and the certificate says which user it is", `tls { cert_file: "server.pem", key_file: "server-key.pem", ca_file: "ca.pem", verify_and_map: true }`, "false"},
	"tls.insecure":              {"Means nothing for a listener: it has nothing to skip", `tls { cert_file: "server.pem", key_file: "server-key.pem", insecure: false }`, "false"},
	"tls.timeout":               {"How long a handshake may take; a number is seconds", `tls { cert_file: "server.pem", key_file: "server-key.pem", timeout: 5 }`, `"2s"`},
	"tls.handshake_first":       {"TLS before anything else is said. A duration: if the client begins in this time", `tls { cert_file: "server.pem", key_file: "server-key.pem", handshake_first: true }`, "false"},
	"tls.min_version":           {"The oldest version of TLS", `tls { cert_file: "server.pem", key_file: "server-key.pem", min_version: "1.3" }`, "1.2"},
	"tls.cipher_suites":         {"Suites of TLS 1.2, by Go's names", `tls { cert_file: "server.pem", key_file: "server-key.pem", cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256] }`, "Go's"},
	"tls.curve_preferences":     {"Curves for the exchange of keys", `tls { cert_file: "server.pem", key_file: "server-key.pem", curve_preferences: [X25519] }`, "Go's"},
	"tls.pinned_certs":          {"SHA-256 of the public keys that are let in, in hex", `tls { cert_file: "server.pem", key_file: "server-key.pem", ca_file: "ca.pem", verify: true, pinned_certs: ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"] }`, ""},
	"tls.connection_rate_limit": {"Handshakes a second; 0 is no limit", `tls { cert_file: "server.pem", key_file: "server-key.pem", connection_rate_limit: 100 }`, "0"},
	"allow_non_tls":             {"Clients may come without TLS as well", `allow_non_tls: true`, ""},

	"server_tags":            {"Words that monitoring shows with this server", `server_tags: ["eu", "ssd"]`, ""},
	"server_metadata":        {"Names and values that monitoring shows with this server", `server_metadata { rack: "r1" }`, ""},
	"max_connections":        {"Clients at once; -1 is no limit", `max_connections: 1000`, ""},
	"max_subscriptions":      {"Subscriptions of one connection; 0 and -1 are no limit", `max_subscriptions: 100`, ""},
	"max_sub_tokens":         {"Tokens of a subject that is subscribed to; 0 is no limit", `max_sub_tokens: 16`, ""},
	"max_control_line":       {"Bytes of one line of the protocol, 512 to 1 MiB", `max_control_line: 8KB`, ""},
	"max_payload":            {"Bytes of one message, headers included, to 64 MiB", `max_payload: 8MB`, ""},
	"max_pending":            {"Bytes that may wait for one client; one with more is cut as too slow", `max_pending: 128MB`, ""},
	"max_closed_clients":     {"Closed connections that /connz?state=closed still shows", `max_closed_clients: 100`, ""},
	"ping_interval":          {"Between pings of a client that says nothing; 0 never pings", `ping_interval: "30s"`, ""},
	"ping_max":               {"Pings without an answer before a client is cut", `ping_max: 3`, ""},
	"write_deadline":         {"How long one write to a client may take before it is cut as too slow", `write_deadline: "5s"`, ""},
	"write_timeout":          {"What follows a late write: the connection is closed. retry is refused", `write_timeout: close`, "default, which closes"},
	"no_header_support":      {"Clients can't use headers; JetStream's features that need them are off", `no_header_support: true`, ""},
	"no_fast_producer_stall": {"Publishers don't wait a moment for a subscriber that is behind: it is cut the sooner", `no_fast_producer_stall: true`, ""},
	"lame_duck_duration":     {"Over which time clients are sent away when the broker is stopped by lame duck mode", `lame_duck_duration: "30s"`, ""},
	"lame_duck_grace_period": {"How long clients are only told, before they are sent away", `lame_duck_grace_period: "5s"`, ""},
	"debug":                  {"Log debug lines", `debug: true`, ""},
	"trace":                  {"Log the protocol: payloads, too", `trace: true`, ""},
	"trace_verbose":          {"Log the protocol, the system account's as well", `trace_verbose: true`, ""},
	"max_traced_msg_len":     {"Bytes of a payload that a trace shows; 0 is all", `max_traced_msg_len: 64`, ""},
	"logtime":                {"Log lines begin with the time", `logtime: false`, ""},
	"logtime_utc":            {"That time in UTC", `logtime_utc: true`, ""},
	"log_format":             {"How log lines are written: for people, or for programs", `log_format: json`, ""},
	"log_file":               {"Log to this file instead of stderr; SIGUSR1 opens it anew", `log_file: "/var/log/herald.log"`, "stderr"},
	"logfile_size_limit":     {"Rotate the file at this size; 0 never", `logfile_size_limit: 64MB`, ""},
	"logfile_max_num":        {"Rotated files that are kept; 0 is all", `logfile_max_num: 5`, ""},
	"prof_port":              {"Port of 127.0.0.1 where Go's profiles are, at /debug/pprof/: they show what is in memory", `prof_port: 6060`, "off"},
	"pid_file":               {"File for the process id", `pid_file: "/run/herald.pid"`, ""},
	"ports_file_dir":         {"Directory for a file with the ports in use", `ports_file_dir: "/run"`, ""},

	"authorization":                           {"Who may connect, where there is one account only: a user, a token, or users. Without it and accounts everybody is let in", `authorization { users: [{ user: app, password: "secret" }] }`, ""},
	"authorization.user":                      {"The only user", `authorization { user: app, password: "secret" }`, ""},
	"authorization.pass":                      {"Its password, or the bcrypt hash of it", `authorization { user: app, password: "secret" }`, ""},
	"authorization.token":                     {"A token that clients must show, or its bcrypt hash", `authorization { token: "secret" }`, ""},
	"authorization.timeout":                   {"How long a client may take to show who it is; a number is seconds", `authorization { user: app, password: "secret", timeout: 5 }`, ""},
	"authorization.default_permission":        {"Permissions of users without their own", `authorization { users: [{ user: a, password: "x" }], default_permissions { publish: "a.>" } }`, ""},
	"users":                                   {"Those who may connect", `authorization { users: [{ user: a, password: "secret" }] }`, ""},
	"users.user":                              {"Name of a user", `authorization { users: [{ user: a, password: "secret" }] }`, ""},
	"users.pass":                              {"Its password, or the bcrypt hash of it", `authorization { users: [{ user: a, password: "secret" }] }`, ""},
	"users.nkey":                              {"Public nkey of a user, instead of name and password", `authorization { users: [{ nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }] }`, ""},
	"users.permissions":                       {"What the user may publish, subscribe to, advertise and discover", `authorization { users: [{ user: a, password: "x", permissions { publish: "a.>", subscribe: ["b.>", "_INBOX.>"] } }] }`, "everything"},
	"users.allowed_connection_types":          {"By which listeners the user may come", `authorization { users: [{ user: a, password: "x", allowed_connection_types: [WEBSOCKET] }] }`, "all"},
	"permissions.pub":                         {"Subjects that may be published", `authorization { users: [{ user: a, password: "x", permissions { publish { allow: "a.>", deny: "a.secret" } } }] }`, "all"},
	"permissions.sub":                         {"Subjects that may be subscribed to; a word behind one is a queue group", `authorization { users: [{ user: a, password: "x", permissions { subscribe: ["a.>", "_INBOX.>"] } }] }`, "all"},
	"permissions.publish_allow_responses":     {"May answer requests it was sent, whatever publish says", `authorization { users: [{ user: a, password: "x", permissions { subscribe: "svc", allow_responses { max: 1, expires: "1m" } } }] }`, "no"},
	"permissions.publish_allow_responses.max": {"Answers to each request; -1 is no limit", `authorization { users: [{ user: a, password: "x", permissions { allow_responses { max: 5 } } }] }`, "1"},
	"permissions.publish_allow_responses.expires": {
		"How long after the request", `authorization { users: [{ user: a, password: "x", permissions { allow_responses { expires: "10s" } } }] }`, `"2m0s"`,
	},
	"permissions.advertise":                         {"Subjects that may be advertised", `authorization { users: [{ user: a, password: "x", permissions { advertise: "a.>" } }] }`, "what may be published"},
	"permissions.discover":                          {"Advertisements that are seen", `authorization { users: [{ user: a, password: "x", permissions { discover: "a.>" } }] }`, "what may be subscribed to"},
	"permissions.sample":                            {"Subjects of which samples may be asked for", `authorization { users: [{ user: a, password: "x", permissions { sample: "a.>" } }] }`, "what may be subscribed to"},
	"permissions.enforce":                           {"Subjects for which an advertisement may refuse messages", `authorization { users: [{ user: a, password: "x", permissions { enforce: "a.>" } }] }`, "what may be advertised"},
	"accounts.NAME":                                 {"An account: its users, subjects and topics are apart from all others", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream: enabled } }`, ""},
	"accounts.NAME.nkey":                            {"Public nkey of the account, shown by monitoring", `accounts { SHOP { nkey: ADM2CIIL3RWXBA6T2HW3FODNCQQOUJEHHQD6FKCPVAMHDNTTSMO73ROX, users: [{ user: a, password: "x" }] } }`, ""},
	"accounts.NAME.jetstream":                       {"The account may have topics, and how much", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_file: 10GB } } }`, "off"},
	"accounts.NAME.limits":                          {"Bounds of the account's connections", `accounts { SHOP { users: [{ user: a, password: "x" }], limits { max_connections: 10 } } }`, ""},
	"accounts.NAME.default_permissions":             {"Permissions of the account's users without their own", `accounts { SHOP { users: [{ user: a, password: "x" }], default_permissions { publish: "a.>" } } }`, ""},
	"accounts.NAME.jetstream.max_memory":            {"Bytes of its memory topics", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_memory: 1GB } } }`, "no limit"},
	"accounts.NAME.jetstream.max_store":             {"Bytes of its file topics", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_file: 10GB } } }`, "no limit"},
	"accounts.NAME.jetstream.max_streams":           {"Topics", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_streams: 10 } } }`, "no limit"},
	"accounts.NAME.jetstream.max_consumers":         {"Consumers of all its topics", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_consumers: 100 } } }`, "no limit"},
	"accounts.NAME.jetstream.max_bytes_required":    {"A topic must have max_bytes", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_bytes_required: true } } }`, "false"},
	"accounts.NAME.jetstream.mem_max_stream_bytes":  {"The most that max_bytes of a memory topic may be", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { mem_max_stream_bytes: 100MB } } }`, "no limit"},
	"accounts.NAME.jetstream.disk_max_stream_bytes": {"The most that max_bytes of a file topic may be", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { disk_max_stream_bytes: 1GB } } }`, "no limit"},
	"accounts.NAME.jetstream.max_ack_pending":       {"The most that a consumer's max_ack_pending may be", `accounts { SHOP { users: [{ user: a, password: "x" }], jetstream { max_ack_pending: 1000 } } }`, "no limit"},
	"accounts.NAME.limits.max_connections":          {"Its connections at once, on this node", `accounts { SHOP { users: [{ user: a, password: "x" }], limits { max_connections: 10 } } }`, "no limit"},
	"accounts.NAME.limits.max_subscriptions":        {"Subscriptions of one connection", `accounts { SHOP { users: [{ user: a, password: "x" }], limits { max_subscriptions: 100 } } }`, "no limit"},
	"accounts.NAME.limits.max_payload":              {"Bytes of one message", `accounts { SHOP { users: [{ user: a, password: "x" }], limits { max_payload: 64KB } } }`, "no limit"},
	"system_account":                                {"Account of monitoring and of what operates the cluster", `accounts { OPS { users: [{ user: o, password: "x" }] } }, system_account: OPS`, "$SYS"},
	"no_system_account":                             {"There is no such account", `no_system_account: true`, ""},
	"no_auth_user":                                  {"User that clients without credentials are", `accounts { SHOP { users: [{ user: a, password: "x" }] } }, no_auth_user: a`, ""},

	"jetstream":                                      {"Durable topics: on with this block, or where there is no file at all", `jetstream { store_dir: "/var/lib/herald" }`, "off with a file"},
	"jetstream.enabled":                              {"Turns the block on or off", `jetstream { enabled: true }`, "true in a block"},
	"jetstream.strict":                               {"Refuse fields of requests that are not known", `jetstream { strict: false }`, ""},
	"jetstream.store_dir":                            {"Directory of everything that is kept; one process uses it. Put it on a disk that tells the truth about fsync", `jetstream { store_dir: "/var/lib/herald" }`, DefaultStoreDir},
	"jetstream.max_memory_store":                     {"Bytes that all memory topics of this node may hold; 0 as the machine allows, -1 no limit", `jetstream { max_memory_store: 1GB }`, ""},
	"jetstream.max_file_store":                       {"Bytes that all file topics of this node may hold; 0 as the disk allows, -1 no limit", `jetstream { max_file_store: 100GB }`, ""},
	"jetstream.domain":                               {"Name that JetStream's subjects of this cluster have, for clients that ask by it", `jetstream { domain: "hub" }`, ""},
	"jetstream.limits":                               {"Bounds of what topics and consumers may ask for; 0 is none of their own", `jetstream { limits { duplicate_window: "1m" } }`, ""},
	"jetstream.limits.max_ack_pending":               {"The most that a consumer's max_ack_pending may be", `jetstream { limits { max_ack_pending: 1000 } }`, ""},
	"jetstream.limits.max_ha_assets":                 {"Topics and consumers with replicas; shown by monitoring, and bounds nothing, as they share groups", `jetstream { limits { max_ha_assets: 1000 } }`, ""},
	"jetstream.limits.max_request_batch":             {"Messages that one pull may ask for", `jetstream { limits { max_request_batch: 500 } }`, ""},
	"jetstream.limits.default_max_consumers":         {"Consumers of a topic that says nothing itself", `jetstream { limits { default_max_consumers: 100 } }`, ""},
	"jetstream.limits.duplicate_window":              {"The longest time that message ids may be remembered", `jetstream { limits { duplicate_window: "1m" } }`, ""},
	"jetstream.limits.batch":                         {"Bounds of publishers' atomic batches; 0 is the built-in one", `jetstream { limits { batch { max_msgs: 100 } } }`, ""},
	"jetstream.limits.batch.max_inflight_per_stream": {"Batches of one topic at a time", `jetstream { limits { batch { max_inflight_per_stream: 10 } } }`, ""},
	"jetstream.limits.batch.max_inflight_total":      {"Batches of this node at a time", `jetstream { limits { batch { max_inflight_total: 100 } } }`, ""},
	"jetstream.limits.batch.max_msgs":                {"Messages of one batch", `jetstream { limits { batch { max_msgs: 100 } } }`, ""},
	"jetstream.limits.batch.timeout":                 {"After which time without a message a batch is given up", `jetstream { limits { batch { timeout: "5s" } } }`, ""},
	"jetstream.request_queue_limit":                  {"Requests of the JetStream API that may wait; more are answered with an error. 0 is the built-in bound", `jetstream { request_queue_limit: 1000 }`, ""},
	"store_dir":                                      {"The same as jetstream.store_dir", `store_dir: "/var/lib/herald"`, DefaultStoreDir},
	"feature_flags":                                  {"Switches of nats-server's internals: ignored, but for those that would change what is said on the wire, which are refused", `feature_flags { js_ack_fc_v2: false }`, ""},
}
