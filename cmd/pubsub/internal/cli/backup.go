package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/cmd/pubsub/internal/vault"
)

// vaultBroker is the connection as package vault wants it.
func (a *app) vaultBroker(cmd *cobra.Command) (*client.Client, *vault.Broker, error) {
	c, err := a.connect(cmd)
	if err != nil {
		return nil, nil, err
	}
	r, err := a.resolve(cmd)
	if err != nil {
		return nil, nil, err
	}
	prefix := "$JS.API"
	if r.Domain != "" {
		prefix = "$JS." + r.Domain + ".API"
	}
	return c, &vault.Broker{Conn: c.Conn(), Prefix: prefix, Timeout: max(a.timeout, time.Second)}, nil
}

// vaultProblem explains what package vault could not do.
func (a *app) vaultProblem(cmd *cobra.Command, err error, topic, next string) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vault.ErrDamaged):
		return &problem{code: exitError, what: err.Error(), next: next, err: err}
	case errors.Is(err, vault.ErrNoExport):
		return &problem{code: exitUsage, what: err.Error(), next: "pubsub export TOPIC, or pubsub pub -i ndjson for messages alone", err: err}
	case errors.As(err, &api) && (api.ErrorCode == 10130 || api.ErrorCode == 10058):
		return &problem{code: exitConflict, what: fmt.Sprintf("topic %q exists", topic), next: "--if-not-exists to leave it as it is, or --as NAME", err: err}
	case errors.As(err, &api) && api.ErrorCode == 10074:
		p := explain(&client.Error{Op: cmd.Name(), Target: topic, Kind: client.ErrInvalid, Err: api})
		p.next = "--replicas 1"
		return p
	case errors.As(err, &api) && api.ErrorCode == 10065:
		p := explain(&client.Error{Op: cmd.Name(), Target: topic, Kind: client.ErrConflict, Err: api})
		p.next = "--subjects, for a copy that captures others and keeps what it holds"
		return p
	case errors.As(err, &api):
		if api.ErrorCode == 10059 {
			return a.topicProblem(cmd.Context(), jetstream.ErrStreamNotFound, topic)
		}
		return explain(&client.Error{Op: cmd.Name(), Target: topic, Kind: kindOf(api), Err: api})
	}
	return err
}

// kindOf is what kind of failure an answer of the API is.
func kindOf(api *jetstream.APIError) error {
	switch {
	case api.Code == 404:
		return client.ErrNotFound
	case api.Code == 401 || api.Code == 403:
		return client.ErrRefused
	case api.ErrorCode == 10065:
		return client.ErrConflict
	case api.Code == 503:
		return client.ErrUnavailable
	case api.Code == 400:
		return client.ErrInvalid
	}
	return nil
}

// chosenTopics are the topics that arguments name, or all.
func (a *app) chosenTopics(cmd *cobra.Command, c *client.Client, args []string) ([]string, error) {
	all, err := c.TopicNames(cmd.Context())
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	if len(args) == 0 {
		return all, nil
	}
	for _, name := range args {
		if !slices.Contains(all, name) {
			return nil, a.topicProblem(cmd.Context(), jetstream.ErrStreamNotFound, name)
		}
	}
	return args, nil
}

func (a *app) backupCommand() *cobra.Command {
	var partSize string
	var noDefinitions bool
	cmd := &cobra.Command{
		Use: "backup DIR [TOPIC…]", Short: "Take a backup of topics into a directory, while they are used", Args: args(1, -1, "DIR"),
		Long: `Take a backup of all topics, or of those named: messages with their sequences, times
and headers, settings, and how far consumers have come; each topic as it is at one
moment. Definitions of operators and advertisements are in it, too.

Every part has a checksum, and is on disk before the manifest names it: a run that
was interrupted goes on where it ended when it is called again, and a run of a
backup that is complete adds what is new. verify checks it, restore brings it back.`,
		Example: "  pubsub backup /backups/monday\n  pubsub verify /backups/monday\n  pubsub restore /backups/monday orders --as orders-of-monday --subjects 'monday.>'",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		size, err := parseSize(partSize)
		if err != nil || size < 1 {
			return usage(cmd, "--part-size: %q is not a size (like 64MiB)", partSize)
		}
		c, b, err := a.vaultBroker(cmd)
		if err != nil {
			return err
		}
		names, err := a.chosenTopics(cmd, c, args[1:])
		if err != nil {
			return err
		}
		if a.dryRun {
			a.ui.Note("dry run: would take %s into %s", plural(len(names), "topic"), args[0])
			return a.ui.List(toAny(names), ui.Rows{Columns: []string{"topic"}, Cells: column(names), Empty: "no topics"})
		}
		t, err := vault.Begin(args[0], b, a.env.Now)
		if err != nil {
			return err
		}
		defer t.Close()
		t.PartSize = size
		return a.backup(cmd, t, names, !noDefinitions)
	}
	cmd.Flags().StringVar(&partSize, "part-size", "64MiB", "messages in a part; what is lost at most when it is interrupted hard")
	cmd.Flags().BoolVar(&noDefinitions, "no-definitions", false, "leave out definitions")
	return a.changes(cmd)
}

