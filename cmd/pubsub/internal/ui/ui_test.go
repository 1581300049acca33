package ui

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
)

// screen is a printer that believes in a terminal.
func screen(width int, colour bool) (*Printer, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	return &Printer{Out: &out, Err: &errs, Format: Table, outTTY: true, errTTY: true, width: width, colour: colour}, &out, &errs
}

func rows() Rows {
	return Rows{Columns: []string{"name", "n", "text"}, Right: []bool{false, true}, Empty: "none", Cells: [][]string{
		{"a", "1", "short"}, {"bcd", "1,000", "a text that is longer than the screen is wide, by far"},
	}}
}

func TestTablesFitTheScreen(t *testing.T) {
	p, out, _ := screen(40, false)
	if err := p.List(nil, rows()); err != nil {
		t.Fatal(err)
	}
	want := "NAME      N  TEXT\na         1  short\nbcd   1,000  a text that is longer than…\n"
	if out.String() != want {
		t.Errorf("%q\nwant %q", out, want)
	}
}

func TestTablesAreWholeOffATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Out: &out, Err: &out, Format: Table, width: 10}
	if err := p.List(nil, rows()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "by far") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

func TestColourOnlyWhereItIsWanted(t *testing.T) {
	for _, c := range []struct {
		env      map[string]string
		noColour bool
		want     bool
	}{
		{nil, false, true}, {map[string]string{"NO_COLOR": "1"}, false, false}, {map[string]string{"TERM": "dumb"}, false, false}, {nil, true, false},
	} {
		p, out, _ := screen(0, false)
		p.Detect(func(name string) string { return c.env[name] }, c.noColour)
		if p.outTTY {
			t.Fatal("a buffer is no terminal")
		}
		p.outTTY = true
		if err := p.Item(nil, [][2]string{{"a", "b"}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "\x1b["); got != c.want {
			t.Errorf("%+v: %q", c, out)
		}
	}
}

func TestProgressIsForTerminals(t *testing.T) {
	p, _, errs := screen(80, true)
	g := p.Progress("done", 10)
	g.Set(3)
	g.Done()
	if !strings.Contains(errs.String(), "done 3 of 10") || !strings.HasSuffix(errs.String(), "\r\x1b[K") {
		t.Errorf("%q", errs)
	}
	p, _, errs = screen(80, true)
	p.errTTY = false
	g = p.Progress("done", 10)
	g.Set(3)
	g.Done()
	if errs.Len() > 0 {
		t.Errorf("%q", errs)
	}
}

func TestNothingInATableIsANote(t *testing.T) {
	p, out, errs := screen(80, false)
	if err := p.List(nil, Rows{Columns: []string{"a"}, Empty: "nothing here"}); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 || errs.String() != "nothing here\n" {
		t.Errorf("%q %q", out, errs)
	}
}

// Whatever is received, a table line is one line and can't move the cursor.
func TestCleanTextIsHarmless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		out := Clean(in)
		if !utf8.ValidString(out) || strings.IndexFunc(out, unprintable) >= 0 {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestAFailedWriteIsAnError(t *testing.T) {
	p := &Printer{Out: broken{}, Err: &bytes.Buffer{}}
	for _, f := range []Format{Table, JSON, NDJSON, Raw, Hex, CSV} {
		p.Format = f
		if err := p.Messages(p.Out).Print(record.Message{Subject: "a"}); err == nil {
			t.Errorf("%s: no error", f)
		}
	}
}

func TestQuantities(t *testing.T) {
	for got, want := range map[string]string{
		Count(0): "0", Count(999): "999", Count(1000): "1,000", Count(-1234567): "-1,234,567",
		Bytes(0): "0 B", Bytes(1536): "1.5 KiB", Bytes(int64(3) << 40): "3.0 TiB",
		Duration(48 * time.Hour): "2d", Duration(90 * time.Minute): "1h30m0s", Duration(0): "0s",
		Since(time.Time{}, time.Now()): "never", Cut("abcdef", 4): "abc…", Cut("abc", 0): "abc",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
