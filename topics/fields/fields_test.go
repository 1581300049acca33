package fields

import (
	"math"
	"testing"
)

func TestFieldsComeBack(t *testing.T) {
	var b []byte
	b = Uint(b, 1, 0) // not there
	b = Uint(b, 1, math.MaxUint64)
	b = Int(b, 2, math.MinInt64)
	b = Int(b, 200, 77)
	b = Bool(b, 3, false) // not there
	b = Bool(b, 3, true)
	b = Text(b, 4, "") // not there
	b = Item(b, 4, "")
	b = Item(b, 255, []byte("é"))
	for n := range len(b) + 1 {
		r := Read(b[:n])
		var seen []Tag
		for r.Next() {
			seen = append(seen, r.Tag())
			switch r.Tag() {
			case 1:
				check(t, r.Uint() == math.MaxUint64, 1)
			case 2:
				check(t, r.Int() == math.MinInt64, 2)
			case 200:
				check(t, r.Int() == 77, 200)
			case 3:
				check(t, r.Bool(), 3)
			case 4:
				check(t, r.Text() == "", 4)
			case 255:
				check(t, r.Text() == "é", 255)
			default:
				t.Fatalf("tag %d", r.Tag())
			}
		}
		if n == len(b) && (r.Err() != nil || len(seen) != 6) {
			t.Errorf("the whole: %v, %v", seen, r.Err())
		}
		if r.Err() == nil && len(seen) == 6 && n < len(b) {
			t.Errorf("cut at %d: nothing is missing", n)
		}
	}
}

func check(t *testing.T, ok bool, tag Tag) {
	t.Helper()
	if !ok {
		t.Errorf("field %d came back as another", tag)
	}
}

func TestAFieldOfAnotherKindIsBad(t *testing.T) {
	for what, read := range map[string]func(*Reader){
		"a number as bytes": func(r *Reader) { r.Next(); r.Bytes() },
		"bytes as a number": func(r *Reader) { r.Next(); r.Next(); r.Uint() },
		"unknown":           func(r *Reader) { r.Next(); r.Unknown() },
	} {
		r := Read(Item(Uint(nil, 1, 5), 2, "x"))
		if read(&r); r.Err() == nil || r.Next() {
			t.Errorf("%s: nobody minds", what)
		}
	}
}
