package snapshot

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
)

// Names in the folder of what is being fetched.
const (
	incoming = "incoming"
	wanted   = "WANT"    // the manifest of what is being fetched
	decided  = "ADOPT"   // the manifest of what takes the place of the replica's files
	adopted  = "ADOPTED" // in the replica's folder: the manifest of what did last
	partial  = ".part"   // a file that is not complete
)

// Incoming is the files of another replica on their way into the place of this one's:
// in a folder of their own until all are there. Adopt then decides, in one step, that
// they are this replica's from now on, and moves them; what a crash left undone of
// that, Finish does at the next start.
//
//	incoming/WANT           what is wanted; renamed to ADOPT it is the decision
//	incoming/<name>         complete, synced, its checksum was right
//	incoming/<name>.part    half of it may be there
//
// One goroutine at a time.
type Incoming struct {
	fs       disk.FS
	dir      string // where they arrive
	into     string // where they belong
	manifest *Manifest
}

// OpenIncoming returns what is on its way to a replica's folder. Finish must have been
// called for that folder.
func OpenIncoming(fsys disk.FS, into string) (*Incoming, error) {
	in := &Incoming{fs: fsys, dir: filepath.Join(into, incoming), into: into}
	b, err := disk.ReadFile(fsys, filepath.Join(in.dir, wanted))
	switch {
	case disk.IsMissing(err):
	case err != nil:
		return nil, fmt.Errorf("open what is being fetched: %w", err)
	default:
		in.manifest, err = DecodeManifest(b)
		if disk.IsNewer(err) {
			return nil, fmt.Errorf("open what is being fetched: %w", err)
		}
		if err != nil {
			in.manifest = nil // what there is of it is checked against the next
		}
	}
	return in, nil
}

// Dir is where the files arrive.
func (in *Incoming) Dir() string { return in.dir }

// Manifest is what is being fetched, nil if nothing is.
func (in *Incoming) Manifest() *Manifest { return in.manifest }

// Want begins to fetch the files of a manifest. What has arrived for another one is
// kept where it is the same.
func (in *Incoming) Want(m *Manifest) error {
	if err := in.want(m); err != nil {
		return fmt.Errorf("begin to fetch a replica's files: %w", err)
	}
	in.manifest = m
	return nil
}

func (in *Incoming) want(m *Manifest) error {
	for _, dir := range []string{in.dir, filepath.Join(in.dir, "data")} {
		if err := in.fs.MkdirAll(dir); err != nil {
			return err
		}
	}
	if err := in.fs.SyncDir(in.into); err != nil {
		return err
	}
	have, err := in.list()
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	if in.manifest != nil {
		for _, f := range in.manifest.Files {
			kept[f.Name] = slices.Contains(m.Files, f)
		}
	}
	for _, name := range have {
		if !kept[strings.TrimSuffix(name, partial)] {
			if err := in.fs.Remove(filepath.Join(in.dir, name)); err != nil {
				return err
			}
		}
	}
	// First that it is gone, then that something else of its name may be there.
	if err := in.syncAll(); err != nil {
		return err
	}
	b, err := m.Encode()
	if err != nil {
		return err
	}
	return in.write(wanted, b)
}

// write makes a small file durable, all of it or none.
func (in *Incoming) write(name string, b []byte) error {
	at := filepath.Join(in.dir, name)
	f, err := in.fs.Create(at + ".new")
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := in.fs.Rename(at+".new", at); err != nil {
		return err
	}
	return in.fs.SyncDir(in.dir)
}

func (in *Incoming) syncAll() error {
	return errors.Join(in.fs.SyncDir(in.dir), in.fs.SyncDir(filepath.Join(in.dir, "data")))
}

// list returns the files that have arrived, whole or in part, by their names in a
// manifest.
func (in *Incoming) list() (names []string, err error) {
	for _, dir := range []string{"", "data/"} {
		found, err := in.fs.List(filepath.Join(in.dir, dir))
		if err != nil && !disk.IsMissing(err) {
			return nil, err
		}
		for _, name := range found {
			if ValidName(strings.TrimSuffix(dir+name, partial)) {
				names = append(names, dir+name)
			}
		}
	}
	return names, nil
}

