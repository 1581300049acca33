package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/topics/value"
)

// operatorCommand is what can be done with an operator's file, without a broker.
func (a *app) operatorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "operator", Aliases: []string{"op"}, Short: "Check, draw, try and run stream operators",
		Long: `Check, draw and try the files of stream operators, which needs no broker, and have a
broker run them.

The language is described in docs/operators.md.`,
	}
	cmd.AddCommand(a.operatorLint(), a.operatorGraph(), a.operatorTest())
	cmd.AddCommand(a.operatorLive()...)
	return group(cmd)
}

// compiled reads and compiles a file. problems are the warnings, or all that is wrong.
func compiled(path string) (s *spec.Spec, g *graph.Graph, problems spec.Problems, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read operator: %w", err)
	}
	if s, err = spec.Parse(path, text); err == nil {
		g, problems, err = spec.Compile(s, spec.Options{})
	}
	if errors.As(err, &problems) {
		return s, nil, problems, nil
	}
	return s, g, problems, err
}

// wrong is what a file with problems ends a command with.
func wrong(path string, problems spec.Problems) error {
	n := len(problems.Errors())
	what := fmt.Sprintf("%s has %d problems", path, n)
	if n == 1 {
		what = path + " has a problem"
	}
	return &problem{code: exitUsage, what: what, err: problems}
}

// linted is what lint says of a file, for programs.
type linted struct {
	File      string         `json:"file"`
	Operator  string         `json:"operator,omitempty"`
	Class     string         `json:"class,omitempty"`
	Guarantee string         `json:"guarantee,omitempty"`
	Digest    string         `json:"digest,omitempty"`
	Problems  []lintedDetail `json:"problems"`
}

type lintedDetail struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Text    string `json:"text"`
	Warning bool   `json:"warning,omitempty"`
}

func (a *app) operatorLint() *cobra.Command {
	return &cobra.Command{
		Use: "lint FILE...", Short: "Say everything that is wrong with operators' files", Args: args(1, -1, "FILE..."),
		Long: `Say everything that is wrong with operators' files, each with its line and column, and
what a deployment would promise. Nothing is deployed and no broker is asked; whether
the topics exist is checked by the deployment.`,
		RunE: func(_ *cobra.Command, args []string) error {
			var bad error
			items, rows := []any{}, ui.Rows{Columns: []string{"file", "operator", "class", "guarantee"}, Empty: "no file is right"}
			for _, path := range args {
				_, g, problems, err := compiled(path)
				if err != nil {
					return err
				}
				item := linted{File: path, Problems: []lintedDetail{}}
				for _, p := range problems {
					item.Problems = append(item.Problems, lintedDetail{p.At.Line, p.At.Column, p.Text, p.Warning})
					if a.ui.Format != ui.JSON {
						fmt.Fprintln(a.env.Err, p)
					}
				}
				if g == nil {
					bad = wrong(path, problems)
				} else {
					item.Operator, item.Class, item.Guarantee = g.Name, g.Class.String(), spec.Guarantee(g)
					item.Digest = fmt.Sprintf("%x", g.Digest)
					rows.Cells = append(rows.Cells, []string{path, g.Name, item.Class, item.Guarantee})
				}
				items = append(items, item)
			}
			if err := a.ui.List(items, rows); err != nil {
				return err
			}
			return bad
		},
	}
}

func (a *app) operatorGraph() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "graph FILE", Short: "Draw an operator's steps", Args: args(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, g, problems, err := compiled(args[0])
			if err != nil {
				return err
			}
			if g == nil {
				for _, p := range problems {
					fmt.Fprintln(a.env.Err, p)
				}
				return wrong(args[0], problems)
			}
			text, ok := spec.Draw(g, format)
			if !ok {
				return usage(cmd, "no format %q%s", format, suggestion(format, spec.DrawFormats()))
			}
			_, err = fmt.Fprint(a.env.Out, text)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "text, mermaid or dot")
	_ = cmd.RegisterFlagCompletionFunc("format", fixed(spec.DrawFormats()...))
	return cmd
}

