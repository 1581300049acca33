package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// flagSpec is one flag: its names, what its value is called ("" for a switch),
// what it does.
type flagSpec struct {
	names string // "p|port"
	value string
	help  string
	set   func(value string) error
}

// parseFlags reads the command line. Flags take one or two dashes.
func (c *Command) parseFlags(args []string) error {
	fs := flag.NewFlagSet(c.program, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var dashed []string
	for _, s := range c.flags() {
		for name := range strings.SplitSeq(s.names, "|") {
			dashed = append(dashed, "-"+name)
			if s.value == "" {
				fs.BoolFunc(name, "", s.set)
			} else {
				fs.Func(name, "", s.set)
			}
		}
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.Action = Help
		return nil
	case err != nil:
		text := err.Error()
		if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
			text = fmt.Sprintf("unknown flag -%s%s; -h lists the flags", name, suggest("-"+name, dashed))
		}
		return Faults{{"command line", text}}
	case fs.NArg() > 0:
		return c.word(fs.Args())
	}
	return nil
}

// word reads what stands behind the flags: "help", "version", "config check
// FILE", which is -t -c FILE, or another of config's words.
func (c *Command) word(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "help":
		c.Action = Help
	case len(args) == 1 && args[0] == "version":
		c.Action = Version
	case len(args) == 3 && args[0] == "config" && args[1] == "check":
		c.Action, c.file = Check, args[2]
	case len(args) == 3 && args[0] == "config" && args[1] == "show":
		c.Action, c.file = ShowAll, args[2]
	case len(args) == 2 && args[0] == "config" && args[1] == "show":
		c.Action = ShowAll
	case len(args) == 2 && args[0] == "config" && args[1] == "init":
		c.Action = Init
	case len(args) <= 3 && len(args) > 1 && args[0] == "config" && args[1] == "explain":
		c.Action = ExplainKey
		if len(args) == 3 {
			c.Key = args[2]
		}
	case args[0] == "config":
		what := ""
		if len(args) > 1 && !slices.Contains([]string{"check", "show", "init", "explain"}, args[1]) {
			what = fmt.Sprintf("there is no config %s%s; ", args[1], suggest(args[1], []string{"check", "show", "init", "explain"}))
		}
		return Faults{{"command line", what + "config check wants a file: config check FILE; config show [FILE] prints what is in force; config init prints one to begin with; config explain [OPTION] says what options do"}}
	default:
		return Faults{{"command line", fmt.Sprintf("unexpected argument %q; flags start with -, a configuration file is given by -c", args[0])}}
	}
	return nil
}

// Usage returns the help text.
func Usage(program string) string {
	c := &Command{}
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %[1]s [flags]\n       %[1]s config check FILE\n       %[1]s [flags] config show [FILE]\n       %[1]s config init\n       %[1]s config explain [OPTION]\n\nFlags override the configuration file. They take one or two dashes.\n\n", program)
	for _, s := range c.flags() {
		var shown []string
		for name := range strings.SplitSeq(s.names, "|") {
			dash := "--"
			if len(name) <= 3 {
				dash = "-"
			}
			shown = append(shown, dash+name)
		}
		left := strings.Join(shown, ", ")
		if s.value != "" {
			left += " " + s.value
		}
		fmt.Fprintf(&b, "  %-44s %s\n", left, s.help)
	}
	return b.String()
}

// TLSUsage is the help text about TLS.
const TLSUsage = `TLS is turned on by --tls with --tlscert and --tlskey, or by a tls block:

  tls {
    cert_file: "server.pem"
    key_file:  "server-key.pem"
    ca_file:   "ca.pem"     # with verify: clients must show a certificate of it
    verify:    true
  }
`

func (c *Command) flags() []flagSpec {
	return slices.Concat(c.serverFlags(), c.logFlags(), c.accessFlags(), c.clusterFlags(), c.otherFlags())
}

// over returns a flag's action that changes the options later, after the file.
func (c *Command) over(f func(o *Options, v string)) func(string) error {
	return func(v string) error {
		c.overrides = append(c.overrides, func(o *Options) { f(o, v) })
		return nil
	}
}

