package front

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/auth"
)

// errShort: what a peer sent ends too early.
var errShort = errors.New("front: a batch from a peer is cut short")

// appendIdent appends who a client is, for the services of another node.
func appendIdent(dst []byte, c *ClientInfo) []byte {
	restricted := uint64(0)
	if c.rules() != nil {
		restricted = 1
	}
	dst = binary.AppendUvarint(dst, c.ID)
	dst = binary.AppendUvarint(dst, restricted)
	dst = binary.AppendUvarint(dst, uint64(c.Port))
	dst = binary.AppendVarint(dst, c.Start.UnixNano())
	for _, s := range []string{c.Kind, c.Type, c.Name, c.User, c.Account, c.Lang, c.Version, c.Host, c.NameTag} {
		dst = appendBytes(dst, s)
	}
	return dst
}

// readIdent reads what appendIdent wrote.
func (s *Server) readIdent(b []byte) (*ClientInfo, error) {
	r := cursor{b: b}
	c := &ClientInfo{ID: r.uvarint()}
	restricted := r.uvarint() != 0
	c.Port = int(r.uvarint())
	c.Start = time.Unix(0, r.varint())
	for _, p := range []*string{&c.Kind, &c.Type, &c.Name, &c.User, &c.Account, &c.Lang, &c.Version, &c.Host, &c.NameTag} {
		*p = string(r.bytes())
	}
	if r.failed {
		return nil, errShort
	}
	c.remote = &remoteRules{srv: s, user: c.User, account: c.Account, restricted: restricted}
	return c, nil
}

// remoteRules are the permissions of a client of another node. All nodes have the
// same configuration, so they are looked up in this one's.
type remoteRules struct {
	srv           *Server
	user, account string
	restricted    bool // by the word of the node it is connected to
	found         atomic.Pointer[foundRules]
}

type foundRules struct {
	under *Options
	rules *auth.Rules
}

func (r *remoteRules) rules() *auth.Rules {
	o := r.srv.opts()
	if f := r.found.Load(); f != nil && f.under == o {
		return f.rules
	}
	rules := r.look(&o.Auth)
	r.found.Store(&foundRules{o, rules})
	return rules
}

func (r *remoteRules) look(c *auth.Config) *auth.Rules {
	p, known := c.DefaultPermissions, false
	for i := range c.Users {
		u := &c.Users[i]
		account := u.Account
		if account == "" {
			account = auth.GlobalAccount
		}
		if r.user == "" || account != r.account || u.Name != r.user && u.Nkey != r.user {
			continue
		}
		known = true
		if u.Permissions != nil {
			p = u.Permissions
			break
		}
		if account != auth.GlobalAccount {
			p = nil
		}
		for _, a := range c.Accounts {
			if a.Name == account && a.DefaultPermissions != nil {
				p = a.DefaultPermissions
			}
		}
		break
	}
	if !known && !r.restricted {
		return nil
	}
	rules, err := auth.Compile(p)
	if err != nil || rules == nil && r.restricted {
		return &auth.Rules{} // nothing, rather than more than there
	}
	return rules
}

func appendBytes[T string | []byte](dst []byte, b T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// cursor reads what a peer wrote. It never panics; after the first thing that is
// cut short everything is empty and failed is set.
type cursor struct {
	b      []byte
	failed bool
}

func (r *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *cursor) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *cursor) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *cursor) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *cursor) bytes() []byte { return r.take(r.uvarint()) }

func (r *cursor) fail() { r.b, r.failed = nil, true }
