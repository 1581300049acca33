package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"
)

// ErrViolation is the one answer to wrong credentials of any kind.
var ErrViolation = errors.New("auth: authorization violation")

// Kinds of connection that ConnectionTypes may list.
const (
	TypeStandard  = "STANDARD"
	TypeWebsocket = "WEBSOCKET"
	TypeInProcess = "IN_PROCESS"
)

var connectionTypes = []string{TypeStandard, TypeWebsocket, TypeInProcess, "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS"}

// Credentials are what a connection shows.
type Credentials struct {
	User, Pass, Token string
	Nkey, Sig         string
	JWT               string
	Nonce             []byte            // what this connection was told to sign
	Peer              *x509.Certificate // the verified certificate; nil without one
	Type              string            // TypeStandard, …
	NoAuthUser        string            // of the listener, over that of the Config
}

func (c *Credentials) empty() bool {
	return c.User == "" && c.Pass == "" && c.Token == "" && c.Nkey == "" && c.Sig == "" && c.JWT == ""
}

// Identity is who a connection turned out to be. Immutable.
type Identity struct {
	User    string // name or nkey; "" when anonymous or by token
	Account string
	Rules   *Rules

	// proof sums up what was shown, to tell at a reload whether it would still
	// be accepted.
	proof [sha256.Size]byte
	types []string
	how   string
}

// Authenticator answers who a connection is. Immutable: any number of callers.
type Authenticator struct {
	cfg     Config
	byName  map[string]*login
	byNkey  map[string]*login
	token   *secret
	decoy   *secret // checked for those who don't exist: as slow as for those who do
	open    bool    // nobody needs credentials
	useKeys bool
}

type login struct {
	identity Identity
	pass     *secret
	nkey     string
}

// New checks the configuration as a whole and reports all its faults at once.
func New(cfg Config) (*Authenticator, error) {
	a := &Authenticator{cfg: cfg, byName: map[string]*login{}, byNkey: map[string]*login{}, decoy: newSecret("no such user")}
	var errs []error
	accounts := map[string]*Account{GlobalAccount: {}, a.SystemAccount(): {}}
	for i := range cfg.Accounts {
		acc := &cfg.Accounts[i]
		if acc.Name == "" {
			errs = append(errs, errors.New("auth: an account has no name"))
		}
		if old := accounts[acc.Name]; old != nil && old.Name != "" {
			errs = append(errs, fmt.Errorf("auth: account %q is defined twice", acc.Name))
		}
		accounts[acc.Name] = acc
		if _, err := Compile(acc.DefaultPermissions); err != nil {
			errs = append(errs, fmt.Errorf("account %q: %w", acc.Name, err))
		}
	}
	if cfg.Token != "" {
		a.token = newSecret(cfg.Token)
	}
	for i := range cfg.Users {
		if err := a.addUser(&cfg.Users[i], accounts); err != nil {
			errs = append(errs, err)
		}
	}
	if cfg.NoAuthUser != "" && a.byName[cfg.NoAuthUser] == nil && a.byNkey[cfg.NoAuthUser] == nil {
		errs = append(errs, fmt.Errorf("auth: no_auth_user %q isn't one of the users", cfg.NoAuthUser))
	}
	// Users of the system account alone lock nobody else out of $G in the
	// original, which once opened servers by accident: here any user closes.
	a.open = len(cfg.Users) == 0 && cfg.Token == "" && !cfg.TLSMap
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Authenticator) addUser(u *User, accounts map[string]*Account) error {
	name := u.Name
	if u.Nkey != "" {
		if !nkeys.IsValidPublicUserKey(u.Nkey) {
			return fmt.Errorf("auth: %q isn't a public user nkey", u.Nkey)
		}
		if u.Password != "" {
			return fmt.Errorf("auth: user %q has both an nkey and a password", u.Nkey)
		}
		name = u.Nkey
	}
	if name == "" {
		return errors.New("auth: a user has neither name nor nkey")
	}
	account := u.Account
	if account == "" {
		account = GlobalAccount
	}
	acc := accounts[account]
	if acc == nil {
		return fmt.Errorf("auth: user %q is of unknown account %q", name, account)
	}
	types := make([]string, len(u.ConnectionTypes))
	for i, t := range u.ConnectionTypes {
		types[i] = strings.ToUpper(t)
		if !slices.Contains(connectionTypes, types[i]) {
			return fmt.Errorf("auth: user %q: unknown connection type %q", name, t)
		}
	}
	perms := u.Permissions
	if perms == nil {
		perms = acc.DefaultPermissions
	}
	if perms == nil && account == GlobalAccount {
		perms = a.cfg.DefaultPermissions
	}
	rules, err := Compile(perms)
	if err != nil {
		return fmt.Errorf("user %q: %w", name, err)
	}
	l := &login{
		identity: Identity{User: name, Account: account, Rules: rules, types: types},
		nkey:     u.Nkey,
	}
	if a.byName[name] != nil || a.byNkey[name] != nil {
		return fmt.Errorf("auth: user %q is defined twice", name)
	}
	if u.Nkey != "" {
		a.useKeys = true
		l.identity.how = "nkey"
		l.identity.proof = sha256.Sum256([]byte("nkey " + u.Nkey))
		a.byNkey[name] = l
		return nil
	}
	if u.Password != "" {
		l.pass = newSecret(u.Password)
		if l.pass.cost() > a.decoy.cost() {
			a.decoy = l.pass
		}
	}
	l.identity.how = "password"
	l.identity.proof = sha256.Sum256([]byte("password " + u.Password))
	a.byName[name] = l
	return nil
}

