package vault

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const manifestName = "backup.json"

// ErrDamaged is returned for a backup or export that is not what was written.
var ErrDamaged = errors.New("damaged")

// Manifest says what a backup holds.
type Manifest struct {
	Format  int       `json:"herald_backup"` // 1
	Broker  string    `json:"broker"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // zero: it is not complete
	Topics  []*Topic  `json:"topics"`
	// Definitions is the file with topics, consumers, operators and advertisements.
	Definitions *File  `json:"definitions,omitempty"`
	SHA256      string `json:"sha256"` // of the manifest with this field empty
}

// Topic is a topic of a backup.
type Topic struct {
	Name      string                     `json:"name"`
	Created   time.Time                  `json:"created"` // another one is another topic of that name
	Done      bool                       `json:"done"`
	Taken     time.Time                  `json:"taken,omitzero"`
	Config    json.RawMessage            `json:"config,omitempty"`
	State     json.RawMessage            `json:"state,omitempty"`
	Consumers map[string]json.RawMessage `json:"consumers,omitempty"`
	Parts     []Part                     `json:"parts,omitempty"`
	// Deleted are ranges of sequences that parts hold and the topic no longer did.
	Deleted [][2]uint64 `json:"deleted,omitempty"`
}

// Part is a file with some of a topic's messages.
type Part struct {
	File
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages uint64 `json:"messages"`
}

// File is a file of a backup, by its name below the directory.
type File struct {
	Name   string `json:"file"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// last is the last sequence that the parts hold.
func (t *Topic) last() uint64 {
	if len(t.Parts) == 0 {
		return 0
	}
	return t.Parts[len(t.Parts)-1].Last
}

// Content returns the state of the topic when it was taken.
func (t *Topic) Content() (s State, err error) {
	if len(t.State) == 0 {
		return s, nil
	}
	err = json.Unmarshal(t.State, &s)
	return s, err
}

// Size is how many bytes the parts have.
func (t *Topic) Size() (n int64) {
	for _, p := range t.Parts {
		n += p.Size
	}
	return n
}

// gone tells whether the topic no longer held a message of a part.
func (t *Topic) gone(sequence uint64) bool {
	_, found := slices.BinarySearchFunc(t.Deleted, sequence, func(r [2]uint64, s uint64) int {
		switch {
		case r[1] < s:
			return -1
		case r[0] > s:
			return 1
		}
		return 0
	})
	return found
}

// Load reads the manifest of a backup. There being none is fs.ErrNotExist.
func Load(dir string) (*Manifest, error) {
	b, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s of %s is %w: %w", manifestName, dir, ErrDamaged, err)
	}
	if m.Format != 1 {
		return nil, fmt.Errorf("%s is a backup of format %d; this program knows 1", dir, m.Format)
	}
	want := m.SHA256
	if got, err := m.digest(); err != nil || got != want {
		return nil, fmt.Errorf("%s of %s is %w: its checksum is not that of its content", manifestName, dir, ErrDamaged)
	}
	return &m, nil
}

// digest is that of the manifest without the digest.
func (m *Manifest) digest() (string, error) {
	bare := *m
	bare.SHA256 = ""
	b, err := json.Marshal(&bare)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// save puts the manifest in the place of the last one.
func (m *Manifest) save(dir string) error {
	var err error
	if m.SHA256, err = m.digest(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeFile(dir, manifestName, append(b, '\n'))
	return err
}

// writeFile writes a file whole or not at all, on disk when it returns.
func writeFile(dir, name string, b []byte) (File, error) {
	w, err := create(dir, name)
	if err != nil {
		return File{}, err
	}
	if _, err := w.Write(b); err != nil {
		w.abandon()
		return File{}, err
	}
	return w.commit()
}

// file is a file that is being written.
type file struct {
	*os.File
	dir, name string
	sum       interface {
		Write(p []byte) (int, error)
		Sum(b []byte) []byte
	}
	size int64
}

func create(dir, name string) (*file, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &file{File: f, dir: dir, name: name, sum: sha256.New()}, nil
}

// Write implements io.Writer.
func (f *file) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.size += int64(n)
	_, _ = f.sum.Write(p[:n]) // it never fails
	return n, err
}

func (f *file) abandon() {
	_ = f.Close()
	_ = os.Remove(f.File.Name())
}

// commit gives the file its name once it is on disk.
func (f *file) commit() (File, error) {
	out := File{Name: f.name, Size: f.size, SHA256: hex.EncodeToString(f.sum.Sum(nil))}
	path := filepath.Join(f.dir, filepath.FromSlash(f.name))
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.File.Name())
		return out, err
	}
	if err := os.Rename(f.File.Name(), path); err != nil {
		return out, err
	}
	return out, syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// read reads a whole small file and checks it.
func (f *File) read(dir string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is %w: it is missing", f.Name, ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if int64(len(b)) != f.Size || !bytes.Equal([]byte(hex.EncodeToString(sum[:])), []byte(f.SHA256)) {
		return nil, fmt.Errorf("%s is %w: its checksum is not that of the manifest", f.Name, ErrDamaged)
	}
	return b, nil
}
