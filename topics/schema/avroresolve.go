package schema

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/topics/value"
)

// What was written with one schema is read as another one says by the rules of Avro's
// schema resolution: fields by their names and aliases, defaults for those that the writer
// hadn't, wider numbers, strings and bytes for each other, branches of unions. The writer's
// type is rebuilt with what the reader makes of each part, so that reading goes through a
// payload once.

// resolution is what a reader makes of a writer's type.
type resolution struct {
	reader  *avroType
	inner   *avroType // resolved again: the writer's type with the branch of the reader's union
	broken  string    // why it can't be read: of a branch of the writer's union
	of      []*avroType
	symbols []string      // of the reader, by the writer's numbers; "": none
	slots   []int         // of a record's fields in the reader's; -1: nobody wants it
	rest    []value.Value // a reader's record with its defaults
}

type resolver struct {
	done  map[[2]*avroType]*avroType
	parts int
	bad   string // the first thing that doesn't fit
}

// resolveAvro returns the writer's type as the reader reads it.
func resolveAvro(writer, reader *avroType) (*avroType, string) {
	x := &resolver{done: map[[2]*avroType]*avroType{}}
	t := x.resolve(writer, reader, "")
	return t, x.bad
}

func (x *resolver) misfit(t *avroType, path, format string, args ...any) *avroType {
	t.resolved.broken = fmt.Sprintf(format, args...)
	if path != "" {
		t.resolved.broken = path + ": " + t.resolved.broken
	}
	if x.bad == "" {
		x.bad = t.resolved.broken
	}
	return t
}

func (x *resolver) resolve(w, r *avroType, path string) *avroType {
	key := [2]*avroType{w, r}
	if t := x.done[key]; t != nil {
		return t
	}
	t := &avroType{
		kind: w.kind, means: r.means, name: w.name, names: w.names, size: w.size, precision: r.precision, scale: r.scale,
		resolved: &resolution{reader: r},
	}
	x.done[key] = t
	if x.parts++; x.parts > 4*NodesMax {
		return x.misfit(t, path, "resolving it takes more than %d types", 4*NodesMax)
	}
	switch {
	case w.kind == avroUnion:
		for _, b := range w.of {
			was := x.bad
			x.bad = ""
			one := x.resolve(b, r, path)
			if x.bad != "" { // it matters only when a payload has it
				one = &avroType{kind: b.kind, resolved: &resolution{broken: x.bad}}
			}
			x.bad = was
			t.resolved.of = append(t.resolved.of, one)
		}
		return t
	case r.kind == avroUnion:
		branch := branchFor(w, r)
		if branch == nil {
			return x.misfit(t, path, "the union has no branch for a %s", w.name)
		}
		t.resolved.inner = x.resolve(w, branch, path)
		return t
	}
	if _, ok := fits(w, r); !ok {
		return x.misfit(t, path, "a %s can't be read as a %s", described(w), described(r))
	}
	if w.means == asDecimal && r.means == asDecimal && (w.scale != r.scale || w.precision > r.precision) {
		return x.misfit(t, path, "a decimal of %d digits, %d behind the point, can't be read as one of %d and %d", w.precision, w.scale, r.precision, r.scale)
	}
	switch w.kind {
	case avroArray, avroMap:
		t.items = x.resolve(w.items, r.items, path+"/*")
	case avroEnum:
		for _, s := range w.names {
			if _, known := r.symbols[s]; !known {
				s = r.fallback
			}
			t.resolved.symbols = append(t.resolved.symbols, s)
		}
	case avroRecord:
		x.record(t, w, r, path)
	}
	return t
}

func (x *resolver) record(t, w, r *avroType, path string) {
	t.fields = slices.Clone(w.fields)
	t.resolved.rest = make([]value.Value, len(r.fields))
	have := make([]bool, len(r.fields))
	for i, name := range w.names {
		slot := slices.Index(r.names, name)
		if slot < 0 {
			slot = slices.IndexFunc(r.fields, func(f avroField) bool { return slices.Contains(f.aliases, name) })
		}
		if slot >= 0 && have[slot] {
			slot = -1 // an alias of what is there itself
		}
		t.resolved.slots = append(t.resolved.slots, slot)
		if slot >= 0 {
			have[slot] = true
			t.fields[i].typ = x.resolve(w.fields[i].typ, r.fields[slot].typ, path+pointer(name, ""))
		}
	}
	for i, f := range r.fields {
		if have[i] {
			continue
		}
		if !f.optional {
			x.misfit(t, path+pointer(r.names[i], ""), "the writer has no such field, and it has no default")
			return
		}
		out := &avroWriter{steps: StepsMax}
		bad := out.value(f.typ, f.def, 0)
		if bad == nil {
			t.resolved.rest[i], bad = readAvro(f.typ, out.b)
		}
		if bad != nil {
			x.misfit(t, path+pointer(r.names[i], ""), "its default: %s", bad.Message)
			return
		}
	}
}

