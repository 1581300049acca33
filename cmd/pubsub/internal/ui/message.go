package ui

import (
	"bytes"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
)

// Messages prints a stream of messages in the printer's format. It is used by
// one goroutine.
type Messages struct {
	p     *Printer
	out   io.Writer
	count int
	line  []byte
}

// Messages starts a stream; Close ends it. Nothing printed is [] in JSON.
func (p *Printer) Messages(out io.Writer) *Messages { return &Messages{p: p, out: out} }

// Print prints one message.
func (s *Messages) Print(m record.Message) error {
	first := s.count == 0
	s.count++
	if s.p.Template != nil {
		return s.template(m)
	}
	var err error
	s.line = s.line[:0]
	switch s.p.Format {
	case JSON:
		if first {
			s.line = append(s.line, "[\n  "...)
		} else {
			s.line = append(s.line, ",\n  "...)
		}
		s.line, err = record.Append(s.line, m)
	case NDJSON:
		s.line, err = record.Append(s.line, m)
		s.line = append(s.line, '\n')
	case Raw:
		s.line = append(append(s.line, m.Payload...), '\n')
	case Hex:
		s.line = fmt.Appendf(s.line, "%s\n%s", s.head(m), hex.Dump(m.Payload))
	case CSV:
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		if first {
			err = w.Write([]string{"subject", "reply", "topic", "sequence", "time", "payload"})
		}
		if err == nil {
			err = w.WriteAll([][]string{{m.Subject, m.Reply, m.Topic, number(m.Sequence), stamp(m.Time), string(m.Payload)}})
		}
		s.line = b.Bytes()
	default:
		s.line = append(s.line, s.head(m)...)
		body := clean(string(m.Payload))
		if s.p.outTTY && s.p.width > 40 {
			body = Cut(body, 4*s.p.width)
		}
		s.line = append(append(append(s.line, "  "...), body...), '\n')
	}
	if err != nil {
		return err
	}
	_, err = s.out.Write(s.line)
	return err
}

// Count is how many messages were printed.
func (s *Messages) Count() int { return s.count }

// Close ends the stream.
func (s *Messages) Close() error {
	if s.p.Format != JSON || s.p.Template != nil {
		return nil
	}
	text := "\n]\n"
	if s.count == 0 {
		text = "[]\n"
	}
	_, err := io.WriteString(s.out, text)
	return err
}

// head is the line that says which message it is.
func (s *Messages) head(m record.Message) string {
	var b strings.Builder
	if m.Sequence != 0 {
		b.WriteString(s.p.Dim(fmt.Sprintf("%d %s ", m.Sequence, m.Time.Format("2006-01-02T15:04:05.000Z07:00"))))
	}
	b.WriteString(s.p.Bold(clean(m.Subject)))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		for _, value := range m.Headers[name] {
			b.WriteString(s.p.Dim(" " + clean(name) + "=" + clean(value)))
		}
	}
	if m.Delivered > 1 {
		b.WriteString(s.p.Dim(fmt.Sprintf(" (delivery %d)", m.Delivered)))
	}
	return b.String()
}

func (s *Messages) template(m record.Message) error {
	view := map[string]any{
		"subject": m.Subject, "reply": m.Reply, "headers": m.Headers, "payload": string(m.Payload),
		"topic": m.Topic, "sequence": m.Sequence, "time": stamp(m.Time), "delivered": m.Delivered, "size": len(m.Payload),
	}
	if record.IsCompactJSON(m.Payload) || isJSON(m.Payload) {
		if v, err := Generic(rawJSON(m.Payload)); err == nil {
			view["json"] = v
		}
	}
	var line bytes.Buffer
	if err := s.p.Template.Execute(&line, view); err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	line.WriteByte('\n')
	_, err := s.out.Write(line.Bytes())
	return err
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
