package state

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// StepLog keeps the steps that a replica hasn't carried out: what it needs to run them again
// behind the state that it has. Append only notes a step; Flush makes it last, in a file that
// is made once there is something to write. Flush is called by any goroutine, the rest by one.
//
//	file   frames as a Journal's, with the head of a step in place of a delta
type StepLog struct {
	dir string

	mu      sync.Mutex // of what follows
	epoch   uint64
	steps   []Logged
	bytes   int
	pending []byte
	whole   bool // the file is to be written anew
	file    *os.File
	ended   bool
	forgot  uint64 // how often steps were forgotten
}

// Logged is a step that is kept.
type Logged struct {
	Seq  uint64
	Head []byte
}

func (l *StepLog) name() string { return filepath.Join(l.dir, "steps") }

// OpenStepLog opens what a folder holds of an epoch, behind a step. What can't be read, as
// a crash leaves it, ends it.
func OpenStepLog(dir string, epoch, behind uint64) (*StepLog, error) {
	l := &StepLog{dir: dir, epoch: epoch}
	f, err := os.OpenFile(l.name(), os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		l.whole = true
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the steps of an operator: %w", err)
	}
	l.file = f
	r, length := bufio.NewReader(f), int64(0)
	for {
		step, err := readFrame(r)
		if errors.Is(err, ErrDelta) {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the steps of an operator: %w", err), f.Close())
		}
		length += step.size()
		if step.epoch == epoch && step.seq == l.last(behind)+1 {
			l.steps, l.bytes = append(l.steps, Logged{step.seq, step.delta}), l.bytes+len(step.delta)
		}
	}
	if err := f.Truncate(length); err != nil {
		return nil, errors.Join(fmt.Errorf("open the steps of an operator: %w", err), f.Close())
	}
	if _, err := f.Seek(length, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("open the steps of an operator: %w", err), f.Close())
	}
	return l, nil
}

func (l *StepLog) last(behind uint64) uint64 {
	if n := len(l.steps); n > 0 {
		return l.steps[n-1].Seq
	}
	return behind
}

// Last returns the last step that is kept; behind when there is none.
func (l *StepLog) Last(behind uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.last(behind), behind)
}

// Size returns how many steps are kept, and the bytes of their heads.
func (l *StepLog) Size() (steps, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.steps), l.bytes
}

// Steps returns the steps that are kept, in order; what is returned doesn't change.
func (l *StepLog) Steps() []Logged {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.steps[:len(l.steps):len(l.steps)]
}

// Append keeps the step behind the last one. head is kept.
func (l *StepLog) Append(seq uint64, head []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps, l.bytes = append(l.steps, Logged{seq, head}), l.bytes+len(head)
	if !l.whole {
		l.pending = appendFrame(l.pending, l.epoch, seq, head)
	}
}

// Trim forgets the steps up to one, whose outcome the state has. What the file holds of
// them goes with the next Flush.
func (l *StepLog) Trim(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.steps) && l.steps[n].Seq <= seq {
		l.bytes -= len(l.steps[n].Head)
		n++
	}
	if n > 0 {
		l.steps, l.whole, l.pending = append([]Logged(nil), l.steps[n:]...), true, nil
		l.forgot++
	}
}

// Begin forgets what isn't of an epoch, or isn't what follows a step.
func (l *StepLog) Begin(epoch, behind uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.steps); l.epoch != epoch || n > 0 && (l.steps[0].Seq > behind+1 || l.steps[n-1].Seq <= behind) {
		l.epoch, l.steps, l.bytes, l.whole, l.pending = epoch, nil, 0, true, nil
		l.forgot++
	}
}

// Flush makes the state and what is kept behind it last: no step goes from the file before the
// state lasts that it has come to. Its errors are those of flush, which flushes the state, and
// of the file.
func (l *StepLog) Flush(flush func() error) error {
	l.mu.Lock()
	before, epoch, forgot := l.steps[:len(l.steps):len(l.steps)], l.epoch, l.forgot
	l.mu.Unlock()
	if err := flush(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if forgot != l.forgot && len(before) > 0 { // the state that lasts may not have them yet
		return l.told(l.rewrite(epoch, before))
	}
	return l.flush()
}

// flush makes what is kept last; mu is held.
func (l *StepLog) flush() error {
	if l.ended || l.file == nil && len(l.steps) == 0 {
		return nil
	}
	var err error
	switch {
	case l.whole || l.file == nil:
		err = l.rewrite(l.epoch, nil)
	case len(l.pending) > 0:
		if _, err = l.file.Write(l.pending); err == nil {
			err = l.file.Sync()
		}
		l.whole, l.pending = err != nil, nil
	}
	return l.told(err)
}

func (l *StepLog) told(err error) error {
	if err != nil {
		return fmt.Errorf("write the steps of an operator to %s: %w", l.dir, err)
	}
	return nil
}

// rewrite writes the file anew: steps of an epoch that have been forgotten, and what is kept.
func (l *StepLog) rewrite(epoch uint64, forgotten []Logged) error {
	if l.ended {
		return nil
	}
	f, err := os.Create(l.name() + ".new")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	var frame []byte
	for _, s := range forgotten {
		if epoch != l.epoch || len(l.steps) == 0 || s.Seq < l.steps[0].Seq {
			frame = appendFrame(frame[:0], epoch, s.Seq, s.Head)
			_, _ = w.Write(frame) // told by Flush
		}
	}
	for _, s := range l.steps {
		frame = appendFrame(frame[:0], l.epoch, s.Seq, s.Head)
		_, _ = w.Write(frame) // told by Flush
	}
	if err = errors.Join(w.Flush(), f.Sync()); err == nil {
		err = os.Rename(l.name()+".new", l.name())
	}
	if err == nil {
		err = syncDir(l.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if l.file != nil {
		_ = l.file.Close() // it has been replaced
	}
	l.file, l.whole, l.pending = f, len(forgotten) > 0, nil
	return nil
}

// Remove ends the log and takes its file away.
func (l *StepLog) Remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.file != nil {
		_ = l.file.Close() // it goes
		l.file = nil
	}
	if err := os.Remove(l.name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the steps of an operator: %w", err)
	}
	return nil
}

// Close makes what is kept last, behind a state that does, and ends the log.
func (l *StepLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.flush()
	l.ended = true
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
		l.file = nil
	}
	return err
}
