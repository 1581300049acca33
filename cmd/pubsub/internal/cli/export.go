package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/cmd/pubsub/internal/vault"
	"github.com/heraldmq/herald/topics/subject"
)

func (a *app) exportCommand() *cobra.Command {
	var path, from, to, pattern string
	var sel vault.Selection
	cmd := &cobra.Command{
		Use: "export TOPIC…", Short: "Write topics as lines of JSON", Args: args(1, -1, "TOPIC…"), ValidArgsFunction: a.completeTopics,
		Long: `Write topics as lines of JSON: one with the settings, a message a line (as sub -o ndjson
writes them, with sequence and time), and one with their number and checksum. import
makes the same topics of it: subjects, headers, bodies, sequences and times.`,
		Example: "  pubsub export orders -f orders.ndjson\n  pubsub export orders --from @1d --messages-only | jq .payload_json\n  pubsub export orders -s nats://a | pubsub import -s nats://b",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.selection(cmd, &sel, from, to, pattern); err != nil {
			return err
		}
		c, b, err := a.vaultBroker(cmd)
		if err != nil {
			return err
		}
		if _, err := a.chosenTopics(cmd, c, args); err != nil {
			return err
		}
		out, commit, err := a.outFile(path)
		if err != nil {
			return err
		}
		total := uint64(0)
		for _, name := range args {
			var g *ui.Progress
			n, err := b.Export(cmd.Context(), name, sel, a.env.Now(), out, func(done, all uint64) {
				if g == nil {
					g = a.ui.Progress("export "+name, int(all))
				}
				g.Set(int(done))
			})
			if g != nil {
				g.Done()
			}
			if err != nil {
				return errors.Join(a.vaultProblem(cmd, err, name, ""), commit(false))
			}
			total += n
		}
		if err := commit(true); err != nil {
			return err
		}
		a.ui.Note("exported %s of %s", plural(int(total), "message"), plural(len(args), "topic"))
		return nil
	}
	cmd.Flags().StringVarP(&path, "file", "f", "-", "file to write; - is standard output")
	cmd.Flags().StringVar(&from, "from", "", "begin here: a sequence, or a time (@2026-11-30, @15m)")
	cmd.Flags().StringVar(&to, "to", "", "end here, inclusively")
	cmd.Flags().StringVar(&pattern, "subject", "", "only messages on this subject or pattern")
	cmd.Flags().BoolVar(&sel.OnlyMessages, "messages-only", false, "only the messages, for other programs; import wants all")
	return cmd
}

// selection reads the flags that choose messages.
func (a *app) selection(cmd *cobra.Command, sel *vault.Selection, from, to, pattern string) error {
	for _, bound := range []struct {
		flag, text string
		sequence   *uint64
		time       *time.Time
	}{{"from", from, &sel.From, &sel.Since}, {"to", to, &sel.To, &sel.Until}} {
		if bound.text == "" || bound.text == "start" || bound.text == "end" {
			continue
		}
		p, err := parsePlace(bound.text, a.env.Now())
		if err == nil && p.sequence == 0 && p.time.IsZero() {
			err = errors.New("a sequence or a time is wanted here")
		}
		if err != nil {
			return usage(cmd, "--%s: %v", bound.flag, err)
		}
		*bound.sequence, *bound.time = p.sequence, p.time
	}
	if pattern == "" {
		return nil
	}
	if !subject.Valid(pattern) {
		return usage(cmd, "--subject: %q is not a subject or pattern", pattern)
	}
	sel.Subject = func(s string) bool { return subject.Match(pattern, s) }
	return nil
}

// outFile is where an export goes; commit gives the file its name, or removes it.
func (a *app) outFile(path string) (io.Writer, func(keep bool) error, error) {
	if path == "-" {
		return a.env.Out, func(bool) error { return nil }, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, nil, err
	}
	return f, func(keep bool) error {
		err := errors.Join(f.Sync(), f.Close())
		if keep && err == nil {
			return os.Rename(f.Name(), path)
		}
		return errors.Join(err, os.Remove(f.Name()))
	}, nil
}

