package snapshot

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/heraldmq/herald/replication/disk"
)

// BlockBytes is how much of a file a block carries at most.
const BlockBytes = 256 << 10

// blockHeader is the length and the checksum of a block, u32 each.
const blockHeader = 8

// SendFile writes what r holds in blocks, each with its checksum, and ends with one
// that is empty.
func SendFile(w io.Writer, r io.Reader) error {
	b := make([]byte, blockHeader+BlockBytes)
	for {
		n, err := io.ReadFull(r, b[blockHeader:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read a file to send it: %w", err)
		}
		block := b[:blockHeader+n]
		binary.LittleEndian.PutUint32(block, uint32(n))
		binary.LittleEndian.PutUint32(block[4:], crc32.Checksum(block[blockHeader:], castagnoli))
		if _, err := w.Write(block); err != nil {
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

// Fetch gets what is missing. It goes on where an earlier call, or an earlier
// process, was interrupted.
func (in *Incoming) Fetch(ctx context.Context, open Opener) error {
	missing, err := in.Missing()
	if err != nil {
		return err
	}
	for _, f := range missing {
		if err := in.fetch(ctx, f, open); err != nil {
			return fmt.Errorf("fetch %s: %w", f.Name, err)
		}
	}
	return nil
}

// fetch gets one file: first by going on with what there is of it, and if that turns
// out wrong all of it.
func (in *Incoming) fetch(ctx context.Context, f File, open Opener) error {
	began, err := in.fetchFrom(ctx, f, open)
	var wrong *SumError
	if errors.As(err, &wrong) && began > 0 {
		_, err = in.fetchFrom(ctx, f, open)
	}
	return err
}

// fetchFrom gets the rest of a file, and returns how much there was before.
func (in *Incoming) fetchFrom(ctx context.Context, f File, open Opener) (began int64, err error) {
	name := filepath.Join(in.dir, f.Name)
	file, began, sum, err := in.part(name+partial, f.Length)
	if err != nil {
		return 0, err
	}
	if sum, err = receive(ctx, file, f, began, sum, open); err == nil {
		err = file.Datasync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return began, err
	}
	if sum != f.Sum {
		return began, errors.Join(&SumError{f}, in.fs.Remove(name+partial))
	}
	if err := in.fs.Rename(name+partial, name); err != nil {
		return began, err
	}
	return began, in.fs.SyncDir(filepath.Dir(name))
}

// part opens what there is of a file, and sums it up.
func (in *Incoming) part(name string, most int64) (file disk.File, size int64, sum uint32, err error) {
	file, err = in.fs.Open(name)
	if disk.IsMissing(err) {
		file, err = in.fs.Create(name)
		return file, 0, 0, err
	}
	if err != nil {
		return nil, 0, 0, err
	}
	if size, err = file.Size(); err == nil && size > most {
		if err = file.Close(); err == nil {
			file, err = in.fs.Create(name)
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

// receive writes the rest of a file, and returns the checksum of all of it.
func receive(ctx context.Context, to disk.File, f File, at int64, sum uint32, open Opener) (uint32, error) {
	if at == f.Length {
		return sum, nil
	}
	stream, err := open(ctx, f, at)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	r := bufio.NewReaderSize(stream, blockHeader+BlockBytes)
	b := make([]byte, BlockBytes)
	for {
		var head [blockHeader]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return 0, fmt.Errorf("the connection ended at %d of %d bytes: %w", at, f.Length, err)
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > BlockBytes || at+int64(n) > f.Length {
			return 0, ErrBlock
		}
		if _, err := io.ReadFull(r, b[:n]); err != nil {
			return 0, fmt.Errorf("the connection ended at %d of %d bytes: %w", at, f.Length, err)
		}
		if crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return 0, ErrBlock
		}
		if n == 0 {
			break
		}
		if _, err := to.WriteAt(b[:n], at); err != nil {
			return 0, err
		}
		to.StartSync(at, int64(n))
		sum = crc32.Update(sum, castagnoli, b[:n])
		at += int64(n)
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	if at != f.Length {
		return 0, &SumError{f}
	}
	return sum, nil
}
