// Package subject is the grammar of subjects: dot-separated tokens, where a
// pattern may have "*" for one token and ">" for one or more at the end.
//
// All functions are pure, allocate nothing and take invalid input without
// harm; they are safe for any number of callers.
package subject

import "strings"

// Valid tells whether s can be subscribed to: no empty token, no white space or
// other control character, wildcards only as whole tokens, ">" only last.
func Valid(s string) bool {
	if s == "" {
		return false
	}
	for rest, more := s, true; more; {
		var tok string
		tok, rest, more = strings.Cut(rest, ".")
		if tok == "" || HasControl(tok) {
			return false
		}
		if tok == ">" && more {
			return false
		}
	}
	return true
}

// HasControl tells whether s has a blank or a control character of ASCII. In a
// name they could end a protocol line, or a token of it, for some reader of it.
func HasControl(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// ValidLiteral tells whether s is a valid subject without wildcard tokens.
func ValidLiteral(s string) bool { return Valid(s) && IsLiteral(s) }

// IsLiteral tells whether s has no wildcard token. A "*" or ">" inside a longer
// token is an ordinary character.
func IsLiteral(s string) bool {
	if strings.IndexByte(s, '*') < 0 && strings.IndexByte(s, '>') < 0 {
		return true
	}
	for rest, more := s, true; more; {
		var tok string
		tok, rest, more = strings.Cut(rest, ".")
		if tok == "*" || tok == ">" {
			return false
		}
	}
	return true
}

// Match tells whether a literal subject is one that pattern asks for.
func Match(pattern, subject string) bool {
	if pattern == ">" {
		return subject != ""
	}
	for {
		p, pRest, pMore := strings.Cut(pattern, ".")
		s, sRest, sMore := strings.Cut(subject, ".")
		if p == ">" && !pMore {
			return true
		}
		if p != "*" && p != s {
			return false
		}
		if !pMore || !sMore {
			return pMore == sMore
		}
		pattern, subject = pRest, sRest
	}
}

// MatchAny tells whether one of patterns asks for subject. No pattern means
// every subject.
func MatchAny(patterns []string, subject string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if Match(p, subject) {
			return true
		}
	}
	return false
}

// Covers tells whether every subject that narrow asks for is also asked for by
// wide.
func Covers(wide, narrow string) bool {
	for {
		w, wRest, wMore := strings.Cut(wide, ".")
		n, nRest, nMore := strings.Cut(narrow, ".")
		if w == ">" && !wMore {
			return narrow != ""
		}
		if n == ">" && !nMore {
			return false
		}
		if w != "*" && w != n {
			return false
		}
		if !wMore || !nMore {
			return wMore == nMore
		}
		wide, narrow = wRest, nRest
	}
}

// Overlap tells whether some subject is asked for by both patterns.
func Overlap(a, b string) bool {
	for {
		ta, aRest, aMore := strings.Cut(a, ".")
		tb, bRest, bMore := strings.Cut(b, ".")
		if ta == ">" && !aMore || tb == ">" && !bMore {
			return a != "" && b != ""
		}
		if ta != tb && ta != "*" && tb != "*" {
			return false
		}
		if !aMore || !bMore {
			return aMore == bMore
		}
		a, b = aRest, bRest
	}
}

// Tokens returns the number of tokens.
func Tokens(s string) int { return strings.Count(s, ".") + 1 }

// Token returns the i-th token, from 0, or "" when there is none.
func Token(s string, i int) string {
	for rest, more := s, true; more; i-- {
		var tok string
		tok, rest, more = strings.Cut(rest, ".")
		if i == 0 {
			return tok
		}
	}
	return ""
}
