package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/backup"
)

// PartSize is about how many bytes of messages a part has.
const PartSize = 64 << 20

// entryMax bounds one message, as the broker does.
const entryMax = 64 << 20

// Taking is a backup that is being taken. It is used by one goroutine.
type Taking struct {
	Dir      string
	Manifest *Manifest
	PartSize int64            // 0: PartSize
	Now      func() time.Time // for the manifest
	// Progress is told how many messages of a topic are there, of how many.
	Progress func(topic string, done, all uint64)

	broker *Broker
	unlock func()
}

// Begin goes on with the backup in a directory, or begins one. Close lets go of it.
func Begin(dir string, b *Broker, now func() time.Time) (*Taking, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("another backup to %s is going on: %w", dir, err)
	}
	t := &Taking{Dir: dir, broker: b, Now: now, unlock: unlock, PartSize: PartSize}
	t.Manifest, err = Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		names, readErr := os.ReadDir(dir)
		if err = readErr; err == nil && len(names) > 1 {
			err = fmt.Errorf("%s is neither empty nor a backup", dir)
		}
		t.Manifest = &Manifest{Format: 1}
	}
	if err != nil {
		unlock()
		return nil, err
	}
	t.Manifest.Broker = b.Conn.ConnectedUrlRedacted()
	t.Manifest.Started, t.Manifest.Ended = now().UTC(), time.Time{}
	return t, nil
}

// Close lets go of the directory.
func (t *Taking) Close() { t.unlock() }

// Finish says in the manifest that the backup is complete.
func (t *Taking) Finish() error {
	for _, topic := range t.Manifest.Topics {
		if !topic.Done {
			return nil // it was not asked for this time, and never completed
		}
	}
	t.Manifest.Ended = t.Now().UTC()
	return t.Manifest.save(t.Dir)
}

// Define stores the file with definitions.
func (t *Taking) Define(b []byte) error {
	f, err := writeFile(t.Dir, "definitions.yaml", b)
	if err != nil {
		return err
	}
	t.Manifest.Definitions = &f
	return t.Manifest.save(t.Dir)
}

// Topic takes one topic, from where the backup of it ends, and returns how many messages
// were added.
func (t *Taking) Topic(ctx context.Context, name string) (added uint64, err error) {
	var info content
	if err := t.broker.Call(ctx, "STREAM.INFO."+name, struct{}{}, &info); err != nil {
		return 0, err
	}
	topic := t.find(name, info.Created)
	goesOn := len(topic.Parts) > 0
	topic.Done = false
	if err := t.Manifest.save(t.Dir); err != nil {
		return 0, err
	}
	if added, err = t.take(ctx, topic); err != nil {
		return added, err
	}
	if goesOn {
		whole, err := t.deletions(ctx, topic)
		if err != nil {
			return added, err
		}
		if !whole { // what was deleted meanwhile can't be told: once more, from the start
			topic.Parts, topic.Deleted = nil, nil
			if added, err = t.take(ctx, topic); err != nil {
				return added, err
			}
		}
	}
	topic.Done, topic.Taken = true, t.Now().UTC()
	return added, errors.Join(t.Manifest.save(t.Dir), t.tidy(topic))
}

