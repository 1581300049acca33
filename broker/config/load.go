package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
)

// Action is what a command line asks the program to do.
type Action int

// The actions.
const (
	Run        Action = iota // serve
	Check                    // -t: check the configuration
	Version                  // -v
	Help                     // -h
	HelpTLS                  // --help_tls
	SendSign                 // --signal
	Init                     // config init: print a configuration to begin with
	ShowAll                  // config show: print the options in force, see Show
	ExplainKey               // config explain: what a key of the file does, see Explain
)

// Command is a parsed command line with the options it leads to.
type Command struct {
	Action  Action
	Signal  string   // with SendSign: "ldm=1234"
	Key     string   // with ExplainKey; "" for all
	Options *Options // with Run, Check and ShowAll

	program   string // name the program was called by
	file      string
	dev       bool // to try things out: loopback, a console, a directory that goes away
	overrides []func(*Options)
	faults    Faults // of flags, found when they were laid over the file
}

// Load reads a command line: args without the program's name, which is given
// apart because under the name nats-server durable topics are off unless asked
// for. The error is a Faults.
func Load(program string, args []string) (*Command, error) {
	c := &Command{program: filepath.Base(program)}
	if err := c.parseFlags(args); err != nil {
		return nil, err
	}
	if c.Action != Run && c.Action != Check && c.Action != ShowAll {
		return c, nil
	}
	o, err := c.Reload()
	if err != nil {
		return nil, err
	}
	c.Options = o
	return c, nil
}

// Reload reads the file again and puts the same flags over it. The options in c
// stay as they are.
func (c *Command) Reload() (*Options, error) {
	d := &decoder{}
	o := Defaults()
	foreign := c.AsNatsServer()
	if c.file != "" {
		if err := d.parseFile(c.file, o); err != nil {
			return nil, err
		}
	} else if !foreign {
		o.JetStream.Enabled = true
	}
	c.faults = nil
	if c.dev {
		o.developer()
	}
	for _, f := range c.overrides {
		f(o)
	}
	if c.dev {
		c.checkDev(o)
	}
	d.faults = append(d.faults, c.faults...)
	if o.JetStream.StoreDir == "" && !c.dev { // then the broker makes one, and removes it
		o.JetStream.StoreDir = DefaultStoreDir
		if foreign {
			o.JetStream.StoreDir = filepath.Join(os.TempDir(), "nats", "jetstream")
		}
	}
	d.check(o)
	if len(d.faults) > 0 {
		return nil, d.faults
	}
	o.Warnings = d.warnings
	return o, nil
}

// developer sets what --dev means; the flags beside it still count.
func (o *Options) developer() {
	o.JetStream.Enabled, o.JetStream.StoreDir = true, ""
	o.Console = true
	if o.HTTP.Port == 0 && o.HTTP.HTTPSPort == 0 {
		o.HTTP.Port = DevHTTPPort
	}
}

// checkDev refuses what --dev can't be: seen by others, or a member of a cluster whose
// topics it would lose when it ends.
func (c *Command) checkDev(o *Options) {
	loopback := func(host string) bool {
		ip := net.ParseIP(host)
		return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
	}
	fault := func(format string, args ...any) {
		c.faults = append(c.faults, Fault{"command line", fmt.Sprintf(format, args...)})
	}
	for _, l := range []struct {
		who, host string
		on        bool
	}{{"clients", o.Host, true}, {"browsers", o.HTTP.Host, true}, {"websocket clients", o.Websocket.Host, o.Websocket.Port != 0}} {
		if l.on && !loopback(l.host) {
			fault("--dev is for this machine only, and %s would come in on %s: leave the address out, or --dev", l.who, l.host)
		}
	}
	if o.Cluster.Enabled() {
		fault("--dev forgets everything when it ends, so it can't be part of a cluster; pubsub cluster dev runs one on this machine")
	}
}

// DevHTTPPort is where --dev serves the console unless another port is given.
const DevHTTPPort = 8222

// AsNatsServer tells whether the program was called nats-server.
func (c *Command) AsNatsServer() bool {
	return strings.TrimSuffix(c.program, ".exe") == "nats-server"
}

// ParseFile reads a configuration file over the defaults. The error is a Faults.
func ParseFile(path string) (*Options, error) {
	return (&Command{program: "brokerd", file: path}).Reload()
}

// parseFile decodes the file into o; faults of its content are kept in d, the
// error is for a file that can't be read or parsed.
func (d *decoder) parseFile(path string, o *Options) error {
	m, digest, err := conf.ParseFileWithChecksDigest(path)
	if err != nil {
		return Faults{parseFault(path, err)}
	}
	o.ConfigFile, o.Digest = path, digest
	d.block(node{value: m, file: path}, "", d.topKeys(o))
	return nil
}

// lineOf finds the line in the parser's errors, which is all they tell.
var lineOf = regexp.MustCompile(`[Pp]arse error on line (\d+): '(.*)'`)

func parseFault(path string, err error) Fault {
	var missing *os.PathError
	if errors.As(err, &missing) {
		return Fault{"", fmt.Sprintf("configuration file %s can't be read: %v", missing.Path, missing.Err)}
	}
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		return Fault{fmt.Sprintf("%s:%d:1", path, line), "not in the grammar: " + m[2]}
	}
	return Fault{path, err.Error()}
}

