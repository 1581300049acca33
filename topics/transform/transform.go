// Package transform maps subjects to other subjects: what streams do with
// subject_transform, sources and republish, and accounts with mappings.
//
// A Transform has a source pattern and a destination. The destination's tokens
// are literal, or take from the subject what the source's wildcards matched:
//
//	$1, {{wildcard(1)}}        the token the first "*" matched
//	{{partition(10,1,2)}}      a number below 10 from the hash of tokens 1 and 2
//	{{split(1,-)}}             token 1, cut into tokens at each "-"
//	{{splitFromLeft(1,3)}}     token 1 in two, after 3 characters; …FromRight
//	{{sliceFromLeft(1,3)}}     token 1 in pieces of 3 characters; …FromRight
//	{{left(1,3)}}, {{right(1,3)}}   its first or last 3 characters
//	{{random(10)}}             a number below 10
//	>                          what the source's ">" matched
//
// Everything is a pure function of the subject, except random, whose numbers
// come from the caller.
package transform

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/topics/subject"
)

var (
	errSubject = errors.New("invalid subject")
	errToken   = errors.New("invalid transform")
)

// Transform is a parsed mapping. It is immutable: safe for any number of
// callers.
type Transform struct {
	source string
	where  []int // index of the token each "*" of the source matches
	head   int   // tokens of the source before its ">", -1 without one
	parts  []part
	same   bool // the destination is empty: subjects stay as they are
}

// A part gives one or more tokens of the result.
type part struct {
	function string // "" is the literal text, ">" the tail
	text     string // literal, or split's delimiter
	args     []int
}

// functions and how many arguments each takes at least; the first is the index
// of a wildcard unless the function is random or partition.
var functions = map[string]int{
	"wildcard": 1, "split": 2, "splitfromleft": 2, "splitfromright": 2, "slicefromleft": 2,
	"slicefromright": 2, "left": 2, "right": 2, "random": 1, "partition": 1,
}

// New parses a mapping. An empty source is ">", an empty destination keeps the
// subject. The error's text is what nats-server answers.
func New(source, destination string) (*Transform, error) {
	if source == "" {
		source = ">"
	}
	if !subject.Valid(source) {
		return nil, fmt.Errorf("invalid subject %s", source)
	}
	t := &Transform{source: source, head: -1, same: destination == ""}
	for i, tok := range strings.Split(source, ".") {
		switch tok {
		case "*":
			t.where = append(t.where, i)
		case ">":
			t.head = i
		}
	}
	if t.same {
		return t, nil
	}
	tail := false
	tokens := strings.Split(destination, ".")
	for i, tok := range tokens {
		p, err := parsePart(tok, len(t.where), i == len(tokens)-1)
		if err != nil {
			return nil, fmt.Errorf("invalid mapping destination: %w", err)
		}
		if p.function == "*" {
			return nil, errSubject
		}
		tail = tail || p.function == ">"
		t.parts = append(t.parts, p)
	}
	if tail != (t.head >= 0) {
		return nil, errSubject
	}
	return t, nil
}

func parsePart(tok string, wildcards int, last bool) (part, error) {
	switch {
	case tok == ">" && last, tok == "*":
		return part{function: tok}, nil
	case tok == "" || tok == ">" || strings.ContainsAny(tok, " \t\r\n\f"):
		return part{}, errToken
	}
	if n, ok := strings.CutPrefix(tok, "$"); ok {
		i, err := strconv.Atoi(n)
		if err != nil {
			return part{text: tok}, nil
		}
		if i < 1 || i > wildcards {
			return part{}, fmt.Errorf("wildcard index out of range in %s: [%d]", tok, i)
		}
		return part{function: "wildcard", args: []int{i}}, nil
	}
	inner, ok := strings.CutPrefix(tok, "{{")
	if !ok || !strings.HasSuffix(inner, "}}") {
		return part{text: tok}, nil
	}
	return parseFunction(tok, strings.TrimSuffix(inner, "}}"), wildcards)
}