func toAny[T any](list []T) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

func column(names []string) [][]string {
	out := make([][]string, len(names))
	for i, name := range names {
		out[i] = []string{name}
	}
	return out
}

// savedTopic is a line of what backup, verify and restore print.
type savedTopic struct {
	Topic    string `json:"topic"`
	Messages uint64 `json:"messages"`
	New      uint64 `json:"new,omitempty"`
	Bytes    int64  `json:"bytes"`
	Parts    int    `json:"parts"`
	Last     uint64 `json:"last_seq"`
	Status   string `json:"status"`
}

func (a *app) savedTopics(list []savedTopic) error {
	rows := ui.Rows{Columns: []string{"topic", "messages", "new", "bytes", "parts", "last", "status"}, Right: []bool{false, true, true, true, true, true}, Empty: "no topics"}
	for _, s := range list {
		rows.Cells = append(rows.Cells, []string{s.Topic, ui.Count(s.Messages), ui.Count(s.New), ui.Bytes(s.Bytes), fmt.Sprint(s.Parts), fmt.Sprint(s.Last), s.Status})
	}
	return a.ui.List(toAny(list), rows)
}

func (a *app) backup(cmd *cobra.Command, t *vault.Taking, names []string, definitions bool) error {
	list := []savedTopic{}
	for _, name := range names {
		var g *ui.Progress
		t.Progress = func(_ string, done, all uint64) {
			if g == nil {
				g = a.ui.Progress("backup "+name, int(all))
			}
			g.Set(int(done))
		}
		added, err := t.Topic(cmd.Context(), name)
		if g != nil {
			g.Done()
		}
		if err != nil {
			a.ui.Note("what has been taken is kept: call it again to go on")
			return a.vaultProblem(cmd, err, name, "pubsub backup once more")
		}
		i := slices.IndexFunc(t.Manifest.Topics, func(o *vault.Topic) bool { return o.Name == name })
		saved, err := saved(t.Manifest.Topics[i])
		if err != nil {
			return err
		}
		saved.New, saved.Status = added, "taken"
		list = append(list, saved)
	}
	if definitions {
		text, _, err := a.exportDefinitions(cmd)
		if err != nil {
			return err
		}
		if err := t.Define(text); err != nil {
			return err
		}
	}
	if err := t.Finish(); err != nil {
		return err
	}
	return a.savedTopics(list)
}

func saved(t *vault.Topic) (savedTopic, error) {
	st, err := t.Content()
	return savedTopic{Topic: t.Name, Messages: st.Messages, Bytes: t.Size(), Parts: len(t.Parts), Last: st.LastSeq}, err
}

// loadBackup reads a manifest and the topics of it that are asked for.
func loadBackup(cmd *cobra.Command, dir string, names []string) (*vault.Manifest, []*vault.Topic, error) {
	m, err := vault.Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &problem{code: exitNotFound, what: fmt.Sprintf("%s is not a backup: it has no backup.json", dir), next: "pubsub backup " + dir, err: err}
	}
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return m, m.Topics, nil
	}
	var known []string
	for _, t := range m.Topics {
		known = append(known, t.Name)
	}
	var chosen []*vault.Topic
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, nil, &problem{code: exitNotFound, what: fmt.Sprintf("the backup has no topic %q%s", name, suggestion(name, known)), next: "pubsub verify " + dir, err: fs.ErrNotExist}
		}
		chosen = append(chosen, m.Topics[i])
	}
	return m, chosen, nil
}

