package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/heraldmq/herald/broker/backup"
)

// Verify reads all of a topic of a backup and says what is wrong with it: errors are
// ErrDamaged where the backup is at fault. It returns how many messages would be restored.
func Verify(dir string, t *Topic) (messages uint64, err error) {
	if !t.Done {
		return 0, fmt.Errorf("topic %s is %w: taking it did not end; take the backup again to go on", t.Name, ErrDamaged)
	}
	err = t.each(dir, func(*backup.Entry) error {
		messages++
		return nil
	})
	return messages, err
}

// VerifyDefinitions checks the file with the definitions and returns it; nil without one.
func VerifyDefinitions(dir string, m *Manifest) ([]byte, error) {
	if m.Definitions == nil {
		return nil, nil
	}
	return m.Definitions.read(dir)
}

// each calls f with the messages that the topic held.
func (t *Topic) each(dir string, f func(*backup.Entry) error) error {
	st, err := t.Content()
	if err != nil {
		return err
	}
	last := uint64(0)
	for i := range t.Parts {
		p := &t.Parts[i]
		b, err := p.read(dir)
		if err != nil {
			return err
		}
		in, n := backup.NewReader(bytes.NewReader(b), entryMax), uint64(0)
		for {
			e, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s is %w: %w", p.Name, ErrDamaged, err)
			}
			if e.Sequence <= last || e.Sequence < p.First || e.Sequence > p.Last {
				return fmt.Errorf("%s is %w: message %d behind %d", p.Name, ErrDamaged, e.Sequence, last)
			}
			last = e.Sequence
			n++
			if e.Sequence < st.FirstSeq || e.Sequence > st.LastSeq || t.gone(e.Sequence) {
				continue
			}
			if err := f(e); err != nil {
				return err
			}
		}
		if n != p.Messages {
			return fmt.Errorf("%s is %w: %d messages instead of %d", p.Name, ErrDamaged, n, p.Messages)
		}
	}
	return nil
}

// Change is how a restored topic differs from what it was.
type Change struct {
	Name     string   // "" as it was
	Replicas int      // 0 as they were
	Subjects []string // what it captures; nil as it was. What it holds already stays
}

// Restore makes a topic of a backup anew. When it fails, or the broker or this process
// ends, nothing of the topic stays. The topic must not exist.
func (b *Broker) Restore(ctx context.Context, dir string, t *Topic, change Change, progress func(done uint64)) error {
	config, name, err := changed(t.Config, t.Name, change)
	if err != nil {
		return err
	}
	return b.restore(ctx, name, config, t.State, func(w io.Writer) error {
		out := backup.NewWriter(w)
		err := t.send(dir, out, progress)
		if err == nil {
			err = out.Finish()
		}
		return errors.Join(err, out.Close())
	})
}

func (t *Topic) send(dir string, out *backup.Writer, progress func(uint64)) error {
	at := t.Taken.UnixNano()
	if err := out.Write(&backup.Entry{Name: backup.StateName, Time: at, Payload: t.State}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.Consumers)) {
		if err := out.Write(&backup.Entry{Name: backup.ConsumerPrefix + name, Time: at, Payload: t.Consumers[name]}); err != nil {
			return err
		}
	}
	done := uint64(0)
	return t.each(dir, func(e *backup.Entry) error {
		if done++; progress != nil {
			progress(done)
		}
		return out.Write(e)
	})
}

// changed applies a change to a config.
func changed(config json.RawMessage, name string, change Change) (json.RawMessage, string, error) {
	if change.Name == "" && change.Replicas == 0 && len(change.Subjects) == 0 {
		return config, name, nil
	}
	var all map[string]json.RawMessage
	err := json.Unmarshal(config, &all)
	if err != nil {
		return nil, "", err
	}
	if change.Name != "" {
		name = change.Name
		if all["name"], err = json.Marshal(name); err != nil {
			return nil, "", err
		}
	}
	if change.Replicas > 0 {
		if all["num_replicas"], err = json.Marshal(change.Replicas); err != nil {
			return nil, "", err
		}
	}
	if len(change.Subjects) > 0 {
		if all["subjects"], err = json.Marshal(change.Subjects); err != nil {
			return nil, "", err
		}
	}
	out, err := json.Marshal(all)
	return out, name, err
}