func (a *app) importCommand() *cobra.Command {
	var path string
	var change vault.Change
	var ifNot bool
	cmd := &cobra.Command{
		Use: "import", Short: "Make topics of what export wrote", Args: args(0, 0, ""),
		Long: `Make topics of an export, with their messages at the same sequences and times. The
number of messages and the checksum are compared before the topic is there: of an
export that is cut off or was changed nothing is made. A topic that exists is refused;
"pubsub pub --durable -i ndjson" adds the messages of an export to it, as new ones.`,
		Example: "  pubsub import -f orders.ndjson\n  pubsub import -f orders.ndjson --as orders2 --subjects 'old.>'",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		in := a.env.In
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			in = f
		}
		return a.importAll(cmd, vault.NewSource(in), change, ifNot)
	}
	cmd.Flags().StringVarP(&path, "file", "f", "-", "file to read; - is standard input")
	cmd.Flags().StringVar(&change.Name, "as", "", "another name, for an export of one topic")
	cmd.Flags().StringSliceVar(&change.Subjects, "subjects", nil, "what the one topic captures from now on (default: as it did); what it holds keeps its subjects")
	cmd.Flags().IntVar(&change.Replicas, "replicas", 0, "copies in the cluster (default: as it had)")
	cmd.Flags().BoolVar(&ifNot, "if-not-exists", false, "leave topics that exist as they are")
	return a.changes(cmd)
}

func (a *app) importAll(cmd *cobra.Command, s *vault.Source, change vault.Change, ifNot bool) error {
	c, b, err := a.vaultBroker(cmd)
	if err != nil {
		return err
	}
	there, err := c.TopicNames(cmd.Context())
	if err != nil {
		return err
	}
	list := []savedTopic{}
	for {
		h, name, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return a.vaultProblem(cmd, err, "", "")
		}
		if (change.Name != "" || len(change.Subjects) > 0) && len(list) > 0 {
			return usage(cmd, "--as and --subjects are for an export of one topic")
		}
		line := savedTopic{Topic: or(change.Name, name)}
		if line.Messages, line.Status, err = a.importTopic(cmd, b, s, h, line.Topic, change, ifNot, slices.Contains(there, line.Topic)); err != nil {
			return a.vaultProblem(cmd, err, line.Topic, "pubsub export once more")
		}
		list = append(list, line)
	}
	if len(list) == 0 {
		return a.vaultProblem(cmd, fmt.Errorf("the input is empty: %w", vault.ErrNoExport), "", "")
	}
	rows := ui.Rows{Columns: []string{"topic", "messages", "status"}, Right: []bool{false, true}}
	for _, l := range list {
		rows.Cells = append(rows.Cells, []string{l.Topic, ui.Count(l.Messages), l.Status})
	}
	return a.ui.List(toAny(list), rows)
}

func (a *app) importTopic(cmd *cobra.Command, b *vault.Broker, s *vault.Source, h *vault.Heading, name string, change vault.Change, ifNot, there bool) (uint64, string, error) {
	if there && !ifNot {
		return 0, "", &problem{code: exitConflict, what: fmt.Sprintf("topic %q exists", name), next: "--if-not-exists, --as NAME, or pubsub pub --durable -i ndjson to add to it", err: client.ErrConflict}
	}
	if there || a.dryRun {
		n, err := s.Skip()
		if there {
			return n, "exists", err
		}
		return n, "would be imported", err
	}
	var st vault.State
	if err := json.Unmarshal(h.State, &st); err != nil {
		return 0, "", fmt.Errorf("the state of topic %s: %w", name, err)
	}
	g := a.ui.Progress("import "+name, int(st.Messages))
	defer g.Done()
	n, err := b.Import(cmd.Context(), s, h, name, change, func(done uint64) { g.Set(int(done)) })
	return n, "imported", err
}
