package client

import (
	"crypto/tls"
	"time"

	"github.com/nats-io/nats.go"
)

// Option changes one setting of [Connect] or [New] from its default.
type Option func(*settings)

type settings struct {
	nats           []nats.Option
	timeout        time.Duration
	publishTimeout time.Duration
	window         int
	domain         string
	onError        func(error)
}

func defaults() settings {
	return settings{
		timeout:        5 * time.Second,
		publishTimeout: 10 * time.Second,
		window:         4096,
		onError:        func(error) {},
	}
}

// Name is what the broker's monitoring shows for the connection, instead of
// "herald-client".
func Name(name string) Option { return withNATS(nats.Name(name)) }

// Credentials authenticates with a .creds file (JWT and seed), instead of
// connecting without identity.
func Credentials(file string) Option { return withNATS(nats.UserCredentials(file)) }

// UserPassword authenticates with a name and password, instead of connecting
// without identity.
func UserPassword(user, password string) Option { return withNATS(nats.UserInfo(user, password)) }

// Token authenticates with a token, instead of connecting without identity.
func Token(token string) Option { return withNATS(nats.Token(token)) }

// TLS encrypts with the given configuration, instead of with the system's roots
// when the URL says tls:// and not at all otherwise.
func TLS(cfg *tls.Config) Option { return withNATS(nats.Secure(cfg)) }

// Timeout bounds operations whose context has no deadline, instead of 5 s.
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// PublishTimeout bounds the wait for the receipt of an asynchronous durable
// publish, instead of 10 s.
func PublishTimeout(d time.Duration) Option { return func(s *settings) { s.publishTimeout = d } }

// PublishWindow bounds how many asynchronous durable publishes may be without
// receipt, instead of 4,096. When full, [Client.PublishAsync] blocks.
func PublishWindow(messages int) Option { return func(s *settings) { s.window = messages } }

// Domain addresses the topics of another domain, instead of the connection's.
func Domain(domain string) Option { return func(s *settings) { s.domain = domain } }

// InboxPrefix is where replies are received, instead of "_INBOX".
func InboxPrefix(prefix string) Option { return withNATS(nats.CustomInboxPrefix(prefix)) }

// Reconnects bounds the attempts to reconnect after a loss, instead of trying
// for ever (-1).
func Reconnects(attempts int) Option { return withNATS(nats.MaxReconnects(attempts)) }

// ReconnectWait is the pause between two attempts, instead of 250 ms.
func ReconnectWait(d time.Duration) Option { return withNATS(nats.ReconnectWait(d)) }

// OnError receives what has no caller to return to (a slow subscription, a
// failed lease renewal, a refused live publish), instead of dropping it. It is
// called from the connection's goroutines and must not block.
func OnError(f func(error)) Option { return func(s *settings) { s.onError = f } }

// OnDisconnect is called when the connection is lost, instead of nothing.
func OnDisconnect(f func(error)) Option {
	return withNATS(nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { f(err) }))
}

// OnReconnect is called when the connection is back, instead of nothing.
func OnReconnect(f func(url string)) Option {
	return withNATS(nats.ReconnectHandler(func(nc *nats.Conn) { f(nc.ConnectedUrlRedacted()) }))
}

// NATS passes options of nats.go through; they win over the ones above that
// come before.
func NATS(options ...nats.Option) Option { return withNATS(options...) }

func withNATS(options ...nats.Option) Option {
	return func(s *settings) { s.nats = append(s.nats, options...) }
}
