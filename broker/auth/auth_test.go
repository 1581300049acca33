package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"
	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics/subject"
)

func mustNew(t testing.TB, c Config) *Authenticator {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCheck(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("deep"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	a := mustNew(t, Config{
		Accounts: []Account{{Name: "A"}},
		Users: []User{
			{Name: "plain", Password: "secret", Account: "A"},
			{Name: "hashed", Password: string(hash)},
			{Name: "ws", Password: "x", ConnectionTypes: []string{"websocket"}},
			{Name: "cert"},
		},
	})
	for _, c := range []struct {
		show    Credentials
		account string // "" when refused
	}{
		{Credentials{User: "plain", Pass: "secret"}, "A"},
		{Credentials{User: "plain", Pass: "Secret"}, ""},
		{Credentials{User: "plain"}, ""},
		{Credentials{User: "hashed", Pass: "deep"}, "$G"},
		{Credentials{User: "hashed", Pass: string(hash)}, ""},
		{Credentials{User: "nobody", Pass: "secret"}, ""},
		{Credentials{User: "cert"}, ""},
		{Credentials{User: "cert", Pass: "x"}, ""},
		{Credentials{Token: "secret"}, ""},
		{Credentials{JWT: "x", Sig: "y"}, ""},
		{Credentials{}, ""},
		{Credentials{User: "ws", Pass: "x", Type: TypeStandard}, ""},
		{Credentials{User: "ws", Pass: "x", Type: TypeWebsocket}, "$G"},
	} {
		id, err := a.Check(&c.show)
		if (err == nil) != (c.account != "") || err == nil && id.Account != c.account {
			t.Errorf("%+v: %+v, %v", c.show, id, err)
		}
	}
}

func TestToken(t *testing.T) {
	a := mustNew(t, Config{Token: "tok"})
	if _, err := a.Check(&Credentials{Token: "tok"}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []Credentials{{}, {Token: "to"}, {User: "tok"}, {Token: "tok", User: "x"}} {
		if _, err := a.Check(&bad); err == nil {
			t.Errorf("%+v is let in", bad)
		}
	}
}

func TestNkey(t *testing.T) {
	pair, _ := nkeys.CreateUser()
	public, _ := pair.PublicKey()
	a := mustNew(t, Config{Users: []User{{Nkey: public}}})
	if !a.NeedsNonce() {
		t.Fatal("no nonce")
	}
	nonce := NewNonce()
	sig, _ := pair.Sign(nonce)
	good := Credentials{Nkey: public, Sig: base64.RawURLEncoding.EncodeToString(sig), Nonce: nonce}
	if _, err := a.Check(&good); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Credentials){
		func(c *Credentials) { c.Nonce = NewNonce() },
		func(c *Credentials) { c.Nonce = nil },
		func(c *Credentials) { c.Sig = "" },
		func(c *Credentials) { c.Sig = "AA" },
		func(c *Credentials) { c.Sig = strings.Repeat("A", 86) },
		func(c *Credentials) { c.Nkey = "U" },
		func(c *Credentials) { c.Nkey = public[:20] },
	} {
		bad := good
		change(&bad)
		if _, err := a.Check(&bad); err == nil {
			t.Errorf("%+v is let in", bad)
		}
	}
}

// TestNothingOpensByAccident goes through what configurations can have, and
// asks whether somebody without credentials gets in.
func TestNothingOpensByAccident(t *testing.T) {
	sysUser := User{Name: "admin", Password: "x", Account: SystemAccount}
	for name, c := range map[string]struct {
		cfg  Config
		open bool
	}{
		"nothing":            {Config{}, true},
		"accounts only":      {Config{Accounts: []Account{{Name: "A"}}}, true},
		"system user only":   {Config{Users: []User{sysUser}}, false},
		"other system":       {Config{SystemAccount: "S", Accounts: []Account{{Name: "S"}}, Users: []User{{Name: "a", Password: "x", Account: "S"}}}, false},
		"token":              {Config{Token: "t"}, false},
		"user":               {Config{Users: []User{{Name: "u", Password: "p"}}}, false},
		"map":                {Config{TLSMap: true}, false},
		"no_auth_user":       {Config{Users: []User{{Name: "u", Password: "p"}}, NoAuthUser: "u"}, true},
		"no_auth_user types": {Config{Users: []User{{Name: "u", Password: "p", ConnectionTypes: []string{"WEBSOCKET"}}}, NoAuthUser: "u"}, false},
	} {
		_, err := mustNew(t, c.cfg).Check(&Credentials{Type: TypeStandard})
		if (err == nil) != c.open {
			t.Errorf("%s: anonymous is let in: %v", name, err == nil)
		}
	}
}

func TestNewReportsAllFaults(t *testing.T) {
	_, err := New(Config{
		NoAuthUser: "ghost",
		Users: []User{
			{Name: "a", Account: "none"},
			{Name: "b"},
			{Name: "b"},
			{Nkey: "UX"},
			{},
			{Name: "c", Permissions: &Permissions{Publish: &SubjectPermission{Allow: []string{"a..b"}}}},
			{Name: "d", ConnectionTypes: []string{"PIGEON"}},
		},
	})
	for _, want := range []string{"ghost", `"none"`, "twice", "UX", "neither", "a..b", "PIGEON"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v doesn't speak of %s", err, want)
		}
	}
}

func TestRenew(t *testing.T) {
	before := mustNew(t, Config{Users: []User{{Name: "a", Password: "1"}, {Name: "b", Password: "2"}, {Name: "c", Password: "3"}}})
	after := mustNew(t, Config{Users: []User{
		{Name: "a", Password: "1", Permissions: &Permissions{Publish: &SubjectPermission{Deny: []string{"x"}}}},
		{Name: "b", Password: "changed"},
	}})
	for user, pass := range map[string]string{"a": "1", "b": "2", "c": "3"} {
		id, err := before.Check(&Credentials{User: user, Pass: pass})
		if err != nil {
			t.Fatal(err)
		}
		now, err := after.Renew(id, TypeStandard)
		if (err == nil) != (user == "a") {
			t.Errorf("user %s: %v", user, err)
		}
		if err == nil && now.Rules.Publish("x") {
			t.Error("the new permissions don't hold")
		}
	}
}

func TestMappedCertificates(t *testing.T) {
	a := mustNew(t, Config{TLSMap: true, Users: []User{
		{Name: "derek@nats.io"}, {Name: "CN=example.com, OU=CNCF,O=NATS"}, {Name: "CN=short"},
	}})
	name := pkix.Name{CommonName: "example.com", OrganizationalUnit: []string{"CNCF"}, Organization: []string{"NATS"}}
	longer := name
	longer.Country = []string{"US"}
	for _, c := range []struct {
		cert *x509.Certificate
		want string
	}{
		{&x509.Certificate{EmailAddresses: []string{"derek@nats.io"}}, "derek@nats.io"},
		{&x509.Certificate{Subject: name}, "CN=example.com, OU=CNCF,O=NATS"},
		{&x509.Certificate{Subject: longer}, ""},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "short", Organization: []string{"more"}}}, ""},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "short,O=NATS"}}, ""},
		{&x509.Certificate{DNSNames: []string{"other"}}, ""},
	} {
		id, err := a.Check(&Credentials{Peer: c.cert, User: "CN=short"})
		if (err == nil) != (c.want != "") || err == nil && id.User != c.want {
			t.Errorf("%v %v: %+v, %v", c.cert.Subject, c.cert.EmailAddresses, id, err)
		}
	}
}

