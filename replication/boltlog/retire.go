package boltlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/heraldmq/herald/replication/disk"
)

// moved is the index in the marker of a log that has been retired. No log is as long: a
// version that looks for that entry says that the log has gone back, and touches nothing.
const moved = math.MaxUint64

// Live tells whether the directory has a log that has not been retired. A marker that
// can't be read beside a log is Open's business.
func Live(fsys disk.FS, dir string) (bool, error) {
	last, marked, err := lookMarker(fsys, dir)
	if err != nil {
		return false, fmt.Errorf("look for an old log of the catalogue: %w", err)
	}
	if marked && last.index == moved {
		return false, nil
	}
	switch _, err := os.Stat(filepath.Join(dir, fileName)); {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("look for an old log of the catalogue: %w", err)
	case marked && last.index != 0:
		return false, &disk.CorruptError{
			File: filepath.Join(dir, fileName), Offset: -1,
			Reason: fmt.Sprintf("the file is missing, though entry %d was acknowledged", last.index),
		}
	}
	return false, nil
}

func lookMarker(fsys disk.FS, dir string) (last position, found bool, err error) {
	f, err := fsys.Open(filepath.Join(dir, markerName))
	if disk.IsMissing(err) {
		return last, false, nil
	}
	if err != nil {
		return last, false, err
	}
	_, last, found = readMarker(f)
	return last, found, f.Close()
}

// Retire says, durably, that the log of the directory has moved, and deletes it; also
// where there has never been one. The log must be closed.
func Retire(fsys disk.FS, dir string) error {
	last, marked, err := lookMarker(fsys, dir)
	if err == nil && !(marked && last.index == moved) {
		err = writeMoved(fsys, dir)
	}
	if err == nil {
		err = os.Remove(filepath.Join(dir, fileName))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("retire the old log of the catalogue: %w", err)
	}
	return nil
}

// writeMoved puts a new marker in the place of the old one: until the rename is durable
// the old log counts.
func writeMoved(fsys disk.FS, dir string) error {
	name := filepath.Join(dir, markerName)
	f, err := fsys.Create(name + ".new")
	if err != nil {
		return err
	}
	l := Log{file: f}
	if err := errors.Join(l.mark(position{index: moved}), f.Close()); err != nil {
		return err
	}
	return errors.Join(fsys.Rename(name+".new", name), fsys.SyncDir(dir))
}
