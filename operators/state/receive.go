package state

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// frameStream is a state that comes as frames (WriteFrames): a Reader that can be scanned
// once, from its beginning to its end.
type frameStream struct {
	r          io.Reader
	read       *Memory // what was read before it was found to be too big for memory
	epoch, seq uint64  // known at the end
}

// next returns the next frame's pairs, and whether it was the last.
func (f *frameStream) next() (delta []byte, last bool, err error) {
	n, err := readFrame(f.r)
	if err != nil {
		return nil, false, err
	}
	f.epoch, f.seq = n.epoch, n.seq
	return n.delta, n.seq > 0 || len(n.delta) == 0, nil
}

// into reads the state into memory, as long as it isn't bigger than a bound; 0: whatever.
func (f *frameStream) into(m *Memory, bytesMax int64) (whole bool, err error) {
	for {
		delta, last, err := f.next()
		if err != nil {
			return false, err
		}
		if err := m.Apply(delta, f.seq); err != nil {
			return false, err
		}
		if _, bytes := m.Size(); last || bytesMax > 0 && bytes > bytesMax {
			f.read = m
			return last, nil
		}
	}
}

// Get implements Reader.
func (f *frameStream) Get([]byte) ([]byte, bool, error) {
	return nil, false, errors.New("a state that is received can't be looked up")
}

// Scan implements Reader.
func (f *frameStream) Scan(_, _ []byte, yield func(key, v []byte) bool) error {
	stopped := errors.New("stopped")
	if f.read != nil {
		more := true
		err := f.read.Scan(nil, nil, func(key, v []byte) bool { more = yield(key, v); return more })
		if err != nil || !more {
			return err
		}
	}
	for {
		delta, last, err := f.next()
		if err != nil {
			return err
		}
		err = EachChange(delta, func(key, v []byte, _ bool) error {
			if !yield(key, v) {
				return stopped
			}
			return nil
		})
		if errors.Is(err, stopped) || err != nil || last {
			if errors.Is(err, stopped) {
				err = nil
			}
			return err
		}
	}
}

// Frames returns a state that comes as frames; it can be scanned once, as a whole.
func Frames(r io.Reader) Reader { return &frameStream{r: r} }

// SkipFrames reads past a state that comes as frames.
func SkipFrames(r io.Reader) error {
	f := &frameStream{r: r}
	for {
		if _, last, err := f.next(); err != nil || last {
			return err
		}
	}
}

// Receive makes the state what comes as frames, if check has nothing against the epoch and
// the step that it is of. One that is too big for memory doesn't have to fit there.
func (d *Durable) Receive(r io.Reader, check func(epoch, seq uint64) error) error {
	f := &frameStream{r: bufio.NewReaderSize(r, chunkBytes)}
	if p, is := d.now().(*Pebble); is {
		return d.received(p.begin(f, func() (uint64, uint64, error) { return f.epoch, f.seq, check(f.epoch, f.seq) }))
	}
	m := NewMemory()
	whole, err := f.into(m, d.above)
	if err != nil {
		return err
	}
	if whole {
		if err := check(f.epoch, f.seq); err != nil {
			return err
		}
		return d.Begin(f.epoch, m, f.seq)
	}
	p, err := OpenPebble(d.dir)
	if err != nil {
		return err
	}
	if err := p.begin(f, func() (uint64, uint64, error) { return f.epoch, f.seq, check(f.epoch, f.seq) }); err != nil {
		return errors.Join(err, p.Remove())
	}
	old := d.now()
	d.set(p)
	return d.received(old.Remove())
}

func (d *Durable) received(err error) error {
	if c := d.changed.Load(); c != nil && err == nil {
		c.forget(d.Seq())
	}
	return err
}

var errClosed = fmt.Errorf("the state of an operator is closed: %w", os.ErrClosed)
