package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

const replicaDir = "/groups/1"

// origin is a node that has files.
type origin struct {
	files map[string][]byte
	opens atomic.Int32
	// cut ends a stream after so many bytes, if it is more than 0.
	cut int
}

func (o *origin) manifest() *Manifest {
	m := &Manifest{Format: ManifestFormat, Group: 1, Applied: 7, Export: "x"}
	for _, name := range slices.Sorted(maps.Keys(o.files)) {
		b := o.files[name]
		m.Files = append(m.Files, File{Name: name, Length: int64(len(b)), Sum: crc32.Checksum(b, castagnoli)})
	}
	return m
}

func (o *origin) open(_ context.Context, f File, offset int64) (io.ReadCloser, error) {
	o.opens.Add(1)
	var b bytes.Buffer
	if err := SendFile(&b, bytes.NewReader(o.files[f.Name][offset:])); err != nil {
		return nil, err
	}
	if o.cut > 0 && b.Len() > o.cut {
		b.Truncate(o.cut)
	}
	return io.NopCloser(&b), nil
}

func someFiles(what string, n int) map[string][]byte {
	files := map[string][]byte{"state.db": []byte(what + " state"), "generation": []byte(what)}
	for i := range n {
		files[fmt.Sprintf("data/%016x.run", i+1)] = bytes.Repeat([]byte(fmt.Sprint(what, i)), 700)
	}
	return files
}

func putFiles(t *testing.T, d disk.FS, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		f, err := d.Create(filepath.Join(replicaDir, name))
		if err == nil {
			_, err = f.WriteAt(b, 0)
		}
		if err = errors.Join(err, f.Datasync(), d.SyncDir(replicaDir)); err != nil {
			t.Fatal(err)
		}
	}
}

