package datafile

import "errors"

// verifyStep is how much Verify reads at a time.
const verifyStep = 1 << 20

// Sum returns the checksum of the whole file, as it was written; known is false for
// files of a version that didn't note it.
func (d *File) Sum() (sum uint32, known bool) { return d.sum, d.content != 0 }

// Measure reads the whole file and returns its checksum as it is now.
func (d *File) Measure(pace func(bytes int64) error) (uint32, error) {
	var sum uint32
	b := make([]byte, min(verifyStep, d.length))
	for at := int64(0); at < d.length; {
		n := min(int64(len(b)), d.length-at)
		if err := pace(n); err != nil {
			return 0, err
		}
		dropCache(d.f, at, n)
		if err := d.read(b[:n], at); err != nil {
			return 0, err
		}
		sum = Checksum(sum, b[:n])
		at += n
	}
	return sum, nil
}

// Verify reads all of the file from the disk and gives each piece of damage to
// found. It calls pace before each read, with its size, and ends with its error.
func (d *File) Verify(pace func(bytes int64) error, found func(error)) error {
	var damage *CorruptError
	before := false
	if want, known := d.Sum(); known {
		got, err := d.Measure(pace)
		switch {
		case errors.As(err, &damage):
			found(err)
			return nil
		case err != nil || got == want:
			return err
		}
		before = true
	}
	// Which part it is, or whether it is whole: only the parts can tell.
	bad := false
	note := func(err error) {
		bad = true
		found(err)
	}
	for i := range d.Runs {
		if err := d.verifyRun(&d.Runs[i], pace, note); err != nil {
			return err
		}
	}
	if before && !bad {
		found(d.corrupt(0, "the file's checksum"))
	}
	return nil
}

func (d *File) verifyRun(r *Run, pace func(bytes int64) error, found func(error)) error {
	var damage *CorruptError
	if err := pace(int64(r.Length) + int64(r.dictionary) + int64(r.columns)); err != nil {
		return err
	}
	block, err := d.Block(r)
	if errors.As(err, &damage) {
		found(err)
		if block, err = d.Rebuild(r); errors.As(err, &damage) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	chunk, err := d.Chunk(r, block)
	if errors.As(err, &damage) {
		found(err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, i := range chunk.bad {
		_, err := chunk.Message(i)
		found(err)
	}
	return nil
}
