package state

import (
	"sync/atomic"
)

// Lasting is a Store in files, of an epoch.
type Lasting interface {
	Store
	// Epoch returns the epoch that the state is of, 0 where there is none.
	Epoch() uint64
	// Begin makes the state that of an epoch.
	Begin(epoch uint64, from Reader, seq uint64) error
	// Flushed returns the step up to which the files hold everything.
	Flushed() uint64
	// Remove takes the files away; the store is of no use afterwards.
	Remove() error
}

var _ Lasting = (*Journal)(nil)

// Durable is what an operator keeps on one node, and what has changed since it was last
// given to others. It is used as Store says; Flush, Close and Since by any goroutine.
type Durable struct {
	Lasting
	changed atomic.Pointer[Changed]
}

// Open opens what a folder holds, which it makes.
func Open(dir string) (*Durable, error) {
	j, err := OpenJournal(dir)
	if err != nil {
		return nil, err
	}
	return &Durable{Lasting: j}, nil
}

// First implements the look-up of the same name.
func (d *Durable) First(from, to []byte) (key, v []byte, ok bool, err error) {
	return First(d.Lasting, from, to)
}

// Track notes which keys change from now on, in at most as many bytes; 0: none any more.
func (d *Durable) Track(bytesMax int) {
	if bytesMax == 0 {
		d.changed.Store(nil)
		return
	}
	d.changed.Store(NewChanged(d.Seq(), bytesMax))
}

// Apply implements Store.
func (d *Durable) Apply(delta []byte, seq uint64) error {
	if c := d.changed.Load(); c != nil { // before a snapshot can have it
		if err := c.Note(delta, seq); err != nil {
			return err
		}
	}
	return d.Lasting.Apply(delta, seq)
}

// Begin implements Lasting.
func (d *Durable) Begin(epoch uint64, from Reader, seq uint64) error {
	if c := d.changed.Load(); c != nil {
		c.forget(seq)
	}
	return d.Lasting.Begin(epoch, from, seq)
}

// Replace implements Store.
func (d *Durable) Replace(from Reader, seq uint64) error { return d.Begin(d.Epoch(), from, seq) }

// Since returns a snapshot, and the keys in order that have changed behind a step; known
// is false when that isn't known any more. What changed up to a step oldest, which nobody
// will ask for, is forgotten.
func (d *Durable) Since(seq, oldest uint64) (s Snapshot, keys []string, known bool, err error) {
	if s, err = d.Snapshot(); err != nil {
		return nil, nil, false, err
	}
	if c := d.changed.Load(); c != nil {
		keys, known = c.since(seq, oldest)
	}
	return s, keys, known, nil
}
