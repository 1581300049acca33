package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// A state in files is taken over by another epoch, and by a shadow, as a checkpoint: a tree
// of the same files where it can (hard links). What differs is written to the new tree only,
// and the files that both have stay as long as one of them is there.

// checkpoint makes a folder that holds the state as it is now. Nothing is applied meanwhile.
func (p *Pebble) checkpoint(dir string) error {
	t, err := p.use()
	if err != nil {
		return err
	}
	if err = t.flush(); err == nil {
		err = t.told(t.db.Checkpoint(dir))
	}
	if err = errors.Join(err, t.done()); err != nil {
		return fmt.Errorf("checkpoint an operator's state: %w", err)
	}
	return nil
}

// clone makes a folder for another store.
func (p *Pebble) clone(dir string) error {
	if err := makeFolder(p.fs, dir); err != nil {
		return err
	}
	n := treeAbove(0)
	if err := p.checkpoint(treePath(p.fs, dir, n)); err != nil {
		return err
	}
	if err := writePointer(p.fs, dir, n); err != nil {
		return fmt.Errorf("checkpoint an operator's state: %w", err)
	}
	return nil
}

// Retain makes the state that of an epoch, as Durable's.
func (p *Pebble) Retain(epoch, seq uint64, fate func(key []byte) (stays bool, until []byte)) error {
	p.mu.Lock()
	n, at, old := treeAbove(p.n), p.at, p.t
	p.mu.Unlock()
	if err := p.checkpoint(p.path(n)); err != nil {
		return err
	}
	t, err := p.openTree(n, true)
	if err == nil {
		at.epoch, at.seq = epoch, seq
		at, err = t.drop(at, fate)
		err = p.swap(t, n, at, err)
	}
	if errors.Is(err, ErrDamaged) {
		old.harm.note(err) // the files are the same
	}
	return err
}

// drop removes what doesn't stay, and notes where the tree stands.
func (t *tree) drop(at standingAt, fate func(key []byte) (stays bool, until []byte)) (standingAt, error) {
	i, err := t.db.NewIter(&pebble.IterOptions{LowerBound: dataKey(nil), UpperBound: pebbleEnd})
	if err = t.told(err); err != nil {
		return at, err
	}
	at.steps = slices.Clone(at.steps)
	b := t.db.NewBatch()
	commit := func() error { return errors.Join(t.commit(b), b.Close()) }
	for ok := i.First(); ok && err == nil; {
		key := i.Key()[1:]
		stays, until := fate(key)
		if stays && until != nil {
			ok = i.SeekGE(dataKey(until))
			continue
		}
		if !stays {
			at.keys--
			at.bytes -= int64(len(key) + len(i.Value()))
			at.sum -= pairSum(key, i.Value())
			at.steps.less(key, len(i.Value()))
			err = b.Delete(bytes.Clone(i.Key()), nil)
			if b.Len() > pebbleBatch && err == nil {
				err = commit()
				b = t.db.NewBatch()
			}
		}
		ok = i.Next()
	}
	err = errors.Join(err, t.told(errors.Join(i.Error(), i.Close())), at.put(b), commit())
	return at, err
}
