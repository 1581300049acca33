package filter

import (
	"fmt"
	"strings"
	"sync"

	"github.com/heraldmq/herald/topics/expr"
)

// Names of codecs: how a payload becomes the value that conditions look into.
const (
	JSON     = "json"
	Avro     = "avro"
	Protobuf = "protobuf"
)

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
	mu  sync.Mutex
	env *expr.Env // made when the first filter is
	all map[key]*Filter
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{all: map[key]*Filter{}} }

// Filter is a compiled condition. It may be used by any number of goroutines.
type Filter struct {
	set  *Set
	key  key
	prog *expr.Program
	refs int // guarded by set.mu
}

// Get returns the filter for a condition, compiling it when nobody uses it yet. The
// caller must Release it. The codec "" is json. The error is an *expr.Error for a
// wrong condition, and says what is possible for a codec there isn't.
func (s *Set) Get(text, codec string) (*Filter, error) {
	k, err := keyOf(text, codec)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = env
	if f = s.all[k]; f == nil {
		f = &Filter{set: s, key: k, prog: prog}
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

func keyOf(text, codec string) (key, error) {
	k := key{strings.TrimSpace(text), strings.ToLower(strings.TrimSpace(codec))}
	switch k.codec {
	case "":
		k.codec = JSON
	case JSON:
	case Avro, Protobuf:
		return k, fmt.Errorf("filters can't read %s payloads yet, only json: it takes a schema, and schemas are not kept yet", k.codec)
	default:
		return k, fmt.Errorf("there is no codec %q: it is json", codec)
	}
	if k.text == "" {
		return k, &expr.Error{Problems: []expr.Problem{{Line: 1, Column: 1, Message: "it is empty: say what is wanted, or leave the filter out"}}}
	}
	return k, nil
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

// Codec returns how payloads are read.
func (f *Filter) Codec() string { return f.key.codec }

// UsesPayload tells whether the filter looks into payloads.
func (f *Filter) UsesPayload() bool { return f.prog.UsesPayload() }

// UsesPlace tells whether the filter asks for the time or the sequence, which only
// stored messages have.
func (f *Filter) UsesPlace() bool { return f.prog.UsesPlace() }

// Match tells whether the filter lets a message through. With an error, an *Error,
// it doesn't.
func (f *Filter) Match(m *Message) (bool, error) {
	ok, err := f.prog.Match(m)
	if err != nil {
		return false, newError(err)
	}
	return ok, nil
}
