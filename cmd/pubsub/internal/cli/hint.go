package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/client"
)

// hintPatience is how long a hint may take: it is only a courtesy.
const hintPatience = 300 * time.Millisecond

// What is asked for a courtesy: not to be allowed to is no failure of the command.
const (
	hintSubject     = "$HERALD.ADV.LIST"
	servicesSubject = "$SRV.INFO"
)

// nearest asks who is there for a subject; nil when notes aren't wanted, or nobody tells.
func (a *app) nearest(ctx context.Context, subject string) *client.Nearest {
	if a.ui.Quiet {
		return nil
	}
	a.courtesies = append(a.courtesies, hintSubject)
	ctx, cancel := context.WithTimeout(ctx, hintPatience)
	defer cancel()
	n, err := a.client.Nearest(ctx, subject)
	if err != nil {
		a.ui.Debug("who is there for %s: %v", subject, err)
		return nil
	}
	return n
}

func near(n *client.Nearest) string {
	if len(n.Like) == 0 {
		return ""
	}
	return "; near it: " + strings.Join(n.Like, ", ")
}

// hintSubscribed says so when nothing is known that would come on a subject.
func (a *app) hintSubscribed(ctx context.Context, subject string) {
	if strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.") {
		return
	}
	if n := a.nearest(ctx, subject); n != nil && len(n.Advertisements) == 0 && !n.Traffic {
		a.ui.Note("nothing is advertised on %s, and nothing was published there within an hour%s", subject, near(n))
	}
}

// hintPublished says so when nobody listens to what was published, and nothing keeps it.
func (a *app) hintPublished(ctx context.Context, subjects map[string]int) {
	for subject, messages := range subjects {
		if strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.") {
			continue
		}
		n := a.nearest(ctx, subject)
		if n == nil || n.Subscribers > 0 || len(n.Topics) > 0 {
			continue
		}
		what := fmt.Sprintf("%s on %s", plural(messages, "message"), subject)
		a.ui.Note("nobody listens to the %s, and no topic keeps them%s", what, near(n))
	}
}