// number is over for whole numbers within limits.
func (c *Command) number(low, high int, f func(o *Options, v int)) func(string) error {
	return func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < low || v > high {
			return fmt.Errorf("a number from %d to %d is wanted", low, high)
		}
		c.overrides = append(c.overrides, func(o *Options) { f(o, v) })
		return nil
	}
}

// on is over for switches.
func (c *Command) on(f func(o *Options, v bool)) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("true or false is wanted")
		}
		c.overrides = append(c.overrides, func(o *Options) { f(o, v) })
		return nil
	}
}

// act is a switch that asks for an action.
func (c *Command) act(a Action) func(string) error {
	return func(s string) error {
		if on, err := strconv.ParseBool(s); err != nil || !on {
			return err
		}
		c.Action = a
		return nil
	}
}

func (c *Command) serverFlags() []flagSpec {
	return []flagSpec{
		{"a|addr|net", "HOST", "interface for clients (default 127.0.0.1)", c.over(func(o *Options, v string) { o.Host = v })},
		{"p|port", "PORT", "port for clients (default 4222, -1 any free)", c.number(-1, 65535, func(o *Options, v int) { o.Port = v })},
		{"n|name|server_name", "NAME", "name of the server", c.over(func(o *Options, v string) { o.ServerName = v })},
		{"P|pid", "FILE", "file for the process id", c.over(func(o *Options, v string) { o.PidFile = v })},
		{"m|http_port", "PORT", "port for monitoring", c.number(-1, 65535, func(o *Options, v int) { o.HTTP.Port = v })},
		{"ms|https_port", "PORT", "port for monitoring with TLS", c.number(-1, 65535, func(o *Options, v int) { o.HTTP.HTTPSPort = v })},
		{"c|config", "FILE", "configuration file", func(v string) error { c.file = v; return nil }},
		{"dev", "", "to try things out: loopback, a temporary directory, the console on port 8222", func(s string) error {
			on, err := strconv.ParseBool(s)
			c.dev = on
			return err
		}},
		{"t", "", "check the configuration and exit", c.act(Check)},
		{"sl|signal", "CMD[=PID]", "send a running server ldm, stop, quit, term, reopen or reload", func(v string) error {
			c.Action, c.Signal = SendSign, v
			return nil
		}},
		{"client_advertise", "HOST:PORT", "address told to clients", c.over(func(o *Options, v string) { o.ClientAdvertise = v })},
		{"ports_file_dir", "DIR", "directory for a file with the ports in use", c.over(func(o *Options, v string) { o.PortsDir = v })},
		{"js|jetstream", "", "turn durable topics on", c.on(func(o *Options, v bool) { o.JetStream.Enabled = v })},
		{"sd|store_dir", "DIR", "directory for durable topics", c.over(func(o *Options, v string) { o.JetStream.StoreDir = v })},
	}
}

func (c *Command) logFlags() []flagSpec {
	debug := func(o *Options, v bool) { o.Log.Debug = v }
	trace := func(o *Options, v bool) { o.Log.Trace = v }
	traceAll := func(o *Options, v bool) { o.Log.Trace, o.Log.TraceAll = v, v }
	return []flagSpec{
		{"l|log", "FILE", "log to a file instead of stderr", c.over(func(o *Options, v string) { o.Log.File = v })},
		{"log-format|log_format", "FORMAT", "text, json or logfmt", func(v string) error {
			if !slices.Contains([]string{"text", "json", "logfmt"}, v) {
				return errors.New("text, json or logfmt is wanted")
			}
			return c.over(func(o *Options, v string) { o.Log.Format = v })(v)
		}},
		{"T|logtime", "", "log lines with the time (default true)", c.on(func(o *Options, v bool) { o.Log.Time = v })},
		{"logtime_utc", "", "that time in UTC", c.on(func(o *Options, v bool) { o.Log.UTC = v })},
		{"log_size_limit", "BYTES", "rotate the log file at this size", func(s string) error {
			n, err := ParseSize(s)
			if err != nil || n < 0 {
				return errors.New("a size such as 64MB is wanted")
			}
			return c.over(func(o *Options, _ string) { o.Log.SizeLimit = n })(s)
		}},
		{"D|debug", "", "log debug lines", c.on(debug)},
		{"V|trace", "", "log the protocol", c.on(trace)},
		{"VV", "", "log the protocol, the system account too", c.on(traceAll)},
		{"DV", "", "-D and -V", c.on(func(o *Options, v bool) { debug(o, v); trace(o, v) })},
		{"DVV", "", "-D and -VV", c.on(func(o *Options, v bool) { debug(o, v); traceAll(o, v) })},
		{"max_traced_msg_len", "BYTES", "most of a payload shown in a trace", c.number(0, 1<<30, func(o *Options, v int) { o.Log.MaxTraced = v })},
		{"s|syslog", "", "(not supported: log to stderr)", func(s string) error {
			if on, err := strconv.ParseBool(s); err != nil || !on {
				return err
			}
			return errors.New("syslog is not supported by Herald: log to stderr, or to a file with -l")
		}},
		{"r|remote_syslog", "URL", "(not supported: log to stderr)", func(string) error {
			return errors.New("syslog is not supported by Herald: log to stderr, or to a file with -l")
		}},
	}
}

