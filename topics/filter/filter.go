package filter

import (
	"fmt"
	"strings"
	"sync"

	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/schema"
)

// JSON is the codec of payloads that say themselves what they are. A codec with a schema
// is an object of JSON: see schema.ParseCodec.
const JSON = "json"

// schemaBytes is how much schemas a Set keeps compiled, beside those in use.
const schemaBytes = 4 << 20

// KeyWhere and KeyCodec are the metadata of a consumer that make it a filtered one.
const (
	KeyWhere = "herald.where"
	KeyCodec = "herald.codec"
)

// key is what makes two filters the same.
type key struct{ text, codec string }

// Set compiles filters and keeps those in use, each once. Its methods may be called
// by any number of goroutines.
type Set struct {
	mu      sync.Mutex
	env     *expr.Env // made when the first filter is
	all     map[key]*Filter
	schemas *schema.Cache
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{all: map[key]*Filter{}, schemas: schema.NewCache(schemaBytes)} }

// Filter is a compiled condition. It may be used by any number of goroutines.
type Filter struct {
	set    *Set
	key    key
	prog   *expr.Program
	schema *schema.Schema // of the payloads; nil: they are JSON
	refs   int            // guarded by set.mu
}

// Get returns the filter for a condition, compiling it when nobody uses it yet. The
// caller must Release it. The codec "" is json. The error is an *expr.Error for a
// wrong condition, a *schema.SourceError for a wrong schema, and says what is possible for
// a codec there isn't.
func (s *Set) Get(text, codec string) (*Filter, error) {
	k, src, err := keyOf(text, codec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	f, env := s.all[k], s.env
	if f != nil {
		f.refs++
	}
	s.mu.Unlock()
	if f != nil {
		return f, nil
	}
	if env == nil {
		if env, err = expr.NewEnv(expr.Options{}); err != nil {
			return nil, err
		}
	}
	prog, err := env.CompileMatch(k.text) // without the lock: it takes a while
	if err != nil {
		return nil, err
	}
	var payloads *schema.Schema
	if src.Format != "" {
		if payloads, err = s.schemas.Get(src); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = env
	if f = s.all[k]; f == nil {
		f = &Filter{set: s, key: k, prog: prog, schema: payloads}
		s.all[k] = f
	}
	f.refs++
	return f, nil
}

// Check tells whether a condition compiles, without keeping it.
func (s *Set) Check(text, codec string) error {
	f, err := s.Get(text, codec)
	if err != nil {
		return err
	}
	f.Release()
	return nil
}

// Len returns how many distinct filters are in use.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func keyOf(text, codec string) (key, schema.Source, error) {
	k := key{text: strings.TrimSpace(text)}
	var src schema.Source
	var err error
	if k.codec, src, err = canonical(codec); err != nil {
		return k, src, err
	}
	if k.text == "" {
		return k, src, &expr.Error{Problems: []expr.Problem{{Line: 1, Column: 1, Message: "it is empty: say what is wanted, or leave the filter out"}}}
	}
	return k, src, nil
}

// Canonical returns a codec in the one form that all who mean the same have. Its schema
// is not compiled.
func Canonical(codec string) (string, error) {
	text, _, err := canonical(codec)
	return text, err
}

func canonical(codec string) (string, schema.Source, error) {
	codec = strings.TrimSpace(codec)
	switch {
	case codec == "", strings.EqualFold(codec, JSON):
		return JSON, schema.Source{}, nil
	case !strings.HasPrefix(codec, "{"):
		return "", schema.Source{}, fmt.Errorf(`there is no codec %.40q: it is json, or one with its schema: {"avro": …} or {"protobuf": "…", "message": "…"}`, codec)
	}
	src, err := schema.ParseCodec(codec)
	if err != nil {
		return "", src, err
	}
	text := src.Codec().String()
	src, err = schema.ParseCodec(text)
	return text, src, err
}

// Release gives the filter back; it must not be used by the caller afterwards.
func (f *Filter) Release() {
	if f == nil {
		return
	}
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	if f.refs--; f.refs == 0 {
		delete(f.set.all, f.key)
	}
}

// Text returns the condition, without space around it.
func (f *Filter) Text() string { return f.key.text }

// Codec returns how payloads are read, as Canonical does.
func (f *Filter) Codec() string { return f.key.codec }

// UsesPayload tells whether the filter looks into payloads.
func (f *Filter) UsesPayload() bool { return f.prog.UsesPayload() }

// UsesPlace tells whether the filter asks for the time or the sequence, which only
// stored messages have.
func (f *Filter) UsesPlace() bool { return f.prog.UsesPlace() }

// Match tells whether the filter lets a message through. With an error, an *Error,
// it doesn't.
func (f *Filter) Match(m *Message) (bool, error) {
	m.read(f.schema)
	ok, err := f.prog.Match(m)
	if err != nil {
		return false, newError(err)
	}
	return ok, nil
}
