package front

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/auth"
)

// authority is a CA of the test's own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert: cert, key: key, pool: pool}
}

func (a *authority) issue(t testing.TB, name pkix.Name, emails ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: name,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, EmailAddresses: emails,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) server(t testing.TB) *TLSOptions {
	return &TLSOptions{Config: &tls.Config{Certificates: []tls.Certificate{a.issue(t, pkix.Name{CommonName: "server"})}}}
}

func (a *authority) secure(certs ...tls.Certificate) nats.Option {
	return nats.Secure(&tls.Config{RootCAs: a.pool, Certificates: certs})
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	s := startServer(t, Options{TLS: ca.server(t)})
	nc := natsConnect(t, s, ca.secure())
	sub, _ := nc.SubscribeSync("foo")
	nc.Publish("foo", make([]byte, 200_000))
	if m, err := sub.NextMsg(testTimeout); err != nil || len(m.Data) != 200_000 {
		t.Fatal(err)
	}
	if c := s.Connections(ConnOpen, false)[0]; c.TLSVersion != "1.3" || c.TLSCipherSuite == "" {
		t.Fatalf("%+v", c)
	}
	plain := dial(t, s)
	plain.send("CONNECT {}\r\nPING\r\n")
	if got := plain.expectClosed(); got != "-ERR 'Secure Connection - TLS Required'\r\n" {
		t.Fatalf("got %q", got)
	}
	eventually(t, "the failure in the books", func() bool {
		closed := s.Connections(ConnClosed, false)
		return len(closed) == 1 && closed[0].Reason == ReasonTLSError
	})
}

func TestAllowNonTLS(t *testing.T) {
	ca := newAuthority(t)
	s := startServer(t, Options{TLS: ca.server(t), AllowNonTLS: true})
	natsConnect(t, s, ca.secure())
	natsConnect(t, s)
	connect(t, s, "").sync()
}

func TestHandshakeFirst(t *testing.T) {
	ca := newAuthority(t)
	o := ca.server(t)
	o.HandshakeFirst = true
	s := startServer(t, Options{TLS: o})
	natsConnect(t, s, ca.secure(), nats.TLSHandshakeFirst())
	if !s.Connections(ConnOpen, false)[0].TLSFirst {
		t.Fatal("TLSFirst isn't shown")
	}
	auto := ca.server(t)
	auto.HandshakeFirst, auto.HandshakeFallback = true, 20*time.Millisecond
	s = startServer(t, Options{TLS: auto})
	natsConnect(t, s, ca.secure(), nats.TLSHandshakeFirst())
	natsConnect(t, s, ca.secure())
}

func TestVerifyAndMap(t *testing.T) {
	ca := newAuthority(t)
	o := ca.server(t)
	o.Config.ClientCAs, o.Config.ClientAuth = ca.pool, tls.RequireAndVerifyClientCert
	s := startServer(t, Options{TLS: o, Auth: auth.Config{
		TLSMap: true, Accounts: []auth.Account{{Name: "A"}},
		Users: []auth.User{{Name: "ann@example.com", Account: "A"}, {Name: "CN=bob,O=ex"}},
	}})
	natsConnect(t, s, ca.secure(ca.issue(t, pkix.Name{CommonName: "x"}, "ann@example.com")))
	if got := s.Connections(ConnOpen, false)[0]; got.Account != "A" || got.AuthorizedUser != "ann@example.com" {
		t.Fatalf("%+v", got)
	}
	natsConnect(t, s, ca.secure(ca.issue(t, pkix.Name{CommonName: "bob", Organization: []string{"ex"}})))
	stranger := ca.issue(t, pkix.Name{CommonName: "bob"})
	if _, err := nats.Connect("nats://"+s.Addr().String(), ca.secure(stranger)); !errors.Is(err, nats.ErrAuthorization) {
		t.Fatalf("a stranger: %v", err)
	}
	other := newAuthority(t)
	if _, err := nats.Connect("nats://"+s.Addr().String(), ca.secure(other.issue(t, pkix.Name{}, "ann@example.com"))); err == nil {
		t.Fatal("a certificate of another CA is let in")
	}
}

func TestPinnedCertificates(t *testing.T) {
	ca := newAuthority(t)
	good, bad := ca.issue(t, pkix.Name{CommonName: "good"}), ca.issue(t, pkix.Name{CommonName: "bad"})
	o := ca.server(t)
	o.Config.ClientCAs, o.Config.ClientAuth = ca.pool, tls.RequireAndVerifyClientCert
	o.PinnedCerts = []string{keySum(good.Leaf)}
	s := startServer(t, Options{TLS: o})
	natsConnect(t, s, ca.secure(good))
	if _, err := nats.Connect("nats://"+s.Addr().String(), ca.secure(bad)); err == nil {
		t.Fatal("let in")
	}
}

func TestHandshakeRateLimit(t *testing.T) {
	ca := newAuthority(t)
	o := ca.server(t)
	o.RateLimit = 1
	s := startServer(t, Options{TLS: o})
	natsConnect(t, s, ca.secure())
	c := dial(t, s)
	if got := c.expectClosed(); got != "-ERR 'Connection throttling is active. Please try again later.'\r\n" {
		t.Fatalf("got %q", got)
	}
}

func TestInProcess(t *testing.T) {
	s := startServer(t, Options{NoListen: true})
	nc, err := nats.Connect("", nats.InProcessServer(inProcess{s}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, _ := nc.SubscribeSync("foo")
	nc.Publish("foo", []byte("x"))
	if _, err := sub.NextMsg(testTimeout); err != nil {
		t.Fatal(err)
	}
}

type inProcess struct{ s *Server }

func (p inProcess) InProcessConn() (net.Conn, error) { return p.s.InProcess() }