// branchFor returns the branch of a reader's union for a type that isn't a union: the
// first of the same type, else the first that it can be read as.
func branchFor(w, r *avroType) (found *avroType) {
	for _, b := range r.of {
		same, ok := fits(w, b)
		if same {
			return b
		}
		if ok && found == nil {
			found = b
		}
	}
	return found
}

// fits tells whether a type is the reader's, and whether it can be read as it.
func fits(w, r *avroType) (same, ok bool) {
	if w.kind == r.kind {
		switch w.kind {
		case avroRecord, avroEnum:
			ok = sameName(w, r)
		case avroFixed:
			ok = sameName(w, r) && w.size == r.size
		default:
			ok = true
		}
		return ok, ok
	}
	switch w.kind {
	case avroInt:
		ok = r.kind == avroLong || r.kind == avroFloat || r.kind == avroDouble
	case avroLong:
		ok = r.kind == avroFloat || r.kind == avroDouble
	case avroFloat:
		ok = r.kind == avroDouble
	case avroString:
		ok = r.kind == avroBytes
	case avroBytes:
		ok = r.kind == avroString
	}
	return false, ok
}

// sameName tells whether a writer's type has the reader's name, without its namespace, or one
// of its aliases.
func sameName(w, r *avroType) bool {
	_, name := splitLast(w.name)
	_, want := splitLast(r.name)
	return name == want || slices.ContainsFunc(r.aliases, func(a string) bool {
		_, last := splitLast(a)
		return last == name
	})
}

func described(t *avroType) string {
	switch t.kind {
	case avroRecord:
		return "record " + t.name
	case avroEnum:
		return "enum " + t.name
	case avroFixed:
		return fmt.Sprintf("fixed %s of %d bytes", t.name, t.size)
	}
	return t.name
}

// resolve reads what a writer wrote as a value of the reader's type.
func (r *avroReader) resolve(t *avroType, depth int) value.Value {
	x := t.resolved
	switch {
	case x.broken != "":
		return r.fail("%s", x.broken)
	case x.inner != nil:
		return r.value(x.inner, depth)
	}
	switch t.kind {
	case avroUnion:
		n := r.long()
		if n < 0 || n >= int64(len(x.of)) {
			return r.fail("there is no branch %d in the union", n)
		}
		return r.value(x.of[n], depth)
	case avroInt, avroLong:
		if x.reader.kind == avroFloat || x.reader.kind == avroDouble {
			n, _ := r.number(&avroType{kind: t.kind}).Int()
			if x.reader.kind == avroFloat {
				return value.OfDouble(float64(float32(n)))
			}
			return value.OfDouble(float64(n))
		}
	case avroString, avroBytes, avroFixed:
		return r.plain(x.reader, depth) // written in the same way
	case avroEnum:
		n := r.long()
		if n < 0 || n >= int64(len(t.names)) {
			return r.fail("there is no symbol %d in %s", n, t.name)
		}
		if x.symbols[n] == "" {
			return r.fail("%s is no symbol of the reader's %s, which has no default", t.names[n], x.reader.name)
		}
		return value.OfString(x.symbols[n])
	case avroRecord:
		if depth >= value.DepthMax {
			return r.fail("more than %d levels", value.DepthMax)
		}
		values := slices.Clone(x.rest)
		for i := range t.fields {
			v := r.at(t.names[i], t.fields[i].typ, depth)
			if r.bad != nil {
				return value.Value{}
			}
			if x.slots[i] >= 0 {
				values[x.slots[i]] = v
			}
		}
		return value.OfFields(x.reader.names, values)
	}
	return r.plain(t, depth)
}

// readWriters compiles the schemas of a JSON list and resolves them to this one.
func (s *avroSchema) readWriters(text string) (map[uint64]*avroType, *SourceError) {
	list, err := value.Parse([]byte(text), value.Options{})
	if err != nil || list.Kind() != value.List {
		return nil, &SourceError{Where: "/writers", Reason: "they are a list of schemas, which their fingerprints tell apart"}
	}
	if len(list.List()) > writersMax {
		return nil, &SourceError{Where: "/writers", Reason: fmt.Sprintf("%d of them, at most %d are allowed", len(list.List()), writersMax)}
	}
	all := map[uint64]*avroType{}
	for i, one := range list.List() {
		w, t, bad := s.writer(one, fmt.Sprintf("/writers/%d", i))
		if bad != nil {
			return nil, bad
		}
		all[binary.LittleEndian.Uint64(w.mark[2:])] = t
	}
	return all, nil
}

const writersMax = 100

// writer compiles one schema and resolves it to this one.
func (s *avroSchema) writer(v value.Value, where string) (*avroSchema, *avroType, *SourceError) {
	w, bad := compileAvroText(avroText(v))
	if bad != nil {
		return nil, nil, &SourceError{Where: where, Reason: bad.Reason}
	}
	t, why := resolveAvro(w.root, s.root)
	if why != "" {
		return nil, nil, &SourceError{Where: where, Reason: "what it writes can't be read by this schema: " + why}
	}
	return w, t, nil
}
