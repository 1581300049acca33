package config

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/nats-io/nats-server/v2/conf"
)

// Explained is what there is to know about a key of the configuration file. What it
// takes, its default and when it takes hold are found out from the code that reads it,
// so that they can't be told wrong.
type Explained struct {
	Key     string   // with its blocks: "jetstream.limits.max_ack_pending"
	Names   []string // other names of the same
	Does    string
	Takes   string // "" for a block
	Default string // as JSON; "" for none
	Example string // of the file
	Restart bool   // takes hold only after a restart, not by a reload
	Block   bool
	// Foreign is set for nats-server's keys that mean nothing here: why.
	Foreign string
}

// NotExplained says that there is no such key.
type NotExplained struct{ text string }

func (e *NotExplained) Error() string { return e.text }

// Explain returns the help on one key and all below it, on all without a key.
func Explain(name string) (string, error) {
	all := explained()
	want := strings.ToLower(strings.Trim(name, "."))
	var b strings.Builder
	if want == "" {
		for _, e := range all {
			if e.Foreign == "" && !e.Block {
				fmt.Fprintf(&b, "%-52s %-24s %s\n", e.Key, firstOf(e.Default, "-"), sentence(e.Does))
			}
		}
		b.WriteString("\nconfig explain KEY says more: what it takes, an example, whether a reload is enough.\n")
		return b.String(), nil
	}
	want = canonical(all, want)
	for _, e := range all {
		if e.Key == want || strings.HasPrefix(e.Key, want+".") && e.Foreign == "" {
			e.write(&b)
		}
	}
	if b.Len() > 0 {
		return b.String(), nil
	}
	var names []string
	for _, e := range all {
		last := e.Key[strings.LastIndexByte(e.Key, '.')+1:]
		if last == want || slices.Contains(e.Names, want) {
			names = append(names, e.Key)
		}
	}
	if len(names) > 0 {
		return "", &NotExplained{fmt.Sprintf("%q stands in a block: %s", name, strings.Join(names, ", "))}
	}
	for _, e := range all {
		names = append(names, e.Key)
	}
	return "", &NotExplained{fmt.Sprintf("there is no option %q%s; config explain lists them", name, suggest(want, names))}
}

// canonical turns other names of a key, and of the blocks it stands in, into the first.
func canonical(all []Explained, want string) string {
	at := ""
	for i, word := range strings.Split(want, ".") {
		if i > 0 {
			at += "."
		}
		found := at + word
		for _, e := range all {
			if rest, ok := strings.CutPrefix(e.Key, at); ok && !strings.Contains(rest, ".") && (rest == word || slices.Contains(e.Names, word)) {
				found = e.Key
				break
			}
		}
		if at == "accounts." { // any name stands here
			found = "accounts.NAME"
		}
		at = found
	}
	return at
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// sentence is the first of a text.
func sentence(text string) string {
	if i := strings.IndexAny(text, ".;"); i > 0 {
		return text[:i]
	}
	return text
}

func (e *Explained) write(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	b.WriteString(e.Key)
	if len(e.Names) > 0 {
		fmt.Fprintf(b, "  (also %s)", strings.Join(e.Names, ", "))
	}
	b.WriteString("\n")
	if e.Foreign != "" {
		fmt.Fprintf(b, "  of nats-server; %s\n", e.Foreign)
		return
	}
	fmt.Fprintf(b, "  %s\n", e.Does)
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(b, "  %-9s%s\n", what, text)
		}
	}
	line("takes", e.Takes)
	if !e.Block {
		line("default", firstOf(e.Default, "none"))
	}
	line("example", e.Example)
	if e.Example != "" {
		line("changes", map[bool]string{true: "take hold after a restart", false: "take hold by a reload (SIGHUP)"}[e.Restart])
	}
}

// explained collects the keys once.
var explained = sync.OnceValue(func() []Explained {
	o := Defaults() // with listeners that have defaults of their own
	o.Websocket.Port, o.Cluster.Port, o.JetStream.StoreDir = 8080, DefaultClusterPort, DefaultStoreDir
	var shown any
	_ = json.Unmarshal(Show(o), &shown) // it is JSON
	c := &collector{shown: shown}
	d := &decoder{}
	c.under("", d.topKeys(Defaults()), d)
	return c.all
})

// collector walks the readers of the configuration.
type collector struct {
	shown any // the defaults
	all   []Explained
}

