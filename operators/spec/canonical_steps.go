package spec

import "github.com/heraldmq/herald/topics/value"

func (st *Step) canonical() value.Value {
	o := &builder{}
	o.text("name", st.Name)
	var from []string
	for _, f := range st.From {
		from = append(from, f.Text)
	}
	o.texts("from", from)
	st.body(o)
	o.errors("on_error", st.OnError)
	return o.done()
}

// config is the canonical text of what a step does: what decides whether its state
// still fits.
func (st *Step) config() string {
	o := &builder{}
	st.body(o)
	return string(value.AppendJSON(nil, o.done()))
}

func (st *Step) body(o *builder) {
	kind := st.Body.kind()
	switch b := st.Body.(type) {
	case *Filter:
		o.text(kind, b.If.Text)
	case *Assert:
		o.text(kind, b.If.Text)
	case *Flatmap:
		o.text(kind, b.List.Text)
	case *Map:
		o.named(kind, b.Fields)
		o.text(kind, b.Whole.Text)
	case *Project:
		if b.Drop {
			o.object(kind, func(o *builder) { o.texts("drop", b.Fields) })
		} else {
			o.texts(kind, b.Fields)
		}
	case *Key:
		o.key(kind, b.By)
	case *Union:
		o.value(kind, value.OfList([]value.Value{}))
	case *Split:
		o.object(kind, func(o *builder) {
			for _, f := range b.Branches {
				o.text(f.Name, f.Expr.Text)
			}
			o.text("else", b.Else)
		})
	case *Deduplicate:
		o.object(kind, func(o *builder) {
			o.key("by", b.By)
			o.duration("within", b.Within)
			o.text("time", timeName(b.Processing))
		})
	case *Window:
		o.object(kind, b.canonical)
	case *Aggregate:
		o.named(kind, b.Calls)
		o.text("having", b.Having.Text)
		if len(b.Row) > 0 {
			o.key("row", b.Row)
		}
	case *Top:
		o.object(kind, b.canonical)
	case *Join:
		o.object(kind, b.canonical)
	case *Table:
		o.object(kind, func(o *builder) {
			o.key("key", b.Key)
			o.text("delete", b.Delete.Text)
		})
	case *Process:
		o.text(kind, b.Function.Text)
		o.value("with", b.With)
	}
}

func timeName(processing bool) string {
	if processing {
		return "processing"
	}
	return "event"
}

func (b *Window) canonical(o *builder) {
	if b.Kind == "count" {
		o.number("count", int64(b.Count))
		o.number("every", int64(b.CountEvery))
		return
	}
	o.duration(b.Kind, b.Size)
	o.duration("every", b.Every)
	o.duration("offset", b.Offset)
	o.duration("max", b.Max)
	o.text("time", timeName(b.Processing))
	o.object("late", func(o *builder) {
		o.duration("allow", b.Allow)
		o.text("to", b.Late.Text)
	})
	if b.Changes {
		o.text("emit", "changes")
	}
}

func (b *Top) canonical(o *builder) {
	o.number("n", int64(b.N))
	o.text("by", b.By.Text)
	if b.Rising {
		o.text("order", "asc")
	}
	if b.Latest {
		o.texts("ties", []string{"-time", "-seq"})
	}
	o.key("row", b.Row)
}

func (b *Join) canonical(o *builder) {
	o.text("with", b.With.Text)
	if b.Left.Set() {
		o.object("on", func(o *builder) {
			o.text("left", b.Left.Text)
			o.text("right", b.Right.Text)
		})
	}
	o.text("kind", b.Kind)
	if b.Interval {
		o.object("within", func(o *builder) {
			o.always("before", b.Before)
			o.always("after", b.After)
		})
	}
	if b.Window > 0 {
		o.object("window", func(o *builder) {
			o.duration("tumble", b.Window)
			o.duration("offset", b.Offset)
		})
	}
	o.flag("table", b.Table)
	o.object("late", func(o *builder) { o.text("to", b.Late.Text) })
	o.named("as", b.As)
}
