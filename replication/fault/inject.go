package fault

import (
	"sync/atomic"

	"github.com/heraldmq/herald/replication/disk"
)

// Op is an operation that can be made to fail.
type Op string

// The operations Inject asks about.
const (
	OpOpen     Op = "open"
	OpCreate   Op = "create"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpAllocate Op = "allocate"
	OpSync     Op = "sync"
	OpSyncDir  Op = "sync directory"
)

// Inject is a file system before which a test stands. The function set with On is
// asked before every operation: an error it returns is the operation's, and the
// operation is not carried out; while it blocks, the operation hangs. It may be
// called by many goroutines at once.
type Inject struct {
	disk.FS
	on atomic.Pointer[func(op Op, name string) error]
}

// NewInject returns a file system that behaves like fsys until On is called.
func NewInject(fsys disk.FS) *Inject { return &Inject{FS: fsys} }

// On sets the function that is asked; nil asks nobody.
func (i *Inject) On(f func(op Op, name string) error) {
	if f == nil {
		i.on.Store(nil)
		return
	}
	i.on.Store(&f)
}

func (i *Inject) ask(op Op, name string) error {
	if f := i.on.Load(); f != nil {
		return (*f)(op, name)
	}
	return nil
}

// Open implements disk.FS.
func (i *Inject) Open(name string) (disk.File, error) {
	if err := i.ask(OpOpen, name); err != nil {
		return nil, err
	}
	f, err := i.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &file{File: f, fs: i, name: name}, nil
}

// Create implements disk.FS.
func (i *Inject) Create(name string) (disk.File, error) {
	if err := i.ask(OpCreate, name); err != nil {
		return nil, err
	}
	f, err := i.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &file{File: f, fs: i, name: name}, nil
}

// Rename implements disk.FS.
func (i *Inject) Rename(from, to string) error {
	if err := i.ask(OpRename, from); err != nil {
		return err
	}
	return i.FS.Rename(from, to)
}

// Remove implements disk.FS.
func (i *Inject) Remove(name string) error {
	if err := i.ask(OpRemove, name); err != nil {
		return err
	}
	return i.FS.Remove(name)
}

// SyncDir implements disk.FS.
func (i *Inject) SyncDir(dir string) error {
	if err := i.ask(OpSyncDir, dir); err != nil {
		return err
	}
	return i.FS.SyncDir(dir)
}

// file is an open file; name is the one it was opened under.
type file struct {
	disk.File
	fs   *Inject
	name string
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.ask(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.ask(OpWrite, f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *file) Allocate(size int64) error {
	if err := f.fs.ask(OpAllocate, f.name); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *file) Datasync() error {
	if err := f.fs.ask(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Datasync()
}
