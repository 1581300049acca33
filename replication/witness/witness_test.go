package witness

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustOpen(t *testing.T, name string) (*Store, error) {
	t.Helper()
	s, why, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return s, why
}

func TestKeepsWhatItIsTold(t *testing.T) {
	name := filepath.Join(t.TempDir(), "0.bolt")
	s, _ := mustOpen(t, name)
	if b := s.Get("vote"); b != nil {
		t.Errorf("a new one has %q", b)
	}
	for _, v := range []string{"one", "", "three"} {
		if err := s.Set("vote", []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, why := mustOpen(t, name)
	t.Cleanup(func() { _ = s.Close() })
	if b := s.Get("vote"); string(b) != "three" || why != nil || s.Get("floor") != nil {
		t.Errorf("%q, %v", b, why)
	}
}

// TestDamageIsNotReturned flips each byte of a value, and cuts and overwrites the file:
// what comes back is what was set, or nothing.
func TestDamageIsNotReturned(t *testing.T) {
	value := bytes.Repeat([]byte("needle"), 20)
	for what, hurt := range map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte {
			for at := 0; ; {
				i := bytes.Index(b[at:], value)
				if i < 0 {
					return b
				}
				b[at+i+7] ^= 4
				at += i + 1
			}
		},
		"cut":     func(b []byte) []byte { return b[:len(b)/8] },
		"a stub":  func([]byte) []byte { return []byte("x") },
		"no file": func([]byte) []byte { return nil },
		"zeros":   func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "0.bolt")
			s, _ := mustOpen(t, name)
			if err := s.Set("vote", value); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if b = hurt(b); b == nil {
				err = os.Remove(name)
			} else {
				err = os.WriteFile(name, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s, why := mustOpen(t, name)
			t.Cleanup(func() { _ = s.Close() })
			if b := s.Get("vote"); b != nil {
				t.Errorf("%q, %v", b, why)
			}
			if err := s.Set("vote", []byte("again")); err != nil || string(s.Get("vote")) != "again" {
				t.Errorf("afterwards %q, %v", s.Get("vote"), err)
			}
		})
	}
}

// TestAValueIsOfItsKey copies a value under another key.
func TestAValueIsOfItsKey(t *testing.T) {
	s, _ := mustOpen(t, filepath.Join(t.TempDir(), "0.bolt"))
	defer s.Close()
	if err := s.Set("vote", []byte("v")); err != nil {
		t.Fatal(err)
	}
	b, err := s.bolt.Get([]byte("vote"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bolt.Set([]byte("floor"), b); err != nil {
		t.Fatal(err)
	}
	if b := s.Get("floor"); b != nil {
		t.Errorf("%q", b)
	}
}
