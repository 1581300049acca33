// Package fault holds file systems for tests that fail in the ways real ones do.
//
//   - Disk lives in memory and can lose power: what was not synced is then kept or
//     lost sector by sector, and names that were not synced come and go.
//   - Inject stands before another file system and lets a test fail, delay or hang
//     single operations.
package fault

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/heraldmq/herald/replication/disk"
)

const sector = 512

// Disk is a file system in memory. Its methods may be called by any number of
// goroutines.
type Disk struct {
	mu      sync.Mutex
	names   map[string]*inode // as processes see them
	durable map[string]*inode // as they are after a crash
	changes []change          // names changed since, oldest first
	space   int64             // bytes that may still be allocated; < 0: no limit
}

// change is a name that was created, moved or removed.
type change struct {
	name string
	file *inode // nil: removed
}

type inode struct {
	disk    *Disk
	data    []byte // as processes see it
	durable []byte
	pending []write // since the last sync
}

type write struct {
	off  int64
	data []byte
}

// NewDisk returns an empty disk without a limit.
func NewDisk() *Disk {
	return &Disk{names: map[string]*inode{}, durable: map[string]*inode{}, space: -1}
}

var _ disk.FS = (*Disk)(nil)

// Limit says how many more bytes files may grow by; negative: any.
func (d *Disk) Limit(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space = n
}

// Crash returns what is on the disk after a power cut at this moment. The disk
// itself goes on, so that many cuts can be tried.
func (d *Disk) Crash(rnd *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := NewDisk()
	names := maps.Clone(d.durable)
	// A journal keeps changes of names in order: some first part of them is there.
	for _, c := range d.changes[:rnd.IntN(len(d.changes)+1)] {
		if c.file == nil {
			delete(names, c.name)
		} else {
			names[c.name] = c.file
		}
	}
	for name, f := range names {
		data := slices.Clone(f.durable)
		for _, w := range f.pending {
			// Sectors reach the disk in any order, each whole or not at all.
			for off := w.off; off < w.off+int64(len(w.data)); {
				end := min((off/sector+1)*sector, w.off+int64(len(w.data)))
				if rnd.IntN(2) == 0 {
					data = put(data, off, w.data[off-w.off:end-w.off])
				}
				off = end
			}
		}
		n := &inode{disk: after, data: data, durable: slices.Clone(data)}
		after.names[name], after.durable[name] = n, n
	}
	return after
}

// Kill returns what a new process finds after this one was killed: everything
// that was written, synced or not.
func (d *Disk) Kill() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := NewDisk()
	for name, f := range d.names {
		n := &inode{disk: after, data: slices.Clone(f.data), durable: slices.Clone(f.data)}
		after.names[name], after.durable[name] = n, n
	}
	return after
}

// Bytes returns a file's content, which the caller may change: a test damages
// files like this. nil when there is none.
func (d *Disk) Bytes(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.names[name]; f != nil {
		return f.data
	}
	return nil
}

// Truncate cuts a file.
func (d *Disk) Truncate(name string, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[name]
	f.data, f.durable, f.pending = f.data[:size], slices.Clone(f.data[:size]), nil
}

func put(data []byte, off int64, p []byte) []byte {
	if grow := off + int64(len(p)) - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[off:], p)
	return data
}

func missing(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// Open implements disk.FS.
func (d *Disk) Open(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[name]
	if f == nil {
		return nil, missing("open", name)
	}
	return f, nil
}

// Create implements disk.FS.
func (d *Disk) Create(name string) (disk.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &inode{disk: d}
	d.names[name] = f
	d.changes = append(d.changes, change{name, f})
	return f, nil
}

// Rename implements disk.FS.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[from]
	if f == nil {
		return missing("rename", from)
	}
	delete(d.names, from)
	d.names[to] = f
	d.changes = append(d.changes, change{to, f}, change{from, nil})
	return nil
}

// Remove implements disk.FS.
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[name]
	if f == nil {
		return missing("remove", name)
	}
	if d.space >= 0 {
		d.space += int64(len(f.data))
	}
	delete(d.names, name)
	d.changes = append(d.changes, change{name, nil})
	return nil
}

// MkdirAll implements disk.FS; directories need not exist.
func (d *Disk) MkdirAll(string) error { return nil }

// List implements disk.FS.
func (d *Disk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for name := range d.names {
		if rest, ok := strings.CutPrefix(name, filepath.Clean(dir)+"/"); ok && !strings.Contains(rest, "/") {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements disk.FS: all names become durable.
func (d *Disk) SyncDir(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.durable, d.changes = maps.Clone(d.names), nil
	return nil
}

// Free implements disk.FS.
func (d *Disk) Free(string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.space < 0 {
		return 1 << 50, nil
	}
	return d.space, nil
}

// growLocked accounts for a file becoming size bytes long.
func (f *inode) growLocked(size int64) error {
	more := size - int64(len(f.data))
	if more <= 0 || f.disk.space < 0 {
		return nil
	}
	if more > f.disk.space {
		return fmt.Errorf("grow by %d bytes: %w", more, disk.ErrNoSpace)
	}
	f.disk.space -= more
	return nil
}

func (f *inode) ReadAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *inode) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.growLocked(off + int64(len(p))); err != nil {
		return 0, err
	}
	f.data = put(f.data, off, p)
	f.pending = append(f.pending, write{off, slices.Clone(p)})
	return len(p), nil
}

func (f *inode) Allocate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.growLocked(size); err != nil {
		return err
	}
	if more := size - int64(len(f.data)); more > 0 {
		f.data = append(f.data, make([]byte, more)...)
	}
	return nil
}

func (f *inode) Datasync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.durable, f.pending = slices.Clone(f.data), nil
	return nil
}

func (f *inode) StartSync(int64, int64) {}
func (f *inode) DropCache()             {}

func (f *inode) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.data)), nil
}

func (f *inode) Close() error { return nil }
