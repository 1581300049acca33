package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
)

// completionBudget bounds what asking the broker for names may cost: a shell
// that hangs on Tab is worse than one that knows nothing.
const completionBudget = 300 * time.Millisecond

func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print the completion script of a shell",
		Long:      "Print a completion script. It completes commands and flags, and names of topics,\nconsumers, subjects, advertisements and contexts by asking the broker (at most 300 ms).",
		Example:   "  source <(pubsub completion bash)\n  pubsub completion zsh > \"${fpath[1]}/_pubsub\"\n  pubsub completion fish | source\n  pubsub completion powershell | Out-String | Invoke-Expression",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      args(1, 1, "a shell: bash, zsh, fish or powershell"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.env.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.env.Out)
			case "fish":
				return root.GenFishCompletion(a.env.Out, true)
			case "powershell", "pwsh":
				return root.GenPowerShellCompletionWithDesc(a.env.Out)
			}
			return usage(cmd, "no completion for %q%s", args[0], suggestion(args[0], cmd.ValidArgs))
		},
	}
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// fixed completes from a list.
func fixed(words ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// ask runs f with a connection within the budget; any failure is silence. What it gives is
// kept under the name of what is asked for, and given again without asking for a moment,
// or when the broker does not answer.
func (a *app) ask(cmd *cobra.Command, what string, f func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	r, err := a.resolve(cmd)
	if err != nil {
		return nil, directive
	}
	kept := a.keptNames(&r, what)
	names, age := kept.read(a.env.Now())
	if age < namesFresh {
		return names, directive
	}
	auth, err := identity(r.Settings)
	if err != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionBudget)
	defer cancel()
	c, err := client.Connect(r.URL, append(auth, client.Name("pubsub completion"), client.NATS(nats.Timeout(completionBudget/2), nats.NoReconnect()))...)
	if err == nil {
		defer func() { _ = c.Close() }()
		var now []string
		if now, err = f(ctx, c); err == nil {
			kept.write(now)
			return now, directive
		}
	}
	if age > namesStale {
		return nil, directive
	}
	return names, directive
}

func (a *app) completeTopics(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "sub" && cmd.Name() != "pub" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, "topics", func(ctx context.Context, c *client.Client) ([]string, error) { return c.TopicNames(ctx) })
}

func (a *app) completeConsumers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeTopics(cmd, args, typed)
	case 1:
		return a.ask(cmd, "consumers of "+args[0], func(ctx context.Context, c *client.Client) ([]string, error) {
			all, err := c.Consumers(ctx, args[0])
			var names []string
			for _, i := range all {
				names = append(names, i.Name)
			}
			return names, err
		})
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeSubjects knows the subjects of topics and of advertisements, and those that were
// published within the hour.
func (a *app) completeSubjects(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "sub" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, "subjects", func(ctx context.Context, c *client.Client) ([]string, error) {
		subjects := knownSubjects(ctx, c)
		return subjects, ctx.Err() // those that came too late are not known: nothing to keep
	})
}

// knownSubjects is what topics capture, advertisements declare and others publish, as far
// as it can be learnt.
func knownSubjects(ctx context.Context, c *client.Client) []string {
	var subjects []string
	if topics, err := c.Topics(ctx); err == nil {
		for _, t := range topics {
			subjects = append(subjects, t.Config.Subjects...)
		}
	}
	if ads, err := c.Discover(ctx, client.Query{}); err == nil {
		for _, ad := range ads {
			subjects = append(subjects, ad.Pattern())
		}
	}
	if seen, err := c.Undeclared(ctx, ""); err == nil {
		for i := range seen {
			subjects = append(subjects, seen[i].Pattern)
		}
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

// liveSubjects asks for subjects to suggest.
func (a *app) liveSubjects(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, completionBudget)
	defer cancel()
	return knownSubjects(ctx, a.client)
}

func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, err := a.store.Names()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// liveTopics asks for names to suggest; failure is silence.
func (a *app) liveTopics(ctx context.Context) []string {
	if a.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionBudget)
	defer cancel()
	names, err := a.client.TopicNames(ctx)
	if err != nil {
		return nil
	}
	return names
}

func (a *app) liveConsumers(ctx context.Context, topic string) []string {
	if a.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionBudget)
	defer cancel()
	all, err := a.client.Consumers(ctx, topic)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(all))
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// advertisedNames is for completing.
func (a *app) advertisedNames(ctx context.Context, c *client.Client) ([]string, error) {
	ads, err := c.Discover(ctx, client.Query{})
	names := make([]string, 0, len(ads))
	for _, ad := range ads {
		names = append(names, ad.Name)
	}
	return names, err
}

// completeOperators completes the first argument.
func (a *app) completeOperators(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, "operators", func(ctx context.Context, c *client.Client) ([]string, error) {
		var all struct {
			Operators []client.Operator `json:"operators"`
		}
		err := c.Operators(ctx, "LIST", client.OperatorRequest{}, &all)
		names := make([]string, 0, len(all.Operators))
		for _, o := range all.Operators {
			names = append(names, o.Name)
		}
		return names, err
	})
}

// completeNamedOperators makes the commands about an operator that is there complete its
// name: those whose first argument is one, and not a file.
func (a *app) completeNamedOperators(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		_, first, _ := strings.Cut(sub.Use, " ")
		if sub.ValidArgsFunction == nil && (strings.HasPrefix(first, "NAME") || strings.HasPrefix(first, "OPERATOR")) {
			sub.ValidArgsFunction = a.completeOperators
		}
		a.completeNamedOperators(sub)
	}
}
