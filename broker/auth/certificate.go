package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
)

// mapped finds the user that a verified certificate names: by an e-mail
// address, a DNS name or a URI among its alternative names, or by its subject
// as a whole.
func (a *Authenticator) mapped(cert *x509.Certificate) *login {
	names := slices.Concat(cert.EmailAddresses, cert.DNSNames)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	for _, n := range names {
		if l := a.byName[n]; l != nil {
			return l
		}
	}
	if l := a.byName[cert.Subject.String()]; l != nil {
		return l
	}
	// Configured names may list the parts in another order or with spaces, but
	// it must be the same parts: no subset, no superset.
	want := canonicalDN(cert.Subject)
	for name, l := range a.byName {
		if strings.Contains(name, "=") && sameDN(name, want) {
			return l
		}
	}
	return nil
}

// canonicalDN returns the parts "TYPE=value" of a name, sorted.
func canonicalDN(n pkix.Name) []string {
	return splitDN(n.String())
}

func sameDN(configured string, want []string) bool {
	return slices.Equal(splitDN(configured), want)
}

// splitDN cuts an RFC 2253 text at its unescaped commas. Multi-valued parts
// ("A=x+B=y") stay one part.
func splitDN(s string) []string {
	var parts []string
	start, escaped := 0, false
	add := func(p string) {
		key, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if ok {
			p = strings.ToUpper(strings.TrimSpace(key)) + "=" + strings.TrimSpace(value)
		}
		parts = append(parts, p)
	}
	for i := 0; i < len(s); i++ {
		switch {
		case escaped:
			escaped = false
		case s[i] == '\\':
			escaped = true
		case s[i] == ',':
			add(s[start:i])
			start = i + 1
		}
	}
	add(s[start:])
	slices.Sort(parts)
	return parts
}
