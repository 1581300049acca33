package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/parser"
)

// macros are CEL's own, but for has, which also takes a bare name.
func macros() []cel.Macro {
	own := []cel.Macro{cel.GlobalMacro("has", 1, expandHas)}
	for _, m := range cel.StandardMacros {
		if m.Function() != "has" {
			own = append(own, m)
		}
	}
	return own
}

func expandHas(eh cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
	if args[0].Kind() == ast.IdentKind {
		return eh.NewPresenceTest(eh.NewIdent("this"), args[0].AsIdent()), nil
	}
	return parser.MakeHas(eh, target, args)
}

// bindFields turns names that nothing declares into fields of the payload, and notes
// what the expression looks at.
func (e *Env) bindFields(tree *ast.AST) uses {
	f := ast.NewExprFactory()
	next := ast.MaxID(tree)
	var u uses
	var walk func(x ast.Expr, bound []string)
	walk = func(x ast.Expr, bound []string) {
		switch x.Kind() {
		case ast.IdentKind:
			name := x.AsIdent()
			for _, b := range bound {
				if b == name {
					return
				}
			}
			switch {
			case name == "header" || name == "headers":
				u.headers = true
			case name == "this":
				u.payload = true
			case name == "time" || name == "seq":
				u.place = true
			case !e.known[name] && !hidden(name):
				u.payload = true
				next++
				x.SetKindCase(f.NewSelect(x.ID(), f.NewIdent(next, "this"), name))
			}
		case ast.SelectKind:
			walk(x.AsSelect().Operand(), bound)
		case ast.CallKind:
			c := x.AsCall()
			if c.IsMemberFunction() {
				walk(c.Target(), bound)
			}
			for _, a := range c.Args() {
				walk(a, bound)
			}
		case ast.ListKind:
			for _, i := range x.AsList().Elements() {
				walk(i, bound)
			}
		case ast.MapKind:
			for _, i := range x.AsMap().Entries() {
				walk(i.AsMapEntry().Key(), bound)
				walk(i.AsMapEntry().Value(), bound)
			}
		case ast.StructKind:
			for _, i := range x.AsStruct().Fields() {
				walk(i.AsStructField().Value(), bound)
			}
		case ast.ComprehensionKind:
			c := x.AsComprehension()
			walk(c.IterRange(), bound)
			walk(c.AccuInit(), bound)
			inner := append(bound[:len(bound):len(bound)], c.IterVar(), c.IterVar2(), c.AccuVar())
			walk(c.LoopCondition(), inner)
			walk(c.LoopStep(), inner)
			walk(c.Result(), inner)
		}
	}
	walk(tree.Expr(), nil)
	return u
}

// hidden tells whether a name is one that macros make up.
func hidden(name string) bool { return name == "" || name[0] == '@' || name == "__result__" }
