package interest

import "strings"

func (n *node[V]) child(tok string) *node[V] {
	if tok == "*" {
		if n.star == nil {
			n.star = &node[V]{}
		}
		return n.star
	}
	c := n.literal[tok]
	if c == nil {
		if n.literal == nil {
			n.literal = make(map[string]*node[V])
		}
		c = &node[V]{}
		// The token is a slice of the caller's pattern; a copy lets go of the
		// rest of it.
		n.literal[strings.Clone(tok)] = c
	}
	return c
}

func (n *node[V]) empty() bool {
	return len(n.literal) == 0 && n.star == nil && len(n.here.list) == 0 && len(n.rest.list) == 0
}

// remove also prunes the nodes it leaves empty.
func (n *node[V]) remove(pattern string, v V) bool {
	tok, tail, more := strings.Cut(pattern, ".")
	if tok == ">" && !more {
		return n.rest.remove(v)
	}
	c := n.star
	if tok != "*" {
		c = n.literal[tok]
	}
	if c == nil {
		return false
	}
	var removed bool
	if more {
		removed = c.remove(tail, v)
	} else {
		removed = c.here.remove(v)
	}
	if removed && c.empty() {
		if tok == "*" {
			n.star = nil
		} else {
			delete(n.literal, tok)
		}
	}
	return removed
}

func (n *node[V]) match(s string, dst []V) []V {
	dst = append(dst, n.rest.list...)
	tok, tail, more := strings.Cut(s, ".")
	if c := n.literal[tok]; c != nil {
		if more {
			dst = c.match(tail, dst)
		} else {
			dst = append(dst, c.here.list...)
		}
	}
	if c := n.star; c != nil {
		if more {
			dst = c.match(tail, dst)
		} else {
			dst = append(dst, c.here.list...)
		}
	}
	return dst
}

func (n *node[V]) has(s string, test func(V) bool) bool {
	if n.rest.any(test) {
		return true
	}
	tok, tail, more := strings.Cut(s, ".")
	for _, c := range [2]*node[V]{n.literal[tok], n.star} {
		switch {
		case c == nil:
		case more && c.has(tail, test), !more && c.here.any(test):
			return true
		}
	}
	return false
}

func (n *node[V]) matchPrefix(prefix string, dst []V) ([]V, bool) {
	dst = append(dst, n.rest.list...)
	tok, tail, more := strings.Cut(prefix, ".")
	for _, c := range [2]*node[V]{n.literal[tok], n.star} {
		if c == nil {
			continue
		}
		if more {
			var ok bool
			if dst, ok = c.matchPrefix(tail, dst); !ok {
				return dst, false
			}
			continue
		}
		if len(c.literal) > 0 {
			return dst, false
		}
		dst = append(dst, c.rest.list...)
		if c.star != nil {
			dst = append(dst, c.star.here.list...)
		}
	}
	return dst, true
}

// each visits all values below n until f returns false; it reports whether it
// got to the end.
func (n *node[V]) each(f func(V) bool) bool {
	if !n.here.each(f) || !n.rest.each(f) || n.star != nil && !n.star.each(f) {
		return false
	}
	for _, c := range n.literal {
		if !c.each(f) {
			return false
		}
	}
	return true
}

// overlapping visits the values whose patterns share a subject with pattern,
// until f returns false; it reports whether it got to the end.
func (n *node[V]) overlapping(pattern string, f func(V) bool) bool {
	// A stored "x.>" shares a subject with anything that goes on here.
	if !n.rest.each(f) {
		return false
	}
	tok, tail, more := strings.Cut(pattern, ".")
	visit := func(c *node[V]) bool {
		if more {
			return c.overlapping(tail, f)
		}
		return c.here.each(f)
	}
	if tok == ">" && !more {
		visit = func(c *node[V]) bool { return c.each(f) }
	}
	if n.star != nil && !visit(n.star) {
		return false
	}
	if tok == "*" || tok == ">" && !more {
		for _, c := range n.literal {
			if !visit(c) {
				return false
			}
		}
		return true
	}
	if c := n.literal[tok]; c != nil {
		return visit(c)
	}
	return true
}
