package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// nodeNameMax bounds a server's name in a cluster, in bytes: it is part of every
// replica's id.
const nodeNameMax = 48

// cluster reads the block that joins this node to others. With nothing but a name
// in it the node stays alone.
func (d *decoder) cluster(n node, c *Cluster) {
	c.At = n.place()
	const links = "the links between nodes look after themselves"
	joins := false
	keys := []key{{"name", d.clusterName(&c.Name)}}
	for _, k := range []key{
		{"listen", d.hostPort("cluster.listen", &c.Host, &c.Port)},
		{"host|net", d.text("cluster.host", &c.Host)},
		{"port", d.number("cluster.port", &c.Port, -1, 65535)},
		{"advertise|cluster_advertise", d.advertise(&c.Advertise)},
		{"no_advertise", d.flag("no_advertise", &c.NoAdvertise)},
		{"write_first", d.flag("write_first", &c.WriteFirst)},
		{"routes", d.routes(c)},
		{"authorization|authentication", d.clusterAuth(c)},
		{"tls", func(n node) { c.TLS = d.clusterTLS(n) }},
		{"permissions", d.refuse("cluster.permissions", "limit what clients may do in authorization { } or accounts { }")},
		{"accounts", d.ignore("cluster.accounts", "the accounts share a link with fair queues of their own")},
		{"pool_size", d.ignore("cluster.pool_size", "one link has a channel for each kind of traffic")},
		{"compression", d.ignore("cluster.compression", "links are not compressed")},
		{"connect_retries", d.ignore("cluster.connect_retries", "a node that can't be reached is tried for ever")},
		{"connect_backoff", d.ignore("cluster.connect_backoff", "it always backs off")},
		{"ping_interval", d.ignore("cluster.ping_interval", links)},
		{"ping_max", d.ignore("cluster.ping_max", links)},
		{"write_deadline", d.ignore("cluster.write_deadline", links)},
		{"write_timeout", d.ignore("cluster.write_timeout", links)},
	} {
		keys = append(keys, key{k.names, func(n node) {
			joins = true
			k.do(n)
		}})
	}
	d.block(n, "cluster", keys)
	if joins && c.Port == 0 {
		c.Port = DefaultClusterPort
	}
}

func (d *decoder) clusterName(to *string) func(node) {
	return func(n node) {
		d.text("cluster.name", to)(n)
		if strings.ContainsAny(*to, " \t\r\n.*>") {
			d.fault(n, "cluster.name can't contain spaces, '.', '*' or '>'")
		}
	}
}

func (d *decoder) advertise(to *string) func(node) {
	return func(n node) {
		d.text("cluster.advertise", to)(n)
		if _, port, err := SplitHostPort(*to); err == nil && port <= 0 {
			d.fault(n, "cluster.advertise wants a port that can be dialled")
		}
	}
}

// routes reads the addresses of peers. Credentials in them are the cluster's
// secret, as if they stood in its authorization block.
func (d *decoder) routes(c *Cluster) func(node) {
	return func(n node) {
		d.items(n, func(r node) {
			text, ok := r.value.(string)
			if !ok {
				d.fault(r, `routes want text such as "nats-route://host:%d"`, DefaultClusterPort)
				return
			}
			if err := c.addRoute(text); err != nil {
				d.fault(r, "%v", err)
			}
		})
	}
}

// errSecrets never shows either of them.
var errSecrets = errors.New("a node has one secret: the credentials in routes and in cluster.authorization must be the same")

// addRoute adds "nats-route://user:password@host:port", "host:port" or "host".
// The error shows no credentials.
func (c *Cluster) addRoute(text string) error {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "://") {
		text = "nats-route://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return fmt.Errorf(`routes want addresses such as "nats-route://host:%d"`, DefaultClusterPort)
	}
	if !slices.Contains([]string{"nats-route", "nats", "tls", "herald"}, u.Scheme) {
		return fmt.Errorf(`routes want nats-route://host:%d, not %s://`, DefaultClusterPort, u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = strconv.Itoa(DefaultClusterPort)
	}
	if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
		return fmt.Errorf("route to %s wants a port from 1 to 65535", u.Hostname())
	}
	if err := c.setSecret(u.User); err != nil {
		return err
	}
	if addr := net.JoinHostPort(u.Hostname(), port); !slices.Contains(c.Routes, addr) {
		c.Routes = append(c.Routes, addr)
	}
	return nil
}

// setSecret takes the secret from a URL, which must not differ from the one there is.
func (c *Cluster) setSecret(u *url.Userinfo) error {
	if u == nil {
		return nil
	}
	password, _ := u.Password()
	if (c.User != "" || c.Password != "") && (c.User != u.Username() || c.Password != password) {
		return errSecrets
	}
	c.User, c.Password = u.Username(), password
	return nil
}

