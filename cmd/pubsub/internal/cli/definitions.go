package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/asyncapi"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/cmd/pubsub/internal/vault"
)

// definitions is the file that says what there is on a broker, but for messages.
type definitions struct {
	Format         int         `yaml:"herald_definitions"` // 1
	Topics         []yaml.Node `yaml:"topics,omitempty"`
	Consumers      []yaml.Node `yaml:"consumers,omitempty"`
	Operators      []yaml.Node `yaml:"operators,omitempty"`
	Advertisements []yaml.Node `yaml:"advertisements,omitempty"`
}

// spans are the keys of settings that are durations: nanoseconds to the broker, "168h0m0s"
// in the file.
var spans = []string{"max_age", "duplicate_window", "subject_delete_marker_ttl", "ack_wait", "inactive_threshold", "idle_heartbeat", "max_expires", "backoff", "priority_timeout"}

func (a *app) definitionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "definitions", Aliases: []string{"defs"}, Short: "Write or read all topics, consumers, operators and advertisements as one file",
		Long: `Write what there is on a broker, but for messages, as one YAML file, and make it so
again: topics, durable consumers, operators, and permanent advertisements.`,
	}
	cmd.AddCommand(a.definitionsExport(), a.definitionsImport())
	return group(cmd)
}

func (a *app) definitionsExport() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "export", Short: "Write the definitions as YAML", Args: args(0, 0, ""),
		Long:    "Write topics, durable consumers, operators and permanent advertisements as one YAML\nfile. The same definitions give the same file.",
		Example: "  pubsub definitions export -f broker.yaml\n  pubsub definitions export --context prod | pubsub definitions import --context test --dry-run",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, d, err := a.exportDefinitions(cmd)
		if err != nil {
			return err
		}
		out, commit, err := a.outFile(path)
		if err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return errors.Join(err, commit(false))
		}
		a.ui.Note("exported %s, %s, %s, %s", plural(len(d.Topics), "topic"), plural(len(d.Consumers), "consumer"),
			plural(len(d.Operators), "operator"), plural(len(d.Advertisements), "advertisement"))
		return commit(true)
	}
	cmd.Flags().StringVarP(&path, "file", "f", "-", "file to write; - is standard output")
	return cmd
}

// exportDefinitions reads the definitions of the broker.
func (a *app) exportDefinitions(cmd *cobra.Command) ([]byte, *definitions, error) {
	c, b, err := a.vaultBroker(cmd)
	if err != nil {
		return nil, nil, err
	}
	d, ctx := &definitions{Format: 1}, cmd.Context()
	names, err := a.chosenTopics(cmd, c, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		var info struct{ Config json.RawMessage }
		if err := b.Call(ctx, "STREAM.INFO."+name, struct{}{}, &info); err != nil {
			return nil, nil, a.vaultProblem(cmd, err, name, "")
		}
		if err := addDefinition(&d.Topics, info.Config); err != nil {
			return nil, nil, err
		}
		if err := consumerDefinitions(ctx, b, name, &d.Consumers); err != nil {
			return nil, nil, a.vaultProblem(cmd, err, name, "")
		}
	}
	if err := a.heraldDefinitions(ctx, c, d); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(d), enc.Close()); err != nil {
		return nil, nil, err
	}
	return out.Bytes(), d, nil
}

func addDefinition(to *[]yaml.Node, raw json.RawMessage) error {
	n, err := asyncapi.Node(raw)
	if err != nil {
		return err
	}
	humane(n)
	*to = append(*to, *n)
	return nil
}

// humane writes durations as people do, and drops the notes that the broker makes for
// itself.
func humane(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i].Value, n.Content[i+1]
		switch {
		case key == "metadata" && v.Kind == yaml.MappingNode:
			withoutNotes(v)
			if len(v.Content) == 0 {
				n.Content = slices.Delete(n.Content, i, i+2)
				i -= 2
			}
		case slices.Contains(spans, key):
			for _, s := range append([]*yaml.Node{v}, v.Content...) {
				if ns, err := strconv.ParseInt(s.Value, 10, 64); err == nil && s.Kind == yaml.ScalarNode && s.Tag == "!!int" {
					s.Tag, s.Value = "!!str", time.Duration(ns).String()
				}
			}
		default:
			humane(v)
		}
	}
}

// brokersNote tells whether a name in metadata is of what a broker keeps or shows there,
// such as counters, and nobody's setting.
func brokersNote(name string) bool {
	return strings.HasPrefix(name, "_nats.") || strings.HasPrefix(name, "_herald.")
}

func withoutNotes(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if brokersNote(n.Content[i].Value) {
			n.Content = slices.Delete(n.Content, i, i+2)
			i -= 2
		}
	}
}

