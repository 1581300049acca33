package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// TestReplayGivesTheSameState does random things, and compares what is there with
// what a node finds that starts from a copy of the directory, as after a kill, and
// from the directory itself, as after a stop.
func TestReplayGivesTheSameState(t *testing.T) {
	t.Parallel()
	left := 30 // each opens three nodes
	if testing.Short() {
		left = 5
	}
	rapid.Check(t, func(rt *rapid.T) {
		if left--; left < 0 {
			return
		}
		dir, err := os.MkdirTemp("", "herald-replay-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		small := func(o *Options) { o.FlushBytes = 4 << 10 }
		n := open(t, dir+"/a", small)
		ops := rapid.SliceOfN(rapid.IntRange(0, 13), 5, 40).Draw(rt, "ops")
		for i, op := range ops {
			n.random(rt, i, op)
		}
		want := n.digest()
		copyStill(rt, dir+"/b", dir+"/a")
		killed := open(t, dir+"/b", small)
		if got := killed.digest(); got != want {
			rt.Fatalf("after a kill:\n%s\nbefore:\n%s", got, want)
		}
		killed.close()
		n.close()
		stopped := open(t, dir+"/a", small)
		if got := stopped.digest(); got != want {
			rt.Fatalf("after a stop:\n%s\nbefore:\n%s", got, want)
		}
		stopped.close()
	})
}

// copyStill copies a directory as it is at one moment, which a kill leaves too: when
// the store has flushed meanwhile, it copies again.
func copyStill(rt *rapid.T, to, from string) {
	look := func() string {
		var b strings.Builder
		err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			i, err := d.Info()
			if err == nil {
				fmt.Fprintln(&b, path, i.Size(), i.ModTime())
			}
			return err
		})
		if err != nil {
			return "" // something was removed under way
		}
		return b.String()
	}
	for range 1000 {
		before := look()
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil && before != "" && before == look() {
			return
		}
		if err := os.RemoveAll(to); err != nil {
			rt.Fatal(err)
		}
	}
	rt.Fatal("the directory is never still")
}

// random does one thing out of a few.
func (n *node) random(rt *rapid.T, i, op int) {
	ctx := n.Context()
	names := rapid.SampledFrom([]string{"one", "two"})
	name := names.Draw(rt, "topic")
	cfg := conf(name, name+".>")
	top, ok := n.Topic("A", name)
	cc := topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit, DeliverPolicy: topics.DeliverAll}
	var err error
	switch {
	case op == 0 || !ok:
		if rapid.Bool().Draw(rt, "queue") {
			cfg.Retention = topics.RetainWorkQueue
		}
		cfg.AllowAtomic, cfg.AllowBatched, cfg.MaxMsgs, cfg.Discard = true, true, 100, topics.DiscardNew
		_, _, err = n.CreateTopic(ctx, "A", cfg)
	case op == 1:
		cfg = *top.Config()
		cfg.MaxMsgs = rapid.Int64Range(1, 30).Draw(rt, "most")
		_, err = n.UpdateTopic(ctx, "A", cfg)
	case op == 2:
		err = n.DeleteTopic(ctx, "A", name)
	case op == 3:
		_, err = n.Purge(ctx, top, store.Purge{Keep: 3})
	case op == 4:
		_, err = n.DeleteMessage(ctx, top, top.Data().State().First)
	case op == 5:
		_, err = n.CreateConsumer(ctx, top, "c", cc)
	case op == 6:
		_, err = n.DeleteConsumer(ctx, top, "c")
	case op == 7 || op == 8: // batches, some of which don't fit
		for k := range 9 {
			header := fmt.Sprintf("NATS/1.0\r\nNats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n", i, k+1)
			reply := fmt.Sprintf("fast.%d.100.fail.%d.1.$FI", i, k+1)
			switch {
			case k == 0:
				reply = strings.Replace(reply, "1.$FI", "0.$FI", 1)
			case k == 8:
				header += "Nats-Batch-Commit: 1\r\n"
				reply = strings.Replace(reply, "1.$FI", "2.$FI", 1)
			}
			if op == 7 {
				n.publish(top, name+".x", header+"\r\n", fmt.Sprint(i, "-", k))
				n.ack()
				continue
			}
			top.Group().Capture([]front.Captured{{
				Topic: top.ID(), Subject: []byte(name + ".y"), Reply: []byte(reply), Payload: []byte(reply), Account: someAccount,
			}})
		}
		for a := (ack{}); op == 8 && !strings.HasPrefix(a.payload, `{"stream"`) && !strings.HasPrefix(a.payload, `{"error"`); {
			a = n.ack()
		}
	default:
		for k := range 20 {
			n.publish(top, fmt.Sprintf("%s.%d", name, k%3), "", fmt.Sprint(i, "-", k, strings.Repeat("x", 50)))
		}
		for range 20 {
			n.ack()
		}
	}
	var fault *topics.Fault
	if err != nil && !errors.As(err, &fault) {
		rt.Fatal(err)
	}
}

func TestTheCatalogueIsRestoredFromItsSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := open(t, dir)
	padding := strings.Repeat("x", 100<<10)
	for i := range 30 {
		body := fmt.Sprintf(`{"name":"a%d","subject":"a.%d","description":%q}`, i, i, padding)
		if _, _, err := n.Advertise(t.Context(), Put{Account: "A", ID: fmt.Sprint(i), Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	n.create(conf("t", "t"))
	waitFor(t, "the topic to be settled", func() (settled bool) {
		n.catalogue.read(func(c *catalogue.Catalogue) { settled = c.Find("A", "t").Settled() })
		return settled
	})
	waitFor(t, "a snapshot of the catalogue", func() bool { return n.CatalogueStats().Snapshot > 0 })
	want := frozenBytes(t, n)
	n.close()
	n = open(t, dir)
	if got := frozenBytes(t, n); got != want {
		t.Fatal("the catalogue differs after a restart from a snapshot")
	}
}

func frozenBytes(t *testing.T, n *node) string {
	t.Helper()
	var b []byte
	var err error
	n.catalogue.read(func(c *catalogue.Catalogue) { b, err = c.Freeze().AppendBinary(nil) })
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// FuzzApply gives a machine entries that nobody would write. They must be
// applied or refused as unreadable, without harm.
func FuzzApply(f *testing.F) {
	seed := func(kind topics.RecordKind, body []byte) {
		e := topics.AppendEntryHeader(nil, 5)
		e = topics.AppendRecord(e, kind, body)
		topics.SetRecords(e, 1)
		f.Add(e)
	}
	seed(topics.RecordTopicCreate, append(appendText(appendTopic(appendTopic(nil, 1), 5), "A"), `{"name":"t","subjects":["t"]}`...))
	seed(topics.RecordConsumerCreate, append(appendText(append(appendTopic(nil, 1), 0, 0, 0, 0), "c"), `{"ack_policy":"explicit"}`...))
	seed(topics.RecordPurge, appendText(appendTopic(appendTopic(appendTopic(nil, 1), 1), 1), "t"))
	seed(topics.RecordStorageLimits, appendStorageLimit(nil, storageLimit{"A", 5, 5}))
	seed(topics.RecordAcked, topics.AppendConsumerRecord(nil, 1, 1))
	f.Fuzz(func(t *testing.T, entry []byte) {
		data, err := store.Open(store.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := data.Close(); err != nil {
				t.Error(err)
			}
		}()
		var fatal error
		m := newDataMachine(1, data, func(err error) { fatal = err }, deaf{})
		first := topics.AppendEntryHeader(nil, 1)
		first = topics.AppendRecord(first, topics.RecordTopicCreate, append(appendText(appendTopic(appendTopic(nil, 1), 5), "A"), `{"name":"t","subjects":["t"]}`...))
		topics.SetRecords(first, 1)
		m.Apply([]replication.Entry{{Index: 1, Data: first}, {Index: 2, Data: entry}})
		if fatal != nil && !errors.Is(fatal, topics.ErrBadEntry) {
			t.Skip(fatal)
		}
	})
}

// deaf hears nothing.
type deaf struct{}

func (deaf) topicChanged(topics.GroupID, topics.TopicID, Change) {}
func (deaf) consumerChanged(topics.TopicID, string, Change)      {}
func (deaf) grown(topics.GroupID, []topics.TopicID)              {}
func (deaf) stepped(topics.GroupID, Step)                        {}
func (deaf) declared(topics.GroupID, Epoch)                      {}
func (deaf) adopted(topics.GroupID)                              {}

var _ front.Sink = (*Group)(nil)