func TestPermissions(t *testing.T) {
	r, err := Compile(&Permissions{
		Publish:   &SubjectPermission{Allow: []string{"a.>", "b"}, Deny: []string{"a.secret"}},
		Subscribe: &SubjectPermission{Allow: []string{"s.>", "q work", "q.v v1.*"}, Deny: []string{"s.x", "s.q bad"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{"a.b": true, "b": true, "c": false, "a.secret": false, "a": false, "a.*": false, "a.b.*": true, ">": false} {
		if r.Publish(s) != want {
			t.Errorf("publish to %s: %v", s, !want)
		}
	}
	for _, c := range []struct {
		s, q string
		want bool
	}{
		{"s.a", "", true},
		{"s.a", "any", true},
		{"s.x", "", false},
		{"s.x", "any", false},
		{"s.*", "", true},
		{"s.>", "", true},
		{"s.q", "", true},
		{"s.q", "bad", false},
		{"s.q", "good", true},
		{"q", "", false},
		{"q", "work", true},
		{"q", "play", false},
		{"q.v", "v1.a", true},
		{"q.v", "v2.a", false},
		{">", "", false},
		{"*.a", "", false},
	} {
		if r.Subscribe(c.s, c.q) != c.want {
			t.Errorf("subscribe to %s queue %q: %v", c.s, c.q, !c.want)
		}
	}
	var none *Rules
	if !none.Publish("x") || !none.Subscribe(">", "") || none.Filter(">", "") != nil {
		t.Error("no rules must allow all")
	}
	answer, err := Compile(&Permissions{Responses: &ResponsePermission{}})
	if err != nil || answer.Publish("x") || !answer.Subscribe("x", "") || answer.ResponsesMax != 1 {
		t.Error("who may only answer", answer, err)
	}
}

// TestDeniedIsNeverReceived: whatever is allowed and subscribed to, no subject
// gets past both Subscribe and Filter that the permissions deny.
func TestDeniedIsNeverReceived(t *testing.T) {
	tokens := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", ">"}), 1, 3)
	pattern := rapid.Custom(func(t *rapid.T) string { return strings.Join(tokens.Draw(t, "p"), ".") }).Filter(subject.Valid)
	literal := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3).Draw(t, "s"), ".")
	})
	queue := rapid.SampledFrom([]string{"", "q", "r"})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (list []string) {
			for range rapid.IntRange(0, 3).Draw(t, label) {
				list = append(list, strings.TrimSpace(pattern.Draw(t, label)+" "+queue.Draw(t, label)))
			}
			return list
		}
		p := &SubjectPermission{Deny: draw("deny"), Allow: draw("allow")}
		r, err := Compile(&Permissions{Subscribe: p})
		if err != nil {
			t.Fatal(err)
		}
		sub, q, s := pattern.Draw(t, "sub"), queue.Draw(t, "queue"), literal.Draw(t, "subject")
		if !subject.Match(sub, s) || !r.Subscribe(sub, q) {
			return
		}
		if f := r.Filter(sub, q); len(f) > 0 && subject.MatchAny(f, s) {
			return
		}
		for _, d := range p.Deny {
			pat, dq, _ := strings.Cut(d, " ")
			if subject.Match(pat, s) && (dq == "" || dq == q) {
				t.Fatalf("%s reaches subscription %s queue %q in spite of deny %q", s, sub, q, d)
			}
		}
		if p.Allow == nil {
			return
		}
		allowed := false
		for _, a := range p.Allow {
			pat, aq, _ := strings.Cut(a, " ")
			allowed = allowed || subject.Match(pat, s) && (aq == "" || aq == q)
		}
		if !allowed {
			t.Fatalf("%s reaches subscription %s queue %q without being allowed by %q", s, sub, q, p.Allow)
		}
	})
}

func FuzzVerify(f *testing.F) {
	pair, _ := nkeys.CreateUser()
	public, _ := pair.PublicKey()
	f.Add(public, "AAAA", []byte("nonce"))
	f.Fuzz(func(t *testing.T, key, sig string, nonce []byte) {
		if verify(key, sig, nonce) {
			t.Fatal("a signature out of nothing")
		}
	})
}
