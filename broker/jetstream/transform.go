package jetstream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/topics/subject"
)

// A destination function takes some numbers and perhaps a word at the end.
var transformFunctions = map[string]struct {
	args    int // at least
	indexes int // how many leading arguments are wildcard indexes
	word    bool
}{
	"wildcard":       {1, 1, false},
	"split":          {2, 1, true},
	"splitfromleft":  {2, 1, false},
	"splitfromright": {2, 1, false},
	"slicefromleft":  {2, 1, false},
	"slicefromright": {2, 1, false},
	"left":           {2, 1, false},
	"right":          {2, 1, false},
	"random":         {1, 0, false},
	"partition":      {1, 0, false},
}

// checkTransform tells what is wrong with a mapping from subjects of src to
// dest, "" when nothing. An empty src is ">", an empty dest keeps the subject.
func checkTransform(src, dest string) string {
	if dest == "" {
		return ""
	}
	src = orAll(src)
	wildcards := 0
	for _, tok := range strings.Split(src, ".") {
		if tok == "*" {
			wildcards++
		}
	}
	tail := src == ">" || strings.HasSuffix(src, ".>")
	star, destTail := false, false
	for i, tok := range strings.Split(dest, ".") {
		last := i == subject.Tokens(dest)-1
		switch {
		case tok == "":
			return "invalid mapping destination: invalid transform"
		case tok == ">" && last:
			destTail = true
		case tok == "*":
			star = true
		case tok == ">" || strings.ContainsAny(tok, " \t\r\n\f"):
			return "invalid mapping destination: invalid transform"
		default:
			if why := checkDestinationToken(tok, wildcards); why != "" {
				return "invalid mapping destination: " + why
			}
		}
	}
	if tail != destTail || star {
		return "invalid subject"
	}
	return ""
}

func checkDestinationToken(tok string, wildcards int) string {
	if n, ok := strings.CutPrefix(tok, "$"); ok {
		if i, err := strconv.Atoi(n); err == nil && (i < 1 || i > wildcards) {
			return fmt.Sprintf("wildcard index out of range in %s: [%d]", tok, i)
		}
		return ""
	}
	inner, ok := strings.CutPrefix(tok, "{{")
	if !ok || !strings.HasSuffix(inner, "}}") {
		return ""
	}
	name, args, ok := strings.Cut(strings.TrimSuffix(inner, "}}"), "(")
	if !ok || !strings.HasSuffix(args, ")") {
		return "unknown function in " + tok
	}
	f, ok := transformFunctions[strings.ToLower(strings.TrimSpace(name))]
	if !ok {
		return "unknown function in " + tok
	}
	var list []string
	if args = strings.TrimSuffix(args, ")"); strings.TrimSpace(args) != "" {
		list = strings.Split(args, ",")
	}
	if len(list) < f.args {
		return "not enough arguments passed to the function in " + tok
	}
	indexes := f.indexes
	if strings.EqualFold(strings.TrimSpace(name), "partition") {
		indexes = len(list) // but the first is the number of partitions
	} else if len(list) > f.args {
		return "too many arguments passed to the function in " + tok
	}
	for i, a := range list {
		if f.word && i == len(list)-1 {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(a))
		if err != nil || n < 0 {
			return "function argument is invalid or in the wrong format in " + tok
		}
		isIndex := i < indexes && (f.indexes > 0 || i > 0)
		if isIndex && (n < 1 || n > wildcards) {
			return fmt.Sprintf("wildcard index out of range in %s: [%d]", tok, n)
		}
	}
	return ""
}

// transformPattern returns a pattern that covers what a destination gives.
func transformPattern(dest string) string {
	toks := strings.Split(dest, ".")
	for i, t := range toks {
		if strings.HasPrefix(t, "{{") || strings.HasPrefix(t, "$") && len(t) > 1 && t[1] >= '0' && t[1] <= '9' {
			toks[i] = "*"
		}
	}
	return strings.Join(toks, ".")
}
