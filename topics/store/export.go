package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// flushRequest asks the flusher to flush and then to do something, alone with the
// files.
type flushRequest struct {
	do       func() error // after the flush; nil: that is all
	idle     bool         // do needs no flush
	replaces bool         // do replaces what there is: it comes without a flush, and its error ends the flusher
	answer   chan error
}

func (f *flusher) ask(r *flushRequest) error {
	r.answer = make(chan error, 1)
	select {
	case f.requests <- r:
		return <-r.answer
	case <-f.done:
		return ErrClosed
	}
}

// serve does what was asked for. The error is one that ends the flusher.
func (f *flusher) serve(r *flushRequest) error {
	if r.replaces {
		err := r.do()
		r.answer <- err
		var end *endError
		if errors.As(err, &end) {
			return err
		}
		return nil
	}
	if r.idle {
		r.answer <- r.do()
		return nil
	}
	err := f.flush()
	if err != nil || r.do == nil {
		r.answer <- err
		return err
	}
	r.answer <- r.do()
	return nil
}

// Exported is what Export made: the files that are a store as of Applied.
type Exported struct {
	Applied topics.Index
	Files   []ExportedFile // state.db and the marker last
}

// ExportedFile is one file of it.
type ExportedFile struct {
	Name   string // relative to the folder
	Length int64
	Sum    uint32 // CRC-32C of the whole file
}

// ErrDamaged is returned by Export when part of the store can't be read: it must not
// be spread.
var ErrDamaged = errors.New("the store is damaged")

// Export flushes, and makes dir a copy of the store as it then is, for another replica
// to Adopt: links to the data files, which are never changed, so that compaction may
// go on, and a copy of the small state. Nothing of it is synced: it is of use only to
// this process. The caller removes dir when it is done with it.
func (s *Store) Export(dir string) (Exported, error) {
	if err := s.Damage(); err != nil {
		return Exported{}, fmt.Errorf("export the store %s: %w: %w", s.o.Dir, ErrDamaged, err)
	}
	var x Exported
	err := s.flusher.ask(&flushRequest{do: func() (err error) {
		x, err = s.flusher.export(dir)
		return err
	}})
	if err != nil {
		return Exported{}, fmt.Errorf("export the store %s: %w", s.o.Dir, err)
	}
	// Not on the flusher's goroutine: of files of an older version nobody noted the sum.
	for i := range x.Files {
		if err := x.Files[i].measure(dir); err != nil {
			return Exported{}, fmt.Errorf("export the store %s: %w", s.o.Dir, err)
		}
	}
	return x, nil
}

func (f *flusher) export(dir string) (Exported, error) {
	s := f.s
	x := Exported{Applied: s.savedIndex} // only install changes it, and Adopt, on this goroutine
	if f.db.db == nil {
		return x, nil
	}
	if err := os.MkdirAll(filepath.Join(dir, dataDir), 0o700); err != nil {
		return x, err
	}
	s.mu.RLock()
	files := make([]*dataFile, 0, len(s.files))
	for _, d := range s.files {
		d.Retain()
		files = append(files, d)
	}
	s.mu.RUnlock()
	for _, d := range files {
		e := ExportedFile{Name: filepath.Join(dataDir, filepath.Base(d.Path())), Length: d.Length()}
		e.Sum, _ = d.Sum()
		err := os.Link(d.Path(), filepath.Join(dir, e.Name))
		s.release(d)
		if err != nil {
			return x, err
		}
		x.Files = append(x.Files, e)
	}
	for name, write := range map[string]func(io.Writer) error{
		filepath.Base(f.db.path): func(w io.Writer) error {
			return f.db.guard(func() error {
				return f.db.db.View(func(tx *bolt.Tx) error { _, err := tx.WriteTo(w); return err })
			})
		},
		filepath.Base(f.db.marker): func(w io.Writer) error { _, err := w.Write(encodeMarker(f.db.generation)); return err },
	} {
		e, err := writeExported(dir, name, write)
		if err != nil {
			return x, err
		}
		x.Files = append(x.Files, e)
	}
	return x, nil
}

// exportWriter counts and sums up what is written.
type exportWriter struct {
	f *os.File
	e ExportedFile
}

func (w *exportWriter) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.e.Length += int64(n)
	w.e.Sum = datafile.Checksum(w.e.Sum, b[:n])
	return n, err
}

func writeExported(dir, name string, write func(io.Writer) error) (ExportedFile, error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return ExportedFile{}, err
	}
	w := &exportWriter{f: f, e: ExportedFile{Name: name}}
	err = errors.Join(write(w), f.Close())
	return w.e, err
}

// measure finds out the sum of a file, if nobody noted it.
func (e *ExportedFile) measure(dir string) error {
	if e.Sum != 0 || e.Length == 0 {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, e.Name))
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for {
		n, err := f.Read(b)
		e.Sum = datafile.Checksum(e.Sum, b[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
