package handshake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// far is one end of a connection to another machine.
type far struct{ net.Conn }

func (far) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (far) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 2} }

func pair(t *testing.T, near bool) (net.Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	if near {
		return a, b
	}
	return far{a}, far{b}
}

func shaker(t *testing.T, name string, change func(*Config)) *Handshaker {
	t.Helper()
	c := Config{Self: Self{Name: name, Addr: "h:1", Version: "v", Boot: uint64(name[0])}, Cluster: "c", Format: 1, Secret: "s:s"}
	if change != nil {
		change(&c)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// meet runs a whole handshake.
func meet(dialer, acceptor *Handshaker, a, b net.Conn) (d, c *Session, derr, aerr error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, aerr = acceptor.Accept(b); aerr == nil {
			aerr = c.Verdict(OK, "")
		} else {
			_ = b.Close()
		}
	}()
	if d, derr = dialer.Greet(a, "node"); derr == nil {
		derr = d.Prove()
	}
	if derr != nil {
		_ = a.Close()
	}
	<-done
	return
}

func TestTwoNodesThatShareASecret(t *testing.T) {
	for _, near := range []bool{true, false} {
		a, b := pair(t, near)
		d, c, derr, aerr := meet(shaker(t, "a", nil), shaker(t, "b", nil), a, b)
		if derr != nil || aerr != nil {
			t.Fatal(derr, aerr)
		}
		if d.Remote.Name != "b" || c.Remote.Name != "a" || d.Secure() == near {
			t.Errorf("near %v: %+v, %+v, %v", near, d.Remote, c.Remote, d.Secure())
		}
		go d.Conn().Write([]byte("hello"))
		got := make([]byte, 5)
		if _, err := io.ReadFull(c.Conn(), got); err != nil || string(got) != "hello" {
			t.Fatal(string(got), err)
		}
	}
}

func TestWrongSecretIsSaidOnBothSides(t *testing.T) {
	for _, near := range []bool{true, false} {
		a, b := pair(t, near)
		_, _, derr, aerr := meet(shaker(t, "a", func(c *Config) { c.Secret = "s:x" }), shaker(t, "b", nil), a, b)
		var r *Refusal
		if !errors.As(derr, &r) || r.Code != BadSecret || !errors.As(aerr, &r) || r.Code != BadSecret {
			t.Errorf("%v; %v", derr, aerr)
		}
	}
}

func TestModesAreNotNegotiated(t *testing.T) {
	a, b := pair(t, true)
	ca := authority(t)
	_, _, derr, aerr := meet(shaker(t, "a", nil), shaker(t, "b", func(c *Config) { c.TLS = ca.config(t, "node") }), a, b)
	var r *Refusal
	if !errors.As(derr, &r) || r.Code != OtherMode || !errors.As(aerr, &r) || r.Code != OtherMode {
		t.Errorf("%v; %v", derr, aerr)
	}
	a, _ = pair(t, false)
	if _, err := shaker(t, "a", func(c *Config) { c.Secret = "" }).Greet(a, "node"); err == nil || !strings.Contains(err.Error(), Advice) {
		t.Error(err)
	}
}

// TestAManInTheMiddle ends the TLS of both sides and passes on what they say, which
// anybody can do where nobody vouches for the certificates.
func TestAManInTheMiddle(t *testing.T) {
	a, m1 := pair(t, false)
	m2, b := pair(t, false)
	middle := shaker(t, "m", nil)
	go func() {
		head := make([]byte, len(magic)+1)
		_, _ = io.ReadFull(m1, head)
		_, _ = m2.Write(head)
		_, _ = io.ReadFull(m2, head)
		_, _ = m1.Write(head)
		left, right := tls.Server(m1, middle.server), tls.Client(m2, middle.client)
		go io.Copy(left, right)
		_, _ = io.Copy(right, left)
	}()
	_, _, derr, aerr := meet(shaker(t, "a", nil), shaker(t, "b", nil), a, b)
	var r *Refusal
	if !errors.As(derr, &r) || !errors.As(aerr, &r) || r.Code != BadSecret {
		t.Errorf("%v; %v", derr, aerr)
	}
}

func TestAProofCannotBeReplayed(t *testing.T) {
	a, b := pair(t, true)
	h := shaker(t, "b", nil)
	d, _, derr, aerr := meet(shaker(t, "a", nil), h, a, b)
	if derr != nil || aerr != nil {
		t.Fatal(derr, aerr)
	}
	hello, proof := d.mine, d.mac(0, "")
	a, b = pair(t, true)
	go func() {
		s := &Session{h: h, conn: a, mode: Plain}
		_, _ = a.Write(append([]byte(magic), byte(Plain)))
		_ = s.write(hello)
		_ = s.write(proof)
		_, _ = io.Copy(io.Discard, a)
	}()
	var r *Refusal
	if _, err := h.Accept(b); !errors.As(err, &r) || r.Code != BadSecret {
		t.Error(err)
	}
}

func TestCertificatesAreVerifiedOnBothEnds(t *testing.T) {
	ours, theirs := authority(t), authority(t)
	for name, x := range map[string]struct {
		dialer, acceptor *tls.Config
		ok               bool
	}{
		"same authority":     {ours.config(t, "node"), ours.config(t, "node"), true},
		"strange dialer":     {mixed(theirs.config(t, "node"), ours), ours.config(t, "node"), false},
		"strange acceptor":   {ours.config(t, "node"), mixed(theirs.config(t, "node"), ours), false},
		"another host":       {ours.config(t, "node"), ours.config(t, "elsewhere"), false},
		"different roots":    {ours.config(t, "node"), theirs.config(t, "node"), false},
		"no secret with TLS": {ours.config(t, "node"), ours.config(t, "node"), true},
	} {
		a, b := pair(t, false)
		with := func(c *tls.Config) func(*Config) {
			return func(o *Config) {
				o.TLS = c
				if strings.HasPrefix(name, "no secret") {
					o.Secret = ""
				}
			}
		}
		_, _, derr, aerr := meet(shaker(t, "a", with(x.dialer)), shaker(t, "b", with(x.acceptor)), a, b)
		if ok := derr == nil && aerr == nil; ok != x.ok {
			t.Errorf("%s: %v; %v", name, derr, aerr)
		}
	}
}

func TestWhoSaysTooMuchOrNothingIsDropped(t *testing.T) {
	h := shaker(t, "b", nil)
	for name, say := range map[string][]byte{
		"http":       []byte("GET / HTTP/1.1\r\n\r\n"),
		"long hello": append([]byte(magic+"p"), 0xff, 0xff),
		"bad hello":  append([]byte(magic+"p"), 3, 0, 1, 2, 3),
		"nothing":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, true)
			_, _ = a.Write(say)
			start := time.Now()
			if _, err := h.Accept(b); err == nil || time.Since(start) > AcceptTimeout+time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
	}
}

type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func authority(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &ca{cert, key}
}

func (c *ca) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.cert)
	return p
}

func (c *ca) config(t *testing.T, host string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: c.pool(), Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// mixed presents a certificate that the verifier doesn't know.
func mixed(c *tls.Config, verifier *ca) *tls.Config {
	c.RootCAs, c.ClientCAs = verifier.pool(), verifier.pool()
	return c
}
