package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func load(t *testing.T, program string, args ...string) *Options {
	t.Helper()
	c, err := Load(program, args)
	if err != nil {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return c.Options
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args, path string
		want       any
	}{
		{"-a 0.0.0.0", "Host", "0.0.0.0"},
		{"--addr 1.1.1.1", "Host", "1.1.1.1"},
		{"--net=1.1.1.1", "Host", "1.1.1.1"},
		{"-p 4333", "Port", 4333},
		{"--port -1", "Port", -1},
		{"-n me", "ServerName", "me"},
		{"--name me", "ServerName", "me"},
		{"--server_name me", "ServerName", "me"},
		{"-P /x", "PidFile", "/x"},
		{"--pid /x", "PidFile", "/x"},
		{"-m 8222", "HTTP.Port", 8222},
		{"--http_port 8222", "HTTP.Port", 8222},
		{"--client_advertise a:1", "ClientAdvertise", "a:1"},
		{"--ports_file_dir /x", "PortsDir", "/x"},
		{"-l /x", "Log.File", "/x"},
		{"--log /x", "Log.File", "/x"},
		{"--log-format json", "Log.Format", "json"},
		{"-T=false", "Log.Time", false},
		{"--logtime=false", "Log.Time", false},
		{"--logtime_utc", "Log.UTC", true},
		{"-D", "Log.Debug", true},
		{"--debug", "Log.Debug", true},
		{"-V", "Log.Trace", true},
		{"--trace", "Log.Trace", true},
		{"-VV", "Log.TraceAll", true},
		{"-DV", "Log.Debug", true},
		{"-DV", "Log.Trace", true},
		{"-DVV", "Log.TraceAll", true},
		{"--log_size_limit 10k", "Log.SizeLimit", int64(10_000)},
		{"--max_traced_msg_len 5", "Log.MaxTraced", 5},
		{"-js", "JetStream.Enabled", true},
		{"--jetstream", "JetStream.Enabled", true},
		{"--js=false", "JetStream.Enabled", false},
		{"-sd /d", "JetStream.StoreDir", "/d"},
		{"--store_dir /d", "JetStream.StoreDir", "/d"},
		{"--user u --pass p", "Auth.User", "u"},
		{"--user u --pass p", "Auth.Password", "p"},
		{"--auth t", "Auth.Token", "t"},
		{"--cluster_name c", "Cluster.Name", "c"},
		{"--no_advertise", "Cluster.NoAdvertise", true},
		{"--cluster nats://u:p@127.0.0.1:6333 -n a", "Cluster.Port", 6333},
		{"--cluster nats://u:p@0.0.0.0:6333 -n a", "Cluster.Host", "0.0.0.0"},
		{"--cluster nats://u:p@127.0.0.1:6333 -n a", "Cluster.Password", "p"},
		{"--cluster_listen 127.0.0.1:-1 -n a", "Cluster.Port", -1},
		{"--cluster nats://127.0.0.1:6333 -n a", "Cluster.Name", DefaultClusterName},
		{"--routes nats-route://u:p@h:1,h2 -n a", "Cluster.Routes", []string{"h:1", "h2:6222"}},
		{"--routes nats-route://u:p@h:1 -n a", "Cluster.User", "u"},
		{"--routes nats://h:1 -n a", "Cluster.Port", DefaultClusterPort},
		{"--cluster :6333 --cluster_advertise h -n a", "Cluster.Advertise", "h:6333"},
		{"--cluster :6333 --connect_retries 3 -n a", "Cluster.Host", "127.0.0.1"},
		{"--profile 8000", "ProfPort", 8000},
		{"", "Host", "127.0.0.1"},
		{"", "HTTP.Port", 0},
	} {
		o := load(t, "brokerd", strings.Fields(c.args)...)
		if got := field(o, c.path); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %s is %v, want %v", c.args, c.path, got, c.want)
		}
	}
}

func TestActions(t *testing.T) {
	for args, want := range map[string]Action{
		"": Run, "-t": Check, "-v": Version, "--version": Version, "-h": Help, "--help": Help, "--help_tls": HelpTLS,
		"--signal ldm=12": SendSign, "-sl stop": SendSign, "version": Version, "help": Help,
	} {
		c, err := Load("brokerd", strings.Fields(args))
		if err != nil || c.Action != want {
			t.Errorf("%q: %v, %v; want %v", args, c, err, want)
		}
	}
}