// SystemAccount is the name of the account that gets $SYS events.
func (a *Authenticator) SystemAccount() string {
	if a.cfg.SystemAccount != "" {
		return a.cfg.SystemAccount
	}
	return SystemAccount
}

// Accounts are those of the configuration, beside $G and the system account.
func (a *Authenticator) Accounts() []Account { return a.cfg.Accounts }

// Required tells whether credentials are asked for.
func (a *Authenticator) Required() bool { return !a.open }

// NeedsNonce tells whether a connection must be given something to sign.
func (a *Authenticator) NeedsNonce() bool { return a.useKeys }

// Optional tells whether a connection of a type may do without CONNECT: nothing
// is asked for, or who shows nothing is a named user that may come this way.
func (a *Authenticator) Optional(listenerNoAuthUser, connectionType string) bool {
	if a.open {
		return true
	}
	l := a.anonymous(listenerNoAuthUser)
	return l != nil && l.takes(connectionType)
}

// anonymous is who shows nothing; nil when nobody may.
func (a *Authenticator) anonymous(listenerNoAuthUser string) *login {
	name := a.cfg.NoAuthUser
	if listenerNoAuthUser != "" {
		name = listenerNoAuthUser
	}
	if name == "" {
		return nil
	}
	if l := a.byName[name]; l != nil {
		return l
	}
	return a.byNkey[name]
}

func (l *login) takes(connectionType string) bool {
	return len(l.identity.types) == 0 || slices.Contains(l.identity.types, connectionType)
}

// NewNonce returns a fresh nonce, printable.
func NewNonce() []byte {
	var raw [11]byte
	rand.Read(raw[:])
	return base64.RawURLEncoding.AppendEncode(nil, raw[:])
}

// Check returns who shows c. The error is always ErrViolation: which part was
// wrong is nobody's business.
func (a *Authenticator) Check(c *Credentials) (*Identity, error) {
	if a.open {
		// Credentials nobody asked for do no harm, as long as they name no one
		// in particular who would expect them to be checked.
		return &Identity{Account: GlobalAccount, how: "open"}, nil
	}
	l := a.login(c)
	if l == nil {
		return nil, ErrViolation
	}
	if !l.takes(c.Type) {
		return nil, ErrViolation
	}
	id := l.identity
	return &id, nil
}

