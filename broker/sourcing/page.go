package sourcing

import (
	"context"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// Page reads some messages of a topic wherever it is: those of the subjects (none: all)
// from a sequence on, and where to go on. Without any, what follows is all that there is.
func (e *Engine) Page(ctx context.Context, t *state.Topic, subjects []string, from topics.Sequence) ([]topics.Message, topics.Sequence, error) {
	p, err := e.fetch(ctx, t, &readQuery{Topic: t.ID(), Patterns: subjects, From: from})
	if err != nil {
		return nil, from, err
	}
	return p.messages, p.Next, nil
}
