// Package handshake lets two nodes of a cluster find out who the other is and
// believe it.
//
//	dialer   → acceptor   magic, mode        what kind of connection it wants
//	acceptor → dialer     magic, mode        both must want the same
//	                      TLS 1.3, except in plain mode
//	dialer   → acceptor   hello: nonce, name, cluster, version, …
//	acceptor → dialer     hello
//	dialer   → acceptor   HMAC of all this by the secret
//	acceptor → dialer     verdict, HMAC of all this and the verdict
//
// The mode is not negotiated: each side derives it from its configuration and the
// addresses, so nobody in between can talk them down. The HMACs cover both hellos
// (so both nonces, both names, the cluster), the mode, the side that speaks and,
// with TLS, what the TLS session exports: who sits between two TLS sessions can't
// hand the proof of the one on to the other. A secret's key is stretched, because
// people choose them.
//
// Who does not know the secret learns the name, cluster and version of a node, and
// has to guess at one try for each connection.
package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/heraldmq/herald/replication/peer/wire"
)

// Config is what a node says of itself and how it proves it.
type Config struct {
	Self
	Cluster string
	Format  uint32
	Secret  string
	TLS     *tls.Config                            // certificates; nil: by the secret alone
	Wrap    func(peer string, c net.Conn) net.Conn // tests; may be nil
}

// Self is what one node tells another about itself.
type Self struct {
	Name    string
	Addr    string // where it listens
	Version string
	Boot    uint64 // random, of this process
	Stamp   uint64 // when the process began, by its own clock
}

const (
	magic      = "HERALDP1"
	helloMax   = 2 << 10
	verdictMax = 2 << 10
	nameMax    = 128

	// Deadlines of an acceptor before it knows who dials, and of a dialer, whom an
	// acceptor may let wait while it makes sure that an older connection is dead.
	AcceptTimeout = 2 * time.Second
	DialTimeout   = 5 * time.Second

	stretch = 1 << 16
)

// Mode is how a connection is protected.
type Mode byte

const (
	Plain        Mode = 'p' // loopback
	Ephemeral    Mode = 'e' // TLS with a certificate nobody knows, tied to the secret
	Certificates Mode = 'c' // TLS with certificates on both ends
)

func (m Mode) String() string {
	switch m {
	case Plain:
		return "no TLS"
	case Ephemeral:
		return "TLS by the cluster's secret"
	case Certificates:
		return "TLS by certificates"
	}
	return "an unknown mode"
}

// Handshaker does the handshakes of one node. Its methods may be called at once.
type Handshaker struct {
	c      Config
	key    []byte
	server *tls.Config
	client *tls.Config
}

// New checks c and prepares its keys, which takes some ten milliseconds.
func New(c Config) (*Handshaker, error) {
	if c.Name == "" || len(c.Name) > nameMax || len(c.Cluster) > nameMax || len(c.Version) > nameMax || len(c.Addr) > 300 {
		return nil, fmt.Errorf("peer: names of a node and of a cluster have 1 to %d bytes: %q, %q", nameMax, c.Name, c.Cluster)
	}
	h := &Handshaker{c: c}
	var err error
	if c.Secret != "" {
		if h.key, err = pbkdf2.Key(sha256.New, c.Secret, []byte("herald peer 1 "+c.Cluster), stretch, 32); err != nil {
			return nil, fmt.Errorf("peer: derive a key: %w", err)
		}
	}
	if h.server, h.client, err = tlsConfigs(c); err != nil {
		return nil, err
	}
	return h, nil
}

// Session is a handshake on its way.
type Session struct {
	h         *Handshaker
	conn      net.Conn
	mode      Mode
	dialer    bool
	exporter  []byte
	mine, his []byte // the hellos
	Remote    Self
}

// Conn is the connection as it is to be used from now on.
func (s *Session) Conn() net.Conn { return s.conn }

// Secure says whether the connection is encrypted.
func (s *Session) Secure() bool { return s.mode != Plain }

