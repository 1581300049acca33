package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/filter"
	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/value"
)

func (a *app) filterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "filter", Short: "Try the conditions of filtered subscriptions"}
	cmd.AddCommand(a.filterTest())
	return group(cmd)
}

// filterLineMax bounds a line: a payload of the largest size a broker takes.
const filterLineMax = 64 << 20

func (a *app) filterTest() *cobra.Command {
	var subject, codec string
	var headers []string
	var messages bool
	cmd := &cobra.Command{
		Use: "test CONDITION", Short: "Show which lines a condition matches, and why not", Args: args(1, 1, "CONDITION"),
		Long: `Read payloads from standard input, one a line, and show for each whether the
condition matches, doesn't, or can't be evaluated and why. No broker is asked: it is
the same code that evaluates there. With a --codec that has a schema the lines are
JSON still, and made payloads of it first. With --messages the lines are messages as
"pubsub sub -o ndjson" prints them, with subject and headers of their own.`,
		Example: `  echo '{"amount":120}' | pubsub filter test 'amount > 100'
  pubsub sub 'orders.>' --all --to end -o ndjson | pubsub filter test --messages 'has(amount) && tokens[1] == "eu"'`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named, err := codecOf(codec)
		if err != nil {
			return usage(cmd, "--codec: %v", err)
		}
		f, err := filter.NewSet().Get(args[0], named)
		if err != nil {
			return conditionProblem(cmd, args[0], err)
		}
		if f.UsesPlace() && !messages {
			return usage(cmd, "time and seq are a stored message's place in its topic, which a payload doesn't have: use --messages")
		}
		block := ""
		for _, h := range headers {
			k, v, ok := strings.Cut(h, ":")
			if !ok || strings.TrimSpace(k) == "" {
				return usage(cmd, "--header is \"Name: value\", not %q", h)
			}
			block += k + ": " + strings.TrimSpace(v) + "\r\n"
		}
		writes, err := codecSchema(named)
		if err != nil {
			return usage(cmd, "--codec: %v", err)
		}
		t := tested{writes: writes, f: f, subject: subject, header: headerBlock(block), messages: messages, json: a.ui.Format == ui.JSON || a.ui.Format == ui.NDJSON, array: a.ui.Format == ui.JSON}
		out := bufio.NewWriter(a.env.Out)
		lines := bufio.NewScanner(a.env.In)
		lines.Buffer(nil, filterLineMax)
		for lines.Scan() {
			if err := t.line(out, lines.Bytes()); err != nil {
				return errors.Join(err, out.Flush())
			}
		}
		if t.array {
			fmt.Fprintln(out, map[bool]string{true: "[]", false: "\n]"}[t.n == 0])
		}
		st := t.tally.Stats()
		a.ui.Note("%s: %d match, %d don't, %d errors", plural(int(st.Scanned), "line"), st.Matched, st.Scanned-st.Matched-st.Errors, st.Errors)
		return errors.Join(lines.Err(), out.Flush())
	}
	fl := cmd.Flags()
	fl.StringVar(&subject, "subject", "test", "the messages' subject")
	fl.StringVar(&codec, "codec", "json", codecHelp)
	fl.StringArrayVarP(&headers, "header", "H", nil, "a header of the messages, \"Name: value\"")
	fl.BoolVar(&messages, "messages", false, "the lines are messages, not payloads")
	return cmd
}

// codecSchema is the schema of a codec, nil where it has none.
func codecSchema(codec string) (*schema.Schema, error) {
	if !strings.HasPrefix(codec, "{") {
		return nil, nil
	}
	src, err := schema.ParseCodec(codec)
	if err != nil {
		return nil, err
	}
	return schema.Compile(src)
}

// conditionProblem points at what is wrong with a condition.
func conditionProblem(cmd *cobra.Command, text string, err error) error {
	var x *expr.Error
	if !errors.As(err, &x) || len(x.Problems) == 0 || strings.Contains(text, "\n") {
		return usage(cmd, "%v", err)
	}
	var b strings.Builder
	for i, p := range x.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "column %d: %s", p.Column, p.Message)
	}
	return usage(cmd, "the condition %q is wrong: %s", text, b.String())
}

func headerBlock(lines string) []byte {
	if lines == "" {
		return nil
	}
	return []byte("NATS/1.0\r\n" + lines + "\r\n")
}

// tested evaluates a condition over lines.
type tested struct {
	f              *filter.Filter
	writes         *schema.Schema // of payloads, from the lines' JSON; nil: they are JSON
	subject        string
	header         []byte
	messages, json bool
	array          bool // the lines of JSON are elements of one
	n              int
	tally          filter.Tally
	m              filter.Message
}

// testedLine is a result as JSON.
type testedLine struct {
	Line   int           `json:"line"`
	Match  bool          `json:"match"`
	Reason filter.Reason `json:"reason,omitempty"`
	Error  string        `json:"error,omitempty"`
}

func (t *tested) line(out *bufio.Writer, line []byte) error {
	t.n++
	payload := line
	if t.writes != nil && !t.messages {
		v, err := value.Parse(line, value.Options{Decimals: true})
		if err == nil {
			payload, err = t.writes.Append(nil, v)
		}
		if err != nil {
			return fmt.Errorf("line %d can't be written by the schema: %w", t.n, err)
		}
	}
	t.m.Reset(t.subject, t.header, payload)
	if t.messages {
		r, err := record.Parse(line)
		if err != nil {
			return fmt.Errorf("line %d is no message: %w", t.n, err)
		}
		block := ""
		for k, values := range r.Headers {
			for _, v := range values {
				block += k + ": " + v + "\r\n"
			}
		}
		t.m.Reset(r.Subject, headerBlock(block), r.Payload)
		t.m.Place(r.Sequence, r.Time.UnixNano())
	}
	ok, err := t.f.Match(&t.m)
	t.tally.Count(&t.m, ok, err)
	if t.json {
		l := testedLine{Line: t.n, Match: ok}
		var e *filter.Error
		if errors.As(err, &e) {
			l.Reason, l.Error = e.Reason, e.Err.Error()
		}
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if t.array {
			_, err = fmt.Fprintf(out, "%s%s", map[bool]string{true: "[\n", false: ",\n"}[t.n == 1], b)
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", b)
		return err
	}
	word := map[bool]string{true: "match", false: "no match"}[ok]
	if err != nil {
		word = "error"
	}
	text := fmt.Sprintf("%-9s %s", word, line)
	if err != nil {
		text += "\n          " + err.Error()
	}
	_, werr := fmt.Fprintln(out, text)
	return werr
}
