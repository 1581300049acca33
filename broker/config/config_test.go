package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse reads a configuration text from a file named test.conf.
func parse(t *testing.T, text string) (*Options, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return ParseFile(path)
}

func mustParse(t *testing.T, text string) *Options {
	t.Helper()
	o, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// field reads a field by its path, "Websocket.Port".
func field(o *Options, path string) any {
	v := reflect.ValueOf(o).Elem()
	for name := range strings.SplitSeq(path, ".") {
		v = v.FieldByName(name)
	}
	return v.Interface()
}

func TestKeysAreHonoured(t *testing.T) {
	const tlsFree = `websocket { port: 8080, no_tls: true, `
	for _, c := range []struct {
		text, path string
		want       any
	}{
		{`listen: "0.0.0.0:4333"`, "Host", "0.0.0.0"},
		{`listen: "0.0.0.0:4333"`, "Port", 4333},
		{`listen: ":-1"`, "Port", -1},
		{`listen: 4334`, "Port", 4334},
		{`host: "10.1.2.3"`, "Host", "10.1.2.3"},
		{`net = localhost`, "Host", "localhost"},
		{`PORT 4335`, "Port", 4335},
		{`port: -1`, "Port", -1},
		{`server_name: "n1"`, "ServerName", "n1"},
		{`client_advertise: "host:1"`, "ClientAdvertise", "host:1"},
		{`port: 4000` + "\n" + `client_advertise: "host"`, "ClientAdvertise", "host:4000"},
		{`http: 8222`, "HTTP.Port", 8222},
		{`http: "0.0.0.0:8223"`, "HTTP.Host", "0.0.0.0"},
		{`http: "127.0.0.1:-1"`, "HTTP.Port", -1},
		{`monitor_port: 8224`, "HTTP.Port", 8224},
		{`http_base_path: mon`, "HTTP.BasePath", "/mon"},
		{`server_tags: ["a", "b"]`, "Tags", []string{"a", "b"}},
		{`server_tags: a`, "Tags", []string{"a"}},
		{`server_metadata { rack: r1 }`, "Metadata", map[string]string{"rack": "r1"}},
		{`cluster { name: east }`, "Cluster.Name", "east"},
		{`cluster { name: east }`, "Cluster.Port", 0},
		{`cluster { listen: "127.0.0.1:7222" }`, "Cluster.Port", 7222},
		{`cluster { routes: ["nats://h:1"] }`, "Cluster.Port", DefaultClusterPort},
		{`cluster { routes: ["nats-route://u:p@h:1", "nats-route://u:p@[::1]:2"] }`, "Cluster.Routes", []string{"h:1", "[::1]:2"}},
		{`cluster { routes: "nats-route://u:p@h" }`, "Cluster.Password", "p"},
		{`cluster { port: 1, advertise: "h:2" }`, "Cluster.Advertise", "h:2"},
		{`cluster { port: 1, no_advertise: true }`, "Cluster.NoAdvertise", true},
		{`cluster { port: 1, write_first: true }`, "Cluster.WriteFirst", true},
		{`cluster { port: 1, host: "0.0.0.0", authorization { token: t } }`, "Cluster.Password", "t"},
		{`cluster { port: 1, pool_size: 3, compression: s2_auto, ping_interval: 2, connect_retries: 5, authorization { user: u, password: p, timeout: 3 } }`, "Cluster.AuthTimeout", 3 * time.Second},
		{`max_connections: 10`, "MaxConnections", 10},
		{`max_subs: 11`, "MaxSubscriptions", 11},
		{`max_sub_tokens: 8`, "MaxSubTokens", 8},
		{`max_control_line: 2KB`, "MaxControlLine", 2048},
		{`max_payload: 2MB`, "MaxPayload", 2 << 20},
		{`max_payload: "2MiB"`, "MaxPayload", 2 << 20},
		{`max_pending: 10M`, "MaxPending", int64(10_000_000)},
		{`max_closed_clients: 5`, "MaxClosedClients", 5},
		{`ping_interval: "30s"`, "PingInterval", 30 * time.Second},
		{`ping_interval: 30`, "PingInterval", 30 * time.Second},
		{`ping_max: 3`, "PingMax", 3},
		{`write_deadline: "5s"`, "WriteDeadline", 5 * time.Second},
		{`no_header_support: true`, "NoHeaders", true},
		{`no_fast_producer_stall: yes`, "NoProducerStall", true},
		{"lame_duck_duration: 60s\nlame_duck_grace_period: 1s", "LameDuck", time.Minute},
		{"lame_duck_duration: 60s\nlame_duck_grace_period: 1s", "LameDuckGrace", time.Second},
		{`debug: on`, "Log.Debug", true},
		{`trace: true`, "Log.Trace", true},
		{`trace_verbose: true`, "Log.TraceAll", true},
		{`max_traced_msg_len: 12`, "Log.MaxTraced", 12},
		{`logtime: false`, "Log.Time", false},
		{`logtime_utc: true`, "Log.UTC", true},
		{`log_format: json`, "Log.Format", "json"},
		{`log_file: "/x/y.log"`, "Log.File", "/x/y.log"},
		{`logfile_size_limit: 1MB`, "Log.SizeLimit", int64(1 << 20)},
		{`logfile_max_num: 4`, "Log.MaxFiles", 4},
		{`pid_file: "/x/pid"`, "PidFile", "/x/pid"},
		{`ports_file_dir: "/x"`, "PortsDir", "/x"},
		{`authorization { user: u, password: p }`, "Auth.User", "u"},
		{`authorization { user: u, password: 1234 }`, "Auth.Password", "1234"},
		{`authorization { token: t, timeout: 1.5 }`, "Auth.Timeout", 1500 * time.Millisecond},
		{`authorization { token: t }`, "Auth.Token", "t"},
		{"accounts { S { users: [{user: s, password: s}] } }\nsystem_account: S", "SystemAccount", "S"},
		{`no_system_account: true`, "NoSystem", true},
		{"authorization { users: [{user: a, password: b}] }\nno_auth_user: a", "NoAuthUser", "a"},
		{`jetstream: enabled`, "JetStream.Enabled", true},
		{`jetstream: true`, "JetStream.Enabled", true},
		{`jetstream: disabled`, "JetStream.Enabled", false},
		{`jetstream {}`, "JetStream.Enabled", true},
		{`jetstream { enabled: false }`, "JetStream.Enabled", false},
		{`jetstream { store_dir: "/d" }`, "JetStream.StoreDir", "/d"},
		{`store_dir: "/d"`, "JetStream.StoreDir", "/d"},
		{``, "JetStream.StoreDir", DefaultStoreDir},
		{`jetstream { domain: hub }`, "JetStream.Domain", "hub"},
		{`jetstream { max_mem: 1GB }`, "JetStream.MaxMemory", int64(1 << 30)},
		{`jetstream { max_file: 1G }`, "JetStream.MaxStore", int64(1e9)},
		{`jetstream { strict: false }`, "JetStream.Strict", false},
		{`jetstream { sync_interval: always }`, "JetStream.SyncAlways", true},
		{`jetstream { request_queue_limit: 7 }`, "JetStream.RequestQueue", 7},
		{`jetstream { limits { default_max_consumers: 9 } }`, "JetStream.Limits.DefaultMaxConsumers", 9},
		{`jetstream { limits { batch { max_inflight_per_stream: 9 } } }`, "JetStream.Limits.BatchPerStream", 9},
		{`jetstream { limits { max_ack_pending: 9 } }`, "JetStream.Limits.MaxAckPending", 9},
		{`jetstream { limits { max_ha_assets: 9 } }`, "JetStream.Limits.MaxHAAssets", 9},
		{`jetstream { limits { max_request_batch: 9 } }`, "JetStream.Limits.MaxRequestBatch", 9},
		{`jetstream { limits { duplicate_window: "1m" } }`, "JetStream.Limits.DuplicateWindow", time.Minute},
		{tlsFree + `}`, "Websocket.Port", 8080},
		{`websocket { listen: "1.2.3.4:81", no_tls: true }`, "Websocket.Host", "1.2.3.4"},
		{tlsFree + `advertise: "h:1" }`, "Websocket.Advertise", "h:1"},
		{tlsFree + `same_origin: false }`, "Websocket.SameOrigin", false},
		{tlsFree + `}`, "Websocket.SameOrigin", true},
		{tlsFree + `allowed_origins: ["http://a"] }`, "Websocket.AllowedOrigins", []string{"http://a"}},
		{tlsFree + `compression: true }`, "Websocket.Compression", true},
		{tlsFree + `handshake_timeout: "3s" }`, "Websocket.HandshakeTimeout", 3 * time.Second},
		{tlsFree + `ping_interval: "3s" }`, "Websocket.PingInterval", 3 * time.Second},
		{tlsFree + `user_cookie: u, pass_cookie: p, token_cookie: t }`, "Websocket.TokenCookie", "t"},
		{tlsFree + `headers { X: y } }`, "Websocket.Headers", map[string]string{"X": "y"}},
		{`name = "n9"` + "\n" + `server_name: $name`, "ServerName", "n9"},
	} {
		o, err := parse(t, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := field(o, c.path); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s is %v, want %v", c.text, c.path, got, c.want)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ text, place, want string }{
		{`max_paylod: 1`, ":1:1", `unknown key "max_paylod" (did you mean "max_payload"?)`},
		{"debug: true\n  foobarbaz: 1", ":2:3", `unknown key "foobarbaz"`},
		{"jetstream {\n  stor_dir: x\n}", ":2:3", `unknown key "stor_dir" in jetstream (did you mean "store_dir"?)`},
		{`port: "abc"`, ":1:1", `port wants a number, not text "abc"`},
		{`port: 70000`, ":1:1", `port wants a number from -1 to 65535, not 70000`},
		{`host: [a]`, ":1:1", `host wants text, not a list`},
		{`debug: 3`, ":1:1", `debug wants true or false, not number 3`},
		{`ping_interval: soon`, ":1:1", `ping_interval wants a duration such as "2s", not text "soon"`},
		{`max_payload: big`, ":1:1", `max_payload wants a size such as 64MB, not text "big"`},
		{`max_payload: 1GB`, ":1:1", `max_payload wants a size from 1 to`},
		{`listen: "nope"`, ":1:1", `listen wants "host:port"`},
		{`accounts: 3`, ":1:1", `accounts wants`},
		{`jetstream: maybe`, ":1:1", `jetstream wants enabled, disabled or a block`},
		{`cluster { port: 99999 }`, ":1:11", `cluster.port wants a number from -1 to 65535`},
		{`cluster { routes: ["nats://a:1", "ftp://s3cr3t:x@b:1"] }`, ":1:35", `not ftp://`},
		{`cluster { routes: [ 5 ] }`, ":1:21", `routes want text`},
		{`cluster { routes: "nats://a:0" }`, ":1:11", `a port from 1 to 65535`},
		{`cluster { authorization { user: u } }`, ":1:11", `wants a user and a password`},
		{`cluster { authorization { user: u, token: t } }`, ":1:11", `both a token and a user`},
		{`cluster { authorization { user: u, password: "$2a$11$x" } }`, ":1:11", `not its bcrypt hash`},
		{`cluster { authorization { user: u, password: p }, routes: ["nats://u:q@h:1"] }`, ":1:61", `must be the same`},
		{`cluster { listen: "0.0.0.0:6222" }`, ":1:1", `it must stay on 127.0.0.1`},
		{`cluster { permissions { } }`, ":1:11", `cluster.permissions is not supported`},
		{`cluster { listne: 1 }`, ":1:11", `did you mean "listen"`},
		{`cluster { tls { cert_file: "x" } }`, ":1:11", `cluster tls wants`},
		{`cluster { name: "a b" }`, ":1:11", `cluster.name can't contain spaces`},
		{"jetstream: true\ncluster { port: 6222 }", ":2:1", `want a server_name`},
		{"server_name: a/b\ncluster { port: 6222 }", ":2:1", `without '/'`},
		{"port: 6222\ncluster { port: 6222 }", ":2:1", `where clients do`},
		{`gateway { name: x }`, ":1:1", `gateway is not supported by Herald`},
		{`leafnodes { port: 1 }`, ":1:1", `leafnodes is not supported by Herald`},
		{`mqtt { port: 1883 }`, ":1:1", `mqtt is not supported by Herald`},
		{`operator: "/x.jwt"`, ":1:1", `operator is not supported by Herald: list users`},
		{`resolver: MEMORY`, ":1:1", `resolver is not supported by Herald`},
		{`syslog: true`, ":1:1", `syslog is not supported by Herald`},
		{`mappings { a: b }`, ":1:1", `mappings is not supported by Herald`},
		{`jetstream { key: "abc" }`, ":1:13", `jetstream encryption is not supported by Herald`},
		{`jetstream { unique_tag: az }`, ":1:13", `unique_tag is not supported by Herald`},
		{`jetstream { limits { batch { max_msgs: -1 } } }`, ":1:30", `max_msgs`},
		{`jetstream { max_file: "80%" }`, ":1:13", `max_file_store in percent is not supported`},
		{`authorization { user: u, token: t }`, ":1:1", `authorization can't have both`},
		{`authorization { password: hunter2 }`, ":1:1", `authorization has a password but no user`},
		{`authorization { users: [ {password: x} ] }`, ":1:27", `a user wants a name or an nkey`},
		{`authorization { users: [ {nkey: XYZ} ] }`, ":1:27", `nkey wants a public key that starts with "U"`},
		{"authorization { users: [ {user: a, password: x}\n {user: a, password: y} ] }", ":2:3", `user "a" is defined twice`},
		{`authorization { users: [ {user: a, allowed_connection_types: [CARRIER_PIGEON]} ] }`, ":1:63", `allowed_connection_types wants some of`},
		{`authorization { users: [ {user: a, permissions: { publish: "a..b" } } ] }`, ":1:51", `permissions want subjects`},
		{`authorization { users: [ {user: a, permissions: { publis: "a" } } ] }`, ":1:51", `unknown key "publis" in permissions (did you mean "publish"?)`},
		{`authorization { auth_callout { issuer: x } }`, ":1:17", `auth_callout is not supported`},
		{`accounts { A { exports: [ {stream: x} ] } }`, ":1:16", `exports is not supported by Herald`},
		{`accounts { $G { users: [] } }`, "", `account "$G" is built in`},
		{`no_auth_user: nobody`, "", `no_auth_user "nobody" is not among the users`},
		{`system_account: NOPE`, "", `system_account "NOPE" is not among the accounts`},
		{`websocket { port: 80 }`, ":1:1", `websocket wants tls { cert_file, key_file }, or no_tls: true`},
		{`websocket { no_tls: true }`, ":1:1", `websocket wants a port`},
		{`tls { cert_file: "/nope.pem", key_file: "/nope.key" }`, ":1:1", `tls: certificate /nope.pem`},
		{`tls { }`, ":1:1", `tls wants cert_file and key_file`},
		{`tls { cert_file: a, key_file: b, min_version: "1.1" }`, ":1:34", `min_version wants "1.2" or "1.3"`},
		{`tls { cert_file: a, key_file: b, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA] }`, "", `is not known or not safe`},
		{`https: 8443`, ":1:1", `https wants tls`},
		{"max_pending: 1KB\nmax_payload: 1MB", "", `max_payload (1048576) can't be larger than max_pending (1024)`},
		{"port: {", ":", `not in the grammar`},
		{"port: $NOT_THERE_AT_ALL", "", `NOT_THERE_AT_ALL`},
	} {
		_, err := parse(t, c.text)
		var faults Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: got %v, want a fault %q", c.text, err, c.want)
			continue
		}
		if !slices.ContainsFunc(faults, func(f Fault) bool {
			return strings.HasSuffix(f.Place, "test.conf"+c.place) && strings.Contains(f.Text, c.want) ||
				c.place == "" && strings.Contains(f.Text, c.want) || c.place == ":" && strings.Contains(f.Place, "test.conf:") && strings.Contains(f.Text, c.want)
		}) {
			t.Errorf("%s:\n got %v\nwant %s at %s", c.text, err, c.want, c.place)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := parse(t, "port: x\nhost: true\nfoo: 1\njetstream { bar: 2 }\n")
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 4 {
		t.Errorf("got %v, want four faults", err)
	}
}

func TestFaultsShowNoSecret(t *testing.T) {
	const secret = "hunter2-s3cr3t"
	for _, text := range []string{
		`authorization { password: "` + secret + `" }`,
		`authorization { user: u, password: ["` + secret + `"] }`,
		`authorization { token: { a: "` + secret + `" } }`,
		`authorization { users: [ {user: a, password: "` + secret + `"}, {user: a, password: "` + secret + `"} ] }`,
		`authorization { users: [ {nkey: "` + secret + `"} ] }`,
		`accounts { A { users: [ {pasword: "` + secret + `", user: a} ] } }`,
	} {
		if _, err := parse(t, text); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAccounts(t *testing.T) {
	o := mustParse(t, `
accounts {
  B { users: [ {user: b, password: b} ], jetstream: { max_mem: 1MB, max_file: 2MB, max_streams: 3, max_consumers: 4, max_ack_pending: 5 } }
  A {
    users: [ {user: a, password: a, permissions: { publish: { allow: ["x.>"], deny: "x.y" }, subscribe: "q.* workers", allow_responses: { max: 5, expires: "1m" } } } ]
    default_permissions: { publish: "d" }
    limits: { max_connections: 1, max_subscriptions: 2, max_payload: 3KB }
  }
}`)
	if len(o.Accounts) != 2 || o.Accounts[0].Name != "A" || o.Accounts[1].Name != "B" {
		t.Fatalf("accounts %v", o.Accounts)
	}
	a, b := o.Accounts[0], o.Accounts[1]
	if a.MaxConnections != 1 || a.MaxSubscriptions != 2 || a.MaxPayload != 3072 || a.JetStream != nil || a.Default == nil {
		t.Errorf("A is %+v", a)
	}
	want := &Permissions{
		Publish:   &Subjects{Allow: []string{"x.>"}, Deny: []string{"x.y"}},
		Subscribe: &Subjects{Allow: []string{"q.* workers"}},
		Responses: &Responses{Max: 5, Expires: time.Minute},
	}
	if !reflect.DeepEqual(a.Users[0].Permissions, want) {
		t.Errorf("permissions %+v", a.Users[0].Permissions)
	}
	if l := b.JetStream; l == nil || l.MaxMemory != 1<<20 || l.MaxStore != 2<<20 || l.MaxStreams != 3 || l.MaxConsumers != 4 || l.MaxAckPending != 5 {
		t.Errorf("B's limits %+v", b.JetStream)
	}
}

func TestDurableAccounts(t *testing.T) {
	for text, want := range map[string][]string{
		`port: 1`:         nil,
		`jetstream: true`: {"$G"},
		"jetstream: true\naccounts { A { jetstream: true }, B {} }": {"A"},
		"jetstream: true\naccounts { A {}, B {} }":                  {"$G"},
		"accounts { A { jetstream: true } }":                        nil,
	} {
		if got := mustParse(t, text).DurableAccounts(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestAnonymous is the part of the access matrix that is decided here: what
// opens the door to connections without credentials.
func TestAnonymous(t *testing.T) {
	const sys = "accounts { SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS\n"
	for text, want := range map[string]bool{
		``:                                       true,
		`authorization { timeout: 1 }`:           true,
		`authorization { token: t }`:             false,
		`authorization { user: u, password: p }`: false,
		`authorization { users: [{user: u, password: p}] }`:  false,
		`accounts { A { users: [{user: u, password: p}] } }`: false,
		`accounts { A {} }`:                  true,
		sys:                                  true, // as nats-server, with a warning
		sys + `authorization { timeout: 1 }`: false,
		sys + `authorization { token: t }`:   false,
		`accounts { $SYS { users: [{user: s, password: s}] } }`:                                        true,
		`accounts { $SYS { users: [{user: s, password: s}] }, A { users: [{user: u, password: p}] } }`: false,
		`accounts { $SYS { users: [{user: s, password: s}] }, A { } }`:                                 false,
	} {
		o := mustParse(t, text)
		if got := o.Anonymous(); got != want {
			t.Errorf("%s: anonymous %t, want %t", text, got, want)
		}
		if warned := len(o.Warnings) > 0; warned != o.SystemUsersOnly() {
			t.Errorf("%s: warnings %v", text, o.Warnings)
		}
	}
}

func TestUsersWithoutPasswordWarn(t *testing.T) {
	o := mustParse(t, "authorization { users: [ {user: a}, {user: b, password: b} ] }")
	if len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0], `:1:27: user "a" has no password`) {
		t.Errorf("warnings %q", o.Warnings)
	}
}

func TestHarmlessKeysWarn(t *testing.T) {
	o := mustParse(t, "prof_block_rate: 1\nconnect_error_reports: 3\njetstream { sync_interval: \"2m\" }\nfeature_flags { js_raft_delete_range: true }\n")
	if len(o.Warnings) != 4 || !strings.Contains(o.Warnings[0], "test.conf:1:1: prof_block_rate is ignored") {
		t.Errorf("warnings %q", o.Warnings)
	}
}

func TestIncludesHaveTheirOwnPlaces(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"main.conf": "debug: true\ninclude \"sub.conf\"\n", "sub.conf": "\nbadkey: 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := ParseFile(filepath.Join(dir, "main.conf"))
	if err == nil || !strings.Contains(err.Error(), "sub.conf:2:1: unknown key") {
		t.Errorf("%v", err)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "-1": -1, "12": 12, "1k": 1000, "1KB": 1024, "1Ki": 1024, "2MiB": 2 << 20, "3G": 3e9, "1TB": 1 << 40} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "1x", "1kk", "-2", "9999999999EB", "1.5MB"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("port: 1\n")
	f.Add("accounts { A { users: [ {user: a, password: b, permissions: { publish: x } } ] } }")
	f.Add("jetstream { limits { batch { } } } websocket { port: 1 } tls { } cluster { } authorization { users: [ 1 ] }")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") { // would read files
			t.Skip()
		}
		o, err := parse(t, text)
		if (o == nil) == (err == nil) {
			t.Errorf("options %v and error %v", o, err)
		}
	})
}

func TestTheConfigurationToBeginWithIsValidAndOpensNothing(t *testing.T) {
	o, err := ParseFile("../../docs/deploy/brokerd.conf")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("../../docs/deploy/brokerd.conf"); err != nil || string(text) != Starter {
		t.Errorf("config init prints something else: %v", err)
	}
	c, err := Load("brokerd", []string{"config", "init"})
	if err != nil || c.Action != Init {
		t.Errorf("config init: %v, %v", c, err)
	}
	if _, err := Load("brokerd", []string{"config", "chekc", "x"}); err == nil || !strings.Contains(err.Error(), `did you mean "check"`) {
		t.Error(err)
	}
	if o.Host != "127.0.0.1" || o.HTTP.Host != "127.0.0.1" || o.JetStream.StoreDir != "/var/lib/herald" || len(o.Warnings) > 0 {
		t.Errorf("%s, %s, %s, %v", o.Host, o.HTTP.Host, o.JetStream.StoreDir, o.Warnings)
	}
}
