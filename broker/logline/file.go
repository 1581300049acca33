package logline

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// File is a log file that can be reopened and that rotates itself by size: the
// full file is renamed to name.YYYY.MM.DD.hh.mm.ss.nnnnnnnnn. It is safe for
// any number of writers.
type File struct {
	path string

	mu    sync.Mutex
	f     *os.File
	size  int64
	limit int64 // bytes; 0 = never rotate
	keep  int   // rotated files; 0 = all
}

// OpenFile opens or makes the file at path for appending. limit is the size in
// bytes at which it rotates (0: never), keep how many rotated files stay (0:
// all).
func OpenFile(path string, limit int64, keep int) (*File, error) {
	f := &File{path: path, limit: limit, keep: keep}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) open() error {
	o, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	st, err := o.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log file: %w", err), o.Close())
	}
	f.f, f.size = o, st.Size()
	return nil
}

// Write appends one line.
func (f *File) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return 0, os.ErrClosed
	}
	n, err := f.f.Write(b)
	f.size += int64(n)
	if err == nil && f.limit > 0 && f.size >= f.limit {
		err = f.rotateLocked()
	}
	return n, err
}

// Reopen closes the file and opens the one that now has its name.
func (f *File) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return os.ErrClosed
	}
	old := f.f
	if err := f.open(); err != nil {
		return err // the old file stays in use
	}
	return old.Close()
}

// SetLimits changes size limit and number of files kept.
func (f *File) SetLimits(limit int64, keep int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit, f.keep = limit, keep
}

// Close closes the file; later writes are refused.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	f.f = nil
	return err
}

// rotateLocked moves the full file aside and starts a new one.
func (f *File) rotateLocked() error {
	old := f.f
	backup := f.path + "." + time.Now().Format("2006.01.02.15.04.05.000000000")
	if err := os.Rename(f.path, backup); err != nil {
		f.size = 0 // try again a whole file later, not at each line
		return fmt.Errorf("rotate log file: %w", err)
	}
	if err := f.open(); err != nil {
		return err
	}
	if err := old.Close(); err != nil {
		return err
	}
	if f.keep <= 0 {
		return nil
	}
	rotated, err := filepath.Glob(f.path + ".[0-9][0-9][0-9][0-9].*")
	if err != nil {
		return fmt.Errorf("find rotated log files: %w", err)
	}
	slices.Sort(rotated)
	for len(rotated) > f.keep {
		if err := os.Remove(rotated[0]); err != nil {
			return fmt.Errorf("remove rotated log file: %w", err)
		}
		rotated = rotated[1:]
	}
	return nil
}
