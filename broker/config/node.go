package config

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// node is a value of the file and where its key stands.
type node struct {
	value any // string, int64, float64, bool, time.Time, map[string]any, []any
	file  string
	line  int
	col   int
}

// token is what conf's parser makes of a value when asked for places.
type token interface {
	Value() any
	Line() int
	Position() int
	SourceFile() string
}

func (n node) place() string {
	if n.line == 0 {
		return n.file
	}
	return fmt.Sprintf("%s:%d:%d", n.file, n.line, n.col)
}

// at unwraps v, a value below n, with its own place where it has one.
func (n node) at(v any) node {
	t, ok := v.(token)
	if !ok {
		return node{v, n.file, n.line, n.col}
	}
	c := node{t.Value(), t.SourceFile(), t.Line(), t.Position()}
	if c.line == 1 {
		c.col++ // conf counts columns from 0 in the first line only
	}
	if c.file == "" {
		c.file = n.file
	}
	return c
}

// kind names what a value is, for people.
func (n node) kind() string {
	switch v := n.value.(type) {
	case string:
		if len(v) > 40 {
			return "text"
		}
		return fmt.Sprintf("text %q", v)
	case int64:
		return fmt.Sprintf("number %d", v)
	case float64:
		return fmt.Sprintf("number %v", v)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return "a date"
	case []any:
		return "a list"
	case map[string]any:
		return "a block { }"
	}
	return fmt.Sprintf("%T", n.value)
}

// key is one key a block may have: its names, the first of which is told to
// people, and what to do with its value.
type key struct {
	names string // "max_payload" or "host|net"
	do    func(node)
}

// decoder walks a parsed file and collects what is wrong with it.
type decoder struct {
	faults   Faults
	warnings []string
	// walk, when set, is given the keys of each block instead of their values being read.
	walk func(keys []key)
}

func (d *decoder) fault(n node, format string, args ...any) {
	d.faults = append(d.faults, Fault{n.place(), fmt.Sprintf(format, args...)})
}

func (d *decoder) warn(n node, format string, args ...any) {
	d.warnings = append(d.warnings, n.place()+": "+fmt.Sprintf(format, args...))
}

// each visits the keys of a block in the order of the file.
func (d *decoder) each(n node, what string, f func(name string, v node)) {
	m, ok := n.value.(map[string]any)
	if !ok {
		d.fault(n, "%s wants a block { }, not %s", what, n.kind())
		return
	}
	type entry struct {
		name string
		v    node
	}
	var list []entry
	for name, v := range m {
		list = append(list, entry{name, n.at(v)})
	}
	slices.SortFunc(list, func(a, b entry) int {
		if a.v.file != b.v.file {
			return strings.Compare(a.v.file, b.v.file)
		}
		if a.v.line != b.v.line {
			return a.v.line - b.v.line
		}
		if a.v.col != b.v.col {
			return a.v.col - b.v.col
		}
		return strings.Compare(a.name, b.name)
	})
	for _, e := range list {
		f(e.name, e.v)
	}
}

// block reads a block whose keys are known. Keys are matched without regard to
// case. A
// key that only serves as a $variable is let through.
func (d *decoder) block(n node, what string, keys []key) {
	if d.walk != nil {
		d.walk(keys)
		return
	}
	known := map[string]func(node){}
	var names []string
	for _, k := range keys {
		for name := range strings.SplitSeq(k.names, "|") {
			known[name] = k.do
			names = append(names, name)
		}
	}
	where := ""
	if what != "" {
		where = " in " + what
	}
	d.each(n, what, func(name string, v node) {
		low := strings.ToLower(name)
		if do := known[low]; do != nil {
			do(v)
			return
		}
		if isVariable(n, name) {
			return
		}
		d.fault(v, "unknown key %q%s%s", name, where, suggest(low, names))
	})
}

// isVariable tells whether a key was referred to as $name, which makes it a
// definition rather than a mistake.
func isVariable(n node, name string) bool {
	m, _ := n.value.(map[string]any)
	t, ok := m[name].(interface{ IsUsedVariable() bool })
	return ok && t.IsUsedVariable()
}

// items reads a list; a single value counts as a list of one.
func (d *decoder) items(n node, f func(node)) {
	list, ok := n.value.([]any)
	if !ok {
		f(n)
		return
	}
	for _, v := range list {
		c := n.at(v)
		// conf places a block of a list at its end: take its first key instead.
		if m, ok := c.value.(map[string]any); ok {
			first := true
			for _, kv := range m {
				k := c.at(kv)
				if first || k.line < c.line || k.line == c.line && k.col < c.col {
					c.line, c.col, first = k.line, k.col, false
				}
			}
		}
		f(c)
	}
}

// The readers below return a key's action: check the type, store the value.

func (d *decoder) text(name string, to *string) func(node) {
	return func(n node) {
		switch v := n.value.(type) {
		case string:
			*to = v
		case int64: // a bare number is a fine name or password
			*to = strconv.FormatInt(v, 10)
		default:
			d.fault(n, "%s wants text, not %s", name, n.kind())
		}
	}
}

// secretText reads text that must never be shown, not even in a fault.
func (d *decoder) secretText(name string, to *string) func(node) {
	return func(n node) {
		switch v := n.value.(type) {
		case string:
			*to = v
		case int64:
			*to = strconv.FormatInt(v, 10)
		default:
			d.fault(n, "%s wants text in quotes", name)
		}
	}
}

func (d *decoder) texts(name string, to *[]string) func(node) {
	return func(n node) {
		if *to == nil {
			*to = []string{}
		}
		d.items(n, func(c node) {
			var s string
			d.text(name, &s)(c)
			*to = append(*to, s)
		})
	}
}