func (a *Authenticator) login(c *Credentials) *login {
	if a.cfg.TLSMap && c.Peer != nil {
		return a.mapped(c.Peer)
	}
	if c.empty() {
		return a.anonymous(c.NoAuthUser)
	}
	switch {
	case c.Nkey != "":
		l := a.byNkey[c.Nkey]
		if l == nil || !verify(c.Nkey, c.Sig, c.Nonce) {
			return nil
		}
		return l
	case c.User != "":
		l := a.byName[c.User]
		if l == nil || l.pass == nil {
			// Take as long as for a user that exists.
			a.decoy.matches(c.Pass)
			return nil
		}
		if !l.pass.matches(c.Pass) {
			return nil
		}
		return l
	case c.Token != "" && a.token != nil:
		if !a.token.matches(c.Token) {
			return nil
		}
		return &login{identity: Identity{
			Account: GlobalAccount, how: "token", proof: sha256.Sum256([]byte("token " + a.cfg.Token)),
			Rules: a.defaultRules(),
		}}
	}
	return nil
}

func (a *Authenticator) defaultRules() *Rules {
	// Checked by New for every user; a token alone never met it before.
	r, err := Compile(a.cfg.DefaultPermissions)
	if err != nil {
		return &Rules{}
	}
	return r
}

// Renew returns what id is under this configuration, or ErrViolation when what
// the connection showed would no longer be accepted. For reloads.
func (a *Authenticator) Renew(id *Identity, connectionType string) (*Identity, error) {
	var l *login
	switch {
	case a.open:
		if id.how == "open" {
			return id, nil
		}
	case id.how == "token" && a.token != nil:
		l = &login{identity: Identity{
			Account: GlobalAccount, how: "token", proof: sha256.Sum256([]byte("token " + a.cfg.Token)),
			Rules: a.defaultRules(),
		}}
	case id.how == "nkey":
		l = a.byNkey[id.User]
	case id.how == "password":
		l = a.byName[id.User]
	}
	if l == nil || l.identity.Account != id.Account || l.identity.proof != id.proof {
		return nil, ErrViolation
	}
	if !l.takes(connectionType) {
		return nil, ErrViolation
	}
	renewed := l.identity
	return &renewed, nil
}

// verify checks an Ed25519 signature of the nonce. Keys and signatures of any
// length and alphabet are refused, not trusted to be well-formed.
func verify(public, sig string, nonce []byte) bool {
	if len(nonce) == 0 {
		return false
	}
	if strings.ContainsAny(sig, "\r\n") {
		return false // the decoders below would skip them
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sig)
	if err != nil {
		if raw, err = base64.StdEncoding.Strict().DecodeString(sig); err != nil {
			return false
		}
	}
	if len(raw) != ed25519.SignatureSize {
		return false
	}
	key, err := nkeys.FromPublicKey(public)
	if err != nil {
		return false
	}
	return key.Verify(nonce, raw) == nil
}

// secret is a password or token as configured.
type secret struct {
	bcrypt []byte
	sum    [sha256.Size]byte
}

func newSecret(s string) *secret {
	for _, p := range []string{"$2a$", "$2b$", "$2x$", "$2y$"} {
		if strings.HasPrefix(s, p) {
			return &secret{bcrypt: []byte(s)}
		}
	}
	return &secret{sum: sha256.Sum256([]byte(s))}
}

// cost is that of bcrypt; 0 for what is compared at once.
func (s *secret) cost() int {
	n, err := bcrypt.Cost(s.bcrypt)
	if err != nil {
		return 0
	}
	return n
}

func (s *secret) matches(shown string) bool {
	if s.bcrypt != nil {
		return bcrypt.CompareHashAndPassword(s.bcrypt, []byte(shown)) == nil
	}
	// Sums have one length, so the comparison leaks neither that nor content.
	sum := sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(sum[:], s.sum[:]) == 1
}
