package jetstream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/heraldmq/herald/broker/config"
)

// flights knows what clients hold.
type flights struct {
	mu     sync.Mutex
	flying map[int]int // message of a key
	last   map[int]int // highest that landed
}

func newFlights() *flights { return &flights{flying: map[int]int{}, last: map[int]int{}} }

// lands notes that a client got message n of a key, and says what is wrong with that.
// What comes again may have been dealt with.
func (f *flights) lands(key, n int, again bool) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, ok := f.flying[key]; ok && other != n {
		return fmt.Sprintf("%d and %d at once", other, n)
	}
	last, any := f.last[key]
	if any && (n > last+1 || n < last || n == last && !again) || !any && n != 0 {
		return fmt.Sprintf("%d behind %d", n, last)
	}
	f.flying[key] = n
	f.last[key] = n
	return ""
}

func (f *flights) leaves(key, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying[key] == n {
		delete(f.flying, key)
	}
}

// permitted gives the options users of which the anonymous one may not publish to secret.
func permitted(t *testing.T, o *config.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.conf")
	text := `accounts { A { jetstream: true, users: [
		{user: a, password: a, permissions: {publish: {deny: [secret]}}} ] } }
no_auth_user: a`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := config.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	port, js := o.Port, o.JetStream
	*o = *from
	o.Port, o.JetStream = port, js
}