func (c *Command) accessFlags() []flagSpec {
	tls := func(o *Options) *TLS {
		if o.TLS == nil {
			o.TLS = &TLS{Timeout: DefaultTLSTimeout}
		}
		if len(o.TLS.Certs) == 0 {
			o.TLS.Certs = []CertPair{{}}
		}
		return o.TLS
	}
	return []flagSpec{
		{"user", "NAME", "user that clients must be", c.over(func(o *Options, v string) {
			o.Auth.User, o.Auth.Token, o.Auth.Users = v, "", nil
		})},
		{"pass", "PASSWORD", "that user's password (seen by others in the process list: prefer a file)", c.over(func(o *Options, v string) { o.Auth.Password = v })},
		{"auth", "TOKEN", "token that clients must show (the same)", c.over(func(o *Options, v string) {
			o.Auth.Token, o.Auth.User, o.Auth.Users = v, "", nil
		})},
		{"tls", "", "speak TLS", c.on(func(o *Options, v bool) {
			if v {
				tls(o)
			} else {
				o.TLS = nil
			}
		})},
		{"tlscert", "FILE", "certificate", c.over(func(o *Options, v string) { tls(o).Certs[0].CertFile = v })},
		{"tlskey", "FILE", "its private key", c.over(func(o *Options, v string) { tls(o).Certs[0].KeyFile = v })},
		{"tlscacert", "FILE", "authority of clients' certificates", c.over(func(o *Options, v string) { tls(o).CAFile = v })},
		{"tlsverify", "", "speak TLS and verify clients", c.on(func(o *Options, v bool) { tls(o).Verify = v })},
	}
}

// clusterFlags join the node to others.
func (c *Command) clusterFlags() []flagSpec {
	return []flagSpec{
		{"cluster_name", "NAME", "name of the cluster (default " + DefaultClusterName + ")", c.over(func(o *Options, v string) { o.Cluster.Name = v })},
		{"cluster|cluster_listen", "URL", "where to listen for other nodes: HOST:PORT, nats://HOST:PORT, :PORT", c.clusterListen},
		{"routes", "URLS", "other nodes, separated by commas: nats-route://[USER:PASSWORD@]HOST:PORT", c.routes},
		{"cluster_advertise", "HOST:PORT", "address told to the other nodes", c.over(func(o *Options, v string) { o.Cluster.Advertise = v })},
		{"no_advertise", "", "don't tell clients of the other nodes", c.on(func(o *Options, v bool) { o.Cluster.NoAdvertise = v })},
		{"connect_retries", "N", "(ignored: a node that can't be reached is tried for ever)", c.number(-1, 1<<30, func(*Options, int) {})},
	}
}

func (c *Command) otherFlags() []flagSpec {
	return []flagSpec{
		{"profile", "PORT", "port of 127.0.0.1 for Go's profiles", c.number(0, 65535, func(o *Options, v int) { o.ProfPort = v })},
		{"v|version", "", "print the version and exit", c.act(Version)},
		{"h|help", "", "print this and exit", c.act(Help)},
		{"help_tls", "", "print help on TLS and exit", c.act(HelpTLS)},
	}
}
