package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/topics/value"
)

// quickDecimal is decimal(x) of numbers that are exact.
func quickDecimal(of quick) quick {
	return func(this value.Value) (value.Value, bool) {
		v, ok := of(this)
		if !ok {
			return v, false
		}
		switch v.Kind() {
		case value.Int, value.Uint, value.Decimal:
			d, ok := v.Decimal()
			return value.OfDecimal(d), ok
		}
		return v, false
	}
}

// constantDecimal is decimal("…"), read once.
func constantDecimal(c ast.CallExpr) (value.Value, bool) {
	if c.IsMemberFunction() || c.FunctionName() != "decimal" || len(c.Args()) != 1 || c.Args()[0].Kind() != ast.LiteralKind {
		return value.Value{}, false
	}
	text, ok := c.Args()[0].AsLiteral().(types.String)
	if !ok {
		return value.Value{}, false
	}
	d, ok := toDecimal(text).(decimal)
	return value.OfDecimal(d.d), ok
}

// calculateDecimal calculates with a decimal on the left, as CEL has it.
func calculateDecimal(name string, x, y value.Value) (value.Value, bool) {
	switch y.Kind() {
	case value.Int, value.Uint, value.Decimal:
	default:
		return x, false
	}
	a, _ := x.Decimal()
	b, ok := y.Decimal()
	if !ok {
		return x, false
	}
	r := new(apd.Decimal)
	var err error
	switch name {
	case operators.Add:
		_, err = exact.Add(r, a, b)
	case operators.Subtract:
		_, err = exact.Sub(r, a, b)
	case operators.Multiply:
		_, err = exact.Mul(r, a, b)
	case operators.Divide:
		_, err = quotient.Quo(r, a, b)
	default:
		return x, false
	}
	return value.OfDecimal(r), err == nil
}
