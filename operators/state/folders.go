package state

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A tree stays open, and writes its files, as long as somebody looks at it: when its store is
// closed or removed, and also when another store has the folder by then. So what is open in a
// folder is known here, and nobody but its last user takes it away; and no number of a tree is
// used twice in a process.

var folders struct {
	mu   sync.Mutex // held while folders are made and removed
	open map[place]*folder
	last uint64 // the highest number of a tree that was given out, or is known
}

type place struct {
	fs  vfs.FS
	dir string
}

// folder is what is open in one.
type folder struct {
	trees map[string]*tree // by path
	goes  bool             // with the last of them
}

// errInUse means that a tree can't be opened yet.
var errInUse = errors.New("it is still looked at by somebody who opened it before")

// treeAbove returns a number for a new tree of a folder, which is above that of the one there is.
func treeAbove(n uint64) uint64 {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	folders.last = max(folders.last, n) + 1
	return folders.last
}

// claim notes that the tree is open.
func (t *tree) claim() error {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	at := place{t.fs, t.dir}
	f := folders.open[at]
	if f == nil {
		if folders.open == nil {
			folders.open = map[place]*folder{}
		}
		f = &folder{trees: map[string]*tree{}}
		folders.open[at] = f
	}
	if f.trees[t.path] != nil {
		return fmt.Errorf("open an operator's state in %s: %w", t.path, errInUse)
	}
	f.trees[t.path] = t
	return nil
}

// release notes that the tree is closed, and takes away what is to go with it.
func (t *tree) release() (err error) {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	at := place{t.fs, t.dir}
	f := folders.open[at]
	delete(f.trees, t.path)
	if t.gone.Load() {
		err = t.fs.RemoveAll(t.path)
	}
	if len(f.trees) == 0 {
		delete(folders.open, at)
		if f.goes {
			err = errors.Join(err, t.fs.RemoveAll(t.dir))
		}
	}
	return err
}

// makeFolder makes a folder that is still there after a crash.
func makeFolder(fs vfs.FS, dir string) error {
	made, err := stay(fs, dir)
	for above, n := fs.PathDir(dir), 0; err == nil && made && n < 2; above, n = fs.PathDir(above), n+1 {
		var d vfs.File
		if d, err = fs.OpenDir(above); err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("make the folder of an operator's state: %w", err)
	}
	return nil
}

// stay makes a folder if it isn't there, and has it stay.
func stay(fs vfs.FS, dir string) (made bool, err error) {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	if f := folders.open[place{fs, fs.PathJoin(dir)}]; f != nil {
		f.goes = false
	}
	if _, err := fs.Stat(dir); err == nil {
		return false, nil
	}
	return true, fs.MkdirAll(dir, 0o700)
}

// removeTrees removes the trees in a folder but one and those that are open.
func removeTrees(fs vfs.FS, dir, but string) error {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("open an operator's state: %w", err)
	}
	f := folders.open[place{fs, dir}]
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if strings.HasPrefix(name, pointerName+"-") && path != but && (f == nil || f.trees[path] == nil) {
			err = errors.Join(err, fs.RemoveAll(path))
		}
	}
	return err
}

// RemoveFolder removes a folder of a state that no store has open any more, if there is one.
// What is still looked at goes with who looks at it last, and the folder then.
func RemoveFolder(dir string) error { return removeFolder(vfs.Default, dir) }

func removeFolder(fs vfs.FS, dir string) error {
	folders.mu.Lock()
	defer folders.mu.Unlock()
	dir = fs.PathJoin(dir)
	f := folders.open[place{fs, dir}]
	if f == nil {
		return fs.RemoveAll(dir)
	}
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	f.goes = true
	for _, t := range f.trees {
		t.gone.Store(true)
	}
	for _, name := range names {
		if path := fs.PathJoin(dir, name); f.trees[path] == nil {
			err = errors.Join(err, fs.RemoveAll(path))
		}
	}
	return err
}

// PutAside moves the files of a damaged state out of its folder to another one, in place of what
// is there: a store that is opened then has no state. No store may have it open; trees that
// others still look at stay until they go, unless they are damaged themselves. The steps that
// are kept in the folder (StepLog) stay.
func PutAside(dir, to string) error {
	fs := vfs.Default
	if err := fs.RemoveAll(to); err != nil {
		return fmt.Errorf("put a state aside: %w", err)
	}
	if err := makeFolder(fs, to); err != nil {
		return err
	}
	folders.mu.Lock()
	defer folders.mu.Unlock()
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("put a state aside: %w", err)
	}
	// The journal first, then the pointer: what was moved in part is no state, or the damaged one.
	slices.Sort(names)
	f := folders.open[place{fs, fs.PathJoin(dir)}]
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		own := strings.HasPrefix(name, journalFile) || strings.HasPrefix(name, pointerName)
		if !own || f != nil && f.trees[path] != nil && f.trees[path].harm.err() == nil {
			continue
		}
		if err := fs.Rename(path, fs.PathJoin(to, name)); err != nil {
			return fmt.Errorf("put a state aside: %w", err)
		}
	}
	return syncDir(dir)
}
