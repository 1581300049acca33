package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/snapshot"
	"github.com/heraldmq/herald/topics"
)

// What a replica that installs a snapshot asks another for. It first has the other
// make an export: links to the data files as they are then, which stay while it is
// asked for them, whatever is compacted meanwhile.
//
//	export   flush, export, and give the manifest; entries up to Applied must be in it
//	file     the bytes of a file of an export from an offset on
//	done     the export is not needed any more
type fileRequest struct {
	Op      string       `json:"op"`
	Applied topics.Index `json:"applied,omitzero"`
	// Suspect names files of an earlier manifest that were not what it says: they are
	// looked at before anything is exported again.
	Suspect []string `json:"suspect,omitempty"`
	Export  string   `json:"export,omitempty"`
	Name    string   `json:"name,omitempty"`
	Offset  int64    `json:"offset,omitzero"`
}

const (
	opExport = "export"
	opFile   = "file"
	opDone   = "done"
)

// exportsDir is the folder of the exports, in the group's.
const exportsDir = "exports"

// exportIdle is how long an export is kept that nobody asks for.
const exportIdle = 5 * time.Minute

// goneText is in the error for an export that is not kept any more.
const goneText = "no such export"

// refills is a machine's share in bringing replicas up to date, its own and others'.
type refills struct {
	mu       sync.Mutex // held while something is fetched or adopted
	incoming *snapshot.Incoming

	runMu sync.Mutex
	stop  context.CancelFunc // of the fetch that is going on

	exportMu sync.Mutex
	exports  map[string]*time.Timer
}

// interrupt ends a fetch that is going on; what it has stays.
func (r *refills) interrupt() {
	r.runMu.Lock()
	defer r.runMu.Unlock()
	if r.stop != nil {
		r.stop()
	}
}

func (r *refills) running(stop context.CancelFunc) {
	r.runMu.Lock()
	defer r.runMu.Unlock()
	r.stop = stop
}

// arriving returns what is being fetched; refill.mu is held.
func (m *dataMachine) arriving() (*snapshot.Incoming, error) {
	if m.refill.incoming == nil {
		in, err := snapshot.OpenIncoming(disk.OS{}, m.data.Dir())
		if err != nil {
			return nil, fmt.Errorf("group %d: %w", m.id, err)
		}
		m.refill.incoming = in
	}
	return m.refill.incoming, nil
}

var (
	_ replication.FileSource   = (*dataMachine)(nil)
	_ replication.FileReceiver = (*dataMachine)(nil)
)

// SendFile implements replication.FileSource.
func (m *dataMachine) SendFile(ctx context.Context, request []byte, w io.Writer) error {
	var r fileRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return fmt.Errorf("a request for files of group %d: %w", m.id, err)
	}
	switch r.Op {
	case opExport:
		return m.export(ctx, &r, w)
	case opFile:
		return m.sendFile(&r, w)
	case opDone:
		m.endExport(r.Export)
		return nil
	}
	return fmt.Errorf("a request for files of group %d: %q is not known", m.id, r.Op)
}

