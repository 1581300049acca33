// Package ui is the one place that decides how pubsub looks: which stream a line
// goes to, whether there is colour, how a table fits, and what each output
// format means. Commands hand it values; they never print.
//
// Data goes to Out, everything else (notes, warnings, progress, prompts) to Err.
// Off a terminal there is no colour, no cut-off text, no progress and no prompt.
package ui

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"golang.org/x/term"
)

// Format is an output format, as given to -o.
type Format string

// The formats.
const (
	Table  Format = "table"
	JSON   Format = "json"
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
	Raw    Format = "raw"
	Hex    Format = "hex"
)

// Formats lists them all, for help and completion.
func Formats() []string { return []string{"table", "json", "ndjson", "csv", "raw", "hex"} }

// ParseFormat reads the value of -o.
func ParseFormat(s string) (Format, error) {
	if !slices.Contains(Formats(), s) {
		return "", fmt.Errorf("unknown output format %q; it is one of %s", s, strings.Join(Formats(), ", "))
	}
	return Format(s), nil
}

// ErrHex is returned where -o hex has nothing to show the bytes of.
var ErrHex = errors.New("-o hex is for messages; use table, json, ndjson, csv or raw")

// Printer prints for one command.
type Printer struct {
	Out, Err io.Writer
	Format   Format
	Template *template.Template // replaces Format when set
	Quiet    bool               // no notes
	Verbose  int

	outTTY, errTTY bool
	colour         bool
	width          int
}

// Detect finds out about the terminal. noColour is --no-color; NO_COLOR and
// TERM=dumb count too.
func (p *Printer) Detect(getenv func(string) string, noColour bool) {
	p.outTTY, p.width = terminal(p.Out)
	p.errTTY, _ = terminal(p.Err)
	p.colour = !noColour && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

func terminal(w io.Writer) (bool, int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return true, 0
	}
	return true, width
}

// OutTTY tells whether data goes to a terminal.
func (p *Printer) OutTTY() bool { return p.outTTY }

// ErrTTY tells whether notes go to a terminal, so that progress makes sense.
func (p *Printer) ErrTTY() bool { return p.errTTY && !p.Quiet }

// ParseTemplate compiles --template.
func ParseTemplate(text string) (*template.Template, error) {
	t, err := template.New("--template").Option("missingkey=zero").Funcs(template.FuncMap{
		"json": func(v any) (string, error) {
			b, err := marshal(v)
			return string(b), err
		},
		"upper": strings.ToUpper, "lower": strings.ToLower, "join": strings.Join,
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--template: %w", err)
	}
	return t, nil
}

// Note tells the user something that is not data.
func (p *Printer) Note(format string, args ...any) {
	if !p.Quiet {
		fmt.Fprintf(p.Err, format+"\n", args...)
	}
}

// Debug is a note for -v.
func (p *Printer) Debug(format string, args ...any) {
	if p.Verbose > 0 {
		fmt.Fprintf(p.Err, format+"\n", args...)
	}
}

// Warn is a note that -q does not silence.
func (p *Printer) Warn(format string, args ...any) {
	fmt.Fprintf(p.Err, p.Paint(p.errTTY, "33", "warning: ")+format+"\n", args...)
}

// Paint colours s for a stream that is a terminal.
func (p *Printer) Paint(tty bool, code, s string) string {
	if !tty || !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Dim is Paint for less important data.
func (p *Printer) Dim(s string) string { return p.Paint(p.outTTY, "2", s) }

// Bold is Paint for names.
func (p *Printer) Bold(s string) string { return p.Paint(p.outTTY, "1", s) }

// Rows is the table form of a list.
type Rows struct {
	Columns []string
	Cells   [][]string
	Right   []bool // columns of numbers; may be shorter than Columns
	Empty   string // note for a person when there are none
}

// List prints items: rows for people, items themselves for programs. Items is a
// slice; nothing is [] in JSON and no line in the other formats.
func (p *Printer) List(items []any, rows Rows) error {
	if p.Template != nil {
		for _, item := range items {
			if err := p.execute(item); err != nil {
				return err
			}
		}
		return nil
	}
	switch p.Format {
	case JSON:
		if items == nil {
			items = []any{}
		}
		return p.json(items, true)
	case NDJSON:
		for _, item := range items {
			if err := p.json(item, false); err != nil {
				return err
			}
		}
		return nil
	case CSV:
		w := csv.NewWriter(p.Out)
		return errors.Join(w.Write(lower(rows.Columns)), w.WriteAll(plain(rows.Cells)))
	case Raw:
		for _, row := range rows.Cells {
			if _, err := fmt.Fprintln(p.Out, row[0]); err != nil {
				return err
			}
		}
		return nil
	case Hex:
		return ErrHex
	}
	if len(rows.Cells) == 0 {
		p.Note("%s", rows.Empty)
		return nil
	}
	return p.table(rows)
}

var grouped = regexp.MustCompile(`^-?\d{1,3}(,\d{3})+$`)

// plain writes numbers as programs read them.
func plain(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			if grouped.MatchString(row[i]) {
				row[i] = strings.ReplaceAll(row[i], ",", "")
			}
		}
	}
	return rows
}

// Item prints one thing: pairs for people, v for programs.
func (p *Printer) Item(v any, pairs [][2]string) error {
	if p.Template != nil {
		return p.execute(v)
	}
	switch p.Format {
	case JSON:
		return p.json(v, true)
	case NDJSON:
		return p.json(v, false)
	case CSV:
		w := csv.NewWriter(p.Out)
		names, values := make([]string, len(pairs)), make([]string, len(pairs))
		for i, pair := range pairs {
			names[i], values[i] = pair[0], pair[1]
		}
		return errors.Join(w.Write(lower(names)), w.WriteAll(plain([][]string{values})))
	case Hex:
		return ErrHex
	}
	wide := 0
	for _, pair := range pairs {
		wide = max(wide, utf8.RuneCountInString(pair[0]))
	}
	for _, pair := range pairs {
		if _, err := fmt.Fprintf(p.Out, "%s  %s\n", p.Dim(pad(pair[0], wide, false)), clean(pair[1])); err != nil {
			return err
		}
	}
	return nil
}

func (p *Printer) json(v any, indent bool) error {
	enc := json.NewEncoder(p.Out)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// Execute applies the template to v, with a newline after it.
func (p *Printer) execute(v any) error {
	data, err := Generic(v)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := p.Template.Execute(&line, data); err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	line.WriteByte('\n')
	_, err = p.Out.Write(line.Bytes())
	return err
}

// Execute prints one line by the template; v is used by its JSON names.
func (p *Printer) Execute(v any) error { return p.execute(v) }

// Generic turns v into what its JSON says, so that templates use those names.
func Generic(v any) (any, error) {
	b, err := marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var data any
	err = dec.Decode(&data)
	return data, err
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

func lower(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.ReplaceAll(strings.ToLower(name), " ", "_")
	}
	return out
}

// IsTerminal tells whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
