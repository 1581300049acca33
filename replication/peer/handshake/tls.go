package handshake

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// mode is how a connection must be protected.
func (h *Handshaker) mode(conn net.Conn) (Mode, error) {
	if h.c.TLS != nil {
		return Certificates, nil
	}
	if Loopback(conn.LocalAddr().String()) && Loopback(conn.RemoteAddr().String()) {
		return Plain, nil
	}
	if h.c.Secret != "" {
		return Ephemeral, nil
	}
	return 0, fmt.Errorf("peer: %v is not on this machine and nothing protects the connection: %s", conn.RemoteAddr(), Advice)
}

// Advice says what to do when there is neither a secret nor a certificate.
const Advice = "set cluster.authorization (a user and password that all nodes share) or cluster.tls"

// Loopback says whether host:port can't be reached from other machines.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func tlsConfigs(c Config) (server, client *tls.Config, err error) {
	switch {
	case c.TLS != nil:
		if len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil {
			return nil, nil, errors.New("peer: cluster.tls has no certificate: set cert_file and key_file")
		}
		server, client = c.TLS.Clone(), c.TLS.Clone()
		server.ClientAuth = tls.RequireAndVerifyClientCert
		if server.ClientCAs == nil {
			server.ClientCAs = server.RootCAs
		}
		if client.RootCAs == nil {
			client.RootCAs = client.ClientCAs
		}
		if client.GetClientCertificate == nil && len(client.Certificates) == 0 && c.TLS.GetCertificate != nil {
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return c.TLS.GetCertificate(&tls.ClientHelloInfo{SupportedVersions: []uint16{tls.VersionTLS13}})
			}
		}
		server.InsecureSkipVerify, client.InsecureSkipVerify = false, false
	case c.Secret != "":
		cert, err := selfSigned()
		if err != nil {
			return nil, nil, fmt.Errorf("peer: make a certificate: %w", err)
		}
		server = &tls.Config{Certificates: []tls.Certificate{cert}}
		// Nobody vouches for the certificate: the proofs of the secret are tied to the
		// session instead.
		client = &tls.Config{InsecureSkipVerify: true}
	default:
		return nil, nil, nil
	}
	for _, t := range []*tls.Config{server, client} {
		t.MinVersion = tls.VersionTLS13
		t.NextProtos = []string{"herald-peer-1"}
		t.SessionTicketsDisabled = true
	}
	return server, client, nil
}

func selfSigned() (tls.Certificate, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "herald peer"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(100, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
