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
	l.ops = cluster.New(cluster.Options{Cluster: c.Name, Identity: b.identity("cluster", "cluster", "the nodes of the cluster"), Backend: backend{l}, Log: b.cfg.Log})
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
	} else {
		b.cfg.Log.Info("Handed over what this node led", "took", time.Since(began).Round(time.Millisecond).String())
	}
	// The others may have sent something before they heard of it: it is passed on.
	for range lingerRounds {
		for _, g := range d.state.AllGroups() {
			g.Settle(ctx)
		}
		select {
		case <-time.After(lingerPause):
		case <-ctx.Done():
			return
		}
	}
}

// handOverMax bounds the handing over of leads at the end. Then the node lingers for
// a moment.
const (
	handOverMax  = 10 * time.Second
	lingerRounds = 3
	lingerPause  = 30 * time.Millisecond
	flushMax     = time.Second
)

// flush waits until what the other nodes shall get has left.
func (l *links) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushMax)
	defer cancel()
	channels := []peer.Channel{peer.ChannelMesh}
	if d := l.b.durable.Load(); d != nil {
		for _, g := range d.state.AllGroups() {
			g.Settle(ctx)
			channels = append(channels, peer.ChannelGroup0+peer.Channel(g.ID()))
		}
	}
	for _, p := range l.net.Peers() {
		for _, c := range channels {
			if l.net.Queued(p.Name, c) > 0 {
				_ = l.net.WaitRoom(ctx, p.Name, c, 1) // it has gone, or takes nothing
			}
		}
	}
}

// onRemoved sends clients away while this node is removed from the cluster: it could
// serve them nothing.
func (b *Broker) onRemoved(removed bool) {
	b.removed.Store(removed)
	if removed {
		b.cfg.Log.Warn("This node has been removed from the cluster: clients are sent to other nodes and none are taken until it is added again")
		b.front.SendAway()
		return
	}
	b.cfg.Log.Info("This node is part of the cluster again, and takes clients")
	b.front.TakeIn()
}

// settleMax is how long clients are kept out while this node doesn't know which
// topics there are; settleFresh where it has never been part of a cluster.
const (
	settleMax   = 5 * time.Second
	settleFresh = 2 * time.Second
)

// settle waits until this node knows all topics, so that the first publish of a
// client that comes here is captured. It doesn't wait long: a node that finds no
// leader still serves what it can.
func (b *Broker) settle(ctx context.Context) {
	d := b.durable.Load()
	if b.links == nil || d == nil {
		return
	}
	patience := settleMax
	if d.fresh {
		patience = settleFresh
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for d.state.SyncCatalogue(ctx) != nil {
		select {
		case <-tick.C:
		case <-b.quit:
			return
		case <-ctx.Done():
			return
		}
	}
}
