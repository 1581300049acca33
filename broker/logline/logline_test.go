package logline

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTextLine(t *testing.T) {
	var b bytes.Buffer
	l := slog.New(New(&b, Options{Time: true, Level: LevelTrace, PID: 42}))
	for level, want := range map[slog.Level]string{
		LevelTrace: "TRC", slog.LevelDebug: "DBG", slog.LevelInfo: "INF", slog.LevelWarn: "WRN", slog.LevelError: "ERR", LevelFatal: "FTL",
	} {
		b.Reset()
		l.Log(context.Background(), level, "Server is ready")
		re := regexp.MustCompile(`^\[42\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[` + want + `\] Server is ready\n$`)
		if !re.Match(b.Bytes()) {
			t.Errorf("%v: %q", level, b.String())
		}
	}
	b.Reset()
	l.With("client", "a b").WithGroup("g").Info("refused", "cid", 7, "why", "")
	if got, want := b.String(), `] refused client="a b" g.cid=7 g.why=""`+"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end in %q", got, want)
	}
	b.Reset()
	l.Info("a\nb\r", "k", "x\ny")
	if got := b.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("a text with line breaks became more than one line: %q", got)
	}
}

func TestLevels(t *testing.T) {
	var b bytes.Buffer
	l := slog.New(New(&b, Options{}))
	l.Debug("no")
	l.Info("yes")
	if got := b.String(); !strings.HasSuffix(got, "] [INF] yes\n") || strings.Contains(got, "no") {
		t.Errorf("%q", got)
	}
}

func TestOtherForms(t *testing.T) {
	var b bytes.Buffer
	slog.New(New(&b, Options{Format: "json"})).Log(context.Background(), LevelFatal, "gone", "cid", 7)
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["level"] != "fatal" || got["msg"] != "gone" || got["cid"] != 7.0 {
		t.Errorf("json %q: %v", b.String(), err)
	}
	b.Reset()
	slog.New(New(&b, Options{Format: "logfmt"})).Info("two words", "cid", 7)
	if got := b.String(); !strings.Contains(got, `level=info msg="two words" cid=7`) {
		t.Errorf("logfmt %q", got)
	}
}

func TestFileReopensAndRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := OpenFile(path, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	write := func(s string) {
		t.Helper()
		if _, err := f.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	write("two\n")
	if b, err := os.ReadFile(path); err != nil || string(b) != "two\n" {
		t.Errorf("after reopening: %q, %v", b, err)
	}
	f.SetLimits(10, 2)
	for range 5 {
		write("0123456789\n")
	}
	rotated, err := filepath.Glob(path + ".2*")
	if err != nil || len(rotated) != 2 {
		t.Errorf("rotated files %q, want 2 (%v)", rotated, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("late")); err == nil {
		t.Error("a closed file took a line")
	}
}
