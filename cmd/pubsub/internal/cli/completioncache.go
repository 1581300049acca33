package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/heraldmq/herald/cmd/pubsub/internal/profile"
)

// Names for completing are given without asking while they are this young, and when the
// broker doesn't answer in time up to this old.
const (
	namesFresh = 2 * time.Second
	namesStale = time.Hour
)

// keptNames is a file with names that a broker gave; "" is none.
type keptNames string

// keptNames is where the names of one kind are kept, apart for each broker and identity.
func (a *app) keptNames(r *profile.Resolved, what string) keptNames {
	dir := a.env.Getenv("XDG_CACHE_HOME")
	if dir == "" {
		home := a.env.Getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".cache")
	}
	key, err := json.Marshal([]any{r.Settings, what})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(key)
	return keptNames(filepath.Join(dir, "herald", "completion", hex.EncodeToString(sum[:12])))
}

// read gives the names and how old they are; without any they are older than can be.
func (k keptNames) read(now time.Time) ([]string, time.Duration) {
	const never = 1 << 62
	if k == "" {
		return nil, never
	}
	info, err := os.Stat(string(k))
	if err != nil || info.ModTime().After(now.Add(namesFresh)) {
		return nil, never
	}
	b, err := os.ReadFile(string(k))
	var names []string
	if err != nil || json.Unmarshal(b, &names) != nil {
		return nil, never
	}
	return names, now.Sub(info.ModTime())
}

// write keeps names. That it can't is no reason to say anything at a shell's prompt.
func (k keptNames) write(names []string) {
	b, err := json.Marshal(names)
	if k == "" || err != nil || os.MkdirAll(filepath.Dir(string(k)), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(string(k)), ".new-*")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if closing := f.Close(); err != nil || closing != nil || os.Rename(f.Name(), string(k)) != nil {
		_ = os.Remove(f.Name())
	}
}