// Greet begins as the one who dialed host. After it the Remote is what the other
// claims; Prove finds out whether that is so.
func (h *Handshaker) Greet(conn net.Conn, host string) (*Session, error) {
	if err := conn.SetDeadline(time.Now().Add(DialTimeout)); err != nil {
		return nil, err
	}
	s := &Session{h: h, conn: conn, dialer: true}
	var err error
	if s.mode, err = h.mode(conn); err != nil {
		return nil, err
	}
	if _, err := conn.Write(append([]byte(magic), byte(s.mode))); err != nil {
		return nil, err
	}
	if err := s.readMode(); err != nil {
		return nil, err
	}
	if s.mode != Plain {
		cfg := h.client
		if s.mode == Certificates && cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName = host
		}
		if err := s.upgrade(tls.Client(conn, cfg)); err != nil {
			return nil, err
		}
	}
	if err := s.sendHello(); err != nil {
		return nil, err
	}
	return s, s.readHello()
}

// Prove proves who we are and returns what the other side thinks of it: nil, or a
// Refusal.
func (s *Session) Prove() error {
	if err := s.write(s.mac(0, "")); err != nil {
		return err
	}
	b, err := s.read(verdictMax)
	if err != nil {
		return err
	}
	f := wire.NewFields(b)
	code, text, mac := Code(f.Byte()), f.String(), f.Rest()
	if err := f.Err(); err != nil {
		return err
	}
	if code == BadSecret {
		return &Refusal{Code: BadSecret, Remote: s.Remote.Name, Text: badSecret}
	}
	if !hmac.Equal(mac, s.macOf(false, code, text)) {
		return &Refusal{Code: BadSecret, Remote: s.Remote.Name, Text: badSecret, Ours: true}
	}
	if code != OK {
		return &Refusal{Code: code, Remote: s.Remote.Name, Text: text}
	}
	return s.conn.SetDeadline(time.Time{})
}

// Accept is the other side of Greet and the first half of Prove: the Remote is who
// it says it is. Verdict ends it.
func (h *Handshaker) Accept(conn net.Conn) (*Session, error) {
	if err := conn.SetDeadline(time.Now().Add(AcceptTimeout)); err != nil {
		return nil, err
	}
	s := &Session{h: h, conn: conn}
	var err error
	if s.mode, err = h.mode(conn); err != nil {
		return nil, err
	}
	err = s.readMode()
	var r *Refusal
	if err != nil && !errors.As(err, &r) {
		return nil, err // not one of us: it is told nothing
	}
	if _, werr := conn.Write(append([]byte(magic), byte(s.mode))); werr != nil || err != nil {
		return nil, cmpErr(err, werr)
	}
	if s.mode != Plain {
		if err := s.upgrade(tls.Server(conn, h.server)); err != nil {
			return nil, err
		}
	}
	if err := s.readHello(); err != nil {
		if errors.As(err, &r) {
			_ = s.sendHello() // so that the dialer can say the same
		}
		return s, err
	}
	if err := s.sendHello(); err != nil {
		return s, err
	}
	mac, err := s.read(sha256.Size)
	if err != nil {
		return s, err
	}
	if !hmac.Equal(mac, s.macOf(true, 0, "")) {
		_ = s.write(wire.AppendString([]byte{byte(BadSecret)}, ""))
		return s, &Refusal{Code: BadSecret, Remote: s.Remote.Name, Text: badSecret, Ours: true}
	}
	return s, nil
}

// Verdict tells the dialer that it is welcome (OK) or why not.
func (s *Session) Verdict(code Code, text string) error {
	if err := s.conn.SetDeadline(time.Now().Add(AcceptTimeout)); err != nil {
		return err
	}
	text = text[:min(len(text), 500)]
	b := wire.AppendString([]byte{byte(code)}, text)
	if err := s.write(append(b, s.macOf(false, code, text)...)); err != nil {
		return err
	}
	return s.conn.SetDeadline(time.Time{})
}

func (s *Session) readMode() error {
	var b [len(magic) + 1]byte
	if _, err := io.ReadFull(s.conn, b[:]); err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic {
		return errors.New("peer: something that is not a node of a cluster answered")
	}
	if his := Mode(b[len(magic)]); his != s.mode {
		return &Refusal{Code: OtherMode, Ours: true, Text: fmt.Sprintf(
			"this node wants %v, the other one %v: give all nodes the same cluster.tls and cluster.authorization", s.mode, his)}
	}
	return nil
}

