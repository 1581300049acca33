package stable

import (
	"errors"
	"slices"
	"testing"

	"github.com/heraldmq/herald/replication/fault"
)

// memory is a witness.
type memory struct {
	record []byte
	broken error
}

func (m *memory) Get() []byte { return m.record }

func (m *memory) Set(b []byte) error {
	if m.broken == nil {
		m.record = slices.Clone(b)
	}
	return m.broken
}

func openWitnessed(t *testing.T, d *fault.Disk, inc string, w Witness) *Store {
	t.Helper()
	s, err := OpenWitnessed(d, testDir, "a", 1, inc, w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAWitnessRestoresTheVote loses the file in several ways.
func TestAWitnessRestoresTheVote(t *testing.T) {
	for what, lose := range map[string]func(t *testing.T, d *fault.Disk, old []byte){
		"deleted": func(t *testing.T, d *fault.Disk, _ []byte) {
			if err := d.Remove(testFile); err != nil {
				t.Fatal(err)
			}
		},
		"put back from an old copy": func(t *testing.T, d *fault.Disk, old []byte) { overwrite(t, d, old) },
		"overwritten":               func(t *testing.T, d *fault.Disk, old []byte) { overwrite(t, d, make([]byte, len(old))) },
	} {
		t.Run(what, func(t *testing.T) {
			d, w := fault.NewDisk(), &memory{}
			s := openWitnessed(t, d, "first", w)
			vote(t, s, 3, "x")
			old := content(t, d)
			vote(t, s, 4, "y")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			lose(t, d, old)
			for range 2 { // the second time from the file
				s = openWitnessed(t, d, "second", w)
				if term, voted, who := read(t, s); term != 4 || voted != 4 || who != "y" || s.Incarnation() != "first" {
					t.Errorf("term %d, vote in %d for %q as %q", term, voted, who, s.Incarnation())
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				w = &memory{}
			}
		})
	}
}

// TestTheFileIsAheadOfItsWitness is what a crash between the two leaves, and what a new
// witness meets.
func TestTheFileIsAheadOfItsWitness(t *testing.T) {
	d, w := fault.NewDisk(), &memory{}
	s := openWitnessed(t, d, "i", w)
	vote(t, s, 3, "x")
	before := w.record
	vote(t, s, 4, "y")
	newest := w.record
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*memory{{record: before}, {}, {record: []byte("nonsense")}} {
		s = openWitnessed(t, d, "j", w)
		if term, _, who := read(t, s); term != 4 || who != "y" || !slices.Equal(w.record, newest) {
			t.Errorf("term %d, vote for %q, the witness is the same as before: %v", term, who, !slices.Equal(w.record, newest))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAVoteWithoutItsWitnessIsNotGiven fails the witness.
func TestAVoteWithoutItsWitnessIsNotGiven(t *testing.T) {
	w := &memory{}
	s := openWitnessed(t, fault.NewDisk(), "i", w)
	w.broken = errors.New("no")
	if err := s.SetUint64([]byte(keyTerm), 7); !errors.Is(err, w.broken) {
		t.Errorf("acknowledged: %v", err)
	}
}

// TestAWitnessOfAnotherNodeIsNotBelieved opens a file of b with a's witness.
func TestAWitnessOfAnotherNodeIsNotBelieved(t *testing.T) {
	w := &memory{}
	s := openWitnessed(t, fault.NewDisk(), "i", w)
	vote(t, s, 9, "x")
	other, err := OpenWitnessed(fault.NewDisk(), testDir, "b", 1, "j", w)
	if err != nil {
		t.Fatal(err)
	}
	if term, _, who := read(t, other); term != 0 || who != "" || other.Incarnation() != "j" {
		t.Errorf("term %d, vote for %q as %q", term, who, other.Incarnation())
	}
}

func content(t *testing.T, d *fault.Disk) []byte {
	t.Helper()
	f, err := d.Open(testFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, slotSpace+slotSize)
	if n, err := f.ReadAt(b, 0); n < len(b) && err != nil {
		t.Fatal(err)
	}
	return b
}

func overwrite(t *testing.T, d *fault.Disk, b []byte) {
	t.Helper()
	f, err := d.Open(testFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}
