package front

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/heraldmq/herald/broker/auth"
)

// Server owns the listeners, the accounts and every connection.
type Server struct {
	log    *slog.Logger
	start  time.Time
	chunks chunkPool

	options atomic.Pointer[Options]
	authn   atomic.Pointer[auth.Authenticator]
	loaded  atomic.Int64 // when the options were, unix nanoseconds
	traced  atomic.Bool
	lame    atomic.Bool
	away    atomic.Bool // see SendAway
	urls    atomic.Pointer[gossip]
	nextCID atomic.Uint64
	nextSub atomic.Uint64

	slowConsumers    atomic.Int64
	staleConnections atomic.Int64
	stalled          atomic.Int64
	in, out          counters
	handshakes       throttle

	announce  announcer
	cluster   atomic.Pointer[Cluster]
	wsBuffers sync.Pool

	wait sync.WaitGroup // sessions, listeners

	mu        sync.Mutex
	accounts  map[string]*Account
	sessions  map[uint64]*session
	recent    closedRing
	total     uint64
	listener  net.Listener
	websocket *wsListener
	closed    bool
}

// gossip is what INFO says about the other servers.
type gossip struct{ client, websocket []string }

// New checks o and makes a server with its accounts. It starts nothing:
// accounts can be subscribed and published to at once, Start lets clients in.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	a, err := auth.New(o.Auth)
	if err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		log: o.Log, start: time.Now(),
		accounts: map[string]*Account{}, sessions: map[uint64]*session{},
		recent: closedRing{most: o.MaxClosedClients},
	}
	s.put(&o, a)
	s.syncAccounts(a)
	return s, nil
}

func (s *Server) put(o *Options, a *auth.Authenticator) {
	s.options.Store(o)
	s.authn.Store(a)
	s.traced.Store(o.Trace)
	s.loaded.Store(time.Now().UnixNano())
}

func (o *Options) validate() error {
	var errs []error
	if w := o.Websocket; w != nil && !w.NoTLS && (w.TLS == nil || w.TLS.Config == nil) {
		errs = append(errs, errors.New("front: the websocket listener has no TLS configuration; set no_tls to do without"))
	}
	if o.TLS != nil && o.TLS.Config == nil {
		errs = append(errs, errors.New("front: TLS options without a TLS configuration"))
	}
	if o.Auth.TLSMap && !verifies(o.TLS) && (o.Websocket == nil || !verifies(o.Websocket.TLS)) {
		errs = append(errs, errors.New("front: verify_and_map needs TLS that verifies clients"))
	}
	return errors.Join(errs...)
}

// syncAccounts makes the accounts that the configuration asks for and returns
// those it no longer knows.
func (s *Server) syncAccounts(a *auth.Authenticator) (gone []*Account) {
	limits := map[string]auth.Limits{auth.GlobalAccount: {}, a.SystemAccount(): {}}
	for _, acc := range a.Accounts() {
		limits[acc.Name] = acc.Limits
	}
	var fresh []*Account
	s.mu.Lock()
	for name, l := range limits {
		acc := s.accounts[name]
		if acc == nil {
			acc = newAccount(s, name, name == a.SystemAccount())
			s.accounts[name] = acc
			fresh = append(fresh, acc)
		}
		acc.limits.Store(&l)
	}
	for name, acc := range s.accounts {
		if _, ok := limits[name]; !ok {
			delete(s.accounts, name)
			acc.gone.Store(true)
			gone = append(gone, acc)
		}
	}
	s.mu.Unlock()
	for _, acc := range gone {
		s.announce.drop(acc.name)
	}
	slices.SortFunc(fresh, byName)
	if c := s.joined(); c != nil {
		for _, acc := range fresh {
			c.AccountAdded(acc)
		}
	}
	if f := s.opts().OnAccount; f != nil {
		for _, acc := range fresh {
			f(acc)
		}
	}
	return gone
}

func byName(a, b *Account) int { return strings.Compare(a.name, b.name) }

