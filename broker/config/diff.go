package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
)

// Change is one difference between two Options.
type Change struct {
	Key     string // as in the configuration file
	Old     string // "" for what is never shown
	New     string
	Restart bool // takes hold only after a restart
}

func (c Change) String() string {
	if c.Old == "" && c.New == "" {
		return c.Key + " changed"
	}
	return fmt.Sprintf("%s changed from %s to %s", c.Key, c.Old, c.New)
}

// fixed are the keys that can't change while the broker runs; a prefix counts
// for what is below it.
var fixed = []string{
	"server_name", "host", "port", "websocket", "http", "web", "console", "cluster", "jetstream.enabled", "jetstream.store_dir",
	"jetstream.domain", "jetstream.strict", "jetstream.request_queue", "jetstream.limits",
	"log.file", "log.format", "log.time", "log.utc", "pid_file", "ports_dir", "prof_port", "system_account", "no_system",
}

// hidden are the keys whose values are never shown, since secrets are in them
// or below.
var hidden = []string{"auth", "accounts", "tls", "websocket.tls", "metadata", "cluster.password", "cluster.tls"}

// quiet are the fields that say where the options came from.
var quiet = []string{"config_file", "digest", "warnings"}

// Diff lists what differs between two options, by key.
func Diff(old, next *Options) []Change {
	var out []Change
	diff(&out, "", reflect.ValueOf(old).Elem(), reflect.ValueOf(next).Elem())
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func diff(out *[]Change, prefix string, a, b reflect.Value) {
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		key := prefix + snake(name)
		if name == "At" || slices.Contains(quiet, key) || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		under := func(list []string) bool {
			return slices.ContainsFunc(list, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
		}
		if a.Field(i).Kind() == reflect.Struct && !under(hidden) {
			diff(out, key+".", a.Field(i), b.Field(i))
			continue
		}
		c := Change{Key: key, Restart: under(fixed)}
		if !under(hidden) {
			c.Old, c.New = fmt.Sprint(a.Field(i).Interface()), fmt.Sprint(b.Field(i).Interface())
		}
		*out = append(*out, c)
	}
}

// snake turns MaxPayload into max_payload.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 && (!isUpper(name, i-1) || i+1 < len(name) && !isUpper(name, i+1)) {
			b.WriteByte('_')
		}
		if upper {
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return strings.ReplaceAll(b.String(), "jet_stream", "jetstream")
}

func isUpper(s string, i int) bool { return s[i] >= 'A' && s[i] <= 'Z' }

// Level is the level the log options ask for.
func (l Log) Level() slog.Level {
	switch {
	case l.Trace:
		return slog.LevelDebug - 4
	case l.Debug:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
