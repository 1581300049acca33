package expr

import (
	"math"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/heraldmq/herald/topics/value"
)

// quick evaluates an expression that looks only at fields of the payload, without CEL:
// fields, constants, comparisons and whole numbers' arithmetic, and what && || ! and ?:
// make of them. ok is false where anything is unusual: a field is missing, kinds don't fit, a
// sum overflows. Then CEL evaluates it from the beginning and says what is wrong. Where
// ok is true the result is the one CEL gives, but for a number that is passed on, which
// keeps the text it came with.
type quick func(this value.Value) (v value.Value, ok bool)

// quicken returns a quick evaluation, nil where the expression is of another shape.
func quicken(x ast.Expr) quick {
	switch x.Kind() {
	case ast.IdentKind:
		if x.AsIdent() == "this" {
			return func(this value.Value) (value.Value, bool) { return this, true }
		}
	case ast.LiteralKind:
		return literal(x)
	case ast.SelectKind:
		s := x.AsSelect()
		if s.IsTestOnly() {
			return nil
		}
		of, name := quicken(s.Operand()), s.FieldName()
		if of == nil {
			return nil
		}
		if s.Operand().Kind() == ast.IdentKind {
			return func(this value.Value) (value.Value, bool) { return this.Get(name) }
		}
		return func(this value.Value) (value.Value, bool) {
			v, ok := of(this)
			if !ok {
				return v, false
			}
			return v.Get(name)
		}
	case ast.ListKind:
		return quickList(x.AsList())
	case ast.CallKind:
		c := x.AsCall()
		if d, ok := constantDecimal(c); ok {
			return func(value.Value) (value.Value, bool) { return d, true }
		}
		if c.IsMemberFunction() || len(c.Args()) == 0 || len(c.Args()) > 3 {
			return nil
		}
		var args []quick
		for _, a := range c.Args() {
			q := quicken(a)
			if q == nil {
				return nil
			}
			args = append(args, q)
		}
		return quickCall(c.FunctionName(), args)
	}
	return nil
}

func quickList(l ast.ListExpr) quick {
	if len(l.OptionalIndices()) > 0 {
		return nil
	}
	var items []quick
	for _, i := range l.Elements() {
		q := quicken(i)
		if q == nil {
			return nil
		}
		items = append(items, q)
	}
	return func(this value.Value) (value.Value, bool) {
		list := make([]value.Value, len(items))
		for i, q := range items {
			v, ok := q(this)
			if !ok {
				return v, false
			}
			list[i] = v
		}
		return value.OfList(list), true
	}
}

func literal(x ast.Expr) quick {
	var v value.Value
	switch l := x.AsLiteral().(type) {
	case types.Bool:
		v = value.OfBool(bool(l))
	case types.Int:
		v = value.OfInt(int64(l))
	case types.Double:
		v = value.OfDouble(float64(l))
	case types.String:
		v = value.OfString(string(l))
	default:
		return nil
	}
	return func(value.Value) (value.Value, bool) { return v, true }
}

func quickCall(name string, args []quick) quick {
	if len(args) == 1 {
		if name == "decimal" {
			return quickDecimal(args[0])
		}
		if name != operators.LogicalNot {
			return nil
		}
		return func(this value.Value) (value.Value, bool) {
			v, ok := args[0](this)
			return value.OfBool(!v.Bool()), ok && v.Kind() == value.Bool
		}
	}
	if len(args) == 3 {
		return quickChoice(name, args)
	}
	a, b := args[0], args[1]
	both := func(f func(x, y value.Value) (value.Value, bool)) quick {
		return func(this value.Value) (value.Value, bool) {
			x, ok := a(this)
			if !ok {
				return x, false
			}
			y, ok := b(this)
			if !ok {
				return y, false
			}
			return f(x, y)
		}
	}
	compare := func(is func(c int) bool) quick {
		return both(func(x, y value.Value) (value.Value, bool) {
			c, ok := quickCompare(x, y)
			return value.OfBool(is(c)), ok
		})
	}
	switch name {
	case operators.Equals:
		return compare(func(c int) bool { return c == 0 })
	case operators.NotEquals:
		return compare(func(c int) bool { return c != 0 })
	case operators.Less:
		return compare(func(c int) bool { return c < 0 })
	case operators.LessEquals:
		return compare(func(c int) bool { return c <= 0 })
	case operators.Greater:
		return compare(func(c int) bool { return c > 0 })
	case operators.GreaterEquals:
		return compare(func(c int) bool { return c >= 0 })
	case operators.LogicalAnd, operators.LogicalOr:
		or := name == operators.LogicalOr
		return both(func(x, y value.Value) (value.Value, bool) {
			ok := x.Kind() == value.Bool && y.Kind() == value.Bool
			if or {
				return value.OfBool(x.Bool() || y.Bool()), ok
			}
			return value.OfBool(x.Bool() && y.Bool()), ok
		})
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return both(func(x, y value.Value) (value.Value, bool) {
			if x.Kind() == value.Decimal {
				return calculateDecimal(name, x, y)
			}
			i, is1 := x.Int()
			j, is2 := y.Int()
			if !is1 || !is2 {
				return x, false
			}
			n, ok := calculate(name, i, j)
			return value.OfInt(n), ok
		})
	}
	return nil
}

// quickChoice is of condition ? this : that.
func quickChoice(name string, args []quick) quick {
	if name != operators.Conditional {
		return nil
	}
	return func(this value.Value) (value.Value, bool) {
		v, ok := args[0](this)
		switch {
		case !ok || v.Kind() != value.Bool:
			return v, false
		case v.Bool():
			return args[1](this)
		}
		return args[2](this)
	}
}

// quickCompare compares what it can compare exactly and at once.
func quickCompare(x, y value.Value) (c int, ok bool) {
	switch {
	case x.Kind() == y.Kind():
		switch x.Kind() {
		case value.Int, value.String, value.Double, value.Bool:
			return value.Compare(x, y)
		}
		return 0, false
	case x.Kind() == value.Int && y.Kind() == value.Double:
		return mixed(x, y)
	case x.Kind() == value.Double && y.Kind() == value.Int:
		c, ok := mixed(y, x)
		return -c, ok
	}
	return 0, false
}

// mixed compares an int and a double, where a double holds the int.
func mixed(x, y value.Value) (int, bool) {
	i, _ := x.Int()
	f, _ := y.Double()
	if i < -1<<53 || i > 1<<53 || f != f {
		return 0, false
	}
	switch g := float64(i); {
	case g < f:
		return -1, true
	case g > f:
		return 1, true
	}
	return 0, true
}

func calculate(name string, i, j int64) (int64, bool) {
	switch name {
	case operators.Add:
		n := i + j
		return n, (n > i) == (j > 0)
	case operators.Subtract:
		n := i - j
		return n, (n < i) == (j > 0)
	case operators.Multiply:
		if i > math.MaxInt32 || i < math.MinInt32 || j > math.MaxInt32 || j < math.MinInt32 {
			return 0, false
		}
		return i * j, true
	}
	if j == 0 || j == -1 {
		return 0, false
	}
	if name == operators.Divide {
		return i / j, true
	}
	return i % j, true
}
