// Package disk is the narrow door through which the replication packages reach
// files: what they need of a file system and no more, so that package fault can
// stand in for it and fail, tear and crash on demand.
//
// Writes are durable when Datasync has returned nil; names (create, rename,
// remove) when SyncDir on their directory has.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

var (
	// ErrNoSpace is met when a file can't be extended because the disk is full.
	ErrNoSpace = errors.New("no space left on the disk")
	// ErrHung is met when a write has not come back within its deadline.
	ErrHung = errors.New("the disk hangs: a write has not come back in time")
)

// CorruptError names damage in a file.
type CorruptError struct {
	File   string
	Offset int64 // -1 when the damage has no place
	Reason string
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s is damaged: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// NewerError tells that a file is of a format that only a newer version of the program
// knows. It is not damage: it must be left as it is.
type NewerError struct {
	File    string
	Version uint32 // that the file is of
	Reads   uint32 // the newest that this program reads
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s was written by a newer version of the program: it is of format %d, and this one reads up to %d; nothing was changed, start the newer version again",
		e.File, e.Version, e.Reads)
}

// NewerFormat is the version that the file is of. Other packages' errors of this kind
// have it too, see IsNewer.
func (e *NewerError) NewerFormat() uint32 { return e.Version }

// IsNewer tells whether an error is a *NewerError or one of another package that says the
// same, by having its method NewerFormat.
func IsNewer(err error) bool {
	var newer interface{ NewerFormat() uint32 }
	return errors.As(err, &newer)
}

// File is an open file. ReadAt and WriteAt may be called at once, by any number
// of goroutines, on ranges that don't overlap.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	// Allocate makes the file at least size bytes long, with the blocks reserved,
	// or fails with an error that Is ErrNoSpace.
	Allocate(size int64) error
	// Datasync makes everything written so far durable. After an error the file
	// must not be used again: what the kernel dropped can't be known.
	Datasync() error
	// StartSync asks the kernel to begin writing a range out, without waiting.
	StartSync(off, n int64)
	// DropCache makes the next read come from the disk (of what is durable).
	DropCache()
	Size() (int64, error)
	Close() error
}

// FS is a file system.
type FS interface {
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Create makes a new file, or empties the one there.
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(dir string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	SyncDir(dir string) error
	// Free tells how many bytes an ordinary process may still allocate.
	Free(dir string) (int64, error)
}

// ReadFile returns the whole content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) && err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// IsMissing tells whether an error says that a file does not exist.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Slow runs f and calls slow(1), on another goroutine, once f has taken longer than d,
// and then slow(-1) once it has come back; in any order.
func Slow(d time.Duration, slow func(by int), f func() error) error {
	if d <= 0 || slow == nil {
		return f()
	}
	t := time.AfterFunc(d, func() { slow(1) })
	defer func() {
		if !t.Stop() {
			slow(-1)
		}
	}()
	return f()
}

// Deadline runs f and calls late, on another goroutine, if f takes longer than
// d. It does not stop f: a system call that hangs can't be stopped, which is
// why late should end the process. A time during which this process was paused, as by
// SIGSTOP or with its machine, counts for little: that was not the disk's doing.
func Deadline(d time.Duration, late func(), f func() error) error {
	if d <= 0 {
		return f()
	}
	w := &watch{step: d / watchSteps, late: late}
	w.start()
	defer w.stop()
	return f()
}

// watchSteps is in how many steps a deadline is waited for. A pause, however long, is no
// more than one.
const watchSteps = 8

type watch struct {
	step time.Duration
	late func()

	mu    sync.Mutex
	timer *time.Timer
	steps int
	done  bool
}

func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.step, w.tick)
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	w.timer.Stop()
}

func (w *watch) tick() {
	w.mu.Lock()
	w.steps++
	over := w.done
	late := !over && w.steps == watchSteps
	if !over && !late {
		w.timer.Reset(w.step)
	}
	w.mu.Unlock()
	if late {
		w.late()
	}
}