// consumerDefinitions adds the durable consumers of a topic, by name.
func consumerDefinitions(ctx context.Context, b *vault.Broker, topic string, to *[]yaml.Node) error {
	found := map[string]json.RawMessage{}
	for offset := 0; ; {
		var page struct {
			Total     int
			Consumers []struct {
				Name   string
				Config json.RawMessage
			}
		}
		if err := b.Call(ctx, "CONSUMER.LIST."+topic, map[string]any{"offset": offset}, &page); err != nil {
			return err
		}
		for _, c := range page.Consumers {
			var cfg struct {
				Durable string `json:"durable_name"`
			}
			if err := json.Unmarshal(c.Config, &cfg); err != nil {
				return err
			}
			if cfg.Durable != "" {
				found[c.Name] = c.Config
			}
		}
		if offset += len(page.Consumers); offset >= page.Total || len(page.Consumers) == 0 {
			break
		}
	}
	for _, name := range sortedNames(found) {
		line, err := json.Marshal(map[string]json.RawMessage{"topic": json.RawMessage(strconv.Quote(topic)), "config": found[name]})
		if err != nil {
			return err
		}
		if err := addDefinition(to, line); err != nil {
			return err
		}
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// heraldDefinitions adds what only Herald has: operators and advertisements.
func (a *app) heraldDefinitions(ctx context.Context, c *client.Client, d *definitions) error {
	specs, err := operatorSpecs(ctx, c)
	if absent(err) {
		a.ui.Note("this server has no operators and no advertisements: they are left out")
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range sortedNames(specs) {
		n, err := asyncapi.Node(specs[name])
		if err != nil {
			return err
		}
		d.Operators = append(d.Operators, *n)
	}
	ads, err := c.Discover(ctx, client.Query{})
	if err != nil {
		return err
	}
	texts, left := map[string]json.RawMessage{}, 0
	for i := range ads {
		if ads[i].Implicit() {
			continue // they come with the operators
		}
		if ads[i].Lease.Mode != client.LeasePermanent {
			left++
			continue
		}
		text, err := bareAdvertisement(&ads[i])
		if err != nil {
			return err
		}
		texts[ads[i].Name+"\x00"+ads[i].Owner.Key()] = text
	}
	if left > 0 {
		a.ui.Note("left out %s whose lease ends with those who hold it", plural(left, "advertisement"))
	}
	for _, key := range sortedNames(texts) {
		n, err := asyncapi.Node(texts[key])
		if err != nil {
			return err
		}
		d.Advertisements = append(d.Advertisements, *n)
	}
	return nil
}

// absent tells whether nobody answered: a server that is not Herald, or without operators.
func absent(err error) bool { return errors.Is(err, client.ErrNoResponders) }

// operatorSpecs are the specs of all operators, by name.
func operatorSpecs(ctx context.Context, c *client.Client) (map[string]json.RawMessage, error) {
	var all struct {
		Operators []client.Operator `json:"operators"`
	}
	if err := c.Operators(ctx, "LIST", client.OperatorRequest{}, &all); err != nil {
		return nil, err
	}
	specs := map[string]json.RawMessage{}
	for _, o := range all.Operators {
		var g struct{ Spec json.RawMessage }
		if err := c.Operators(ctx, "GRAPH", client.OperatorRequest{Name: o.Name}, &g); err != nil {
			return nil, err
		}
		specs[o.Name] = g.Spec
	}
	return specs, nil
}

// bareAdvertisement is an advertisement without what the broker adds.
func bareAdvertisement(ad *client.Advertisement) (json.RawMessage, error) {
	bare := *ad
	bare.ID, bare.Wildcard, bare.Revision, bare.By = "", "", 0, ""
	bare.Created, bare.Changed = time.Time{}, time.Time{}
	b, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (a *app) definitionsImport() *cobra.Command {
	var path string
	var replicas int
	cmd := &cobra.Command{
		Use: "import", Short: "Make the broker have what a file of definitions says", Args: args(0, 0, ""),
		Long: `Create what the file has and the broker does not, and change what differs. What the
file doesn't mention stays, be it a topic or a setting. Doing it again changes nothing;
--dry-run shows the differences.`,
		Example: "  pubsub definitions import -f broker.yaml --dry-run",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var text []byte
		var err error
		if path == "-" {
			text, err = io.ReadAll(a.env.In)
		} else {
			text, err = os.ReadFile(path)
		}
		if err != nil {
			return err
		}
		list, err := a.importDefinitions(cmd, text, replicas)
		if len(list) == 0 && err != nil {
			return err
		}
		rows := ui.Rows{Columns: []string{"kind", "name", "action", "difference"}, Empty: "no definitions"}
		for _, s := range list {
			rows.Cells = append(rows.Cells, []string{s.Kind, s.Name, s.Action, strings.Join(s.Differences, ", ")})
		}
		return errors.Join(a.ui.List(toAny(list), rows), err)
	}
	cmd.Flags().StringVarP(&path, "file", "f", "-", "file to read; - is standard input")
	cmd.Flags().IntVar(&replicas, "replicas", 0, "copies of each topic in the cluster (default: as the file says)")
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask before state of operators is dropped")
	return a.changes(cmd)
}

// readDefinitions reads the file; a key it does not know is an error with its line.
func readDefinitions(text []byte) (*definitions, error) {
	var d definitions
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return nil, &problem{code: exitUsage, what: "the definitions: " + strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "), next: "pubsub definitions export, to see one", err: err}
	}
	if d.Format != 1 {
		return nil, &problem{code: exitUsage, what: fmt.Sprintf("the definitions don't begin with herald_definitions: 1 (but %d)", d.Format), next: "pubsub definitions export, to see one", err: errors.New("not definitions")}
	}
	return &d, nil
}
