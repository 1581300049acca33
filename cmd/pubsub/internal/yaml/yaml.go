// Package yaml reads the part of YAML that people write settings in: block
// mappings and sequences, flow mappings and sequences, plain and quoted scalars,
// literal (|) and folded (>) text, comments. What it does not know (anchors,
// aliases, tags, several documents, plain scalars over several lines, tabs as
// indentation) is refused with the line, never guessed at.
package yaml

import (
	"encoding/json"
	"fmt"
	"strings"
)

// depthMax bounds nesting, so that no input can exhaust the stack.
const depthMax = 64

// SyntaxError says where a document is not understood.
type SyntaxError struct {
	Line int // from 1
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// ToJSON converts one document. An empty one is null.
func ToJSON(doc []byte) ([]byte, error) {
	p := &parser{lines: strings.Split(strings.ReplaceAll(string(doc), "\r\n", "\n"), "\n")}
	v, err := p.document()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

type parser struct {
	lines []string
	pos   int // the line looked at next
	depth int
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Line: min(p.pos+1, len(p.lines)), Text: fmt.Sprintf(format, args...)}
}

func (p *parser) document() (any, error) {
	if p.skip(); p.pos < len(p.lines) && strings.TrimRight(p.lines[p.pos], " ") == "---" {
		p.pos++
		p.skip()
	}
	if p.pos >= len(p.lines) {
		return nil, nil
	}
	indent, err := p.indent()
	if err != nil {
		return nil, err
	}
	v, err := p.block(indent)
	if err != nil {
		return nil, err
	}
	if p.skip(); p.pos < len(p.lines) {
		return nil, p.fail("%q does not belong to what comes before it", strings.TrimSpace(p.lines[p.pos]))
	}
	return v, nil
}

// skip moves to the next line that says something.
func (p *parser) skip() {
	for p.pos < len(p.lines) {
		if text := strings.TrimSpace(p.lines[p.pos]); text != "" && text[0] != '#' {
			return
		}
		p.pos++
	}
}

// indent is that of the line looked at.
func (p *parser) indent() (int, error) {
	line := p.lines[p.pos]
	n := len(line) - len(strings.TrimLeft(line, " "))
	if n < len(line) && line[n] == '\t' {
		return 0, p.fail("a tab can't indent; use spaces")
	}
	return n, nil
}

// next is the indentation of the next line that says something, or -1.
func (p *parser) next() (int, error) {
	if p.skip(); p.pos >= len(p.lines) {
		return -1, nil
	}
	return p.indent()
}

func isItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// block reads the mapping, sequence or scalar that starts at the line looked at.
func (p *parser) block(indent int) (any, error) {
	if p.depth++; p.depth > depthMax {
		return nil, p.fail("nested more than %d deep", depthMax)
	}
	defer func() { p.depth-- }()
	text := p.lines[p.pos][indent:]
	if isItem(text) {
		return p.sequence(indent)
	}
	if _, _, ok, err := p.key(text); err != nil {
		return nil, err
	} else if ok {
		return p.mapping(indent)
	}
	return p.value(text, indent)
}

func (p *parser) sequence(indent int) (any, error) {
	list := []any{}
	for {
		n, err := p.next()
		if err != nil {
			return nil, err
		}
		if n < indent || n == indent && !isItem(p.lines[p.pos][n:]) {
			return list, nil
		}
		if n > indent {
			return nil, p.fail("indented by %d, the list by %d", n, indent)
		}
		rest := strings.TrimLeft(p.lines[p.pos][indent+1:], " ")
		var v any
		if rest == "" || rest[0] == '#' {
			p.pos++
			v, err = p.nested(indent, false)
		} else {
			// The item starts on the dash's line: read it as if it stood alone,
			// at the column it has.
			at := len(p.lines[p.pos]) - len(rest)
			p.lines[p.pos] = strings.Repeat(" ", at) + rest
			v, err = p.block(at)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}

// nested reads the value that stands below its key or dash, or null.
func (p *parser) nested(indent int, ofKey bool) (any, error) {
	n, err := p.next()
	if err != nil {
		return nil, err
	}
	if n > indent || ofKey && n == indent && n >= 0 && isItem(p.lines[p.pos][n:]) {
		return p.block(n)
	}
	return nil, nil
}

func (p *parser) mapping(indent int) (any, error) {
	m := map[string]any{}
	for {
		n, err := p.next()
		if err != nil {
			return nil, err
		}
		if n < indent {
			return m, nil
		}
		if n > indent {
			return nil, p.fail("indented by %d, its neighbours by %d", n, indent)
		}
		key, rest, ok, err := p.key(p.lines[p.pos][indent:])
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, p.fail("%q is not \"key: value\"", strings.TrimSpace(p.lines[p.pos]))
		}
		if _, twice := m[key]; twice {
			return nil, p.fail("%q is there twice", key)
		}
		var v any
		if rest == "" || rest[0] == '#' {
			p.pos++
			v, err = p.nested(indent, true)
		} else {
			v, err = p.value(rest, indent)
		}
		if err != nil {
			return nil, err
		}
		m[key] = v
	}
}

// key splits "key: rest"; ok is false when the text is no such thing.
func (p *parser) key(text string) (key, rest string, ok bool, err error) {
	if text[0] == '"' || text[0] == '\'' {
		s := &scan{text: text}
		v, err := s.quoted()
		if err != nil {
			return "", "", false, p.fail("%v", err)
		}
		after := strings.TrimLeft(text[s.at:], " ")
		if !strings.HasPrefix(after, ":") || len(after) > 1 && after[1] != ' ' {
			return "", "", false, nil
		}
		return v, strings.TrimLeft(after[1:], " "), true, nil
	}
	if strings.ContainsRune("{[&*!|>%@`", rune(text[0])) {
		return "", "", false, nil
	}
	bare := uncomment(text)
	if k, ok := strings.CutSuffix(bare, ":"); ok && !strings.Contains(k, ": ") {
		return strings.TrimRight(k, " "), "", true, nil
	}
	k, rest, found := strings.Cut(text, ": ")
	if !found || len(k) >= len(bare) {
		return "", "", false, nil
	}
	return strings.TrimRight(k, " "), strings.TrimLeft(rest, " "), true, nil
}

// uncomment cuts a comment off plain text.
func uncomment(text string) string {
	if i := strings.Index(text, " #"); i >= 0 {
		text = text[:i]
	}
	return strings.TrimRight(text, " ")
}

// value reads a value that starts with text on the line looked at, and moves
// behind it.
func (p *parser) value(text string, indent int) (any, error) {
	switch text[0] {
	case '|', '>':
		return p.text(text, indent)
	case '{', '[', '"', '\'':
		return p.flow(text)
	case '&', '*', '!', '%', '@', '`':
		return nil, p.fail("%q: anchors, aliases, tags and directives are not supported; quote it if it is text", uncomment(text))
	}
	plain := uncomment(text)
	if strings.Contains(plain, ": ") || strings.HasSuffix(plain, ":") {
		return nil, p.fail("%q has a colon: quote it, or put it on a line of its own", plain)
	}
	p.pos++
	return scalar(plain), nil
}

// flow reads a flow collection or quoted text, which may go on over lines.
func (p *parser) flow(text string) (any, error) {
	start := p.pos
	for {
		s := &scan{text: text}
		v, err := s.value(0)
		if err == nil {
			if rest := strings.TrimSpace(text[s.at:]); rest != "" && rest[0] != '#' {
				return nil, p.fail("%q follows a complete value", rest)
			}
			p.pos++
			return v, nil
		}
		if !s.open || p.pos+1 >= len(p.lines) || p.pos-start > 10_000 {
			return nil, p.fail("%v", err)
		}
		p.pos++
		text += "\n" + strings.TrimSpace(p.lines[p.pos])
	}
}

// text reads literal or folded text.
func (p *parser) text(head string, indent int) (any, error) {
	style := uncomment(head)
	if len(style) > 2 || len(style) == 2 && style[1] != '-' && style[1] != '+' {
		return nil, p.fail("%q: only |, |-, |+, >, >- and >+ are supported", style)
	}
	p.pos++
	own := -1
	var lines []string
	for ; p.pos < len(p.lines); p.pos++ {
		line := p.lines[p.pos]
		n := len(line) - len(strings.TrimLeft(line, " "))
		if n == len(line) {
			lines = append(lines, "")
			continue
		}
		if n <= indent {
			break
		}
		if own < 0 {
			own = n
		}
		if n < own {
			return nil, p.fail("text indented by %d, its first line by %d", n, own)
		}
		lines = append(lines, line[own:])
	}
	kept := len(lines)
	for kept > 0 && lines[kept-1] == "" {
		kept--
	}
	body, tail := strings.Join(lines[:kept], "\n"), len(lines)-kept
	if style[0] == '>' {
		body = fold(lines[:kept])
	}
	switch {
	case strings.HasSuffix(style, "-") || kept == 0:
	case strings.HasSuffix(style, "+"):
		body += strings.Repeat("\n", tail+1)
	default:
		body += "\n"
	}
	return body, nil
}

// fold joins lines with spaces; an empty line is a line break, and lines that
// are indented more keep theirs.
func fold(lines []string) string {
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			before := lines[i-1]
			switch {
			case line == "":
				b.WriteByte('\n')
			case before == "":
			case before[0] == ' ' || line[0] == ' ':
				b.WriteByte('\n')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteString(line)
	}
	return b.String()
}
