package auth

import (
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
)

// TestKnownSignatures holds the check of nonces against RFC 8032's second test
// vector, and against everything that is nearly it.
func TestKnownSignatures(t *testing.T) {
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	public := unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
	sig := unhex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da" +
		"085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")
	nonce := []byte{0x72}
	encode := func(prefix nkeys.PrefixByte, raw []byte) string {
		b, err := nkeys.Encode(prefix, raw)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	user := encode(nkeys.PrefixByteUser, public)
	url, std := base64.RawURLEncoding, base64.StdEncoding
	flipped := func(i int) []byte {
		b := slices.Clone(sig)
		b[i] ^= 1
		return b
	}
	// S plus the order of the group satisfies the equation as well; RFC 8032
	// wants it refused, or a signature has several forms.
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	s := slices.Clone(sig[32:])
	slices.Reverse(s)
	sum := new(big.Int).Add(new(big.Int).SetBytes(s), order).FillBytes(make([]byte, 32))
	slices.Reverse(sum)
	text := url.EncodeToString(sig)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, text[85])
	for _, c := range []struct {
		what, key, sig string
		nonce          []byte
		want           bool
	}{
		{"the vector", user, text, nonce, true},
		{"in standard base64", user, std.EncodeToString(sig), nonce, true},
		{"wrong nonce", user, text, []byte{0x73}, false},
		{"longer nonce", user, text, []byte{0x72, 0}, false},
		{"no nonce", user, text, nil, false},
		{"no signature", user, "", nonce, false},
		{"63 bytes", user, url.EncodeToString(sig[:63]), nonce, false},
		{"65 bytes", user, url.EncodeToString(append(slices.Clone(sig), 0)), nonce, false},
		{"32 bytes", user, url.EncodeToString(sig[:32]), nonce, false},
		{"R changed", user, url.EncodeToString(flipped(0)), nonce, false},
		{"S changed", user, url.EncodeToString(flipped(32)), nonce, false},
		{"S not reduced", user, url.EncodeToString(append(slices.Clone(sig[:32]), sum...)), nonce, false},
		{"all zero", user, url.EncodeToString(make([]byte, 64)), nonce, false},
		{"url alphabet with padding", user, base64.URLEncoding.EncodeToString(sig), nonce, false},
		{"spare bits set", user, text[:85] + string(alphabet[last|1]), nonce, false},
		{"a line break in it", user, text[:40] + "\r\n" + text[40:], nonce, false},
		{"blanks around it", user, " " + text + " ", nonce, false},
		{"in hex", user, hex.EncodeToString(sig), nonce, false},
		{"another user's key", encode(nkeys.PrefixByteUser, make([]byte, 32)), text, nonce, false},
		{"key in small letters", strings.ToLower(user), text, nonce, false},
		{"key cut", user[:55], text, nonce, false},
		{"key with a wrong checksum", user[:55] + "A", text, nonce, user[55] == 'A'},
		{"no key", "", text, nonce, false},
	} {
		if got := verify(c.key, c.sig, c.nonce); got != c.want {
			t.Errorf("%s: let in %t", c.what, got)
		}
	}
	// Only user keys name users.
	for _, p := range []nkeys.PrefixByte{nkeys.PrefixByteAccount, nkeys.PrefixByteServer, nkeys.PrefixByteOperator, nkeys.PrefixByteCurve} {
		key := encode(p, public)
		if _, err := New(Config{Users: []User{{Nkey: key}}}); err == nil {
			t.Errorf("%s is taken for a user's key", key)
		}
	}
	// The check is by the key that is configured, not by the one that is shown.
	a := mustNew(t, Config{Users: []User{{Nkey: user}}})
	for _, shown := range []string{encode(nkeys.PrefixByteAccount, public), user + "=", " " + user} {
		if _, err := a.Check(&Credentials{Nkey: shown, Sig: text, Nonce: nonce}); err == nil {
			t.Errorf("%q is let in", shown)
		}
	}
	if _, err := a.Check(&Credentials{Nkey: user, Sig: text, Nonce: nonce}); err != nil {
		t.Error(err)
	}
}

// TestWhoNeedsNoConnect: a user for those who show nothing opens only the doors
// that the user may take.
func TestWhoNeedsNoConnect(t *testing.T) {
	web := User{Name: "web", Password: "p", ConnectionTypes: []string{TypeWebsocket}}
	a := mustNew(t, Config{Users: []User{web, {Name: "any", Password: "p"}}, NoAuthUser: "web"})
	for _, c := range []struct {
		listener, typ string
		want          bool
	}{
		{"", TypeStandard, false},
		{"", TypeWebsocket, true},
		{"any", TypeStandard, true},
		{"nobody", TypeStandard, false},
	} {
		if got := a.Optional(c.listener, c.typ); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestUnknownUsersTakeAsLong: where passwords are hashed, those of users that
// don't exist are, too.
func TestUnknownUsersTakeAsLong(t *testing.T) {
	const hash = "$2a$04$WS1cOTrSM0R.JgSXB7ISlu1lQDF2I3b5j8nEjRnIUyMsIJrh5DbMe"
	a := mustNew(t, Config{Users: []User{{Name: "a", Password: "plain"}, {Name: "b", Password: hash}}})
	if a.decoy.cost() != 4 {
		t.Errorf("decoy of cost %d", a.decoy.cost())
	}
	if _, err := a.Check(&Credentials{User: "nobody", Pass: "password"}); err == nil {
		t.Error("the decoy lets in")
	}
}
