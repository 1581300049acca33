package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/nats-io/nuid"
)

const expandHelp = "fill in {{.Count}}, {{ID}}, {{Time}}, {{Unix}}, {{UnixNano}}, {{Hostname}}, {{Random 5 10}} and {{Env \"NAME\"}} in the subject, body and headers"

// expander fills in templates of messages about to be published.
type expander struct {
	now   func() time.Time
	env   func(string) string
	known map[string]*template.Template
}

func newExpander(now func() time.Time, env func(string) string) *expander {
	return &expander{now: now, env: env, known: map[string]*template.Template{}}
}

// expand returns text with its placeholders filled in for the count-th message.
func (e *expander) expand(text string, count int) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t := e.known[text]
	if t == nil {
		var err error
		t, err = template.New("message").Option("missingkey=error").Funcs(template.FuncMap{
			"Count": func() int { return 0 }, // replaced below for each message
			"ID":    nuid.Next, "Hostname": os.Hostname, "Env": e.env,
			"Time":     func() string { return e.now().UTC().Format(time.RFC3339Nano) },
			"Unix":     func() int64 { return e.now().Unix() },
			"UnixNano": func() int64 { return e.now().UnixNano() },
			"Random":   random,
		}).Parse(text)
		if err != nil {
			return "", fmt.Errorf("template of the message: %w", err)
		}
		e.known[text] = t
	}
	var b bytes.Buffer
	err := t.Funcs(template.FuncMap{"Count": func() int { return count }}).Execute(&b, map[string]any{"Count": count})
	if err != nil {
		return "", fmt.Errorf("template of the message: %w", err)
	}
	return b.String(), nil
}

// random is text of least to most letters and digits.
func random(least, most int) (string, error) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	if least < 0 || most < least || most > 1<<20 {
		return "", fmt.Errorf("{{Random %d %d}}: want 0 <= least <= most <= 1048576", least, most)
	}
	b := make([]byte, least+rand.IntN(most-least+1))
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b), nil
}
