package topics

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// each calls f with copies of a value in each of which one field is set, and with one in
// which all are.
func each[T any](t *testing.T, f func(name string, v *T)) {
	t.Helper()
	all := new(T)
	for i := range reflect.TypeFor[T]().NumField() {
		v := new(T)
		fill(t, reflect.ValueOf(v).Elem().Field(i), 3)
		fill(t, reflect.ValueOf(all).Elem().Field(i), 3)
		f(reflect.TypeFor[T]().Field(i).Name, v)
	}
	f("all", all)
}

// fill gives a value something that is not zero, in all its parts.
func fill(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 11, 30, 1, 2, n, 4567, time.UTC)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d é", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(-n * 1000003))
	case reflect.Uint64:
		v.SetUint(1<<63 + uint64(n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n+1)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"": "empty", "b": "", "a": "x"}))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n+i)
		}
	default:
		t.Fatalf("a field of kind %s: teach this test", v.Kind())
	}
}

// TestConfigsComeBack also fails when a field is added and the codec does not know it.
func TestConfigsComeBack(t *testing.T) {
	each(t, func(name string, c *Config) {
		b, err := AppendConfig([]byte("x"), c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseConfig(b[1:]); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c)
		}
		old, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseConfig(old); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s, from JSON: %+v, %v; want %+v", name, got, err, c)
		}
	})
}

// TestConfigsOfOtherVersionsAreRefused holds for what is cut short, too.
func TestConfigsOfOtherVersionsAreRefused(t *testing.T) {
	good, err := AppendConfig(nil, &Config{Name: "T", Subjects: []string{"a", "b"}, Metadata: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"empty": {}, "a later version": append([]byte{2}, good[1:]...), "an unknown field": append(good[:len(good):len(good)], 250, 1, 7),
		"a number where a text belongs": {1, byte(tagName << 1), 5}, "a key without a value": {1, byte(tagMetadataKey<<1 | 1), 1, 'k'},
		"a value without a key": {1, byte(tagMetadataValue<<1 | 1), 1, 'v'}, "bad JSON": []byte("{"),
		"a bad part": {1, byte(tagMirror<<1 | 1), 1, '{'}, "cut": good[:len(good)-1],
	} {
		if c, err := ParseConfig(b); !errors.Is(err, ErrBadEntry) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// FuzzConfig parses anything; what is accepted is the same after another round, and as
// JSON.
func FuzzConfig(f *testing.F) {
	for _, c := range []Config{{}, {Name: "T", Subjects: []string{"a.>", ""}, MaxAge: time.Hour, Metadata: map[string]string{"a": "b"}}} {
		b, err := AppendConfig(nil, &c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"name":"T","sources":[{"name":"S"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b)
		if err != nil {
			return
		}
		b, err = AppendConfig(nil, c)
		if err != nil {
			t.Skip(err) // a time that has no text
		}
		next, err := ParseConfig(b)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		x, errX := json.Marshal(c)
		y, errY := json.Marshal(next)
		if errX != nil || errY != nil || string(x) != string(y) {
			t.Fatalf("%s\n%s, %v, %v", x, y, errX, errY)
		}
	})
}