func (d *decoder) flag(name string, to *bool) func(node) {
	return func(n node) {
		v, ok := n.value.(bool)
		if !ok {
			d.fault(n, "%s wants true or false, not %s", name, n.kind())
			return
		}
		*to = v
	}
}

func (d *decoder) number(name string, to *int, low, high int64) func(node) {
	return func(n node) {
		v := int64(*to)
		d.number64(name, &v, low, high)(n)
		*to = int(v)
	}
}

func (d *decoder) number64(name string, to *int64, low, high int64) func(node) {
	return func(n node) {
		v, ok := n.value.(int64)
		switch {
		case !ok:
			d.fault(n, "%s wants a number, not %s", name, n.kind())
		case v < low || v > high:
			d.fault(n, "%s wants a number from %d to %d, not %d", name, low, high, v)
		default:
			*to = v
		}
	}
}

// size reads bytes: a number, with a suffix such as MB that conf resolves, or
// the same in quotes.
func (d *decoder) size(name string, to *int64) func(node) {
	return func(n node) {
		switch v := n.value.(type) {
		case int64:
			if v < -1 {
				d.fault(n, "%s wants a size from 0 (-1 = no limit), not %d", name, v)
				return
			}
			*to = v
		case string:
			b, err := ParseSize(v)
			if err != nil {
				d.fault(n, "%s wants a size such as 64MB, not %s", name, n.kind())
				return
			}
			*to = b
		default:
			d.fault(n, "%s wants a size such as 64MB, not %s", name, n.kind())
		}
	}
}

// ParseSize reads "10", "64MB", "1GiB", "2k": K, M, G, T as powers of 1000, with
// a B or i as powers of 1024, like the configuration grammar.
func ParseSize(s string) (int64, error) {
	s = strings.TrimSpace(s)
	i := strings.LastIndexAny(s, "0123456789") + 1
	n, err := strconv.ParseInt(s[:i], 10, 64)
	if err != nil || n < -1 {
		return 0, fmt.Errorf("size %q is not a number with a unit", s)
	}
	unit := strings.ToLower(strings.TrimSpace(s[i:]))
	if unit == "" || unit == "b" {
		return n, nil
	}
	base := int64(1000)
	if len(unit) > 1 {
		if rest := unit[1:]; rest != "b" && rest != "i" && rest != "ib" {
			return 0, fmt.Errorf("size %q has an unknown unit", s)
		}
		base = 1024
	}
	power := strings.IndexByte("kmgtpe", unit[0])
	if power < 0 {
		return 0, fmt.Errorf("size %q has an unknown unit", s)
	}
	for range power + 1 {
		if n > math.MaxInt64/base {
			return 0, fmt.Errorf("size %q is too large", s)
		}
		n *= base
	}
	return n, nil
}

// span reads a duration: text like "2s", or a number of seconds.
func (d *decoder) span(name string, to *time.Duration) func(node) {
	return func(n node) {
		var v time.Duration
		switch x := n.value.(type) {
		case string:
			p, err := time.ParseDuration(x)
			if err != nil {
				d.fault(n, "%s wants a duration such as \"2s\", not %s", name, n.kind())
				return
			}
			v = p
		case int64:
			if x > math.MaxInt64/int64(time.Second) {
				d.fault(n, "%s is too long", name)
				return
			}
			v = time.Duration(x) * time.Second
		case float64:
			v = time.Duration(x * float64(time.Second))
		default:
			d.fault(n, "%s wants a duration such as \"2s\", not %s", name, n.kind())
			return
		}
		if v < 0 {
			d.fault(n, "%s can't be negative", name)
			return
		}
		*to = v
	}
}

// oneOf reads one of some words.
func (d *decoder) oneOf(name string, to *string, words ...string) func(node) {
	return func(n node) {
		v, ok := n.value.(string)
		low := strings.ToLower(v)
		if !ok || !slices.Contains(words, low) {
			d.fault(n, "%s wants one of %s, not %s%s", name, strings.Join(words, ", "), n.kind(), suggest(low, words))
			return
		}
		*to = low
	}
}

// hostPort reads "host:port", ":port" or a bare port.
func (d *decoder) hostPort(name string, host *string, port *int) func(node) {
	return func(n node) {
		switch v := n.value.(type) {
		case int64:
			if v < -1 || v > 65535 {
				d.fault(n, "%s wants a port from -1 (any free) to 65535, not %d", name, v)
				return
			}
			*port = int(v)
		case string:
			h, p, err := SplitHostPort(v)
			if err != nil {
				d.fault(n, "%s wants \"host:port\", not %s", name, n.kind())
				return
			}
			if h != "" {
				*host = h
			}
			*port = p
		default:
			d.fault(n, "%s wants \"host:port\", not %s", name, n.kind())
		}
	}
}

// SplitHostPort reads "host:port" with a port from -1 (any free) to 65535.
func SplitHostPort(s string) (host string, port int, err error) {
	h, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("address %q is not host:port", s)
	}
	n, err := strconv.Atoi(strings.TrimSpace(p))
	if err != nil || n < -1 || n > 65535 {
		return "", 0, fmt.Errorf("address %q has no port from -1 to 65535", s)
	}
	return h, n, nil
}

// refuse is the action of a key that can't be honoured: say what to do instead.
func (d *decoder) refuse(name, advice string) func(node) {
	return func(n node) { d.fault(n, "%s is not supported by Herald: %s", name, advice) }
}

// ignore is the action of a key that changes nothing here: warn.
func (d *decoder) ignore(name, why string) func(node) {
	return func(n node) { d.warn(n, "%s is ignored: %s", name, why) }
}