func TestFlagFaults(t *testing.T) {
	for args, want := range map[string]string{
		"--prot 1":             "unknown flag -prot (did you mean \"-port\"?)",
		"-p x":                 "a number from -1 to 65535 is wanted",
		"--log-format xml":     "text, json or logfmt",
		"--routes http://x:1":  "not http://",
		"--routes nats://x:1":  "want a server_name",
		"--cluster nats://x:1": "it must stay on 127.0.0.1",
		"--cluster nats://:a":  "where to listen is wanted",
		"--routes nats://s3:s3cr3t@x:1,nats://a:b@y:1": "must be the same",
		"-s":                      "syslog is not supported",
		"--remote_syslog udp://x": "syslog is not supported",
		"config check":            "config check FILE",
		"config frob x":           "config check FILE",
		"config check /not/there": "/not/there can't be read",
		"some.conf":               `unexpected argument "some.conf"`,
		"-c /not/there.conf":      "/not/there.conf can't be read",
		"--tls":                   "tls",
		"-ms 8443":                "https wants tls",
	} {
		if _, err := Load("brokerd", strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestFlagsOverrideTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.conf")
	if err := os.WriteFile(path, []byte("port: 1111\nhost: localhost\nauthorization { token: t }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load("brokerd", []string{"-p", "2222", "-c", path, "--user", "u"})
	if err != nil {
		t.Fatal(err)
	}
	o := c.Options
	if o.Port != 2222 || o.Host != "localhost" || o.Auth.User != "u" || o.Auth.Token != "" {
		t.Errorf("port %d, host %s, auth %+v", o.Port, o.Host, o.Auth)
	}
	if err := os.WriteFile(path, []byte("port: 3333\nmax_payload: 2MB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := c.Reload()
	if err != nil || next.Port != 2222 || next.MaxPayload != 2<<20 || c.Options.MaxPayload != DefaultMaxPayload {
		t.Errorf("reloaded %+v, %v", next, err)
	}
}

func TestDurableTopicsByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.conf")
	if err := os.WriteFile(path, []byte("debug: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program, args string
		want          bool
	}{
		{"brokerd", "", true},
		{"/usr/bin/brokerd", "-p 1", true},
		{"brokerd", "-js=false", false},
		{"brokerd", "-c " + path, false},
		{"brokerd", "-js -c " + path, true},
		{"nats-server", "", false},
		{"/x/nats-server", "-js", true},
	} {
		if got := load(t, c.program, strings.Fields(c.args)...).JetStream.Enabled; got != c.want {
			t.Errorf("%s %s: durable topics %t, want %t", c.program, c.args, got, c.want)
		}
	}
	if got := load(t, "nats-server", "-js").JetStream.StoreDir; got != filepath.Join(os.TempDir(), "nats", "jetstream") {
		t.Errorf("nats-server's store directory is %s", got)
	}
}

func TestUsageNamesEveryFlag(t *testing.T) {
	text := Usage("brokerd")
	for _, s := range (&Command{}).flags() {
		for name := range strings.SplitSeq(s.names, "|") {
			if !strings.Contains(text, "-"+name) {
				t.Errorf("-%s is not in the help", name)
			}
		}
	}
}

func TestDiff(t *testing.T) {
	a, b := Defaults(), Defaults()
	b.Port, b.MaxPayload, b.Auth.Password, b.JetStream.StoreDir, b.Log.Debug = 1, 2, "s3cr3t", "/x", true
	got := map[string]Change{}
	for _, c := range Diff(a, b) {
		got[c.Key] = c
		if strings.Contains(c.String(), "s3cr3t") {
			t.Errorf("a secret is shown: %v", c)
		}
	}
	for key, restart := range map[string]bool{"port": true, "max_payload": false, "auth": false, "jetstream.store_dir": true, "log.debug": false} {
		if c, ok := got[key]; !ok || c.Restart != restart {
			t.Errorf("%s: %+v, want a change with restart %t", key, c, restart)
		}
	}
	if len(got) != 5 {
		t.Errorf("changes %v", got)
	}
	if c := got["max_payload"]; c.String() != "max_payload changed from 1048576 to 2" {
		t.Errorf("%s", c)
	}
}

func TestDev(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.conf")
	if err := os.WriteFile(file, []byte("http: 9222\nconsole: disabled\njetstream { store_dir: \"/d\" }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		port int
		dir  string
	}{
		"--dev":                  {DevHTTPPort, ""},
		"--dev -m 1":             {1, ""},
		"-sd /kept --dev":        {DevHTTPPort, "/kept"},
		"--dev -c " + file:       {9222, ""},
		"--dev=false -m 8 -sd /": {8, "/"},
	} {
		o := load(t, "brokerd", strings.Fields(args)...)
		if o.Host != "127.0.0.1" || o.HTTP.Host != "127.0.0.1" || o.HTTP.Port != want.port || o.JetStream.StoreDir != want.dir || !o.JetStream.Enabled || !o.Console {
			t.Errorf("%s: %s:%d, %s, console %v", args, o.HTTP.Host, o.HTTP.Port, o.JetStream.StoreDir, o.Console)
		}
	}
	for args, why := range map[string]string{
		"--dev -a 0.0.0.0":                         "clients would come in on 0.0.0.0",
		"--dev --cluster nats://127.0.0.1:6222":    "can't be part of a cluster",
		"--dev=perhaps":                            "invalid",
		"--dev -cluster :6222 -a 192.168.0.1 -m 2": "192.168.0.1",
	} {
		if _, err := Load("brokerd", strings.Fields(args)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", args, err, why)
		}
	}
}
