// Package profile answers "which broker, as whom": from flags, the environment,
// a saved context or the default, in this order, and it can say which.
//
// A context is a JSON file in the format of the nats CLI. Herald's are written
// to $XDG_CONFIG_HOME/herald/context/NAME.json; those of the nats CLI beside
// them (…/nats/context) are read too, so that what worked there works here.
package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// DefaultURL is used when nothing names a broker.
const DefaultURL = "nats://127.0.0.1:4222"

// Settings say which broker and as whom. Empty is "not said".
type Settings struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	Token       string `json:"token"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	InboxPrefix string `json:"inbox_prefix"`
	Domain      string `json:"jetstream_domain"`
}

// Field is one setting by its name.
type Field struct {
	Name   string // as in the file
	Flag   string
	Env    string
	Secret bool
	at     func(*Settings) *string
}

// Fields lists the settings that can come from a flag, the environment or a
// context.
func Fields() []Field {
	return []Field{
		{"url", "server", "NATS_URL", false, func(s *Settings) *string { return &s.URL }},
		{"user", "user", "NATS_USER", false, func(s *Settings) *string { return &s.User }},
		{"password", "password", "NATS_PASSWORD", true, func(s *Settings) *string { return &s.Password }},
		{"token", "token", "NATS_TOKEN", true, func(s *Settings) *string { return &s.Token }},
		{"creds", "creds", "NATS_CREDS", false, func(s *Settings) *string { return &s.Creds }},
		{"nkey", "nkey", "NATS_NKEY", false, func(s *Settings) *string { return &s.NKey }},
		{"cert", "tlscert", "NATS_CERT", false, func(s *Settings) *string { return &s.Cert }},
		{"key", "tlskey", "NATS_KEY", false, func(s *Settings) *string { return &s.Key }},
		{"ca", "tlsca", "NATS_CA", false, func(s *Settings) *string { return &s.CA }},
		{"inbox_prefix", "inbox-prefix", "NATS_INBOX_PREFIX", false, func(s *Settings) *string { return &s.InboxPrefix }},
		{"jetstream_domain", "domain", "NATS_JS_DOMAIN", false, func(s *Settings) *string { return &s.Domain }},
	}
}

// Of points to the field's value in s.
func (f Field) Of(s *Settings) *string { return f.at(s) }

// Source says where one value came from.
type Source struct {
	Name  string `json:"name"`
	Value string `json:"value"` // secrets are masked
	From  string `json:"from"`  // "flag --server", "NATS_URL", "context prod", "default"
}

// Resolved is the answer.
type Resolved struct {
	Settings
	Context string   `json:"context"` // "" when none is in use
	Sources []Source `json:"sources"`
}

// ErrNoContext is what an unknown context name gives.
var ErrNoContext = errors.New("no such context")

// Store is where contexts are kept.
type Store struct{ home string }

// Open uses the configuration folder that the environment names.
func Open(getenv func(string) string) Store {
	home := getenv("XDG_CONFIG_HOME")
	if home == "" {
		home = filepath.Join(getenv("HOME"), ".config")
	}
	return Store{home: home}
}

func (s Store) file(tool, name string) string {
	return filepath.Join(s.home, tool, "context", name+".json")
}

// Path is the file a Herald context is written to.
func (s Store) Path(name string) string { return s.file("herald", name) }

// tools in order of preference.
func tools() []string { return []string{"herald", "nats"} }

// Names lists all contexts, sorted.
func (s Store) Names() ([]string, error) {
	var names []string
	for _, tool := range tools() {
		entries, err := os.ReadDir(filepath.Join(s.home, tool, "context"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list contexts: %w", err)
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Load reads a context and tells whose it is ("herald" or "nats").
func (s Store) Load(name string) (Settings, string, error) {
	if err := validName(name); err != nil {
		return Settings{}, "", err
	}
	for _, tool := range tools() {
		path := s.file(tool, name)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Settings{}, "", fmt.Errorf("read context %s: %w", name, err)
		}
		var set Settings
		if err := json.Unmarshal(b, &set); err != nil {
			return Settings{}, "", fmt.Errorf("read context %s: %w", path, err)
		}
		return set, tool, nil
	}
	return Settings{}, "", fmt.Errorf("context %q: %w", name, ErrNoContext)
}

// Save writes a Herald context; only its owner can read it.
func (s Store) Save(name string, set Settings) error {
	if err := validName(name); err != nil {
		return err
	}
	b, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return fmt.Errorf("save context %s: %w", name, err)
	}
	return s.write(s.Path(name), append(b, '\n'))
}

func (s Store) write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}

// Remove deletes a Herald context, and forgets the selection if it was it.
func (s Store) Remove(name string) error {
	if err := validName(name); err != nil {
		return err
	}
	err := os.Remove(s.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, tool, err := s.Load(name); err == nil {
			return fmt.Errorf("context %q belongs to the %s CLI; remove it there", name, tool)
		}
		return fmt.Errorf("context %q: %w", name, ErrNoContext)
	}
	if err != nil {
		return fmt.Errorf("remove context %s: %w", name, err)
	}
	if selected, tool := s.Selected(); tool == "herald" && selected == name {
		return s.Select("")
	}
	return nil
}

// Selected is the context in use when nobody names one, and whose choice it is.
func (s Store) Selected() (name, tool string) {
	for _, tool := range tools() {
		b, err := os.ReadFile(filepath.Join(s.home, tool, "context.txt"))
		if name := strings.TrimSpace(string(b)); err == nil && name != "" {
			return name, tool
		}
	}
	return "", ""
}

// Select makes a context the one in use; "" unselects.
func (s Store) Select(name string) error {
	path := filepath.Join(s.home, "herald", "context.txt")
	if name == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("unselect the context: %w", err)
		}
		return nil
	}
	if _, _, err := s.Load(name); err != nil {
		return err
	}
	return s.write(path, []byte(name+"\n"))
}

// Resolve merges flags, environment, context and defaults. flags holds only what
// was given; contextFlag is --context.
func (s Store) Resolve(flags map[string]string, contextFlag string, getenv func(string) string) (Resolved, error) {
	var r Resolved
	chosen := ""
	switch {
	case contextFlag != "":
		r.Context, chosen = contextFlag, "flag --context"
	case getenv("NATS_CONTEXT") != "":
		r.Context, chosen = getenv("NATS_CONTEXT"), "NATS_CONTEXT"
	default:
		if name, tool := s.Selected(); name != "" {
			r.Context, chosen = name, "selected in "+tool
		}
	}
	var saved Settings
	if r.Context != "" {
		set, _, err := s.Load(r.Context)
		if err != nil {
			return r, fmt.Errorf("%w (%s)", err, chosen)
		}
		saved = set
		r.Sources = append(r.Sources, Source{"context", r.Context, chosen})
	}
	r.Description = saved.Description
	for _, f := range Fields() {
		value, from := "", ""
		if v, given := flags[f.Flag]; given {
			value, from = v, "flag --"+f.Flag
		} else if v := getenv(f.Env); v != "" {
			value, from = v, f.Env
		} else if v := *f.at(&saved); v != "" {
			value, from = v, "context "+r.Context
		} else if f.Name == "url" {
			value, from = DefaultURL, "default"
		}
		if value == "" {
			continue
		}
		*f.at(&r.Settings) = value
		shown := Masked(value)
		if f.Secret {
			shown = "********"
		}
		r.Sources = append(r.Sources, Source{f.Name, shown, from})
	}
	return r, nil
}

var secretInURL = regexp.MustCompile(`(://)(?:([^/@,:]*):)?[^/@,]*@`)

// Masked is a list of URLs as it may be shown: without passwords and tokens.
func Masked(urls string) string {
	return secretInURL.ReplaceAllStringFunc(urls, func(s string) string {
		if user := secretInURL.FindStringSubmatch(s)[2]; user != "" {
			return "://" + user + ":********@"
		}
		return "://********@"
	})
}

func validName(name string) error {
	if name == "" || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q is not a context name: no slashes, no leading dot", name)
	}
	return nil
}
