package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/filtering"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/monitor"
	"github.com/heraldmq/herald/broker/sys"
	"github.com/heraldmq/herald/broker/web"
	"github.com/heraldmq/herald/topics/filter"
)

// Errors of a Broker's life.
var (
	// ErrRunning is returned by a second Run.
	ErrRunning = errors.New("the broker has been run before; make a new one")
	// ErrNoReload is returned by Reload when Config.Reload is nil.
	ErrNoReload = errors.New("the broker's options can't be read again")
)

// Broker is one node. Its methods may be called by any number of goroutines.
type Broker struct {
	cfg       Config
	id        string // "N…", new at every start, as tools expect
	guest     string // user that anonymous clients are, where that needs a user
	guestPass string

	options atomic.Pointer[config.Options]
	loaded  atomic.Int64 // ns; when the options in force were read

	filters *filter.Set // of all rooms

	ready   chan struct{} // closed when clients are let in
	done    chan struct{} // closed when Run has ended
	fatal   chan error    // what ends Run early
	quit    chan struct{} // closed by Close
	once    sync.Once     // for that
	started atomic.Bool
	closing atomic.Bool
	lame    atomic.Bool
	removed atomic.Bool // from the cluster

	reload sync.Mutex // one reload at a time

	// Set by Run before ready is closed, in this order.

	storeDir  string
	temporary bool // storeDir is ours to remove
	start     time.Time
	front     *front.Server
	mon       *monitor.Monitor
	http      *monitor.Server
	profiles  *monitor.Server
	links     *links // nil without a cluster
	filtering *filtering.Service
	web       *web.Server // nil unless enabled
	durable   atomic.Pointer[durable]
	sys       atomic.Pointer[sys.Services]
}

// New checks cfg and makes a broker. It starts nothing and touches no file.
func New(cfg Config) (*Broker, error) {
	cfg = cfg.withDefaults()
	kp, err := nkeys.CreateServer()
	if err != nil {
		return nil, fmt.Errorf("make the server's id: %w", err)
	}
	id, err := kp.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make the server's id: %w", err)
	}
	b := &Broker{
		filters: filter.NewSet(),
		cfg:     cfg, id: id, guest: "guest-" + rand.Text(), guestPass: rand.Text(),
		ready: make(chan struct{}), done: make(chan struct{}), quit: make(chan struct{}), fatal: make(chan error, 1),
	}
	b.options.Store(cfg.Options)
	b.loaded.Store(time.Now().UnixNano())
	if _, err := b.frontOptions(cfg.Options); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return b, nil
}

// Run starts the broker and serves until ctx ends, Close is called or a log
// can't go on; only the last, or a failed start, is an error. It stops in
// stages before it returns. It may be called once.
func (b *Broker) Run(ctx context.Context) error {
	if b.started.Swap(true) {
		return ErrRunning
	}
	defer close(b.done)
	select {
	case <-b.quit:
		return nil
	default:
	}
	if err := b.open(ctx); err != nil {
		return errors.Join(err, b.shut())
	}
	close(b.ready)
	b.cfg.Log.Info("Server is ready")
	var failed error
	select {
	case <-ctx.Done():
	case <-b.quit:
	case failed = <-b.fatal:
	}
	if failed == nil {
		b.closing.Store(true)
		b.handOver()
	}
	return errors.Join(failed, b.shut())
}

// open starts the rooms from the inside out: what accepts clients comes last.
func (b *Broker) open(ctx context.Context) error {
	o, log := b.options.Load(), b.cfg.Log
	b.start = time.Now()
	log.Info("Starting nats-server")
	log.Info("  Version:  " + NATSVersion)
	log.Info("  Herald:   " + Version)
	if o.Cluster.Name != "" {
		log.Info("  Cluster:  " + o.Cluster.Name)
	}
	log.Info("  Name:     " + b.name(o))
	log.Info("  ID:       " + b.id)
	fo, err := b.frontOptions(o)
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if o.JetStream.Enabled {
		if err := b.makeStoreDir(); err != nil {
			return err
		}
	}
	if b.front, err = front.New(fo); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	b.mon = monitor.New(b.sources())
	if o.Cluster.Enabled() {
		if b.links, err = b.openLinks(o); err != nil {
			return err
		}
	}
	if err := b.openFiltering(); err != nil {
		return err
	}
	b.openWeb(o)
	if err := b.listenHTTP(o); err != nil {
		return err
	}
	if err := b.openServices(ctx, o); err != nil {
		return err
	}
	b.tellAddresses(o)
	return nil
}

// openServices opens what works on the front, and then the front.
func (b *Broker) openServices(ctx context.Context, o *config.Options) error {
	if o.JetStream.Enabled {
		d, err := b.openDurable()
		if err != nil {
			return err
		}
		b.durable.Store(d)
	} else if b.links != nil {
		b.links.start()
	}
	services := sys.New(sys.Options{Monitor: b.mon, Reload: b.Reload, Log: b.cfg.Log})
	if err := services.Start(); err != nil {
		return err
	}
	b.sys.Store(services)
	b.settle(ctx)
	if err := b.front.Start(); err != nil {
		return err
	}
	if b.links != nil {
		return b.links.serve(o)
	}
	return nil
}

