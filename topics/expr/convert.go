package expr

import (
	"fmt"
	"reflect"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/heraldmq/herald/topics/value"
)

// adapter lets CEL work on values; the rest is CEL's own adapter's.
type adapter struct{}

func (adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case value.Value:
		return fromValue(v)
	case ref.Val:
		return v
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

// fromValue returns a value as CEL sees it. Objects and lists aren't copied.
func fromValue(v value.Value) ref.Val {
	switch v.Kind() {
	case value.Bool:
		return types.Bool(v.Bool())
	case value.Int:
		i, _ := v.Int()
		return types.Int(i)
	case value.Uint:
		u, _ := v.Uint()
		return types.Uint(u)
	case value.Double:
		f, _ := v.Double()
		return types.Double(f)
	case value.Decimal:
		d, _ := v.Decimal()
		return decimal{d}
	case value.String:
		return types.String(v.Str())
	case value.Bytes:
		return types.Bytes(v.Str())
	case value.Time:
		ns, _ := v.Nanos()
		return types.Timestamp{Time: time.Unix(0, ns).UTC()}
	case value.Duration:
		ns, _ := v.Nanos()
		return types.Duration{Duration: time.Duration(ns)}
	case value.List:
		return types.NewDynamicList(adapter{}, v.List())
	case value.Object:
		return object{v}
	}
	return types.NullValue
}

// toValue is the way back.
func toValue(v ref.Val) (value.Value, error) {
	switch v := v.(type) {
	case object:
		return v.v, nil
	case decimal:
		return value.OfDecimal(v.d), nil
	case types.Bool:
		return value.OfBool(bool(v)), nil
	case types.Int:
		return value.OfInt(int64(v)), nil
	case types.Uint:
		return value.OfUint(uint64(v)), nil
	case types.Double:
		return value.OfDouble(float64(v)), nil
	case types.String:
		return value.OfString(string(v)), nil
	case types.Bytes:
		return value.OfBytes(v), nil
	case types.Timestamp:
		return value.OfTime(v.Time), nil
	case types.Duration:
		return value.OfDuration(v.Duration), nil
	case types.Null:
		return value.Value{}, nil
	case *types.Optional:
		if !v.HasValue() {
			return value.Value{}, nil
		}
		return toValue(v.GetValue())
	case traits.Mapper:
		return toObject(v)
	case traits.Lister:
		items := []value.Value{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := toValue(it.Next())
			if err != nil {
				return value.Value{}, err
			}
			items = append(items, item)
		}
		return value.OfList(items), nil
	}
	return value.Value{}, fmt.Errorf("a message can't hold a %s", v.Type().TypeName())
}

// toObject returns a map as an object with its fields by name: CEL's maps have no
// order, and every node has to write the same bytes.
func toObject(m traits.Mapper) (value.Value, error) {
	var list []value.Field
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		name, ok := k.(types.String)
		if !ok {
			return value.Value{}, fmt.Errorf("an object's field is named by a %s, not a string", k.Type().TypeName())
		}
		field, err := toValue(m.Get(k))
		if err != nil {
			return value.Value{}, fmt.Errorf("field %q: %w", string(name), err)
		}
		list = append(list, value.Field{Name: string(name), Value: field})
	}
	v := value.OfObject(list...)
	sorted := make([]value.Field, 0, len(list))
	for _, name := range v.SortKeys() {
		field, _ := v.Get(name)
		sorted = append(sorted, value.Field{Name: name, Value: field})
	}
	return value.OfObject(sorted...), nil
}

// object is an object as CEL's map.
type object struct{ v value.Value }

var _ traits.Mapper = object{}

func (o object) ConvertToNative(t reflect.Type) (any, error) {
	if t == reflect.TypeFor[value.Value]() {
		return o.v, nil
	}
	return nil, fmt.Errorf("an object can't become a %v", t)
}

func (o object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("an object can't become a %s", t.TypeName())
}

func (o object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok || m.Size() != o.Size() {
		return types.False
	}
	for i := range o.v.Len() {
		f := o.v.Field(i)
		theirs, found := m.Find(types.String(f.Name))
		if !found || types.Equal(fromValue(f.Value), theirs) != types.True {
			return types.False
		}
	}
	return types.True
}

func (o object) Type() ref.Type { return types.MapType }
func (o object) Value() any     { return o.v }

func (o object) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}

func (o object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	f, ok := o.v.Get(string(name))
	if !ok {
		return nil, false
	}
	return fromValue(f), true
}

func (o object) Get(key ref.Val) ref.Val {
	if f, ok := o.Find(key); ok {
		return f
	}
	return types.NewErr("no such key: %v", key.Value())
}

func (o object) Size() ref.Val { return types.Int(o.v.Len()) }

func (o object) Iterator() traits.Iterator { return &fieldNames{o: o} }

type fieldNames struct {
	types.Null // of what an iterator has to have as a value, nothing makes sense
	o          object
	i          int
}

func (f *fieldNames) HasNext() ref.Val { return types.Bool(f.i < f.o.v.Len()) }

func (f *fieldNames) Next() ref.Val {
	if f.i >= f.o.v.Len() {
		return nil
	}
	f.i++
	return types.String(f.o.v.Field(f.i - 1).Name)
}
