package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
)

// topicFlags are the settings that create and edit share.
type topicFlags struct {
	subjects, metadata                           []string
	description, config                          string
	maxAge, maxBytes, maxMsgSize, dupes          string
	maxMsgs, maxPerSubject                       int64
	replicas                                     int
	retention, discard, storage                  string
	allowTTL, allowRollup, denyDelete, denyPurge bool
	schedules                                    bool
}

func (f *topicFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&f.subjects, "subjects", nil, "subjects to capture (default NAME.>)")
	fl.StringVar(&f.description, "description", "", "what it is for")
	fl.StringVar(&f.maxAge, "max-age", "", "drop messages older than this (7d)")
	fl.StringVar(&f.maxBytes, "max-bytes", "", "size limit (10GiB)")
	fl.Int64Var(&f.maxMsgs, "max-msgs", -1, "limit of messages")
	fl.Int64Var(&f.maxPerSubject, "max-msgs-per-subject", -1, "limit of messages per subject")
	fl.StringVar(&f.maxMsgSize, "max-msg-size", "", "largest message taken (1MiB)")
	fl.StringVar(&f.dupes, "dupe-window", "", "how long a message id is remembered (2m)")
	fl.IntVar(&f.replicas, "replicas", 0, "copies in the cluster (3 where there are three nodes or more, else 1)")
	fl.StringVar(&f.retention, "retention", "limits", "when messages go: limits, interest, workqueue")
	fl.StringVar(&f.discard, "discard", "old", "what goes when full: old or new")
	fl.StringVar(&f.storage, "storage", "file", "file or memory")
	fl.BoolVar(&f.allowTTL, "allow-ttl", false, "messages may carry their own lifetime")
	fl.BoolVar(&f.allowRollup, "allow-rollup", false, "a message may replace the older ones")
	fl.BoolVar(&f.schedules, "schedules", false, "take messages to be published later (pub --delay); for good")
	fl.BoolVar(&f.denyDelete, "deny-delete", false, "single messages can't be deleted")
	fl.BoolVar(&f.denyPurge, "deny-purge", false, "it can't be purged")
	fl.StringSliceVar(&f.metadata, "metadata", nil, "key=value, repeatable")
	fl.StringVar(&f.config, "config", "", "JSON file with the settings; flags win")
	_ = cmd.RegisterFlagCompletionFunc("retention", fixed("limits", "interest", "workqueue"))
	_ = cmd.RegisterFlagCompletionFunc("discard", fixed("old", "new"))
	_ = cmd.RegisterFlagCompletionFunc("storage", fixed("file", "memory"))
}

// apply puts the flags that were given into cfg.
func (f *topicFlags) apply(cmd *cobra.Command, cfg *client.TopicConfig) error {
	given := cmd.Flags().Changed
	if f.config != "" {
		b, err := os.ReadFile(f.config)
		if err != nil {
			return err
		}
		name := cfg.Name
		if err := json.Unmarshal(b, cfg); err != nil {
			return fmt.Errorf("read %s: %w", f.config, err)
		}
		cfg.Name = name
	}
	for _, row := range []struct {
		flag string
		set  func() error
	}{
		{"subjects", func() error { cfg.Subjects = f.subjects; return nil }},
		{"description", func() error { cfg.Description = f.description; return nil }},
		{"max-age", func() (err error) { cfg.MaxAge, err = parseDuration(f.maxAge); return }},
		{"dupe-window", func() (err error) { cfg.Duplicates, err = parseDuration(f.dupes); return }},
		{"max-bytes", func() (err error) { cfg.MaxBytes, err = parseSize(f.maxBytes); return }},
		{"max-msg-size", func() error { n, err := parseSize(f.maxMsgSize); cfg.MaxMsgSize = int32(min(n, 1<<31-1)); return err }},
		{"max-msgs", func() error { cfg.MaxMsgs = f.maxMsgs; return nil }},
		{"max-msgs-per-subject", func() error { cfg.MaxMsgsPerSubject = f.maxPerSubject; return nil }},
		{"replicas", func() error { cfg.Replicas = f.replicas; return nil }},
		{"retention", func() error { return choose(f.retention, &cfg.Retention) }},
		{"discard", func() error { return choose(f.discard, &cfg.Discard) }},
		{"storage", func() error { return choose(f.storage, &cfg.Storage) }},
		{"allow-ttl", func() error { cfg.AllowMsgTTL = f.allowTTL; return nil }},
		{"allow-rollup", func() error { cfg.AllowRollup = f.allowRollup; return nil }},
		{"deny-delete", func() error { cfg.DenyDelete = f.denyDelete; return nil }},
		{"deny-purge", func() error { cfg.DenyPurge = f.denyPurge; return nil }},
		{"metadata", func() error { return pairs(f.metadata, &cfg.Metadata) }},
	} {
		if !given(row.flag) {
			continue
		}
		if err := row.set(); err != nil {
			return usage(cmd, "--%s: %v", row.flag, err)
		}
	}
	if f.schedules {
		if len(cfg.Subjects) == 0 {
			cfg.Subjects = []string{cfg.Name + ".>"}
		}
		withSchedules(cfg)
	}
	return nil
}

// choose reads an enumeration by its name on the wire.
func choose(name string, into json.Unmarshaler) error {
	if err := into.UnmarshalJSON([]byte(strconv.Quote(name))); err != nil {
		return fmt.Errorf("%q is not one of its values", name)
	}
	return nil
}

func pairs(flags []string, into *map[string]string) error {
	if *into == nil {
		*into = map[string]string{}
	}
	for _, flag := range flags {
		key, value, ok := strings.Cut(flag, "=")
		if !ok || key == "" {
			return fmt.Errorf("%q is not key=value", flag)
		}
		(*into)[key] = value
	}
	return nil
}
