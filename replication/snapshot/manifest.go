package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"strings"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
)

// ManifestFormat is what is written now. Format 1 named no files.
const ManifestFormat = 2

// Manifest says which files are the state of a data group's replica at an index.
type Manifest struct {
	Format  int            `json:"format"`
	Group   topics.GroupID `json:"group"`
	Applied topics.Index   `json:"applied"`
	Export  string         `json:"export"` // names the set at the node that has it
	Files   []File         `json:"files"`
}

// File is one file of a manifest.
type File struct {
	Name   string `json:"name"` // relative to the folder of the replica, with slashes
	Length int64  `json:"length"`
	Sum    uint32 `json:"sum"` // CRC-32C of the whole file
}

// ErrBadManifest is returned for what can't be a manifest.
var ErrBadManifest = errors.New("bad manifest")

// Encode returns the manifest as text, with a checksum in a line of its own.
func (m *Manifest) Encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode a manifest: %w", err)
	}
	b = append(b, '\n')
	return fmt.Appendf(b, "%08x\n", crc32.Checksum(b, castagnoli)), nil
}

// DecodeManifest reads what Encode wrote. The names are such that the files are where
// a replica has its files, and nowhere else.
func DecodeManifest(b []byte) (*Manifest, error) {
	at := bytes.IndexByte(b, '\n') + 1
	if at == 0 || string(b[at:]) != fmt.Sprintf("%08x\n", crc32.Checksum(b[:at], castagnoli)) {
		return nil, fmt.Errorf("%w: the checksum is wrong", ErrBadManifest)
	}
	m := &Manifest{}
	if err := json.Unmarshal(b[:at], m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadManifest, err)
	}
	if m.Format > ManifestFormat {
		return nil, &disk.NewerError{File: "a manifest of a replica's files", Version: uint32(m.Format), Reads: ManifestFormat}
	}
	if m.Format != ManifestFormat {
		return nil, fmt.Errorf("%w: format %d, this program reads %d", ErrBadManifest, m.Format, ManifestFormat)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		if !ValidName(f.Name) || f.Length < 0 || seen[f.Name] {
			return nil, fmt.Errorf("%w: file %q of %d bytes", ErrBadManifest, f.Name, f.Length)
		}
		seen[f.Name] = true
	}
	return m, nil
}

// ValidName tells whether a name can be that of a file of a manifest: at most one
// folder deep, and no name that is used otherwise.
func ValidName(name string) bool {
	if name == "" || path.Clean(name) != name || strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\\\x00") {
		return false
	}
	dir, base := path.Split(name)
	if strings.HasPrefix(base, ".") || strings.HasSuffix(base, partial) {
		return false
	}
	return dir == "data/" && strings.HasSuffix(base, ".run") || dir == "" && (base == "state.db" || base == "generation")
}
