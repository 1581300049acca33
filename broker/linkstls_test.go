package broker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a.key = key
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// block is the tls block of a node with a certificate of this authority.
func (a *authority) block(name string) string {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q }", a.write(name+".pem", "CERTIFICATE", der),
		a.write(name+"-key.pem", "EC PRIVATE KEY", keyDER), filepath.Join(a.dir, "ca.pem"))
}

func TestClusterByCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	node := func(name, tls, route string) *broker.Broker {
		routes := ""
		if route != "" {
			routes = fmt.Sprintf("routes: [ %q ]", "nats-route://"+route)
		}
		return start(t, broker.Config{Options: options(t, fmt.Sprintf("server_name: %s\ncluster { name: two, port: -1, %s\n%s }\n", name, tls, routes))})
	}
	a := node("a", ours.block("a"), "")
	u, err := url.Parse(a.ClusterURL())
	if err != nil {
		t.Fatal(err)
	}
	b := node("b", ours.block("b"), u.Host)
	for _, n := range []*broker.Broker{a, b} {
		eventually(t, "the other node", func() bool { return decode(t, n.MonitorURL()+"/routez")["num_routes"] == 1.0 })
	}
	stranger := node("c", theirs.block("c"), u.Host)
	nothing := node("d", "authorization { token: x }", u.Host)
	d := node("e", ours.block("e"), u.Host) // by when it is in, the others have tried
	eventually(t, "the third node", func() bool { return decode(t, d.MonitorURL()+"/routez")["num_routes"] == 2.0 })
	for _, n := range []*broker.Broker{stranger, nothing} {
		if got := decode(t, n.MonitorURL()+"/routez")["num_routes"]; got != 0.0 {
			t.Errorf("a stranger has %v routes", got)
		}
	}
	if v := decode(t, a.MonitorURL()+"/varz")["cluster"].(map[string]any); v["tls_required"] != true || v["tls_verify"] != true {
		t.Errorf("varz: %v", v)
	}
}