func (a *app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify DIR [TOPIC…]", Short: "Read a backup, check all of it and list what it holds", Args: args(1, -1, "DIR"),
		Long: "Read all of a backup and compare it with its checksums. No broker is asked. The exit\ncode is 1 when anything is missing, damaged or incomplete.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, topics, err := loadBackup(cmd, args[0], args[1:])
		if err != nil {
			return err
		}
		var broken error
		list := []savedTopic{}
		for _, t := range topics {
			s, err := saved(t)
			if err == nil {
				s.Status = "ok"
				s.Messages, err = vault.Verify(args[0], t)
			}
			if err != nil {
				s.Status = err.Error()
				broken = err
			}
			list = append(list, s)
		}
		if err := a.savedTopics(list); err != nil {
			return err
		}
		if _, err := vault.VerifyDefinitions(args[0], m); err != nil {
			broken = err
		}
		if broken == nil && m.Ended.IsZero() {
			broken = fmt.Errorf("the backup is %w: taking it did not end", vault.ErrDamaged)
		}
		return a.vaultProblem(cmd, broken, "", "pubsub backup "+args[0]+" to complete it, or another backup")
	}
	return cmd
}

func (a *app) restoreCommand() *cobra.Command {
	var change vault.Change
	var ifNot, definitions bool
	cmd := &cobra.Command{
		Use: "restore DIR [TOPIC…]", Short: "Bring topics of a backup back", Args: args(1, -1, "DIR"),
		Long: `Make the topics of a backup anew, or those named, with their messages at the same
sequences and times, and their consumers where they were. A topic is verified before
anything of it is sent; when it fails, nothing of it stays.

A topic that exists is refused. With --if-not-exists it is left as it is, so that a
restore that was interrupted goes on with the topics that are missing.`,
		Example: "  pubsub restore /backups/monday --if-not-exists --definitions\n  pubsub restore /backups/monday orders --as orders-of-monday",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, topics, err := loadBackup(cmd, args[0], args[1:])
		if err != nil {
			return err
		}
		if (change.Name != "" || len(change.Subjects) > 0) && len(topics) != 1 {
			return usage(cmd, "--as and --subjects are for one topic")
		}
		c, b, err := a.vaultBroker(cmd)
		if err != nil {
			return err
		}
		there, err := c.TopicNames(cmd.Context())
		if err != nil {
			return err
		}
		list := []savedTopic{}
		for _, t := range topics {
			s, err := saved(t)
			if err != nil {
				return err
			}
			s.Topic = or(change.Name, t.Name)
			if s.Status, err = a.restore(cmd, b, args[0], t, change, ifNot, slices.Contains(there, s.Topic)); err != nil {
				return a.vaultProblem(cmd, err, s.Topic, "pubsub verify "+args[0])
			}
			list = append(list, s)
		}
		if definitions {
			text, err := vault.VerifyDefinitions(args[0], m)
			if err != nil {
				return a.vaultProblem(cmd, err, "", "pubsub verify "+args[0])
			}
			if _, err := a.importDefinitions(cmd, text, change.Replicas); err != nil {
				return err
			}
		}
		return a.savedTopics(list)
	}
	cmd.Flags().StringVar(&change.Name, "as", "", "another name for the one topic")
	cmd.Flags().StringSliceVar(&change.Subjects, "subjects", nil, "what the one topic captures from now on (default: as it did); what it holds keeps its subjects")
	cmd.Flags().IntVar(&change.Replicas, "replicas", 0, "copies in the cluster (default: as it had)")
	cmd.Flags().BoolVar(&ifNot, "if-not-exists", false, "leave topics that exist as they are")
	cmd.Flags().BoolVar(&definitions, "definitions", false, "then import the definitions, as definitions import does: operators start anew")
	return a.changes(cmd)
}

// restore brings one topic back and says what was done.
func (a *app) restore(cmd *cobra.Command, b *vault.Broker, dir string, t *vault.Topic, change vault.Change, ifNot, there bool) (string, error) {
	name := or(change.Name, t.Name)
	if there && ifNot {
		return "exists", nil
	}
	if there {
		return "", &problem{code: exitConflict, what: fmt.Sprintf("topic %q exists", name), next: "--if-not-exists to leave it as it is, or --as NAME", err: client.ErrConflict}
	}
	all, err := vault.Verify(dir, t)
	if err != nil {
		return "", err
	}
	if a.dryRun {
		return "would be restored", nil
	}
	g := a.ui.Progress("restore "+name, int(all))
	defer g.Done()
	err = b.Restore(cmd.Context(), dir, t, change, func(done uint64) { g.Set(int(done)) })
	return "restored", err
}