// export makes an export and sends its manifest.
func (m *dataMachine) export(ctx context.Context, r *fileRequest, w io.Writer) error {
	for _, name := range r.Suspect {
		if err := m.data.VerifyFile(ctx, filepath.Base(name)); err != nil {
			return fmt.Errorf("export group %d: %w", m.id, err)
		}
	}
	if has := m.data.Applied(); has < r.Applied {
		return fmt.Errorf("export group %d: entry %d is wanted, %d was the last applied here", m.id, r.Applied, has)
	}
	id := rand.Text()
	dir := filepath.Join(m.data.Dir(), exportsDir, id)
	m.keepExport(id)
	x, err := m.data.Export(dir)
	if err != nil {
		m.endExport(id)
		return err
	}
	out := snapshot.Manifest{Format: snapshot.ManifestFormat, Group: m.id, Applied: x.Applied, Export: id}
	for _, f := range x.Files {
		out.Files = append(out.Files, snapshot.File{Name: filepath.ToSlash(f.Name), Length: f.Length, Sum: f.Sum})
	}
	b, err := out.Encode()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// keepExport sees to it that an export goes once nobody asks for it.
func (m *dataMachine) keepExport(id string) {
	m.refill.exportMu.Lock()
	defer m.refill.exportMu.Unlock()
	if m.refill.exports == nil {
		m.refill.exports = map[string]*time.Timer{}
	}
	m.refill.exports[id] = time.AfterFunc(exportIdle, func() { m.endExport(id) })
}

func (m *dataMachine) endExport(id string) {
	m.refill.exportMu.Lock()
	defer m.refill.exportMu.Unlock()
	if t := m.refill.exports[id]; t != nil {
		t.Stop()
		delete(m.refill.exports, id)
		_ = os.RemoveAll(filepath.Join(m.data.Dir(), exportsDir, id)) // what stays goes at the next start
	}
}

// dropExports removes what an earlier process has left.
func (m *dataMachine) dropExports() {
	_ = os.RemoveAll(filepath.Join(m.data.Dir(), exportsDir)) // what stays is in nobody's way
}

// close ends what is being fetched and sent, and closes the store.
func (m *dataMachine) close() error {
	m.refill.interrupt()
	m.endExports()
	return m.data.Close()
}

func (m *dataMachine) endExports() {
	m.refill.exportMu.Lock()
	var ids []string
	for id := range m.refill.exports {
		ids = append(ids, id)
	}
	m.refill.exportMu.Unlock()
	for _, id := range ids {
		m.endExport(id)
	}
}

func (m *dataMachine) sendFile(r *fileRequest, w io.Writer) error {
	m.refill.exportMu.Lock()
	t := m.refill.exports[r.Export]
	if t != nil {
		t.Reset(exportIdle)
	}
	m.refill.exportMu.Unlock()
	if t == nil {
		return fmt.Errorf("send a file of group %d: %s %q", m.id, goneText, r.Export)
	}
	if !snapshot.ValidName(r.Name) || r.Offset < 0 {
		return fmt.Errorf("send a file of group %d: %q at %d can't be one", m.id, r.Name, r.Offset)
	}
	f, err := os.Open(filepath.Join(m.data.Dir(), exportsDir, r.Export, filepath.FromSlash(r.Name)))
	if err != nil {
		return fmt.Errorf("send a file of group %d: %w", m.id, err)
	}
	defer f.Close()
	if _, err := f.Seek(r.Offset, io.SeekStart); err != nil {
		return fmt.Errorf("send a file of group %d: %w", m.id, err)
	}
	return snapshot.SendFile(&leased{w, t}, f)
}

// leased keeps an export for as long as it is being read.
type leased struct {
	io.Writer
	t *time.Timer
}

// WriteKept implements snapshot.Keeper.
func (l *leased) WriteKept(b []byte, done func()) (err error) {
	l.t.Reset(exportIdle)
	if k, ok := l.Writer.(snapshot.Keeper); ok {
		return k.WriteKept(b, done)
	}
	_, err = l.Writer.Write(b)
	return err
}

// Prefetch implements replication.FileReceiver: it fetches what Restore will need.
func (m *dataMachine) Prefetch(ctx context.Context, manifest []byte, fetch replication.Fetch) error {
	s, err := m.parseSnapshot(bytes.NewReader(manifest))
	if err != nil {
		return err
	}
	m.refill.mu.Lock()
	defer m.refill.mu.Unlock()
	if m.data.Applied() >= s.Applied {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.refill.running(cancel)
	defer m.refill.running(nil)
	in, err := m.arriving()
	if err != nil {
		return err
	}
	var suspect []string
	if had := in.Manifest(); had != nil && had.Applied >= s.Applied {
		err := m.fetch(ctx, in, fetch)
		var wrong *snapshot.SumError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &wrong):
			suspect = []string{wrong.File.Name}
		case !strings.Contains(err.Error(), goneText):
			return err // the next call goes on
		}
	}
	if err := m.want(ctx, in, &fileRequest{Op: opExport, Applied: s.Applied, Suspect: suspect}, fetch); err != nil {
		return err
	}
	return m.fetch(ctx, in, fetch)
}

// want has the other replica make an export, and makes it what is fetched.
func (m *dataMachine) want(ctx context.Context, in *snapshot.Incoming, r *fileRequest, fetch replication.Fetch) error {
	stream, err := ask(ctx, r, fetch)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(stream)
	if err = errors.Join(err, stream.Close()); err != nil {
		return fmt.Errorf("ask for the files of group %d: %w", m.id, err)
	}
	got, err := snapshot.DecodeManifest(b)
	if err != nil {
		return fmt.Errorf("ask for the files of group %d: %w", m.id, err)
	}
	if got.Group != m.id || got.Applied < r.Applied {
		return fmt.Errorf("ask for the files of group %d: got those of group %d up to %d", m.id, got.Group, got.Applied)
	}
	return in.Want(got)
}

func ask(ctx context.Context, r *fileRequest, fetch replication.Fetch) (io.ReadCloser, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("ask for files: %w", err)
	}
	return fetch(ctx, b)
}

// fetch gets what is missing and tells the other replica that it is done.
func (m *dataMachine) fetch(ctx context.Context, in *snapshot.Incoming, fetch replication.Fetch) error {
	export := in.Manifest().Export
	err := in.Fetch(ctx, func(ctx context.Context, f snapshot.File, offset int64) (io.ReadCloser, error) {
		return ask(ctx, &fileRequest{Op: opFile, Export: export, Name: f.Name, Offset: offset}, fetch)
	})
	if err != nil {
		return fmt.Errorf("group %d: %w", m.id, err)
	}
	if done, err := ask(ctx, &fileRequest{Op: opDone, Export: export}, fetch); err == nil {
		_, _ = io.Copy(io.Discard, done) // if it doesn't get there, the export goes by itself
		_ = done.Close()
	}
	return nil
}
