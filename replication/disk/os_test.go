package disk

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	f, err := OS{}.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := bytes.Repeat([]byte("herald"), 1000)
	_, err = f.WriteAt(want, 100)
	if err := errors.Join(err, f.Allocate(1<<20), f.Datasync()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 100); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read back: %v", err)
	}
	if size, err := f.Size(); err != nil || size != 1<<20 {
		t.Errorf("size %d, %v", size, err)
	}
	if free, err := (OS{}).Free(dir); err != nil || free <= 0 {
		t.Errorf("free %d, %v", free, err)
	}
	if err := f.Allocate(1 << 55); err == nil {
		t.Error("allocated what no disk has")
	}
	if _, err := (OS{}).Open(filepath.Join(dir, "none")); !IsMissing(err) {
		t.Errorf("open a file that is not there: %v", err)
	}
}

func TestSlow(t *testing.T) {
	told := make(chan int, 2)
	if err := Slow(time.Millisecond, func(by int) { told <- by }, func() error { told <- <-told; return ErrHung }); !errors.Is(err, ErrHung) {
		t.Error(err)
	}
	if a, b := <-told, <-told; a != 1 || b != -1 {
		t.Errorf("told %d and %d", a, b)
	}
	if err := Slow(time.Hour, func(int) { t.Error("slow") }, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestDeadline(t *testing.T) {
	late := make(chan struct{})
	if err := Deadline(time.Millisecond, func() { close(late) }, func() error { <-late; return nil }); err != nil {
		t.Error(err)
	}
	if err := Deadline(time.Hour, func() { t.Error("late") }, func() error { return ErrHung }); !errors.Is(err, ErrHung) {
		t.Error(err)
	}
}

// TestAPauseOfTheProcessIsNoHang: the timer of a process that was stopped fires as soon as it
// goes on, before what it waits for had a chance.
func TestAPauseOfTheProcessIsNoHang(t *testing.T) {
	late := false
	w := &watch{step: time.Hour, late: func() { late = true }}
	w.start()
	for range watchSteps - 1 {
		w.tick() // each of these may come after a pause
	}
	if late {
		t.Error("it is late before all steps were waited for")
	}
	if w.tick(); !late {
		t.Error("it is never late")
	}
	w.stop()
	late = false
	stopped := &watch{step: time.Hour, late: func() { late = true }}
	stopped.start()
	stopped.stop()
	for range 2 * watchSteps {
		stopped.tick()
	}
	if late {
		t.Error("late after its end")
	}
}

func TestBulkFilesTakePiecesOfAnySize(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	want := make([]byte, 3<<20+777)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	f, err := OpenBulk(OS{}, name, true, int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); size != 0 || err != nil {
		t.Errorf("a new file of %d bytes, %v", size, err)
	}
	piece := AlignedBuffer(1 << 20)
	write := func(from, to int) {
		t.Helper()
		n := copy(piece, want[from:to])
		if _, err := f.WriteAt(piece[:n], int64(from)); err != nil {
			t.Fatal(err)
		}
		f.StartSync(int64(from), int64(n))
	}
	write(0, 1<<20)
	write(1<<20, 1<<20+100)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenBulk(OS{}, name, false, int64(len(want))); err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); size != 1<<20+100 || err != nil {
		t.Errorf("%d bytes when it is opened again, %v", size, err)
	}
	write(1<<20+100, 2<<20)
	write(2<<20, 3<<20)
	write(3<<20, len(want))
	if err := errors.Join(f.Datasync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(OS{}, name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read back %d bytes, not what was written: %v", len(got), err)
	}
}