// Missing returns the files of the manifest that are not complete.
func (in *Incoming) Missing() (files []File, err error) {
	if in.manifest == nil {
		return nil, nil
	}
	have, err := in.list()
	if err != nil {
		return nil, fmt.Errorf("look at what has been fetched: %w", err)
	}
	for _, f := range in.manifest.Files {
		if !slices.Contains(have, f.Name) {
			files = append(files, f)
		}
	}
	return files, nil
}

// Complete tells whether everything that is wanted is there.
func (in *Incoming) Complete() bool {
	missing, err := in.Missing()
	return in.manifest != nil && err == nil && len(missing) == 0
}

// Adopt puts the files, which must be complete, in the place of the replica's own. It
// is durable and done when it returns nil. After an error it may have been decided or
// not; Finish knows.
func (in *Incoming) Adopt() error {
	if !in.Complete() {
		return errors.New("adopt the files of another replica: not all have arrived")
	}
	err := in.syncAll() // an earlier process may have renamed what arrived, and no more
	if err == nil {
		err = in.fs.Rename(filepath.Join(in.dir, wanted), filepath.Join(in.dir, decided))
	}
	if err == nil {
		err = in.fs.SyncDir(in.dir)
	}
	if err == nil {
		err = Finish(in.fs, in.into)
	}
	if err != nil {
		return fmt.Errorf("adopt the files of another replica: %w", err)
	}
	in.manifest = nil
	return nil
}

// Finish completes an adoption that was decided, if one was; it must be called before
// anything else looks at a replica's folder. Every step may be repeated.
func Finish(fsys disk.FS, into string) error {
	in := &Incoming{fs: fsys, dir: filepath.Join(into, incoming), into: into}
	b, err := disk.ReadFile(fsys, filepath.Join(in.dir, decided))
	if disk.IsMissing(err) {
		return nil
	}
	if err == nil {
		if in.manifest, err = DecodeManifest(b); err != nil && !disk.IsNewer(err) {
			err = &disk.CorruptError{File: filepath.Join(in.dir, decided), Offset: -1, Reason: err.Error()}
		}
	}
	if err == nil {
		err = in.move()
	}
	if err != nil {
		return fmt.Errorf("finish what was begun with the files in %s: %w", in.dir, err)
	}
	return nil
}

func (in *Incoming) move() error {
	mine := map[string]bool{}
	if err := in.fs.MkdirAll(filepath.Join(in.into, "data")); err != nil {
		return err
	}
	for _, f := range in.manifest.Files {
		mine[f.Name] = true
		err := in.fs.Rename(filepath.Join(in.dir, f.Name), filepath.Join(in.into, f.Name))
		if err != nil && !disk.IsMissing(err) { // it was moved before
			return err
		}
	}
	old, err := in.fs.List(filepath.Join(in.into, "data"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if !mine["data/"+name] {
			if err := in.fs.Remove(filepath.Join(in.into, "data", name)); err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{filepath.Join(in.into, "data"), in.into, in.dir} {
		if err := in.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	if err := in.fs.Rename(filepath.Join(in.dir, decided), filepath.Join(in.into, adopted)); err != nil {
		return err
	}
	return errors.Join(in.fs.SyncDir(in.into), in.fs.SyncDir(in.dir))
}

// Adopted returns the index of what was adopted last into a replica's folder, 0 if
// nothing was: the replica's files can hold that much though its log does not.
func Adopted(fsys disk.FS, into string) (topics.Index, error) {
	b, err := disk.ReadFile(fsys, filepath.Join(into, adopted))
	if disk.IsMissing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read what was adopted: %w", err)
	}
	m, err := DecodeManifest(b)
	if disk.IsNewer(err) {
		return 0, fmt.Errorf("read what was adopted, %s: %w", filepath.Join(into, adopted), err)
	}
	if err != nil {
		return 0, fmt.Errorf("read what was adopted: %w", &disk.CorruptError{File: filepath.Join(into, adopted), Offset: -1, Reason: err.Error()})
	}
	return m.Applied, nil
}

// Discard forgets what has been fetched.
func (in *Incoming) Discard() error {
	err := in.fs.Remove(filepath.Join(in.dir, wanted))
	if err != nil && !disk.IsMissing(err) {
		return fmt.Errorf("forget what has been fetched: %w", err)
	}
	in.manifest = nil
	names, err := in.list()
	for _, name := range names {
		err = errors.Join(err, in.fs.Remove(filepath.Join(in.dir, name)))
	}
	return err
}
