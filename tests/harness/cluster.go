package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Wire says how the nodes of a cluster reach each other.
type Wire int

// The kinds of wire.
const (
	// WireHosts gives every node a network namespace on a bridge where this
	// machine and user can have them, and is WirePlain elsewhere.
	WireHosts Wire = iota
	// WirePlain is the loopback address, undisturbed.
	WirePlain
	// WireProxies is the loopback address with a proxy of our own on the way from
	// every node to every other, which can hold, delay and cut.
	WireProxies
)

// ClusterOptions say what cluster to make. The zero value of a field is its
// default.
type ClusterOptions struct {
	Program   string // path of the server; default Brokerd
	Nodes     int    // default 3
	Wire      Wire
	DiskMB    int    // size of each node's own disk; 0: a folder without one
	Name      string // of the cluster; default "chaos"
	JetStream string // more lines for the jetstream block
	Extra     string // more lines for every node
}

// Cluster is some server processes that find each other, each with its own
// folder and, where asked for and possible, its own disk and network namespace.
type Cluster struct {
	Nodes []*Node

	t     testing.TB
	o     ClusterOptions
	made  []*Node // all there ever were
	hosts *hosts  // nil without namespaces
	relay *relay  // nil without proxies
	paths map[[2]int]bool
}

// errNoHosts and its like tell a test what it can't have here.
var errNoCuts = errors.New("the nodes share one loopback address: nothing can be cut between them")

// NewCluster prepares a cluster and starts nothing. Its processes, disks and
// namespaces are gone when the test ends.
func NewCluster(t testing.TB, o ClusterOptions) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Name == "" {
		o.Name = "chaos"
	}
	if o.Program == "" {
		o.Program = Brokerd(t)
	}
	c := &Cluster{t: t, o: o, paths: map[[2]int]bool{}}
	switch o.Wire {
	case WireHosts:
		h, err := newHosts(t)
		if err != nil {
			t.Logf("plain loopback instead of network namespaces: %v", err)
		}
		c.hosts = h
	case WireProxies:
		c.relay = newRelay(t)
	}
	for range o.Nodes {
		if _, err := c.add(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.Nodes {
		c.configure(n)
	}
	t.Cleanup(func() {
		for _, n := range c.made {
			n.Kill()
			if t.Failed() {
				t.Logf("%s, first errors and last lines of its log:\n%s\n…\n%s", n.Name, firstErrors(n.Output(), 10), lastLines([]byte(n.Output()), 15))
			}
		}
	})
	return c
}

// add makes the next node's folder, disk and address.
func (c *Cluster) add() (*Node, error) {
	i := len(c.made)
	n := &Node{Name: fmt.Sprintf("n%d", i+1), Index: i, cluster: c, program: c.o.Program, Dir: c.t.TempDir()}
	n.Log, n.Conf, n.Store = filepath.Join(n.Dir, "log"), filepath.Join(n.Dir, "server.conf"), filepath.Join(n.Dir, "store")
	if c.o.DiskMB > 0 {
		d, err := NewDisk(c.t, c.o.DiskMB)
		if err != nil {
			c.t.Logf("%s has no disk of its own: %v", n.Name, err)
		} else {
			n.Disk, n.Store = d, filepath.Join(d.Dir, "store")
		}
	}
	if c.hosts != nil {
		host, err := c.hosts.add()
		if err != nil {
			return nil, err
		}
		n.Host, n.ClientPort, n.ClusterPort, n.HTTPPort = host, 4222, 6222, 8222
	} else {
		n.Host, n.ClientPort, n.ClusterPort, n.HTTPPort = "127.0.0.1", FreePort(c.t), FreePort(c.t), FreePort(c.t)
	}
	c.Nodes, c.made = append(c.Nodes, n), append(c.made, n)
	return n, nil
}

// Forget drops a node from Nodes; its process is left as it is until the end.
func (c *Cluster) Forget(n *Node) {
	c.Nodes = slices.DeleteFunc(slices.Clone(c.Nodes), func(x *Node) bool { return x == n })
}

// Add prepares one more node, which has the others as its routes.
func (c *Cluster) Add() (*Node, error) {
	n, err := c.add()
	if err == nil {
		c.configure(n)
	}
	return n, err
}

// configure writes a node's configuration file.
func (c *Cluster) configure(n *Node) {
	c.t.Helper()
	var routes []string
	for _, to := range c.Nodes {
		address := fmt.Sprintf("%s:%d", to.Host, to.ClusterPort)
		if c.relay != nil && to != n {
			var err error
			if address, err = c.relay.path(n.Index, to.Index, address); err != nil {
				c.t.Fatal(err)
			}
		}
		routes = append(routes, "nats://chaos:secret@"+address)
	}
	advertise := ""
	if c.relay != nil {
		// What the others learn of this node must not lead them past the proxies.
		advertise = "  advertise: \"127.0.0.1:1\"\n"
	}
	text := fmt.Sprintf(`server_name: %s
listen: "%s:%d"
http: "%s:%d"
jetstream {
  store_dir: %q
%s
}
cluster {
  name: %s
  listen: "%s:%d"
%s  authorization { user: chaos, password: secret, timeout: 5 }
  routes: [ %s ]
}
%s
`, n.Name, n.Host, n.ClientPort, n.Host, n.HTTPPort, n.Store, c.o.JetStream, c.o.Name, n.Host, n.ClusterPort, advertise,
		strings.Join(routes, ", "), c.o.Extra)
	if err := os.WriteFile(n.Conf, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Start starts every node and waits until each takes clients.
func (c *Cluster) Start() error {
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := n.Ready(time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// URLs returns where clients find the given nodes, or all.
func (c *Cluster) URLs(nodes ...*Node) string {
	if len(nodes) == 0 {
		nodes = c.Nodes
	}
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Node returns the node of a name, nil if there is none.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// CanCut tells why nothing can be cut between the nodes, nil if it can.
func (c *Cluster) CanCut() error {
	if c.hosts == nil && c.relay == nil {
		return errNoCuts
	}
	return nil
}

// Cut makes everything that one node sends to another vanish, from now on. The
// other direction stays.
func (c *Cluster) Cut(from, to *Node) error { return c.cut(from.Index, to.Index, true) }

// Join undoes Cut.
func (c *Cluster) Join(from, to *Node) error { return c.cut(from.Index, to.Index, false) }

func (c *Cluster) cut(from, to int, cut bool) error {
	if from == to || c.paths[[2]int{from, to}] == cut {
		return nil
	}
	var err error
	switch {
	case c.hosts != nil:
		err = c.hosts.cut(from, to, cut)
	case c.relay != nil:
		c.relay.cut(from, to, cut)
	default:
		err = errNoCuts
	}
	if err == nil {
		c.paths[[2]int{from, to}] = cut
	}
	return err
}

// Allow makes exactly the paths for which ok is true usable, and cuts the others.
func (c *Cluster) Allow(ok func(from, to *Node) bool) error {
	for _, from := range c.Nodes {
		for _, to := range c.Nodes {
			if err := c.cut(from.Index, to.Index, from != to && !ok(from, to)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Heal undoes every cut and delay.
func (c *Cluster) Heal() error {
	if c.CanCut() != nil {
		return nil
	}
	c.Delay(0, 0)
	return c.Allow(func(_, _ *Node) bool { return true })
}

// Delay makes what nodes send each other arrive later, by at least d and up to
// jitter more. Only proxies can; elsewhere it does nothing and returns false.
func (c *Cluster) Delay(d, jitter time.Duration) bool {
	if c.relay == nil {
		return false
	}
	c.relay.delay(d, jitter)
	return true
}