func (a *app) operatorTest() *cobra.Command {
	var inputs, expected []string
	cmd := &cobra.Command{
		Use: "test FILE", Short: "Run an operator on examples and compare what comes out", Args: args(1, 1, "FILE"),
		Long: `Run an operator on examples, without a broker, and compare what comes out.

The examples are those under tests: in the file, or files of one JSON text a line:

  pubsub operator test quakes.yaml --input quakes=quakes.ndjson --expect HOURLY=hourly.ndjson

Without --expect everything that comes out is printed, as a first expectation. Several
inputs are read one behind the other, in the order of the flags.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, g, problems, err := compiled(args[0])
			if err != nil {
				return err
			}
			if g == nil {
				for _, p := range problems {
					fmt.Fprintln(a.env.Err, p)
				}
				return wrong(args[0], problems)
			}
			if len(inputs) > 0 {
				return a.testFiles(cmd, g, inputs, expected)
			}
			if len(s.Tests) == 0 {
				return usage(cmd, "%s has no tests: and no --input is given", args[0])
			}
			return a.testExamples(s, g)
		},
	}
	cmd.Flags().StringArrayVar(&inputs, "input", nil, "INPUT=FILE: records of an input, one JSON text a line")
	cmd.Flags().StringArrayVar(&expected, "expect", nil, "OUTPUT=FILE: what is to come out, in order")
	return cmd
}

// testExamples runs the tests of a file.
func (a *app) testExamples(s *spec.Spec, g *graph.Graph) error {
	failed := 0
	for _, o := range optest.Examples(s, g) {
		if o.Passed() {
			fmt.Fprintf(a.env.Out, "ok      %s\n", o.Name)
			continue
		}
		failed++
		fmt.Fprintf(a.env.Out, "FAILED  %s\n", o.Name)
		if o.Err != nil {
			fmt.Fprintf(a.env.Out, "%v\n", o.Err)
		}
		fmt.Fprint(a.env.Out, o.Diff)
	}
	if failed > 0 {
		return &problem{code: exitError, what: fmt.Sprintf("%d of %d tests failed", failed, len(s.Tests)), err: errors.New("tests failed")}
	}
	return nil
}

// testFiles runs an operator on files.
func (a *app) testFiles(cmd *cobra.Command, g *graph.Graph, inputs, expected []string) error {
	var records []optest.Record
	for _, flag := range inputs {
		name, path, ok := strings.Cut(flag, "=")
		if !ok {
			return usage(cmd, "--input is INPUT=FILE, not %q", flag)
		}
		err := eachLine(path, func(line []byte) error {
			payload, err := optest.Payload(g, name, line)
			if err != nil {
				return fmt.Errorf("line %d of %s is not one of %s: %w", len(records)+1, path, name, err)
			}
			records = append(records, optest.Record{Input: name, Payload: payload})
			return nil
		})
		if err != nil {
			return err
		}
	}
	result, err := optest.Run(g, optest.Options{Clock: a.env.Now()}, records...)
	if err != nil {
		return &problem{code: exitError, what: err.Error(), err: err}
	}
	if len(expected) == 0 {
		for _, m := range result.Messages {
			fmt.Fprintf(a.env.Out, "%s\t%s\t%s\n", m.Sink, m.Subject, m.Text())
		}
		return nil
	}
	differs := false
	for _, flag := range expected {
		name, path, ok := strings.Cut(flag, "=")
		if !ok {
			return usage(cmd, "--expect is OUTPUT=FILE, not %q", flag)
		}
		var want []value.Value
		err := eachLine(path, func(line []byte) error {
			v, err := value.Parse(line, value.Options{})
			want = append(want, v)
			return err
		})
		if err != nil {
			return err
		}
		if d := optest.Diff(want, result.Of(name)); d != "" {
			fmt.Fprintf(a.env.Out, "%s:\n%s", name, d)
			differs = true
		}
	}
	if differs {
		return &problem{code: exitError, what: "what came out isn't what was expected (- is missing, + is too much)", err: errors.New("outputs differ")}
	}
	return nil
}

// eachLine calls f with each line of a file that isn't empty.
func eachLine(path string, f func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			if err := f(bytes.Clone(line)); err != nil {
				return fmt.Errorf("%s:%d: %w", path, n, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	return nil
}