// tellAddresses logs where clients connect, in nats-server's words.
func (b *Broker) tellAddresses(o *config.Options) {
	log := b.cfg.Log
	if a := b.front.WebsocketAddr(); a != nil {
		log.Info("Listening for websocket clients on " + websocketScheme(o) + "://" + b.listenAddr(o.Websocket.Host, a))
	}
	if a := b.front.Addr(); a != nil {
		log.Info("Listening for client connections on " + b.listenAddr(o.Host, a))
	}
	if o.TLS != nil {
		log.Info("TLS required for client connections")
	}
}

// makeStoreDir finds out where durable topics are kept.
func (b *Broker) makeStoreDir() error {
	dir := b.cfg.StoreDir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "herald-"); err != nil {
			return fmt.Errorf("make a temporary store directory: %w", err)
		}
		b.temporary = true
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("store directory %s: %w", dir, err)
	}
	b.storeDir = abs
	b.cfg.Log.Info("Starting JetStream")
	b.cfg.Log.Info(fmt.Sprintf("  Store Directory: %q", filepath.Join(abs, "herald")))
	return nil
}

func (b *Broker) listenHTTP(o *config.Options) (err error) {
	if o.ProfPort != 0 {
		if b.profiles, err = monitor.ListenProfiles(o.ProfPort, b.cfg.Log); err != nil {
			return err
		}
		b.cfg.Log.Info("Profiles at http://" + b.profiles.Addr().String() + "/debug/pprof/")
	}
	port, scheme := o.HTTP.Port, "http"
	tc := o.TLS
	if o.HTTP.HTTPSPort != 0 {
		port, scheme = o.HTTP.HTTPSPort, "https"
	} else {
		tc = nil
	}
	if port == 0 {
		return nil
	}
	t, err := tlsOptions(tc)
	if err != nil {
		return err
	}
	l := monitor.Listener{Host: o.HTTP.Host, Port: listenPort(port), BasePath: o.HTTP.BasePath, Log: b.cfg.Log, Web: b.webHandler(), Console: o.Console}
	if t != nil {
		l.TLS = t.Config
	}
	if b.http, err = b.mon.Listen(l); err != nil {
		return err
	}
	b.cfg.Log.Info("Starting " + scheme + " monitor on " + b.listenAddr(o.HTTP.Host, b.http.Addr()))
	if o.Console {
		b.cfg.Log.Info("Console at " + scheme + "://" + dialable(b.http.Addr()) + o.HTTP.BasePath + "/console/")
	}
	return nil
}

// shut stops in stages: listeners and sessions, then what proposes, then what
// applies, then the log and the links to other nodes.
func (b *Broker) shut() error {
	b.closing.Store(true)
	var errs []error
	if s := b.sys.Load(); s != nil {
		s.Shutdown()
	}
	if b.web != nil {
		b.web.Close()
	}
	if d := b.durable.Load(); d != nil {
		d.quiet() // pull waiters hear why before their connections close
	}
	if b.front != nil {
		errs = append(errs, b.front.Close())
	}
	if b.filtering != nil {
		b.filtering.Close()
	}
	if s := b.sys.Swap(nil); s != nil {
		errs = append(errs, s.Close())
	}
	if b.links != nil {
		b.links.flush()
		b.links.quiet()
	}
	if d := b.durable.Swap(nil); d != nil {
		errs = append(errs, d.close())
	}
	if b.links != nil {
		errs = append(errs, b.links.close())
	}
	for _, s := range []*monitor.Server{b.http, b.profiles} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if b.temporary {
		errs = append(errs, os.RemoveAll(b.storeDir))
	}
	b.cfg.Log.Info("Server Exiting..")
	return errors.Join(errs...)
}

// Close stops the broker and waits until Run has returned. It may be called
// more than once, and before Run.
func (b *Broker) Close() error {
	b.closing.Store(true)
	b.once.Do(func() { close(b.quit) })
	if b.started.Load() {
		<-b.done
	}
	return nil
}

// fail ends Run with err: a log can't go on. It doesn't block.
func (b *Broker) fail(err error) {
	if f := b.cfg.Fatal; f != nil {
		f(err)
	}
	select {
	case b.fatal <- err:
	default: // one reason to end is enough
	}
}

// Ready is closed when clients are let in.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Done is closed when Run has ended.
func (b *Broker) Done() <-chan struct{} { return b.done }

// ID is the server's id, "N…".
func (b *Broker) ID() string { return b.id }

// Options returns the options in force. They must not be changed.
func (b *Broker) Options() *config.Options { return b.options.Load() }

// LameDuck tells clients to go elsewhere and closes them little by little; it
// returns when all have gone or ctx is done. The broker still has to be closed.
func (b *Broker) LameDuck(ctx context.Context) {
	select {
	case <-b.ready:
	default:
		return
	}
	b.lame.Store(true)
	b.cfg.Log.Info("Entering lame duck mode, stop accepting new clients")
	b.handOver()
	if s := b.sys.Load(); s != nil {
		s.LameDuck()
	}
	b.front.LameDuck(ctx)
}