// find returns the topic of the manifest, anew when it is another of that name.
func (t *Taking) find(name string, created time.Time) *Topic {
	all := t.Manifest.Topics
	i := slices.IndexFunc(all, func(o *Topic) bool { return o.Name == name })
	if i < 0 {
		all = append(all, &Topic{Name: name, Created: created})
		slices.SortFunc(all, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
		t.Manifest.Topics = all
		return t.find(name, created)
	}
	if !all[i].Created.Equal(created) {
		all[i] = &Topic{Name: name, Created: created}
	}
	return all[i]
}

// take receives what is behind the last part.
func (t *Taking) take(ctx context.Context, topic *Topic) (added uint64, err error) {
	next := topic.last() + 1
	c, in, err := t.broker.snapshot(ctx, topic.Name, next)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	st, err := c.state()
	if err != nil {
		return 0, err
	}
	w := &parts{t: t, topic: topic}
	defer w.abandon()
	consumers := map[string]json.RawMessage{}
	r := backup.NewReader(in, entryMax)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return added, err
		}
		if name, ok := strings.CutPrefix(e.Name, backup.ConsumerPrefix); ok && e.Sequence == 0 {
			consumers[name] = json.RawMessage(e.Payload)
		}
		if e.Sequence < next {
			continue
		}
		if err := w.add(e); err != nil {
			return added, err
		}
		added++
		if t.Progress != nil {
			t.Progress(topic.Name, added, st.Messages)
		}
	}
	topic.Config, topic.State, topic.Consumers = c.Config, c.State, consumers
	return added, w.roll()
}

// deletions finds out what the topic no longer has of the parts. It is not whole when the
// broker does not say it all.
func (t *Taking) deletions(ctx context.Context, topic *Topic) (whole bool, err error) {
	var info content
	if err := t.broker.Call(ctx, "STREAM.INFO."+topic.Name, map[string]any{"deleted_details": true}, &info); err != nil {
		return false, err
	}
	st, err := info.state()
	if err != nil || !info.Created.Equal(topic.Created) || st.NumDeleted != len(st.Deleted) {
		return false, err
	}
	topic.Deleted = ranges(st.Deleted)
	return true, nil
}

// ranges puts numbers that follow each other together.
func ranges(numbers []uint64) (out [][2]uint64) {
	slices.Sort(numbers)
	for _, n := range numbers {
		if k := len(out) - 1; k >= 0 && n <= out[k][1]+1 {
			out[k][1] = max(out[k][1], n)
			continue
		}
		out = append(out, [2]uint64{n, n})
	}
	return out
}

// tidy removes what is left of parts that the manifest does not name.
func (t *Taking) tidy(topic *Topic) error {
	dir := partDir(topic.Name)
	names, err := os.ReadDir(filepath.Join(t.Dir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, n := range names {
		if !slices.ContainsFunc(topic.Parts, func(p Part) bool { return p.Name == dir+"/"+n.Name() }) {
			err = errors.Join(err, os.Remove(filepath.Join(t.Dir, dir, n.Name())))
		}
	}
	return err
}

func partDir(topic string) string { return "topics/" + topic }

// parts writes the parts of a topic.
type parts struct {
	t     *Taking
	topic *Topic

	f     *file
	w     *backup.Writer
	part  Part
	bytes int64
}

func (p *parts) add(e *backup.Entry) error {
	if p.f == nil {
		// The run is in the name, so that no part of the manifest is ever written over.
		name := fmt.Sprintf("%s/%020d-%x.part", partDir(p.topic.Name), e.Sequence, p.t.Manifest.Started.UnixNano())
		f, err := create(p.t.Dir, name)
		if err != nil {
			return err
		}
		p.f, p.w, p.part, p.bytes = f, backup.NewWriter(f), Part{First: e.Sequence}, 0
	}
	if err := p.w.Write(e); err != nil {
		return err
	}
	p.part.Last = e.Sequence
	p.part.Messages++
	if p.bytes += int64(len(e.Name) + len(e.Header) + len(e.Payload)); p.bytes >= p.t.PartSize {
		return p.roll()
	}
	return nil
}

// roll completes the part and names it in the manifest.
func (p *parts) roll() error {
	if p.f == nil {
		return nil
	}
	f, w := p.f, p.w
	p.f, p.w = nil, nil
	if err := errors.Join(w.Finish(), w.Close()); err != nil {
		f.abandon()
		return err
	}
	var err error
	if p.part.File, err = f.commit(); err != nil {
		return err
	}
	p.topic.Parts = append(p.topic.Parts, p.part)
	return p.t.Manifest.save(p.t.Dir)
}

// abandon keeps what has come of a part that is not full: the next run goes on there.
func (p *parts) abandon() { _ = p.roll() }