func parseFunction(tok, inner string, wildcards int) (part, error) {
	name, args, ok := strings.Cut(inner, "(")
	name = strings.ToLower(strings.TrimSpace(name))
	least, known := functions[name]
	if !ok || !known || !strings.HasSuffix(strings.TrimSpace(args), ")") {
		return part{}, fmt.Errorf("unknown function in %s", tok)
	}
	var list []string
	if args = strings.TrimSuffix(strings.TrimSpace(args), ")"); strings.TrimSpace(args) != "" {
		list = strings.Split(args, ",")
	}
	switch {
	case len(list) < least:
		return part{}, fmt.Errorf("not enough arguments passed to the function in %s", tok)
	case len(list) > least && name != "partition":
		return part{}, fmt.Errorf("too many arguments passed to the function in %s", tok)
	}
	p := part{function: name}
	if name == "split" {
		p.text = list[1]
		list = list[:1]
	}
	for i, a := range list {
		n, err := strconv.Atoi(strings.TrimSpace(a))
		if err != nil || n < 0 || n > math.MaxInt32 {
			return part{}, fmt.Errorf("function argument is invalid or in the wrong format in %s", tok)
		}
		isIndex := i == 0 && name != "random" && name != "partition" || i > 0 && name == "partition"
		if isIndex && (n < 1 || n > wildcards) {
			return part{}, fmt.Errorf("wildcard index out of range in %s: [%d]", tok, n)
		}
		p.args = append(p.args, n)
	}
	if (name == "random" || name == "partition") && p.args[0] < 1 {
		return part{}, fmt.Errorf("function argument is invalid or in the wrong format in %s", tok)
	}
	return p, nil
}

// Source returns the pattern of subjects that are mapped.
func (t *Transform) Source() string { return t.source }

// Apply maps a literal subject; false when the source doesn't match it. random
// gives a number below n; it may be nil where the destination has no random.
func (t *Transform) Apply(s string, random func(n int) int) (string, bool) {
	if !subject.Match(t.source, s) {
		return "", false
	}
	if t.same {
		return s, true
	}
	tokens := strings.Split(s, ".")
	at := func(wildcard int) string { return tokens[t.where[wildcard-1]] }
	out := make([]string, 0, len(t.parts)+len(tokens))
	for i := range t.parts {
		p := &t.parts[i]
		switch p.function {
		case "":
			out = append(out, p.text)
		case ">":
			out = append(out, tokens[t.head:]...)
		case "partition":
			out = append(out, strconv.Itoa(partition(p.args, s, at)))
		case "random":
			n := 0
			if random != nil {
				n = random(p.args[0])
			}
			out = append(out, strconv.Itoa(n))
		case "wildcard":
			out = append(out, at(p.args[0]))
		default:
			out = append(out, p.cut(at(p.args[0]))...)
		}
	}
	return strings.Join(out, "."), true
}

// partition hashes the named tokens, or the whole subject when none is named.
func partition(args []int, s string, at func(int) string) int {
	h := fnv.New32a()
	if len(args) == 1 {
		_, _ = h.Write([]byte(s)) // a hash's Write never fails
	}
	for _, i := range args[1:] {
		_, _ = h.Write([]byte(at(i)))
	}
	return int(h.Sum32() % uint32(args[0]))
}

// cut gives the tokens a function makes of one token. Pieces are never empty: a
// subject has no empty token.
func (p *part) cut(tok string) []string {
	if p.function == "split" {
		return filled(strings.Split(tok, p.text))
	}
	n := p.args[1]
	switch p.function {
	case "left":
		if n > 0 && n < len(tok) {
			return []string{tok[:n]}
		}
	case "right":
		if n > 0 && n < len(tok) {
			return []string{tok[len(tok)-n:]}
		}
	case "splitfromleft":
		if n > 0 && n < len(tok) {
			return []string{tok[:n], tok[n:]}
		}
	case "splitfromright":
		if n > 0 && n < len(tok) {
			return []string{tok[:len(tok)-n], tok[len(tok)-n:]}
		}
	case "slicefromleft":
		return pieces(tok, n, 0)
	case "slicefromright":
		if n > 0 {
			return pieces(tok, n, len(tok)%n)
		}
	}
	return []string{tok}
}

// pieces cuts tok into pieces of n, after a first one of the given length.
func pieces(tok string, n, first int) (out []string) {
	if n < 1 || n >= len(tok) {
		return []string{tok}
	}
	if first > 0 {
		out, tok = append(out, tok[:first]), tok[first:]
	}
	for len(tok) > n {
		out, tok = append(out, tok[:n]), tok[n:]
	}
	return append(out, tok)
}

// filled leaves out empty tokens.
func filled(tokens []string) []string {
	out := tokens[:0]
	for _, p := range tokens {
		if p != "" {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return []string{"_"} // the token was nothing but delimiters
	}
	return out
}

// Pattern returns a pattern that matches every subject the mapping can give.
// Functions that give several tokens make it end in ">".
func (t *Transform) Pattern() string {
	if t.same {
		return t.source
	}
	out := make([]string, 0, len(t.parts))
	for i := range t.parts {
		switch p := &t.parts[i]; p.function {
		case "":
			out = append(out, p.text)
		case "wildcard", "partition", "random", "left", "right":
			out = append(out, "*")
		default:
			return strings.Join(append(out, ">"), ".")
		}
	}
	return strings.Join(out, ".")
}
