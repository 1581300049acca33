package jetstream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/heraldmq/herald/broker/config"
)

// flights knows what clients hold, and what they have acknowledged.
type flights struct {
	mu     sync.Mutex
	flying map[int]int    // message of a key
	last   map[int]int    // highest that landed
	left   map[int]int    // how many of a key have been acknowledged, as far as a client knows
	acked  map[[2]int]int // acknowledgements that were answered: the how many-th
	lossy  bool           // acknowledgements that weren't answered may be lost, with a leader
}

func newFlights(lossy bool) *flights {
	return &flights{flying: map[int]int{}, last: map[int]int{}, left: map[int]int{}, acked: map[[2]int]int{}, lossy: lossy}
}

// lands notes that a client got message n of a key, and says what is wrong with that.
// What comes again may have been dealt with. since is what answered told before the
// message was asked for.
func (f *flights) lands(key, n int, again bool, since int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lossy {
		// The next leader goes back to what was written: an acknowledgement that wasn't is
		// none, although it let the next of its key go.
		if at := f.acked[[2]int{key, n}]; at > 0 && at <= since {
			return fmt.Sprintf("%d again, although its acknowledgement was answered", n)
		}
		if n > f.left[key] {
			return fmt.Sprintf("%d, but only %d have been acknowledged", n, f.left[key])
		}
		return ""
	}
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

// answered returns how many acknowledgements have been answered.
func (f *flights) answered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acked)
}

// answer notes that an acknowledgement was answered.
func (f *flights) answer(key, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.acked[[2]int{key, n}] == 0 {
		f.acked[[2]int{key, n}] = len(f.acked) + 1
	}
}

func (f *flights) leaves(key, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left[key] = max(f.left[key], n+1)
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