// Start opens the listeners.
func (s *Server) Start() error {
	o := s.opts()
	if !o.NoListen {
		l, err := net.Listen("tcp", net.JoinHostPort(o.Host, fmt.Sprint(max(o.Port, 0))))
		if err != nil {
			return fmt.Errorf("front: listen for clients: %w", err)
		}
		s.mu.Lock()
		s.listener = l
		s.mu.Unlock()
		s.wait.Go(func() { s.acceptLoop(l) })
	}
	if o.Websocket != nil {
		if err := s.startWebsocket(o); err != nil {
			return err
		}
	}
	return nil
}

// acceptLoop serves connections until the listener closes.
func (s *Server) acceptLoop(l net.Listener) {
	pause := time.Duration(0)
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = 0
			s.spawn(func() { s.serveTCP(conn) }, conn)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors, most likely: let some go first.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("accept a client", "err", err, "retry", pause)
		time.Sleep(pause)
	}
}

// spawn runs a connection's goroutine unless the server is closing.
func (s *Server) spawn(f func(), conn net.Conn) {
	if !s.enter(conn) {
		return
	}
	go func() {
		defer s.wait.Done()
		f()
	}()
}

// enter counts a connection's goroutine, which must end with s.wait.Done; or
// closes the connection and tells false, when the server is closing.
func (s *Server) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.wait.Add(1)
	return true
}

// closeGrace is how long clients have to take what waits for them at Close.
const closeGrace = time.Second

// Close stops the listeners, closes every connection and waits for their
// goroutines.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	l, ws := s.listener, s.websocket
	open := s.openLocked()
	s.mu.Unlock()
	var errs []error
	if l != nil {
		errs = append(errs, ignoreClosed(l.Close()))
	}
	if ws != nil {
		errs = append(errs, ignoreClosed(ws.close()))
	}
	s.part(open, ReasonServerShutdown)
	force := time.AfterFunc(closeGrace, func() {
		s.mu.Lock()
		open := s.openLocked()
		s.mu.Unlock()
		for _, c := range open {
			c.cutOff(ReasonServerShutdown)
		}
	})
	s.wait.Wait()
	force.Stop()
	return errors.Join(errs...)
}

func (s *Server) openLocked() []*session {
	open := make([]*session, 0, len(s.sessions))
	for _, c := range s.sessions {
		open = append(open, c)
	}
	return open
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) opts() *Options            { return s.options.Load() }
func (s *Server) auth() *auth.Authenticator { return s.authn.Load() }

// Options are those in force, with defaults filled in.
func (s *Server) Options() Options { return *s.opts() }

// Addr is the address of the client listener, nil without one.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// WebsocketAddr is the address of the websocket listener, nil without one.
func (s *Server) WebsocketAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.websocket == nil {
		return nil
	}
	return s.websocket.addr()
}

func (s *Server) port() int          { return portOf(s.Addr()) }
func (s *Server) websocketPort() int { return portOf(s.WebsocketAddr()) }

func portOf(a net.Addr) int {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.Port
	}
	return 0
}

// Account returns the account of that name, nil if there is none.
func (s *Server) Account(name string) *Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accounts[name]
}

// Accounts returns every account, sorted by name.
func (s *Server) Accounts() []*Account {
	s.mu.Lock()
	all := make([]*Account, 0, len(s.accounts))
	for _, a := range s.accounts {
		all = append(all, a)
	}
	s.mu.Unlock()
	slices.SortFunc(all, byName)
	return all
}

// SystemAccount returns the account that gets $SYS events.
func (s *Server) SystemAccount() *Account { return s.Account(s.auth().SystemAccount()) }

// GlobalAccount returns the account of users without one.
func (s *Server) GlobalAccount() *Account { return s.Account(auth.GlobalAccount) }

func (s *Server) countIn(a *Account, msgs, bytes int64) {
	s.in.add(msgs, bytes)
	if a != nil {
		a.in.add(msgs, bytes)
	}
}

func (s *Server) countOut(a *Account, msgs, bytes int64) {
	if msgs == 0 {
		return
	}
	s.out.add(msgs, bytes)
	if a != nil {
		a.out.add(msgs, bytes)
	}
}

func newServerID() string {
	k, err := nkeys.CreateServer()
	if err != nil {
		panic("front: no randomness: " + err.Error())
	}
	id, err := k.PublicKey()
	if err != nil {
		panic("front: no public key: " + err.Error())
	}
	return id
}