// under takes in the keys of a block.
func (c *collector) under(prefix string, keys []key, d *decoder) {
	for _, k := range keys {
		names := strings.Split(k.names, "|")
		e := Explained{Key: prefix + names[0], Names: names[1:]}
		var below []key
		d.walk = func(keys []key) { below = keys }
		probe := map[string]any{}
		if e.Key == "accounts" {
			probe["NAME"] = map[string]any{}
		}
		quietly(func() { k.do(node{value: probe}) })
		d.walk, d.faults, d.warnings = nil, nil, nil
		e.Block = below != nil
		if e.Key == "accounts" {
			e.Key = "accounts.NAME"
		}
		if help, ok := helpOn(e.Key); ok {
			e.Does, e.Example, e.Default = help.does, help.example, help.def
		}
		// Some keys take a word or a list as well as a block.
		e.Takes, e.Foreign = takes(d, k)
		if !e.Block || below != nil && e.Foreign == "" && len(below) == 2 && below[0].names == "allow" {
			e.Default = firstOf(e.Default, c.defaultOf(e))
			if e.Block {
				e.Block, e.Takes, below = false, `a subject, a list of them, or { allow, deny }`, nil
			}
		}
		first, _, _ := strings.Cut(e.Key, ".")
		e.Restart = slices.Contains(fixed, first) || needsRestart(e.Key, e.Example)
		c.all = append(c.all, e)
		if below != nil && e.Foreign == "" {
			c.under(e.Key+".", below, d)
		}
	}
}

// quietly runs what may not stand a probe: some readers go on with what they read.
func quietly(f func()) {
	defer func() { _ = recover() }()
	f()
}

// takes finds out what a key reads: it is given what it can't take, and complains.
func takes(d *decoder, k key) (wants, foreign string) {
	for _, probe := range []any{true, "\x00", int64(math.MinInt64), int64(1 << 62), []any{[]any{}}, math.NaN()} {
		d.faults, d.warnings = nil, nil
		quietly(func() { k.do(node{value: probe}) })
		for _, f := range d.faults {
			_, text, _ := strings.Cut(f.Error(), "is not supported by Herald: ")
			if text != "" {
				foreign = "refused: " + text
			}
			if _, text, ok := strings.Cut(f.Text, " wants "); ok && foreign == "" {
				if text = firstPart(text); telling(text) > telling(wants) {
					wants = text
				}
			}
		}
		for _, w := range d.warnings {
			if _, text, ok := strings.Cut(w, " is ignored: "); ok {
				foreign = "ignored: " + text
			}
		}
	}
	d.faults, d.warnings = nil, nil
	return wants, foreign
}

// telling ranks what complaints say of what is wanted.
func telling(text string) int {
	for i, word := range []string{"bytes", "from", "such as", "host:port"} {
		if strings.Contains(text, word) {
			return 1000 * [...]int{3, 1, 2, 3}[i]
		}
	}
	return len(text)
}

// firstPart cuts what a complaint says of the value away.
func firstPart(text string) string {
	text, _, _ = strings.Cut(text, ", not ")
	return strings.TrimRightFunc(text, unicode.IsSpace)
}

// defaultOf looks a key up in what config show prints without a file.
func (c *collector) defaultOf(e Explained) string {
	block, last := "", e.Key
	if i := strings.LastIndexByte(e.Key, '.'); i >= 0 {
		block, last = e.Key[:i], e.Key[i+1:]
	}
	m, _ := c.shown.(map[string]any)
	for word := range strings.SplitSeq(block, ".") {
		if word != "" {
			m, _ = m[word].(map[string]any)
		}
	}
	for _, name := range append([]string{last}, e.Names...) {
		if v, ok := m[name]; ok {
			if b, err := json.Marshal(v); err == nil {
				return string(b)
			}
		}
	}
	return ""
}

// needsRestart finds out by comparing the options that an example makes with those
// without it.
func needsRestart(key, example string) bool {
	o, _ := parseExample(example) // the files that it names need not be there
	if o == nil {
		return false
	}
	without := Defaults()
	if strings.HasPrefix(key, "jetstream.") && key != "jetstream.enabled" { // the block alone turns it on
		without.JetStream.Enabled = true
	}
	return slices.ContainsFunc(Diff(without, o), func(c Change) bool { return c.Restart })
}

// parseExample reads an example as a file of its own.
func parseExample(example string) (*Options, error) {
	dir, err := os.MkdirTemp("", "herald-example-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // nothing is lost if it stays
	file := filepath.Join(dir, "example.conf")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		return nil, err
	}
	m, _, err := conf.ParseFileWithChecksDigest(file)
	if err != nil {
		return nil, err
	}
	o, d := Defaults(), &decoder{}
	d.block(node{value: m, file: file}, "", d.topKeys(o))
	if len(d.faults) > 0 {
		return o, d.faults
	}
	return o, nil
}
