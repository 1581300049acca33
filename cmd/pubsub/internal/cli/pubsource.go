package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
	"github.com/heraldmq/herald/cmd/pubsub/internal/vault"
	"github.com/heraldmq/herald/topics/subject"
)

// lineMax bounds one line of ndjson input: a 64 MiB payload in base64 and some.
const lineMax = 96 << 20

// source yields the messages to publish; it returns io.EOF after the last.
type source func() (record.Message, error)

// pubSource builds the source that the arguments describe.
func (a *app) pubSource(cmd *cobra.Command, args []string, f pubFlags) (source, func(), error) {
	done := func() {}
	if err := f.check(cmd, args); err != nil {
		return nil, done, err
	}
	headers, err := parseHeaders(f.headers)
	if err != nil {
		return nil, done, usage(cmd, "%v", err)
	}
	in := a.env.In
	if f.file != "" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, done, err
		}
		in, done = file, func() { _ = file.Close() }
	}
	if len(args) > 0 && !f.expand && !subject.ValidLiteral(args[0]) {
		return nil, done, usage(cmd, "%q is not a subject to publish to: tokens with dots between them, without spaces, * and >", args[0])
	}
	base := record.Message{Reply: f.reply, Headers: headers}
	if len(args) > 0 {
		base.Subject = args[0]
	}
	switch f.input {
	case "ndjson", "json":
		return a.expanded(ndjsonSource(in, base), f), done, nil
	case "lines":
		return a.expanded(lineSource(in, base), f), done, nil
	}
	if len(args) > 1 {
		base.Payload = []byte(args[1])
	} else if base.Payload, err = io.ReadAll(in); err != nil {
		return nil, done, fmt.Errorf("read the body: %w", err)
	}
	left := f.count
	return a.expanded(func() (record.Message, error) {
		if left--; left < 0 {
			return record.Message{}, io.EOF
		}
		return base, nil
	}, f), done, nil
}

// check finds flags and arguments that don't go together.
func (f *pubFlags) check(cmd *cobra.Command, args []string) error {
	inputs := []string{"body", "lines", "ndjson", "json"}
	switch {
	case !slices.Contains(inputs, f.input):
		return usage(cmd, "-i %s: input is body, lines, ndjson or json%s", f.input, suggestion(f.input, inputs))
	case len(args) == 0 && f.input != "ndjson" && f.input != "json":
		return usage(cmd, "%s needs SUBJECT", cmd.CommandPath())
	case f.input != "body" && (len(args) > 1 || cmd.Flags().Changed("count")):
		return usage(cmd, "-i %s reads the messages from the input; BODY and --count don't go with it", f.input)
	case f.count < 1:
		return usage(cmd, "--count must be at least 1")
	case f.id != "" && f.count != 1 && !f.expand:
		return usage(cmd, "--id with --count %d stores one message only; use --expand --id '…{{.Count}}'", f.count)
	}
	return nil
}

// expanded fills in templates when asked to, and the message id.
func (a *app) expanded(next source, f pubFlags) source {
	e, count := newExpander(a.env.Now, a.env.Getenv), 0
	return func() (record.Message, error) {
		m, err := next()
		if err != nil {
			return m, err
		}
		count++
		fill := func(s string) string {
			if err != nil || !f.expand {
				return s
			}
			var out string
			if out, err = e.expand(s, count); err != nil {
				return s
			}
			return out
		}
		if f.expand || f.id != "" {
			h := client.Header{}
			for name, values := range m.Headers {
				for _, value := range values {
					h[name] = append(h[name], fill(value))
				}
			}
			if f.id != "" {
				h[client.MessageIDHeader] = []string{fill(f.id)}
			}
			m.Subject, m.Payload, m.Headers = fill(m.Subject), []byte(fill(string(m.Payload))), h
		}
		return m, err
	}
}

// ndjsonSource reads messages of package record; what base has wins or is added.
func ndjsonSource(in io.Reader, base record.Message) source {
	lines := scanner(in)
	number := 0
	return func() (record.Message, error) {
		for lines.Scan() {
			number++
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 || string(line) == "[" || string(line) == "]" || string(line) == "[]" || vault.IsFrame(line) {
				continue // so that the output of -o json and of export is understood as well
			}
			m, err := record.Parse(bytes.TrimSuffix(line, []byte(",")))
			if err != nil {
				return m, &problem{code: exitUsage, what: fmt.Sprintf("input line %d: %v", number, err), err: err}
			}
			if base.Subject != "" {
				m.Subject = base.Subject
			}
			if base.Reply != "" {
				m.Reply = base.Reply
			}
			for name, values := range base.Headers {
				if m.Headers == nil {
					m.Headers = map[string][]string{}
				}
				m.Headers[name] = append(m.Headers[name], values...)
			}
			if m.Subject == "" {
				return m, &problem{code: exitUsage, what: fmt.Sprintf("input line %d: no subject", number), err: errors.New("no subject")}
			}
			return m, nil
		}
		return record.Message{}, ended(lines)
	}
}

func lineSource(in io.Reader, base record.Message) source {
	lines := scanner(in)
	return func() (record.Message, error) {
		if !lines.Scan() {
			return record.Message{}, ended(lines)
		}
		m := base
		m.Payload = bytes.Clone(lines.Bytes())
		return m, nil
	}
}

func scanner(in io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), lineMax)
	return s
}

func ended(s *bufio.Scanner) error {
	if err := s.Err(); err != nil {
		return fmt.Errorf("read the input: %w", err)
	}
	return io.EOF
}
