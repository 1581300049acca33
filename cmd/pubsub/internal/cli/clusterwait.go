package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// patience is --timeout where it was given, and otherwise what suits the command.
func (a *app) patience(cmd *cobra.Command, otherwise time.Duration) time.Duration {
	if f := cmd.Flag("timeout"); f != nil && f.Changed {
		return a.timeout
	}
	return otherwise
}

// clusterChange asks for a change and waits until left has nothing left to say.
func (a *app) clusterChange(cmd *cobra.Command, what string, change func(*client.Client) (string, error), left func(*client.ClusterStatus) string) error {
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	if a.dryRun {
		a.ui.Note("dry run: would %s", what)
		return nil
	}
	done, err := change(c)
	if err != nil {
		return clusterProblem(err)
	}
	a.ui.Note("%s", done)
	var s *client.ClusterStatus
	if left != nil {
		if s, err = a.awaitCluster(cmd.Context(), c, a.patience(cmd, 10*time.Minute), what, left); err != nil {
			return clusterProblem(err)
		}
		a.ui.Note("done: %s", what)
	}
	if a.ui.Format == ui.Table && a.ui.Template == nil {
		return nil
	}
	if s == nil {
		if s, err = c.ClusterStatus(cmd.Context()); err != nil {
			return clusterProblem(err)
		}
	}
	return a.ui.Item(s, nil)
}

// awaitCluster asks for the status until left has nothing to say, and tells what it
// says whenever that changes. The status last seen comes with an error too.
func (a *app) awaitCluster(ctx context.Context, c *client.Client, patience time.Duration, what string, left func(*client.ClusterStatus) string) (*client.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	told := ""
	var last *client.ClusterStatus
	for {
		s, err := c.ClusterStatus(ctx)
		switch {
		case err == nil:
			last = s
			now := left(s)
			if now == "" {
				return s, nil
			}
			if now != told {
				told = now
				a.ui.Note("%s", now)
			}
		case ctx.Err() == nil && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrTimeout):
			return last, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return last, ctx.Err()
			}
			return last, &problem{code: exitTimeout, what: fmt.Sprintf("%s: not done within %s: %s; it goes on by itself", what, patience, or(told, "no answer")), next: "pubsub cluster status --wait --timeout 10m", err: ctx.Err()}
		}
	}
}

// clusterProblem explains why a request about the cluster failed.
func clusterProblem(err error) error {
	if errors.Is(err, client.ErrNoResponders) {
		return &problem{code: exitNoResponder, what: "the broker is not part of a cluster, or this user may not ask about it (a user of the system account may)", next: "pubsub context show --explain", err: err}
	}
	return err
}

// completeNodes completes from the cluster's nodes.
func (a *app) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, "nodes", func(ctx context.Context, c *client.Client) ([]string, error) {
		s, err := c.ClusterStatus(ctx)
		var names []string
		for _, n := range s.Nodes {
			names = append(names, n.Name)
		}
		return names, err
	})
}
