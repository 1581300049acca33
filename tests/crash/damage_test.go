package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// TestFlippedBit stops the broker, flips one bit of one of its files, and starts
// it again, for every kind of file. What must hold, wherever the bit was: either
// the broker refuses to start, or every message is there as it was sent, or what
// is missing is refused with an error (not as "no such message"), and the file
// is named in the log. A wrong byte is never served, nothing is silently gone.
func TestFlippedBit(t *testing.T) {
	rounds := 12
	if long() {
		rounds = 120
	}
	random := seeded(t)
	b := harness.Start(t, "")
	l := &ledger{lines: quakes(t), acked: map[int]uint64{}}
	nc := connect(t, b)
	createTopic(t, nc)
	stop := make(chan struct{})
	go func() { <-time.After(1500 * time.Millisecond); close(stop) }()
	l.publish(nc, 200, stop)
	nc.Close()
	b.Stop()
	store := filepath.Join(b.Dir, "store")
	whole := t.TempDir()
	must(t, os.CopyFS(whole, os.DirFS(store)))

	outcomes := map[string]int{}
	for round := range rounds {
		must(t, os.RemoveAll(store))
		must(t, os.CopyFS(store, os.DirFS(whole)))
		path, what := flip(t, random, store)
		outcome := l.judge(t, b, path)
		outcomes[outcome]++
		t.Logf("round %d: %s: %s", round, what, outcome)
		b.Kill()
	}
	t.Logf("outcomes: %v", outcomes)
}

// flip changes one bit of one file, among the bytes that are not zero (most of a
// preallocated file is nothing).
func flip(t *testing.T, random *rand.Rand, root string) (path, what string) {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(filepath.Base(path), "LOCK") {
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				files = append(files, path)
			}
		}
		return err
	}))
	for {
		path = files[random.IntN(len(files))]
		text, err := os.ReadFile(path)
		must(t, err)
		for range 50 {
			at := random.IntN(len(text))
			if text[at] == 0 {
				continue
			}
			bit := random.IntN(8)
			text[at] ^= 1 << bit
			must(t, os.WriteFile(path, text, 0o600))
			rel, _ := filepath.Rel(root, path)
			return path, fmt.Sprintf("%s byte %d bit %d", rel, at, bit)
		}
	}
}

// judge starts the broker on damaged files and says how it coped.
func (l *ledger) judge(t *testing.T, b *harness.Broker, path string) string {
	t.Helper()
	before := len(b.Output())
	err := b.Run()
	named := func() bool { return strings.Contains(b.Output()[before:], filepath.Base(path)) }
	if err != nil {
		if !named() {
			t.Errorf("refused to start without naming %s:\n%s", path, b.Output()[before:])
		}
		return "refused to start"
	}
	nc := connect(t, b)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := js.Stream(ctx, topic)
	if err != nil {
		if !named() {
			t.Errorf("topic is gone (%v) and the log does not name %s", err, path)
		}
		return "topic refused"
	}
	refused := 0
	for n, seq := range l.acked {
		m, err := stream.GetMsg(ctx, seq)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			t.Errorf("message %d at %d: reported as never stored; the damage to %s was swallowed", n, seq, path)
			return "swallowed"
		case err != nil:
			refused++
		case string(m.Data) != string(l.message(n).Data):
			t.Errorf("message %d at %d: a damaged payload was served after damage to %s", n, seq, path)
			return "served"
		}
	}
	switch {
	case refused == 0:
		return "all messages whole"
	case !named():
		t.Errorf("%d messages refused, and the log does not name %s", refused, path)
	}
	return fmt.Sprintf("%d messages refused", refused)
}
