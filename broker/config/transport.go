package config

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
)

// nkey reads a public nkey whose first letter says what it belongs to.
func (d *decoder) nkey(kind byte, to *string) func(node) {
	return func(n node) {
		d.text("nkey", to)(n)
		valid := nkeys.IsValidPublicUserKey
		if kind == 'A' {
			valid = nkeys.IsValidPublicAccountKey
		}
		if !valid(*to) {
			// A seed pasted by mistake must not be shown.
			d.fault(n, "nkey wants a public key that starts with %q", string(kind))
			*to = ""
		}
	}
}

// tls reads a tls block.
func (d *decoder) tls(n node, what string) *TLS {
	t := &TLS{Timeout: DefaultTLSTimeout, At: n.place(), MinVersion: tls.VersionTLS12}
	var pair CertPair
	const store = "give cert_file and key_file"
	d.block(n, what, []key{
		{"cert_file", d.text("cert_file", &pair.CertFile)},
		{"key_file", d.text("key_file", &pair.KeyFile)},
		{"certs|certificates", d.pairs(&t.Certs)},
		{"ca_file", d.text("ca_file", &t.CAFile)},
		{"verify", d.flag("verify", &t.Verify)},
		{"verify_and_map", d.flag("verify_and_map", &t.VerifyAndMap)},
		{"insecure", d.flag("insecure", &t.Insecure)},
		{"timeout", d.span("timeout", &t.Timeout)},
		{"handshake_first|first|immediate", d.handshakeFirst(t)},
		{"min_version|minimum_version", d.minVersion(t)},
		{"cipher_suites", d.named("cipher_suites", cipherSuites(), &t.CipherSuites)},
		{"curve_preferences", d.named("curve_preferences", curves, &t.Curves)},
		{"pinned_certs", d.pinned(&t.PinnedCerts)},
		{"connection_rate_limit", d.number64("connection_rate_limit", &t.ConnectionsPerS, 0, math.MaxInt32)},
		{"ocsp_peer", d.ocsp("ocsp_peer")},
		{"verify_cert_and_check_known_urls", d.refuse("verify_cert_and_check_known_urls", "use verify")},
		{"cert_store", d.refuse("cert_store", store)},
		{"cert_match", d.refuse("cert_match", store)},
		{"cert_match_by", d.refuse("cert_match_by", store)},
		{"cert_match_skip_invalid", d.refuse("cert_match_skip_invalid", store)},
		{"ca_certs_match", d.refuse("ca_certs_match", "give ca_file")},
		{"allow_insecure_cipher_suites", d.refuseTrue("allow_insecure_cipher_suites", "name safe cipher_suites")},
	})
	if pair != (CertPair{}) {
		t.Certs = append([]CertPair{pair}, t.Certs...)
	}
	t.Verify = t.Verify || t.VerifyAndMap
	switch {
	case len(t.Certs) == 0:
		d.fault(n, "%s wants cert_file and key_file", what)
	case slices.ContainsFunc(t.Certs, func(p CertPair) bool { return p.CertFile == "" || p.KeyFile == "" }):
		d.fault(n, "%s wants both cert_file and key_file", what)
	default:
		if _, err := t.Build(); err != nil {
			d.fault(n, "%s: %v", what, err)
		}
	}
	return t
}

func (d *decoder) pairs(to *[]CertPair) func(node) {
	return func(n node) {
		d.items(n, func(c node) {
			var p CertPair
			d.block(c, "certs", []key{
				{"cert_file", d.text("cert_file", &p.CertFile)},
				{"key_file", d.text("key_file", &p.KeyFile)},
			})
			*to = append(*to, p)
		})
	}
}

// handshakeFirst reads true, false, auto or how long to wait for the client.
func (d *decoder) handshakeFirst(t *TLS) func(node) {
	return func(n node) {
		switch v := n.value.(type) {
		case bool:
			t.HandshakeFirst = v
			return
		case string:
			switch strings.ToLower(v) {
			case "auto", "auto_fallback":
				t.HandshakeFirst, t.FirstWait = true, 50*time.Millisecond
				return
			case "true", "on":
				t.HandshakeFirst = true
				return
			case "false", "off":
				return
			}
		}
		t.HandshakeFirst = true
		d.span("handshake_first", &t.FirstWait)(n)
	}
}

func (d *decoder) minVersion(t *TLS) func(node) {
	return func(n node) {
		var v string
		switch x := n.value.(type) {
		case string:
			v = x
		case float64:
			v = fmt.Sprintf("%.1f", x)
		}
		switch v {
		case "1.2":
			t.MinVersion = tls.VersionTLS12
		case "1.3":
			t.MinVersion = tls.VersionTLS13
		default:
			d.fault(n, "min_version wants \"1.2\" or \"1.3\", not %s", n.kind())
		}
	}
}

var curves = map[string]uint16{
	"X25519": uint16(tls.X25519), "CurveP256": uint16(tls.CurveP256), "CurveP384": uint16(tls.CurveP384),
	"CurveP521": uint16(tls.CurveP521), "X25519MLKEM768": uint16(tls.X25519MLKEM768),
}

func cipherSuites() map[string]uint16 {
	out := map[string]uint16{}
	for _, s := range tls.CipherSuites() {
		out[s.Name] = s.ID
	}
	return out
}

func (d *decoder) named(name string, known map[string]uint16, to *[]uint16) func(node) {
	return func(n node) {
		var names []string
		for k := range known {
			names = append(names, k)
		}
		slices.Sort(names)
		d.items(n, func(c node) {
			var s string
			d.text(name, &s)(c)
			id, ok := known[s]
			if !ok {
				d.fault(c, "%s: %q is not known or not safe%s", name, s, suggest(s, names))
				return
			}
			*to = append(*to, id)
		})
	}
}

func (d *decoder) pinned(to *[]string) func(node) {
	return func(n node) {
		d.texts("pinned_certs", to)(n)
		for i, p := range *to {
			p = strings.ToLower(strings.ReplaceAll(p, ":", ""))
			if b, err := hex.DecodeString(p); err != nil || len(b) != sha256.Size {
				d.fault(n, "pinned_certs want the sha256 of a public key in hex (64 digits)")
			}
			(*to)[i] = p
		}
	}
}

// Build reads the files and returns what a listener needs. It is called anew at
// a reload, so renewed certificates are picked up.
func (t *TLS) Build() (*tls.Config, error) {
	c := &tls.Config{MinVersion: max(t.MinVersion, tls.VersionTLS12), CipherSuites: t.CipherSuites}
	for _, p := range t.Certs {
		cert, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", p.CertFile, p.KeyFile, err)
		}
		c.Certificates = append(c.Certificates, cert)
	}
	for _, id := range t.Curves {
		c.CurvePreferences = append(c.CurvePreferences, tls.CurveID(id))
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s holds no certificate", t.CAFile)
		}
		c.RootCAs = c.ClientCAs
	}
	if t.Verify {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if len(t.PinnedCerts) > 0 {
		if c.ClientAuth == tls.NoClientCert {
			c.ClientAuth = tls.RequireAnyClientCert
		}
		c.VerifyConnection = t.checkPin
	}
	return c, nil
}

// errNotPinned refuses a client whose key is none of pinned_certs.
var errNotPinned = errors.New("certificate is not among pinned_certs")

func (t *TLS) checkPin(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errNotPinned
	}
	sum := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
	got := hex.EncodeToString(sum[:])
	for _, want := range t.PinnedCerts {
		if subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 {
			return nil
		}
	}
	return errNotPinned
}
