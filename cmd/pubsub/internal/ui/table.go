package ui

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table prints aligned columns without lines. On a terminal the last column is
// cut so that a row is one line.
func (p *Printer) table(rows Rows) error {
	wide := make([]int, len(rows.Columns))
	for i, name := range rows.Columns {
		wide[i] = utf8.RuneCountInString(name)
	}
	cells := make([][]string, len(rows.Cells))
	for r, row := range rows.Cells {
		cells[r] = make([]string, len(row))
		for i, cell := range row {
			cells[r][i] = clean(cell)
			wide[i] = max(wide[i], utf8.RuneCountInString(cells[r][i]))
		}
	}
	var b strings.Builder
	line := func(row []string, paint func(string) string) {
		var l strings.Builder
		for i, cell := range row {
			right := i < len(rows.Right) && rows.Right[i]
			if i == len(row)-1 && !right {
				l.WriteString(cell)
				break
			}
			l.WriteString(pad(cell, wide[i], right))
			if i < len(row)-1 {
				l.WriteString("  ")
			}
		}
		text := strings.TrimRight(l.String(), " ")
		if p.outTTY {
			text = Cut(text, p.width)
		}
		b.WriteString(paint(text))
		b.WriteByte('\n')
	}
	header := make([]string, len(rows.Columns))
	for i, name := range rows.Columns {
		header[i] = strings.ToUpper(name)
	}
	line(header, p.Dim)
	for _, row := range cells {
		line(row, func(s string) string { return s })
	}
	_, err := fmt.Fprint(p.Out, b.String())
	return err
}

func pad(s string, wide int, right bool) string {
	gap := strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(s)))
	if right {
		return gap + s
	}
	return s + gap
}

// Cut shortens s to a width in characters, showing that it did; width 0 is
// unlimited.
func Cut(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(0, width-1)]) + "…"
}

// clean makes text safe for a table: what could move the cursor or break the
// line is shown escaped.
func clean(s string) string {
	ok := utf8.ValidString(s) && strings.IndexFunc(s, unprintable) < 0
	if ok {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unprintable(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Clean is clean for other packages.
func Clean(s string) string { return clean(s) }
