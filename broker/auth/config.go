// Package auth decides who a connection is and what it may do: users with
// passwords, tokens or nkeys, users named by their TLS certificate, the
// accounts they belong to, and their permissions per subject.
//
// A Config is what the configuration says; New checks it and makes an
// Authenticator, which is immutable: a reload makes a new one. Nothing here
// does I/O or keeps a goroutine.
package auth

import (
	"time"
)

// Names of the accounts that always exist.
const (
	GlobalAccount = "$G"
	SystemAccount = "$SYS"
)

// Config says who may connect. The zero value lets everybody in, bound to the
// global account.
type Config struct {
	// Token, when set, is the one secret everybody shows (plain or bcrypt).
	Token string
	// Users are those who log in with a password, an nkey or a certificate.
	Users []User
	// Accounts are the isolated subject spaces beside $G and $SYS.
	Accounts []Account
	// SystemAccount names the account that gets $SYS events; "" is $SYS.
	SystemAccount string
	// NoAuthUser names the user of connections that show no credentials.
	NoAuthUser string
	// DefaultPermissions are those of users of the global account without
	// their own.
	DefaultPermissions *Permissions
	// Timeout is how long a connection has for CONNECT; 0 is 2 s.
	Timeout time.Duration
	// TLSMap makes the verified client certificate the identity.
	TLSMap bool
}

// User is one identity. Exactly one of Password and Nkey is set, or neither
// for users named by a certificate only.
type User struct {
	Name     string
	Password string // plain, or bcrypt "$2a$…"
	Nkey     string // public, "U…"
	Account  string // "" is the global account
	// Permissions of nil allow everything (or the account's default).
	Permissions *Permissions
	// ConnectionTypes, when not empty, lists STANDARD, WEBSOCKET, IN_PROCESS…
	ConnectionTypes []string
}

// Account is one isolated subject space.
type Account struct {
	Name               string
	Nkey               string
	DefaultPermissions *Permissions
	Limits             Limits
}

// Limits of one account. Zero means no limit.
type Limits struct {
	MaxConnections   int
	MaxSubscriptions int
	MaxPayload       int
}

// Permissions of one user. A nil part allows everything.
type Permissions struct {
	Publish   *SubjectPermission
	Subscribe *SubjectPermission
	// Responses, when set, allows publishing to reply subjects that the user
	// was sent.
	Responses *ResponsePermission

	// What may be done with advertisements; see Rules.Advertise and those after it.
	// nil takes what follows from Publish and Subscribe.
	Advertise *SubjectPermission
	Discover  *SubjectPermission
	Sample    *SubjectPermission
	Enforce   *SubjectPermission
}

// SubjectPermission lists patterns. In a subscribe permission an entry may be
// "pattern queue", which then speaks of queue subscriptions only. An empty
// Allow with a nil slice allows everything that is not denied.
type SubjectPermission struct {
	Allow []string
	Deny  []string
}

// ResponsePermission bounds replies: at most Max per request (0 is 1, negative
// has no bound) within Expires (0 is 2 minutes, negative has no bound).
type ResponsePermission struct {
	Max     int
	Expires time.Duration
}