// check finds what is wrong between keys.
func (d *decoder) check(o *Options) {
	fault := func(place, format string, args ...any) {
		d.faults = append(d.faults, Fault{cmp.Or(place, o.ConfigFile), fmt.Sprintf(format, args...)})
	}
	d.checkUsers(o, fault)
	d.checkCluster(o, fault)
	if int64(o.MaxPayload) > o.MaxPending && o.MaxPending > 0 {
		fault("", "max_payload (%d) can't be larger than max_pending (%d)", o.MaxPayload, o.MaxPending)
	}
	if o.LameDuckGrace > o.LameDuck {
		fault("", "lame_duck_grace_period (%s) can't be longer than lame_duck_duration (%s)", o.LameDuckGrace, o.LameDuck)
	}
	if o.HTTP.HTTPSPort != 0 && o.TLS == nil {
		fault(o.HTTP.At, "https wants tls { cert_file, key_file }")
	}
	if o.HTTP.BasePath != "" && !strings.HasPrefix(o.HTTP.BasePath, "/") {
		o.HTTP.BasePath = "/" + o.HTTP.BasePath
	}
	if o.TLS != nil && o.TLS.At == "" { // from flags; a block has been tried when it was read
		if _, err := o.TLS.Build(); err != nil {
			fault("command line", "tls: %v", err)
		}
	}
	if o.AllowNonTLS && o.TLS == nil {
		d.warnings = append(d.warnings, "allow_non_tls is ignored: there is no tls block")
	}
	if o.TLS != nil && o.TLS.Insecure {
		d.warnings = append(d.warnings, "tls.insecure is ignored: a listener has nothing to skip")
	}
	if o.SystemUsersOnly() {
		d.warnings = append(d.warnings, "only the system account has users: everybody else is let in without credentials; "+
			"add an authorization block or accounts to change that")
	}
	if o.ClientAdvertise != "" && !strings.Contains(o.ClientAdvertise, ":") && o.Port > 0 {
		o.ClientAdvertise += ":" + strconv.Itoa(o.Port)
	}
}

// checkUsers finds users that clash and names that lead nowhere.
func (d *decoder) checkUsers(o *Options, fault func(place, format string, args ...any)) {
	seen := map[string]string{}
	add := func(u User) {
		id := cmp.Or(u.Name, u.NKey)
		if at, twice := seen[id]; twice && id != "" {
			fault(u.At, "user %q is defined twice, first at %s", id, at)
			return
		}
		seen[id] = cmp.Or(u.At, "the command line")
		if u.Name != "" && u.Password == "" && u.Name != o.NoAuthUser && (o.TLS == nil || !o.TLS.VerifyAndMap) {
			d.warnings = append(d.warnings, cmp.Or(u.At, "command line")+": user "+strconv.Quote(id)+" has no password: whoever knows the name is let in")
		}
	}
	if o.Auth.User != "" {
		add(User{Name: o.Auth.User, Password: o.Auth.Password, At: o.Auth.At})
	}
	for _, u := range o.Auth.Users {
		add(u)
	}
	system := o.SystemAccount == "" || o.SystemAccount == SystemAccount
	for _, a := range o.Accounts {
		for _, u := range a.Users {
			add(u)
		}
		system = system || a.Name == o.SystemAccount
	}
	if !system {
		fault("", "system_account %q is not among the accounts", o.SystemAccount)
	}
	if o.NoSystem && o.SystemAccount != "" {
		fault("", "system_account and no_system_account exclude each other")
	}
	for _, n := range []struct{ key, user string }{
		{"no_auth_user", o.NoAuthUser}, {"websocket.no_auth_user", o.Websocket.NoAuthUser},
	} {
		if _, ok := seen[n.user]; n.user != "" && !ok {
			fault("", "%s %q is not among the users", n.key, n.user)
		}
	}
	if o.Auth.Token != "" && o.NoAuthUser != "" {
		fault(o.Auth.At, "a token and no_auth_user exclude each other")
	}
}

// Anonymous tells whether somebody without credentials is let into the global
// account. A configuration that names any user or account closes the door, with
// nats-server's one exception: see SystemUsersOnly.
func (o *Options) Anonymous() bool {
	if o.NoAuthUser != "" || o.Auth.Required() {
		return false
	}
	return !o.anyUser() || o.SystemUsersOnly()
}

// SystemUsersOnly tells whether the system account is the only one configured
// and nothing else says who may connect. Then its users need their credentials
// and everybody else is let into the global account without, as by nats-server.
func (o *Options) SystemUsersOnly() bool {
	return o.anyUser() && o.NoAuthUser == "" && o.Auth.At == "" && !o.Auth.Required() &&
		len(o.Accounts) == 1 && o.Accounts[0].Name == cmp.Or(o.SystemAccount, SystemAccount)
}

// anyUser tells whether any account has users.
func (o *Options) anyUser() bool {
	return slices.ContainsFunc(o.Accounts, func(a *Account) bool { return len(a.Users) > 0 })
}

// DurableAccounts returns the names of the accounts that may have topics, in
// order: those with a jetstream key, and the global account unless it is closed
// by such a key elsewhere.
func (o *Options) DurableAccounts() []string {
	if !o.JetStream.Enabled {
		return nil
	}
	var names []string
	for _, a := range o.Accounts {
		if a.JetStream != nil {
			names = append(names, a.Name)
		}
	}
	if len(names) == 0 {
		names = append(names, GlobalAccount)
	}
	return names
}

// LimitsOf returns what an account may hold, nil when durable topics are off
// for it.
func (o *Options) LimitsOf(account string) *AccountLimits {
	if !slices.Contains(o.DurableAccounts(), account) {
		return nil
	}
	for _, a := range o.Accounts {
		if a.Name == account {
			return a.JetStream
		}
	}
	return unlimited()
}

// Unprotected tells whether nothing at all says who may connect.
func (o *Options) Unprotected() bool { return o.Anonymous() && !o.SystemUsersOnly() }
