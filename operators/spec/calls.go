package spec

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/operators/steps"
)

// callText is an aggregate's call: name(arguments).
var callText = regexp.MustCompile(`(?s)^\s*([A-Za-z_][A-Za-z0-9_]*)\s*\((.*)\)\s*$`)

// namedArg is an argument with a name: by: x, or by = x, which YAML needn't have quoted.
var namedArg = regexp.MustCompile(`(?s)^\s*(by|of|max)\s*(?::|=)\s*([^=].*)$`)

// callArgs are the arguments of a call: those without a name, and by, of and max.
type callArgs struct {
	plain []string
	named map[string]string
}

// splitArgs divides arguments at the commas that aren't inside anything.
func splitArgs(text string) (callArgs, bool) {
	a := callArgs{named: map[string]string{}}
	var parts []string
	depth, start, quote := 0, 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			if depth--; depth < 0 {
				return a, false
			}
		case c == ',' && depth == 0:
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	if strings.TrimSpace(text) != "" {
		parts = append(parts, text[start:])
	}
	for _, p := range parts {
		if m := namedArg.FindStringSubmatch(p); m != nil {
			if _, twice := a.named[m[1]]; twice {
				return a, false
			}
			a.named[m[1]] = strings.TrimSpace(m[2])
			continue
		}
		a.plain = append(a.plain, strings.TrimSpace(p))
	}
	for _, text := range a.named {
		if text == "" {
			return a, false
		}
	}
	return a, depth == 0 && quote == 0 && !slices.Contains(a.plain, "")
}

// call compiles sum(mag), max(x, by: y), top(3, by: mag, of: this).
func (c *compiler) call(f Field, in *outlet) (steps.Aggregate, bool) {
	agg := steps.Aggregate{Name: f.Name}
	at := f.Expr.At
	m := callText.FindStringSubmatch(f.Expr.Text)
	if m == nil {
		c.problem(at, "%s is no call of an aggregate, like sum(x); there are %s", f.Expr.Text, listed(slices.Sorted(maps.Keys(steps.Functions))))
		return agg, false
	}
	agg.Func = m[1]
	help, known := steps.Functions[agg.Func]
	if !known {
		hint := meant(agg.Func, slices.Sorted(maps.Keys(steps.Functions)))
		if hint == "" {
			hint = "; there are " + listed(slices.Sorted(maps.Keys(steps.Functions)))
		}
		c.problem(at, "no aggregate %s%s", agg.Func, hint)
		return agg, false
	}
	args, ok := splitArgs(m[2])
	if !ok || !c.callForm(&agg, &args) {
		c.problem(at, "%s is not how %s is called: %s", f.Expr.Text, agg.Func, help)
		return agg, false
	}
	place := func(text string) Expr {
		e := Expr{Text: text, At: at}
		if i := strings.Index(f.Expr.Text, text); i > 0 && !strings.Contains(f.Expr.Text[:i], "\n") {
			e.At.Column += i
		}
		return e
	}
	if len(args.plain) > 0 {
		agg.Arg = c.compile(place(args.plain[0]), in, false)
		ok = agg.Arg != nil
	}
	if by := args.named["by"]; by != "" {
		agg.By = c.compile(place(by), in, false)
		ok = ok && agg.By != nil
	}
	if (agg.Func == "collect" || agg.Func == "distinct") && args.named["max"] == "" {
		c.warn(at, "%s keeps up to %d values for each key and window, and more is an error; say how many with max: n", f.Expr.Text, steps.KeptMax)
	}
	return agg, ok
}

// callForm checks which arguments there are, and takes the numbers out.
func (c *compiler) callForm(agg *steps.Aggregate, a *callArgs) bool {
	allowed, plain := "", 1
	switch agg.Func {
	case "count":
		plain = min(len(a.plain), 1)
	case "min", "max":
		allowed = "by"
	case "collect", "distinct":
		allowed = "max"
	case "top":
		if len(a.plain) != 1 || a.named["by"] == "" {
			return false
		}
		n, err := strconv.Atoi(a.plain[0])
		if err != nil || n < 1 || n > steps.KeptMax {
			return false
		}
		agg.N, allowed = n, "by of"
		a.plain[0] = "this"
		if of := a.named["of"]; of != "" {
			a.plain[0] = of
		}
	}
	for name := range a.named {
		if !strings.Contains(allowed, name) {
			return false
		}
	}
	if text := a.named["max"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1_000_000 {
			return false
		}
		agg.N = n
	}
	return len(a.plain) == plain
}