func (s *Session) upgrade(c *tls.Conn) error {
	if err := c.Handshake(); err != nil {
		return fmt.Errorf("peer: TLS: %w", err)
	}
	state := c.ConnectionState()
	var err error
	if s.exporter, err = state.ExportKeyingMaterial("EXPORTER-herald-peer", nil, 32); err != nil {
		return fmt.Errorf("peer: TLS: %w", err)
	}
	s.conn = c
	return nil
}

func (s *Session) sendHello() error {
	c := &s.h.c
	nonce := make([]byte, 32)
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	var secret byte
	if c.Secret != "" {
		secret = 1
	}
	b := append(nonce, secret)
	b = binary.LittleEndian.AppendUint32(b, c.Format)
	b = wire.AppendUint(wire.AppendUint(b, c.Boot), c.Stamp)
	for _, v := range []string{c.Cluster, c.Name, c.Addr, c.Version} {
		b = wire.AppendString(b, v)
	}
	s.mine = b
	return s.write(b)
}

func (s *Session) readHello() error {
	b, err := s.read(helloMax)
	if err != nil {
		return err
	}
	s.his = b
	c := &s.h.c
	f := wire.NewFields(b)
	for range 4 {
		f.Uint() // nonce
	}
	secret, format := f.Byte() == 1, f.Uint32()
	s.Remote.Boot, s.Remote.Stamp = f.Uint(), f.Uint()
	cluster := f.String()
	s.Remote.Name, s.Remote.Addr, s.Remote.Version = f.String(), f.String(), f.String()
	if err := f.Err(); err != nil {
		return err
	}
	refuse := func(code Code, format string, args ...any) error {
		return &Refusal{Code: code, Remote: s.Remote.Name, Ours: true, Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Remote.Name == "" || len(s.Remote.Name) > nameMax || strings.Contains(s.Remote.Name, "/"):
		return fmt.Errorf("%w: a node with the name %q", wire.ErrFrame, s.Remote.Name)
	case s.Remote.Boot == c.Boot:
		return refuse(Itself, "that is this node itself")
	case cluster != c.Cluster:
		return refuse(OtherCluster, "it belongs to the cluster %q, this node to %q: check cluster.name", cluster, c.Cluster)
	case format != c.Format:
		return refuse(OtherFormat, "it runs version %s with format %d, this node version %s with format %d: use one version", s.Remote.Version, format, c.Version, c.Format)
	case secret != (c.Secret != ""):
		return refuse(BadSecret, "only one of the two has a secret: give all nodes the same cluster.authorization")
	case s.Remote.Name == c.Name:
		return refuse(Duplicate, "it has the name of this node, %q: give each node a server_name of its own", c.Name)
	}
	if c.Wrap != nil {
		s.conn = c.Wrap(s.Remote.Name, s.conn)
	}
	return nil
}

// mac is what this side says, macOf what a side should say.
func (s *Session) mac(code Code, text string) []byte { return s.macOf(s.dialer, code, text) }

func (s *Session) macOf(dialer bool, code Code, text string) []byte {
	first, second, label := s.mine, s.his, "herald peer 1 dialer"
	if !s.dialer {
		first, second = s.his, s.mine
	}
	if !dialer {
		label = "herald peer 1 acceptor"
	}
	m := hmac.New(sha256.New, s.h.key)
	b := wire.AppendString(nil, label)
	b = wire.AppendBytes(append(b, byte(s.mode)), s.exporter)
	b = wire.AppendBytes(wire.AppendBytes(b, first), second)
	b = wire.AppendString(append(b, byte(code)), text)
	m.Write(b)
	return m.Sum(nil)
}

func (s *Session) write(b []byte) error {
	_, err := s.conn.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

func (s *Session) read(limit int) ([]byte, error) {
	var n [2]byte
	if _, err := io.ReadFull(s.conn, n[:]); err != nil {
		return nil, err
	}
	size := int(binary.LittleEndian.Uint16(n[:]))
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes before it has said who it is", wire.ErrFrame, size)
	}
	b := bytes.Repeat([]byte{0}, size)
	_, err := io.ReadFull(s.conn, b)
	return b, err
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
