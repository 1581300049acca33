package readme

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// commands returns the lines of the first code block under a heading, without comments.
func commands(t *testing.T, heading string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	_, rest, opened := strings.Cut(rest, "```\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !opened || !closed {
		t.Fatalf("the README has no commands under %q", heading)
	}
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "  #")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// shell is a user's terminal: one bash that is given a line at a time.
type shell struct {
	t   *testing.T
	in  io.Writer
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *shell) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

func (s *shell) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func (s *shell) say(line string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shell) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.After(30 * time.Second); !ok(); {
		select {
		case <-end:
			s.t.Fatalf("%s: never; the terminal says\n%s", what, s.text())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestFromNothingToAFilteredDurableSubscriptionInFourCommands(t *testing.T) {
	lines := commands(t, "Four commands")
	if len(lines) != 4 {
		t.Fatalf("%d commands: %q", len(lines), lines)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED: no bash to run the README's commands with")
	}
	bin, path, port := t.TempDir(), t.TempDir(), harness.FreePort(t)
	// The first installs into a folder of the test's own.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, bash, "-c", lines[0])
	install.Dir, install.Env = "../..", append(os.Environ(), "GOBIN="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines[0], err, out)
	}
	// The rest as they stand, but that the port is free on this machine.
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s/brokerd -a 127.0.0.1 -p %d \"$@\"\n", bin, port)
	if err := os.WriteFile(filepath.Join(path, "brokerd"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	s := &shell{t: t}
	cmd := exec.Command(bash, "-m") // as at a terminal, with job control
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, s, s
	cmd.Env = append(os.Environ(), "HOME="+home, fmt.Sprintf("NATS_URL=nats://127.0.0.1:%d", port), "PATH="+path+":"+bin+":"+os.Getenv("PATH"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in = in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _ = io.WriteString(in, "kill $(jobs -p); wait\nexit\n")
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Log(err)
		}
	}()
	s.say(lines[1])
	s.until("the broker is there", func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	s.say(lines[2])
	s.until("the message is stored", func() bool { return strings.Contains(s.text(), "stored 1 message") })
	// A user would interrupt it: here it goes to the background, and is killed.
	s.say(lines[3] + " & last=$!")
	s.until("the message is there", func() bool { return strings.Contains(s.text(), `{"amount":120}`) })
	s.say("kill -INT $last; wait $last; echo ended")
	s.until("it has ended", func() bool { return strings.Contains(s.text(), "ended") })
	// Its place is kept, and its filter: the same command again goes on.
	for _, amount := range []int{7, 300} {
		s.say(strings.Replace(lines[2], "120", fmt.Sprint(amount), 1))
	}
	s.say(lines[3] + " & last=$!")
	s.until("what came meanwhile", func() bool { return strings.Contains(s.text(), `{"amount":300}`) })
	if text := s.text(); strings.Contains(text, `{"amount":7}`) || strings.Count(text, `{"amount":120}`) != 1 {
		t.Errorf("the terminal says\n%s", text)
	}
}