// found returns which files a replica has.
func found(t *testing.T, d disk.FS) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, dir := range []string{"", "data"} {
		names, err := d.List(filepath.Join(replicaDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if name == adopted {
				continue
			}
			b, err := disk.ReadFile(d, filepath.Join(replicaDir, dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Join(dir, name)] = b
		}
	}
	return files
}

func equalFiles(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

func mustIncoming(t *testing.T, d disk.FS) *Incoming {
	t.Helper()
	if err := Finish(d, replicaDir); err != nil {
		t.Fatal(err)
	}
	in, err := OpenIncoming(d, replicaDir)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// TestAdoptionIsAllOrNothing kills the process and cuts the power at every step of
// fetching and adopting: what is found then are the files before or after, never some
// of each; and whoever goes on from there ends with those after.
func TestAdoptionIsAllOrNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	before := someFiles("old", 4)
	o := &origin{files: someFiles("new", 3)}
	d := fault.NewDisk()
	putFiles(t, d, before)
	adopted := false // Adopt has returned
	steps := 0
	var one sync.Mutex // files are fetched abreast
	check := func(after *fault.Disk, how string) {
		in := mustIncoming(t, after)
		got := found(t, after)
		old := equalFiles(got, before)
		if !old && !equalFiles(got, o.files) || old && adopted {
			t.Fatalf("step %d, %s: found %v, adopted %t", steps, how, slices.Sorted(maps.Keys(got)), adopted)
		}
		if !old {
			return
		}
		again := &origin{files: o.files}
		if err := errors.Join(in.Want(again.manifest()), in.Fetch(t.Context(), again.open), in.Adopt()); err != nil {
			t.Fatalf("step %d, %s: go on: %v", steps, how, err)
		}
		if got := found(t, after); !equalFiles(got, o.files) {
			t.Fatalf("step %d, %s: ended with %v", steps, how, slices.Sorted(maps.Keys(got)))
		}
	}
	disturbed := fault.NewInject(d)
	disturbed.On(func(fault.Op, string) error {
		one.Lock()
		defer one.Unlock()
		steps++
		check(d.Kill(), "killed")
		for range 3 {
			check(d.Crash(rnd), "power cut")
		}
		return nil
	})
	in := mustIncoming(t, disturbed)
	if err := errors.Join(in.Want(o.manifest()), in.Fetch(t.Context(), o.open), in.Adopt()); err != nil {
		t.Fatal(err)
	}
	adopted = true
	check(d.Kill(), "at the end")
	check(d.Crash(rnd), "at the end, power cut")
	if steps < 20 {
		t.Errorf("only %d steps", steps)
	}
}

// TestFetchGoesOn after breaks: what has arrived is not asked for again.
func TestFetchGoesOn(t *testing.T) {
	d := fault.NewDisk()
	o := &origin{files: someFiles("new", 2), cut: 4 * BlockBytes}
	o.files["data/00000000000000ff.run"] = bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	in := mustIncoming(t, d)
	if err := in.Want(o.manifest()); err != nil {
		t.Fatal(err)
	}
	tries := 0
	for ; !in.Complete(); tries++ {
		if tries > 20 {
			t.Fatal("it doesn't come to an end")
		}
		if err := in.Fetch(t.Context(), o.open); err == nil {
			break
		}
		d = d.Kill()
		in = mustIncoming(t, d)
	}
	if opens := int(o.opens.Load()); tries < 2 || opens > 5+2*tries {
		t.Errorf("%d tries, %d streams", tries, opens)
	}
	// Another set with some of the same files.
	o.cut = 0
	o.files["state.db"] = []byte("newer")
	was := o.opens.Load()
	if err := errors.Join(in.Want(o.manifest()), in.Fetch(t.Context(), o.open), in.Adopt()); err != nil {
		t.Fatal(err)
	}
	if opens := o.opens.Load(); opens != was+1 {
		t.Errorf("%d files were fetched again", opens-was)
	}
	if !equalFiles(found(t, d), o.files) {
		t.Error("other files arrived")
	}
	if at, err := Adopted(d, replicaDir); at != o.manifest().Applied || err != nil {
		t.Errorf("adopted %d, %v", at, err)
	}
}

// TestDamageOnTheWay is noticed: in a block, in a file that is not what the manifest
// says, and in half a file that was torn by a power cut.
func TestDamageOnTheWay(t *testing.T) {
	d := fault.NewDisk()
	o := &origin{files: someFiles("new", 1)}
	in := mustIncoming(t, d)
	m := o.manifest()
	if err := in.Want(m); err != nil {
		t.Fatal(err)
	}
	flip := func(ctx context.Context, f File, offset int64) (io.ReadCloser, error) {
		r, err := o.open(ctx, f, offset)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		b[blockHeader] ^= 1
		return io.NopCloser(bytes.NewReader(b)), err
	}
	if err := in.Fetch(t.Context(), flip); !errors.Is(err, ErrBlock) {
		t.Errorf("a flipped bit: %v", err)
	}
	good := o.files["data/0000000000000001.run"]
	bad := slices.Clone(good)
	bad[100] ^= 1
	o.files["data/0000000000000001.run"] = bad
	var wrong *SumError
	if err := in.Fetch(t.Context(), o.open); !errors.As(err, &wrong) {
		t.Errorf("another file: %v", err)
	}
	o.files["data/0000000000000001.run"] = good
	torn, err := d.Create(filepath.Join(in.Dir(), "data/0000000000000001.run"+partial))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := torn.WriteAt(make([]byte, 300), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Fetch(t.Context(), o.open), in.Adopt()); err != nil {
		t.Fatal(err)
	}
	if !equalFiles(found(t, d), o.files) {
		t.Error("other files arrived")
	}
}

func TestManifestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"state.db": true, "generation": true, "data/0000000000000001.run": true,
		"": false, "..": false, "../state.db": false, "/state.db": false, "data/../state.db": false, "data": false,
		"data/x": false, "data/a/b.run": false, "snapshots/1.snap": false, "WANT": false, "data/.run": false, "data/x.run.part": false,
	} {
		if ValidName(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
	m := &Manifest{Format: ManifestFormat, Files: []File{{Name: "../../x"}}}
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeManifest(b); !errors.Is(err, ErrBadManifest) {
		t.Errorf("a name that leads elsewhere: %v", err)
	}
	if _, err := DecodeManifest([]byte(strings.Replace(string(b), "x", "y", 1))); !errors.Is(err, ErrBadManifest) {
		t.Errorf("a wrong checksum: %v", err)
	}
}
