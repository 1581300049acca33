package front

import (
	"context"
	"net"
	"time"
)

// Server owns the listeners, the accounts and every connection.
type Server struct{}

// New checks o and makes a server with its accounts. It starts nothing:
// accounts can be subscribed and published to at once, Start lets clients in.
func New(o Options) (*Server, error) { panic("not yet") }

// Start opens the listeners.
func (s *Server) Start() error { panic("not yet") }

// Close stops the listeners, closes every connection and waits for their
// goroutines.
func (s *Server) Close() error { panic("not yet") }

// LameDuck stops listening, tells clients to go elsewhere, closes them spread
// over the configured time and returns when all have gone or ctx is done. The
// caller still has to Close.
func (s *Server) LameDuck(ctx context.Context) { panic("not yet") }

// Reload puts auth, limits and TLS of o in force for new connections, and
// closes or re-permits those that are connected. Listen addresses can't change.
func (s *Server) Reload(o Options) error { panic("not yet") }

// Addr is the address of the client listener, nil without one.
func (s *Server) Addr() net.Addr { panic("not yet") }

// WebsocketAddr is the address of the websocket listener, nil without one.
func (s *Server) WebsocketAddr() net.Addr { panic("not yet") }

// ServerID, ServerName and so on as INFO says them.
func (s *Server) Options() Options { panic("not yet") }

// Account returns the account of that name, nil if there is none.
func (s *Server) Account(name string) *Account { panic("not yet") }

// Accounts returns every account, sorted by name.
func (s *Server) Accounts() []*Account { panic("not yet") }

// SystemAccount returns the account that gets $SYS events.
func (s *Server) SystemAccount() *Account { panic("not yet") }

// SetConnectURLs sets the addresses of the cluster's listeners and tells
// connected clients.
func (s *Server) SetConnectURLs(urls, websocket []string) { panic("not yet") }

// Kick closes one client; false when there is no such connection.
func (s *Server) Kick(cid uint64) bool { panic("not yet") }

// LDM tells one client to go elsewhere; false when there is no such connection.
func (s *Server) LDM(cid uint64) bool { panic("not yet") }

// Stats returns the server's counters.
func (s *Server) Stats() Stats { panic("not yet") }

// Connections returns open connections, closed ones (newest last, as many as
// are remembered) or both; subs adds their subscriptions.
func (s *Server) Connections(state ConnState, subs bool) []ConnInfo { panic("not yet") }

// Subscriptions calls f for each subscription of clients until it returns
// false.
func (s *Server) Subscriptions(f func(SubInfo) bool) { panic("not yet") }

// SubsStats describes the interest index of all accounts together.
func (s *Server) SubsStats() SubsStats { panic("not yet") }

type (
	session struct{}
	stager  struct{}
)

func newServerID() string                         { panic("not yet") }
func (m *Message) respond(header, payload []byte) { panic("not yet") }

func (s *session) mayPublish(subject string) bool          { panic("not yet") }
func (s *session) maySubscribe(pattern, queue string) bool { panic("not yet") }
func (s *session) rtt() time.Duration                      { panic("not yet") }