// clusterAuth reads the secret that the nodes share.
func (d *decoder) clusterAuth(c *Cluster) func(node) {
	return func(n node) {
		var user, password, token string
		d.block(n, "cluster.authorization", []key{
			{"user|username", d.text("user", &user)},
			{"pass|password", d.secretText("password", &password)},
			{"token|secret", d.secretText("token", &token)},
			{"timeout", d.span("timeout", &c.AuthTimeout)},
			{"users", d.refuse("cluster.authorization.users", "give one user and password, the same on all nodes")},
		})
		switch {
		case token != "" && (user != "" || password != ""):
			d.fault(n, "cluster.authorization can't have both a token and a user")
		case token != "":
			password = token
		case password == "":
			d.fault(n, "cluster.authorization wants a user and a password, the same on all nodes")
			return
		}
		if strings.HasPrefix(password, "$2a$") || strings.HasPrefix(password, "$2b$") {
			d.fault(n, "cluster.authorization wants the password itself, not its bcrypt hash: both sides must know it")
		}
		if (c.User != "" || c.Password != "") && (c.User != user || c.Password != password) {
			d.fault(n, "%v", errSecrets)
		}
		c.User, c.Password = user, password
	}
}

// clusterTLS reads the tls block of the cluster, where both sides of a link show
// certificates.
func (d *decoder) clusterTLS(n node) *TLS {
	t := d.tls(n, "cluster tls")
	t.Verify = true
	if t.Insecure {
		d.fault(n, "cluster tls: insecure is not supported by Herald: give ca_file, or use cluster.authorization without tls")
	}
	if t.CAFile == "" {
		d.fault(n, "cluster tls wants ca_file: the authority of the nodes' certificates")
	}
	return t
}

// checkCluster finds what makes no sense in a cluster.
func (d *decoder) checkCluster(o *Options, fault func(place, format string, args ...any)) {
	c := &o.Cluster
	if len(c.Routes) > 0 && c.Port == 0 {
		c.Port = DefaultClusterPort
	}
	if !c.Enabled() {
		return
	}
	if c.Name == "" {
		c.Name = DefaultClusterName
	}
	if c.Port > 0 && c.Port == o.Port && sameHost(c.Host, o.Host) {
		fault(c.At, "the cluster can't listen where clients do (port %d)", c.Port)
	}
	if c.Advertise != "" {
		if _, _, err := net.SplitHostPort(c.Advertise); err != nil && c.Port > 0 {
			c.Advertise = net.JoinHostPort(c.Advertise, strconv.Itoa(c.Port))
		}
	}
	if o.JetStream.Enabled && o.ServerName == "" {
		fault(c.At, "durable topics in a cluster want a server_name: one of its own for each node, which stays the same")
	}
	if strings.Contains(o.ServerName, "/") || len(o.ServerName) > nodeNameMax {
		fault(c.At, "server_name %q can't be used in a cluster: at most %d bytes, without '/'", o.ServerName, nodeNameMax)
	}
	if c.Secret() == "" && c.TLS == nil && !isLoopback(c.Host) {
		fault(c.At, "a cluster that listens on %s wants authorization { user, password } (the same on all nodes) or tls { }; "+
			"without either it must stay on 127.0.0.1", c.Host)
	}
}

func sameHost(a, b string) bool {
	wide := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	return a == b || wide(a) || wide(b)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// clusterListen is the action of --cluster. An empty value turns the cluster off.
func (c *Command) clusterListen(v string) error {
	if v == "" {
		return c.over(func(o *Options, _ string) { o.Cluster.Port = 0; o.Cluster.Routes = nil })(v)
	}
	_, rest, schemed := strings.Cut(v, "://")
	if !schemed {
		rest = v
	}
	rest, any := strings.CutSuffix(rest, ":-1") // not a port to package url
	u, err := url.Parse("nats://" + rest)
	if err != nil || u.Host == "" {
		return fmt.Errorf("where to listen is wanted, such as nats://127.0.0.1:%d", DefaultClusterPort)
	}
	port := DefaultClusterPort
	if any {
		port = -1
	} else if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return errors.New("a port from 1 to 65535 is wanted")
		}
	}
	return c.over(func(o *Options, _ string) {
		if h := u.Hostname(); h != "" {
			o.Cluster.Host = h
		}
		o.Cluster.Port = port
		if u.User != nil { // a flag is over the file
			o.Cluster.User, o.Cluster.Password = "", ""
			_ = o.Cluster.setSecret(u.User) // nothing to differ from
		}
	})(v)
}

// routes is the action of --routes, which replaces those of the file.
func (c *Command) routes(v string) error {
	var list []string
	for r := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(r) == "" {
			continue
		}
		if err := (&Cluster{}).addRoute(r); err != nil {
			return err
		}
		list = append(list, r)
	}
	return c.over(func(o *Options, _ string) {
		o.Cluster.Routes = nil
		for _, r := range list {
			if err := o.Cluster.addRoute(r); err != nil {
				c.faults = append(c.faults, Fault{"flag -routes", err.Error()})
			}
		}
	})(v)
}
