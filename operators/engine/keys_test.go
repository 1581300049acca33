package engine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/value"
)

// A state's key is shown by its parts, whatever is in them, and also where a step works by
// no key and its name is as long as a key's tag is high.
func TestKeysOfStateAreTakenApart(t *testing.T) {
	keys := [][]byte{
		nil,
		value.AppendKey(nil, value.OfString("a\x00b")),
		value.AppendKey(nil, value.OfInt(-7)),
		value.AppendKey(nil, value.Value{}),
		value.AppendKey(nil, value.OfList([]value.Value{value.OfString("us"), value.OfBool(true)})),
		value.AppendKey(nil, value.OfObject(value.Field{Name: "n", Value: value.OfInt(1)})),
	}
	for _, key := range keys {
		for _, name := range []string{"w", "windows", strings.Repeat("n", 8), strings.Repeat("n", 16), strings.Repeat("n", 17)} {
			for _, sub := range []string{"", "\x00\x01", "first", "\x20\x00\x00\x00\x00\x00\x00\x00\x00x"} {
				b := appendStateKey(nil, 513, key, name, []byte(sub))
				k, ok := ParseStateKey(b)
				if !ok || k.Node != 513 || !bytes.Equal(k.Key, key) || k.Name != name || string(k.Sub) != sub {
					t.Errorf("%x, %q, %q: %+v, %v", key, name, sub, k, ok)
				}
			}
		}
	}
	for _, b := range [][]byte{nil, []byte("s"), metaClock, {spaceState, 0, 0, 0, 1}, {spaceState, 0, 0, 0, 1, 9, 'a'}} {
		if k, ok := ParseStateKey(b); ok {
			t.Errorf("%x is no key of a state: %+v", b, k)
		}
	}
}
