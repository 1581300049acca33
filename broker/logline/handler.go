// Package logline writes log/slog records as the lines that operators of
// nats-server, and test suites, know:
//
//	[4242] 2026/11/30 12:00:00.123456 [INF] Server is ready
//
// Attributes follow the text as key=value. The same records can be written as
// JSON or logfmt instead. File is the file they may go to: it can be reopened
// after an outside rotation, and rotates itself by size.
package logline

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Levels beside slog's own.
const (
	LevelTrace = slog.Level(-8) // the protocol, line by line
	LevelFatal = slog.Level(12) // the process ends after this
)

// Options say how lines look. The zero value writes text without the time, from
// info up.
type Options struct {
	Format string        // "text" (or ""), "json", "logfmt"
	Time   bool          // text lines carry the time; the other forms always do
	UTC    bool          // in UTC rather than local time
	Level  slog.Leveler  // nil is info
	PID    int           // 0 is this process
	Now    func() string // for tests: the time as printed
}

// New returns a handler that writes to w, one Write per line.
func New(w io.Writer, o Options) slog.Handler {
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	switch o.Format {
	case "json":
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: o.Level, ReplaceAttr: o.replace})
	case "logfmt":
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: o.Level, ReplaceAttr: o.replace})
	}
	pid := o.PID
	if pid == 0 {
		pid = os.Getpid()
	}
	return &lines{w: w, o: o, prefix: "[" + strconv.Itoa(pid) + "] ", mu: new(sync.Mutex)}
}

// Name returns a level's three letters.
func Name(l slog.Level) string {
	switch {
	case l >= LevelFatal:
		return "FTL"
	case l >= slog.LevelError:
		return "ERR"
	case l >= slog.LevelWarn:
		return "WRN"
	case l >= slog.LevelInfo:
		return "INF"
	case l >= slog.LevelDebug:
		return "DBG"
	}
	return "TRC"
}

// replace gives JSON and logfmt Herald's level names.
func (o Options) replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		if l, ok := a.Value.Any().(slog.Level); ok {
			names := map[string]string{"FTL": "fatal", "ERR": "error", "WRN": "warn", "INF": "info", "DBG": "debug", "TRC": "trace"}
			a.Value = slog.StringValue(names[Name(l)])
		}
	case slog.TimeKey:
		if o.UTC {
			a.Value = slog.TimeValue(a.Value.Time().UTC())
		}
	}
	return a
}

// lines is the handler of the text form.
type lines struct {
	w      io.Writer
	o      Options
	prefix string // "[pid] "
	attrs  string // " key=value" of With
	group  string // "group." of WithGroup
	mu     *sync.Mutex
}

func (h *lines) Enabled(_ context.Context, l slog.Level) bool { return l >= h.o.Level.Level() }

func (h *lines) Handle(_ context.Context, r slog.Record) error {
	b := make([]byte, 0, 160)
	b = append(b, h.prefix...)
	if h.o.Time {
		if h.o.Now != nil {
			b = append(b, h.o.Now()...)
		} else {
			t := r.Time
			if h.o.UTC {
				t = t.UTC()
			}
			b = t.AppendFormat(b, "2006/01/02 15:04:05.000000")
		}
		b = append(b, ' ')
	}
	b = append(b, '[')
	b = append(b, Name(r.Level)...)
	b = append(b, "] "...)
	b = append(b, oneLine(r.Message)...)
	b = append(b, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		b = appendAttr(b, h.group, a)
		return true
	})
	b = append(b, '\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.w.Write(b)
	return err
}

func (h *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	b := []byte(h.attrs)
	for _, a := range attrs {
		b = appendAttr(b, h.group, a)
	}
	c.attrs = string(b)
	return &c
}

func (h *lines) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.group += name + "."
	}
	return &c
}

func appendAttr(b []byte, group string, a slog.Attr) []byte {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, c := range v.Group() {
			b = appendAttr(b, group, c)
		}
		return b
	}
	if a.Key == "" {
		return b
	}
	b = append(b, ' ')
	b = append(b, group...)
	b = append(b, a.Key...)
	b = append(b, '=')
	s := v.String()
	if v.Kind() == slog.KindTime {
		s = v.Time().Format(time.RFC3339Nano)
	}
	if s == "" || strings.ContainsAny(s, " \t\r\n\"=") {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

// oneLine keeps a text that holds line breaks, perhaps a client's, from looking
// like more than one record.
func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(s)
}
