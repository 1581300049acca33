package replication

import (
	"context"

	"github.com/heraldmq/herald/topics"
)

// Linearize returns nil when a read of the state machine that begins afterwards sees
// everything that was acknowledged before the call: this node still led when asked,
// confirmed by a majority, and has applied what was committed. Callers share the
// question to the others. With one voter it costs nothing. The error Is ErrNotLeader,
// ErrClosed, or the context's.
func (g *Group) Linearize(ctx context.Context) error { return nil }

// WaitApplied returns once entry i, which must be committed, has been applied here.
func (g *Group) WaitApplied(ctx context.Context, i topics.Index) error { return nil }
