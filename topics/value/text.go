package value

import (
	"encoding/binary"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string with its quotes.
func (p *parser) text() (string, error) {
	p.i++
	start := p.i
	p.letters()
	high := byte(0)
	for p.i < len(p.b) {
		c := p.b[p.i]
		high |= c
		switch {
		case c == '"':
			if high >= utf8.RuneSelf && !utf8.Valid(p.b[start:p.i]) {
				p.i = start
				return "", p.fail("a string that is not UTF-8")
			}
			p.i++
			return p.s[start : p.i-1], nil
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			return "", p.fail("a control character in a string")
		}
		p.i++
	}
	return "", p.fail("a string that doesn't end")
}

// letters passes what is ASCII and has no meaning in a string, eight bytes at a time.
func (p *parser) letters() {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for p.i+8 <= len(p.b) {
		x := binary.LittleEndian.Uint64(p.b[p.i:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		if (x|(x-' '*ones)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&tops != 0 {
			return
		}
		p.i += 8
	}
}

// escaped reads the rest of a string in which a backslash stands at p.i.
func (p *parser) escaped(start int) (string, error) {
	s := append([]byte(nil), p.b[start:p.i]...)
	for p.i < len(p.b) {
		c := p.b[p.i]
		switch {
		case c == '"':
			if !utf8.Valid(s) {
				p.i = start
				return "", p.fail("a string that is not UTF-8")
			}
			p.i++
			return string(s), nil
		case c < ' ':
			return "", p.fail("a control character in a string")
		case c != '\\':
			s = append(s, c)
			p.i++
			continue
		}
		p.i++
		if p.i >= len(p.b) {
			break
		}
		if p.b[p.i] == 'u' {
			r, err := p.unicode()
			if err != nil {
				return "", err
			}
			s = utf8.AppendRune(s, r)
			continue
		}
		const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
		j := 0
		for j < len(from) && from[j] != p.b[p.i] {
			j++
		}
		if j == len(from) {
			return "", p.fail("%q can't follow a backslash", rune(p.b[p.i]))
		}
		s = append(s, to[j])
		p.i++
	}
	return "", p.fail("a string that doesn't end")
}

// unicode reads uXXXX, and the other half where it is one of a pair.
func (p *parser) unicode() (rune, error) {
	r, ok := p.hex4()
	if !ok {
		return 0, p.fail("expected four hexadecimal digits")
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if p.i+1 < len(p.b) && p.b[p.i] == '\\' && p.b[p.i+1] == 'u' {
		p.i++
		if low, ok := p.hex4(); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, nil
			}
		}
	}
	return 0, p.fail("half a surrogate pair")
}

// hex4 reads uXXXX.
func (p *parser) hex4() (rune, bool) {
	if len(p.b)-p.i < 5 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.b[p.i+1:p.i+5]), 16, 16)
	if err != nil {
		return 0, false
	}
	p.i += 5
	return rune(n), true
}
