package expr

import (
	"slices"

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
			case name == "now":
				u.clock = true
			case name == "this":
				u.payload, u.whole = true, true
			case name == "time" || name == "seq":
				u.place = true
			case !e.known[name] && !hidden(name):
				u.payload = true
				u.field(name, true)
				u.bare = append(u.bare, name)
				next++
				x.SetKindCase(f.NewSelect(x.ID(), f.NewIdent(next, "this"), name))
			}
		case ast.SelectKind:
			if of := x.AsSelect().Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "this" {
				u.payload = true
				u.field(x.AsSelect().FieldName(), !x.AsSelect().IsTestOnly())
				u.bare = append(u.bare, x.AsSelect().FieldName())
				return
			}
			bare := len(u.bare)
			walk(x.AsSelect().Operand(), bound)
			if of := x.AsSelect().Operand(); bare+1 == len(u.bare) && isField(of) { // of one field only a field
				u.below(u.bare[bare], x.AsSelect().FieldName())
				u.bare = u.bare[:bare]
			}
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

// isField tells whether an expression is a field of the payload, bound or said so.
func isField(x ast.Expr) bool {
	if x.Kind() != ast.SelectKind {
		return false
	}
	of := x.AsSelect().Operand()
	return of.Kind() == ast.IdentKind && of.AsIdent() == "this"
}

// below notes a field of a field of the payload.
func (u *uses) below(field, name string) {
	if u.under == nil {
		u.under = map[string][]string{}
	}
	if !slices.Contains(u.under[field], name) {
		u.under[field] = append(u.under[field], name)
	}
}

// field notes a field of the payload.
func (u *uses) field(name string, needed bool) {
	if !slices.Contains(u.fields, name) {
		u.fields = append(u.fields, name)
	}
	if needed && !slices.Contains(u.needs, name) {
		u.needs = append(u.needs, name)
	}
}

// hidden tells whether a name is one that macros make up.
func hidden(name string) bool { return name == "" || name[0] == '@' || name == "__result__" }
