package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"sync"

	"github.com/heraldmq/herald/replication/disk"
)

// BlockBytes is how much of a file a block carries at most.
const BlockBytes = 256 << 10

// blockHeader is the length and the checksum of a block, u32 each.
const blockHeader = 8

// sendBytes is how much of a file a block carries: with its header no more than two
// messages of a link take.
const sendBytes = 255 << 10

// Keeper is a writer that can be given bytes to keep: nobody changes them until done is
// called, which may be never.
type Keeper interface {
	WriteKept(b []byte, done func()) error
}

var sendBuffers = sync.Pool{New: func() any { b := make([]byte, blockHeader+sendBytes); return &b }}

// SendFile writes what r holds in blocks, each with its checksum, and ends with one
// that is empty.
func SendFile(w io.Writer, r io.Reader) error {
	keeper, keeps := w.(Keeper)
	for {
		buf := sendBuffers.Get().(*[]byte)
		b := *buf
		n, err := io.ReadFull(r, b[blockHeader:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read a file to send it: %w", err)
		}
		block := b[:blockHeader+n]
		binary.LittleEndian.PutUint32(block, uint32(n))
		binary.LittleEndian.PutUint32(block[4:], crc32.Checksum(block[blockHeader:], castagnoli))
		if keeps {
			err = keeper.WriteKept(block, func() { sendBuffers.Put(buf) })
		} else {
			_, err = w.Write(block)
			sendBuffers.Put(buf)
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// ErrBlock is returned when a block did not arrive as it was sent.
var ErrBlock = errors.New("a block of a file did not arrive as it was sent")

// Opener opens a file of a manifest at the node that has it, from an offset on; it gives
// what SendFile writes.
type Opener func(ctx context.Context, f File, offset int64) (io.ReadCloser, error)

// SumError says that a file arrived whole and is not what the manifest says: it is
// damaged where it comes from, or is another one.
type SumError struct{ File File }

func (e *SumError) Error() string {
	return fmt.Sprintf("%s is not what the manifest says: it may be damaged where it comes from", e.File.Name)
}

// abreast is how many files are fetched at once: while one is opened or written out the
// other's bytes come.
const abreast = 2

// settleBytes is how much of what was fetched may be there and not be known to last. A
// sync for each file would have the disk's journal written so often that everybody who
// syncs waits for it.
const settleBytes = 128 << 20

// Fetch gets what is missing. It goes on where an earlier call, or an earlier
// process, was interrupted.
func (in *Incoming) Fetch(ctx context.Context, open Opener) error {
	missing, err := in.Missing()
	if err != nil || len(missing) == 0 {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &fetching{in: in, open: open}
	todo := make(chan File, len(missing))
	for _, m := range missing {
		todo <- m
	}
	close(todo)
	var workers sync.WaitGroup
	for range min(abreast, len(missing)) {
		workers.Go(func() {
			for m := range todo {
				if err := f.get(ctx, m); err != nil {
					f.fail(fmt.Errorf("fetch %s: %w", m.Name, err))
					cancel()
					return
				}
			}
		})
	}
	workers.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.settleLocked(); err != nil { // also what came before an error stays
		f.failLocked(err)
	}
	return f.err
}

// fetching is one call of Fetch.
type fetching struct {
	in   *Incoming
	open Opener

	mu      sync.Mutex
	arrived []arrival
	bytes   int64 // of arrived
	err     error
}

// arrival is a file that is there, is what it should be, and may not last yet.
type arrival struct {
	name string
	file disk.File
}

func (f *fetching) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failLocked(err)
}

// failLocked notes the first error: the others are of what it has stopped.
func (f *fetching) failLocked(err error) {
	if f.err == nil {
		f.err = err
	}
}

// get gets one file: first by going on with what there is of it, and if that turns
// out wrong all of it.
func (f *fetching) get(ctx context.Context, m File) error {
	began, err := f.getFrom(ctx, m)
	var wrong *SumError
	if errors.As(err, &wrong) && began > 0 {
		_, err = f.getFrom(ctx, m)
	}
	return err
}

// getFrom gets the rest of a file, and returns how much there was before.
func (f *fetching) getFrom(ctx context.Context, m File) (began int64, err error) {
	name := filepath.Join(f.in.dir, m.Name)
	file, began, sum, err := f.in.part(name+partial, m.Length)
	if err != nil {
		return 0, err
	}
	if sum, err = receive(ctx, file, m, began, sum, f.open); err != nil {
		return began, errors.Join(err, file.Close())
	}
	if sum != m.Sum {
		return began, errors.Join(&SumError{m}, file.Close(), f.in.fs.Remove(name+partial))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived = append(f.arrived, arrival{name, file})
	if f.bytes += m.Length; f.bytes >= settleBytes {
		err = f.settleLocked()
	}
	return began, err
}

// settleLocked makes what has arrived last, and gives it its name.
func (f *fetching) settleLocked() (err error) {
	done := f.arrived
	f.arrived, f.bytes = nil, 0
	dirs := map[string]bool{}
	for _, a := range done {
		if err == nil {
			err = a.file.Datasync()
		}
		if err = errors.Join(err, a.file.Close()); err == nil {
			err = f.in.fs.Rename(a.name+partial, a.name)
			dirs[filepath.Dir(a.name)] = true
		}
	}
	for dir := range dirs {
		if err == nil {
			err = f.in.fs.SyncDir(dir)
		}
	}
	return err
}

// part opens what there is of a file, and sums it up.
func (in *Incoming) part(name string, most int64) (file disk.File, size int64, sum uint32, err error) {
	file, err = disk.OpenBulk(in.fs, name, false, most)
	if disk.IsMissing(err) {
		file, err = disk.OpenBulk(in.fs, name, true, most)
		return file, 0, 0, err
	}
	if err != nil {
		return nil, 0, 0, err
	}
	if size, err = file.Size(); err == nil && size > most {
		if err = file.Close(); err == nil {
			file, err = disk.OpenBulk(in.fs, name, true, most)
		}
		return file, 0, 0, err
	}
	b := make([]byte, 1<<20)
	for at := int64(0); err == nil && at < size; {
		n := min(int64(len(b)), size-at)
		if _, err = file.ReadAt(b[:n], at); errors.Is(err, io.EOF) {
			err = nil
		}
		sum = crc32.Update(sum, castagnoli, b[:n])
		at += n
	}
	if err != nil {
		return nil, 0, 0, errors.Join(err, file.Close())
	}
	return file, size, sum, nil
}
