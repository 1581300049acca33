package broker

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/heraldmq/herald/broker/cluster"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/mesh"
	"github.com/heraldmq/herald/replication/peer"
)

// links join a node to the others of its cluster: the network that everything
// between them goes over, the mesh of live messages, what operators ask.
type links struct {
	b    *Broker
	net  *peer.Network
	mesh *mesh.Mesh
	ops  *cluster.Service
	open bool // the network has been started
}

// openLinks binds the address for the other nodes. Nobody is dialled yet.
func (b *Broker) openLinks(o *config.Options) (*links, error) {
	c := &o.Cluster
	po := peer.Options{
		Name: b.name(o), Cluster: c.Name, Host: c.Host, Port: listenPort(c.Port), Advertise: c.Advertise, Routes: c.Routes,
		Secret: c.Secret(), Version: Version, Format: ClusterFormat, Log: b.cfg.Log,
	}
	if c.TLS != nil {
		t, err := c.TLS.Build()
		if err != nil {
			return nil, fmt.Errorf("cluster tls: %w", err)
		}
		po.TLS = t
	}
	n, err := peer.Open(po)
	if err != nil {
		return nil, fmt.Errorf("listen for the cluster on %s: %w", net.JoinHostPort(c.Host, strconv.Itoa(listenPort(c.Port))), err)
	}
	l := &links{b: b, net: n}
	l.mesh = mesh.New(mesh.Options{Network: n, Server: b.front, NoAdvertise: c.NoAdvertise, Log: b.cfg.Log})
	l.ops = cluster.New(cluster.Options{Cluster: c.Name, Backend: backend{l}, Log: b.cfg.Log})
	for method, h := range l.ops.PeerMethods() {
		n.Handle(method, h)
	}
	b.cfg.Log.Info("Listening for route connections on " + b.listenAddr(c.Host, n.Addr()))
	return l, nil
}

// start dials the other nodes. Every room has registered by now.
func (l *links) start() {
	l.open = true
	l.net.Start()
}

// serve begins to tell the others what is listened to here, and to answer
// operators. The front listens by now.
func (l *links) serve(o *config.Options) error {
	l.mesh.Start()
	return l.refresh(o)
}

// refresh answers operators in the system account, and where everybody is let in,
// in the global one.
func (l *links) refresh(o *config.Options) error {
	var accounts []*front.Account
	if a := l.b.front.SystemAccount(); a != nil {
		accounts = append(accounts, a)
	}
	if o.Unprotected() {
		accounts = append(accounts, l.b.front.Account(config.GlobalAccount))
	}
	return l.ops.Serve(accounts)
}

// quiet ends what serves, before the rooms that it asks are closed.
func (l *links) quiet() {
	l.ops.Close()
	l.mesh.Close()
}

func (l *links) close() error { return l.net.Close() }

// handOver gives away everything this node leads, so that nobody waits for an
// election when it goes. What can't be handed over in time stays.
func (b *Broker) handOver() {
	d := b.durable.Load()
	if b.links == nil || d == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverMax)
	defer cancel()
	began := time.Now()
	if err := d.state.StepDown(ctx); err != nil {
		b.cfg.Log.Warn("Not everything this node leads could be handed over; the others elect a leader when it is gone", "error", err)
		return
	}
	b.cfg.Log.Info("Handed over what this node led", "took", time.Since(began).Round(time.Millisecond).String())
}

// handOverMax bounds the handing over of leads at the end.
const handOverMax = 10 * time.Second
