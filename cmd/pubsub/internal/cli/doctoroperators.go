package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/heraldmq/herald/client"
)

// examineOperators tells which operators have failed.
func examineOperators(ctx context.Context, c *client.Client) finding {
	const check = "operators"
	var all struct {
		Operators []client.Operator `json:"operators"`
	}
	if err := c.Operators(ctx, "LIST", client.OperatorRequest{}, &all); err != nil {
		if errors.Is(err, client.ErrNoResponders) {
			return finding{check, verdictSkip, "the broker has none, or they are not for this user", ""}
		}
		return finding{check, verdictSkip, "the broker doesn't tell: " + plain(err), ""}
	}
	return failedOperators(check, all.Operators)
}

func failedOperators(check string, all []client.Operator) finding {
	f, failed := finding{Check: check, Verdict: verdictOK}, 0
	for i := range all {
		if o := &all[i]; o.State == "failed" {
			if failed++; failed == 1 {
				f.Found = fmt.Sprintf("%s has failed: %s", o.Name, o.Error)
				f.Do = fmt.Sprintf("pubsub operator logs %s; then pubsub operator resume %s", o.Name, o.Name)
			}
		}
	}
	switch {
	case failed == 0:
		f.Found = plural(len(all), "operator") + ", none has failed"
	case failed > 1:
		f.Found = fmt.Sprintf("%d of %d have failed; %s", failed, len(all), f.Found)
	}
	if failed > 0 {
		f.Verdict = verdictFail
	}
	return f
}
