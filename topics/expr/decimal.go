package expr

import (
	"fmt"
	"reflect"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/topics/value"
)

// decimalType is the type of decimals in expressions.
var decimalType = cel.ObjectType("decimal", traits.AdderType|traits.SubtractorType|traits.MultiplierType|traits.DividerType|traits.NegatorType|traits.ComparerType)

var (
	exact    = apd.Context{Precision: value.DigitsMax, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent, Traps: apd.DefaultTraps | apd.Inexact, Rounding: apd.RoundHalfEven}
	quotient = apd.Context{Precision: 34, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent, Traps: apd.DefaultTraps, Rounding: apd.RoundHalfEven}
)

// decimal is a decimal in an expression. It calculates with ints, uints and
// decimals; a double has to say that it wants to be one.
type decimal struct{ d *apd.Decimal }

// operand returns what a decimal can calculate with.
func operand(v ref.Val) (*apd.Decimal, bool) {
	switch v := v.(type) {
	case decimal:
		return v.d, true
	case types.Int:
		return apd.New(int64(v), 0), true
	case types.Uint:
		d, _ := value.OfUint(uint64(v)).Decimal()
		return d, true
	}
	return nil, false
}

func (a decimal) with(other ref.Val, op func(r, x, y *apd.Decimal) (apd.Condition, error)) ref.Val {
	y, ok := operand(other)
	if !ok {
		return types.NewErr("a decimal doesn't calculate with a %s: convert it with decimal(…)", other.Type().TypeName())
	}
	r := new(apd.Decimal)
	if _, err := op(r, a.d, y); err != nil {
		return types.NewErr("decimal: %v", err)
	}
	return decimal{r}
}

func (a decimal) Add(o ref.Val) ref.Val      { return a.with(o, exact.Add) }
func (a decimal) Subtract(o ref.Val) ref.Val { return a.with(o, exact.Sub) }
func (a decimal) Multiply(o ref.Val) ref.Val { return a.with(o, exact.Mul) }
func (a decimal) Divide(o ref.Val) ref.Val   { return a.with(o, quotient.Quo) }

func (a decimal) Negate() ref.Val {
	r := new(apd.Decimal)
	return decimal{r.Neg(a.d)}
}

func (a decimal) Compare(o ref.Val) ref.Val {
	v, err := toValue(o)
	if err == nil {
		if c, ok := value.Compare(value.OfDecimal(a.d), v); ok {
			return types.Int(c)
		}
	}
	return types.NewErr("a decimal and a %s have no order", o.Type().TypeName())
}

func (a decimal) Equal(o ref.Val) ref.Val {
	v, err := toValue(o)
	return types.Bool(err == nil && value.Equal(value.OfDecimal(a.d), v))
}

func (a decimal) Type() ref.Type { return decimalType }
func (a decimal) Value() any     { return value.OfDecimal(a.d) }

func (a decimal) ConvertToNative(t reflect.Type) (any, error) {
	if t == reflect.TypeFor[value.Value]() {
		return value.OfDecimal(a.d), nil
	}
	return nil, fmt.Errorf("a decimal can't become a %v", t)
}

func (a decimal) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.TypeType:
		return decimalType
	case types.StringType:
		return types.String(value.OfDecimal(a.d).String())
	case types.DoubleType:
		f, err := a.d.Float64()
		if err != nil {
			return types.NewErr("decimal: %v", err)
		}
		return types.Double(f)
	case types.IntType:
		i, err := a.d.Int64()
		if err != nil {
			return types.NewErr("the decimal %s is not a whole number of 64 bits", value.OfDecimal(a.d))
		}
		return types.Int(i)
	}
	if t.TypeName() == decimalType.TypeName() {
		return a
	}
	return types.NewErr("a decimal can't become a %s", t.TypeName())
}

// toDecimal is decimal(x).
func toDecimal(v ref.Val) ref.Val {
	if d, ok := operand(v); ok {
		return decimal{d}
	}
	switch v := v.(type) {
	case types.String:
		if len(v) > value.DigitsMax {
			return types.NewErr("a decimal of more than %d digits", value.DigitsMax)
		}
		d, _, err := apd.NewFromString(string(v))
		if err != nil || d.Form != apd.Finite {
			return types.NewErr("%q is no decimal", string(v))
		}
		return decimal{d}
	case types.Double:
		if d, ok := value.OfDouble(float64(v)).Decimal(); ok {
			return decimal{d}
		}
	}
	return types.NewErr("a %s can't become a decimal", v.Type().TypeName())
}

// round is round(x, digits behind the point).
func round(x, n ref.Val) ref.Val {
	d, ok := operand(x)
	digits, whole := n.(types.Int)
	if !ok || !whole || digits < -400 || digits > 400 {
		return types.NewErr("round takes a decimal and a number of digits from -400 to 400")
	}
	r := new(apd.Decimal)
	ctx := exact
	ctx.Traps = apd.DefaultTraps
	if _, err := ctx.Quantize(r, d, -int32(digits)); err != nil {
		return types.NewErr("round: %v", err)
	}
	return decimal{r}
}

// decimals declares decimals: how to make them, and that they calculate and compare
// as other numbers do.
func decimals() []cel.EnvOption {
	opts := []cel.EnvOption{
		cel.Function("decimal", cel.Overload("to_decimal", []*cel.Type{cel.DynType}, decimalType, cel.UnaryBinding(toDecimal))),
		cel.Function("round", cel.Overload("round_decimal", []*cel.Type{cel.DynType, cel.IntType}, decimalType, cel.BinaryBinding(round))),
	}
	for op, name := range map[string]string{operators.Add: "add", operators.Subtract: "subtract", operators.Multiply: "multiply", operators.Divide: "divide"} {
		opts = append(opts, cel.Function(op,
			cel.Overload(name+"_decimal", []*cel.Type{decimalType, decimalType}, decimalType),
			cel.Overload(name+"_decimal_int", []*cel.Type{decimalType, cel.IntType}, decimalType),
			cel.Overload(name+"_decimal_uint", []*cel.Type{decimalType, cel.UintType}, decimalType)))
	}
	opts = append(opts, cel.Function(operators.Negate, cel.Overload("negate_decimal", []*cel.Type{decimalType}, decimalType)))
	for op, name := range map[string]string{operators.Less: "less", operators.LessEquals: "less_equals", operators.Greater: "greater", operators.GreaterEquals: "greater_equals"} {
		f := []cel.FunctionOpt{cel.Overload(name+"_decimal", []*cel.Type{decimalType, decimalType}, cel.BoolType)}
		for _, t := range []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType} {
			f = append(f, cel.Overload(name+"_decimal_"+t.TypeName(), []*cel.Type{decimalType, t}, cel.BoolType))
		}
		opts = append(opts, cel.Function(op, f...))
	}
	for name, t := range map[string]*cel.Type{"string": cel.StringType, "double": cel.DoubleType, "int": cel.IntType} {
		opts = append(opts, cel.Function(name, cel.Overload(name+"_from_decimal", []*cel.Type{decimalType}, t,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return v.ConvertToType(t) }))))
	}
	return opts
}
