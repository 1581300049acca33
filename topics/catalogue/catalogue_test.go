package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

func config(name string, subjects ...string) *topics.Config {
	return &topics.Config{Name: name, Subjects: subjects, Storage: topics.StoreFile, MaxBytes: -1}
}

// failer is what *testing.T, *testing.B, *testing.F and *rapid.T have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func mustApply(t failer, c *Catalogue, cmd Command) Result {
	t.Helper()
	entry, err := cmd.Encode()
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := DecodeCommand(entry)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Apply(decoded)
	if err != nil {
		t.Fatalf("%s: %v", cmd.Op, err)
	}
	return r
}

func TestCreatingATopicTwiceIsOneTopic(t *testing.T) {
	c := New()
	cmd := Command{Op: OpCreateTopic, Account: "A", Config: config("orders", "orders.>"), Groups: 1}
	first := mustApply(t, c, cmd)
	again := mustApply(t, c, cmd)
	if !first.Created || again.Created || first.Topic.ID != again.Topic.ID {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	cmd.Config = config("orders", "orders.new")
	if r := mustApply(t, c, cmd); r.Fault != FaultNameInUse {
		t.Fatalf("another config under the name gave %v", r.Fault)
	}
	cmd.Account = "B"
	if r := mustApply(t, c, cmd); !r.Created {
		t.Fatalf("another account may use the name, got %v", r.Fault)
	}
}

func TestSubjectsOfAnAccountMustNotOverlap(t *testing.T) {
	for _, c := range []struct {
		has, wants string
		overlap    bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.*", "a.c", true},
		{"a.c", "a.*", true},
		{"a.*", "*.b", true},
		{"a.>", "a", false},
		{">", "x", true},
		{"a.*.c", "a.b.d", false},
	} {
		cat := New()
		mustApply(t, cat, Command{Op: OpCreateTopic, Account: "A", Config: config("one", c.has), Groups: 1})
		r := mustApply(t, cat, Command{Op: OpCreateTopic, Account: "A", Config: config("two", c.wants), Groups: 1})
		if (r.Fault == FaultOverlap) != c.overlap {
			t.Errorf("%s beside %s: %v", c.wants, c.has, r.Fault)
		}
		if r := mustApply(t, cat, Command{Op: OpUpdateTopic, Account: "A", Config: config("one", c.wants)}); r.Fault != nil && !c.overlap && cat.Find("A", "two") == nil {
			t.Errorf("a topic overlaps with itself: %v", r.Fault)
		}
	}
}

func TestLimitsHoldForTopicsAndReservedBytes(t *testing.T) {
	c := New()
	limits := &Limits{Topics: 2, FileBytes: 100, FileTopicMax: 80, BytesRequired: true}
	create := func(name string, bytes int64) *topics.Fault {
		cfg := config(name, name)
		cfg.MaxBytes = bytes
		return mustApply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: cfg, Limits: limits, Groups: 1}).Fault
	}
	for _, step := range []struct {
		name  string
		bytes int64
		want  *topics.Fault
	}{
		{"none", -1, FaultBytesRequired},
		{"big", 90, FaultTopicBytes},
		{"one", 60, nil},
		{"two", 50, FaultFileStorage},
		{"two", 40, nil},
		{"three", 1, FaultTooManyTopics},
	} {
		if got := create(step.name, step.bytes); got != step.want {
			t.Fatalf("create %s of %d bytes: %v, want %v", step.name, step.bytes, got, step.want)
		}
	}
	cfg := config("one", "one")
	cfg.MaxBytes = 70
	if r := mustApply(t, c, Command{Op: OpUpdateTopic, Account: "A", Config: cfg, Limits: limits}); r.Fault != FaultFileStorage {
		t.Fatalf("growing beyond the account: %v", r.Fault)
	}
	mustApply(t, c, Command{Op: OpDeleteTopic, Account: "A", Name: "two"})
	if r := mustApply(t, c, Command{Op: OpUpdateTopic, Account: "A", Config: cfg, Limits: limits}); r.Fault != nil {
		t.Fatalf("growing into what was freed: %v", r.Fault)
	}
	if n, file, memory := c.Reserved("A"); n != 1 || file != 70 || memory != 0 {
		t.Fatalf("reserved %d topics, %d and %d bytes", n, file, memory)
	}
}

func TestNotesOutOfTurnChangeNothing(t *testing.T) {
	c := New()
	id := mustApply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: config("t", "t"), Groups: 1}).Topic.ID
	mustApply(t, c, Command{Op: OpUpdateTopic, Account: "A", Config: config("t", "u")})
	for _, rev := range []uint64{3, 2, 1, 2} { // 3 is from the future, 1 late
		mustApply(t, c, Command{Op: OpSyncedTopic, Topic: id, Revision: rev})
	}
	if top := c.Topic(id); !top.Settled() || top.Synced != 2 {
		t.Fatalf("topic is %+v", top)
	}
	mustApply(t, c, Command{Op: OpForgetTopic, Topic: id})
	if c.Topic(id) == nil {
		t.Fatal("a live topic was forgotten")
	}
	mustApply(t, c, Command{Op: OpDeleteTopic, Account: "A", Name: "t"})
	mustApply(t, c, Command{Op: OpSyncedTopic, Topic: id, Revision: 2})
	if !c.Deleted(id) || c.Deleted(id+1) {
		t.Error("it is not known which topics were deleted")
	}
	if top := c.Topic(id); top.State != Deleting {
		t.Fatalf("a late note brought a deleted topic back: %+v", top)
	}
	mustApply(t, c, Command{Op: OpForgetTopic, Topic: id})
	if c.Topic(id) != nil {
		t.Fatal("the topic wasn't forgotten")
	}
}

func TestAnUnknownCommandStopsTheProcess(t *testing.T) {
	if _, err := New().Apply(&Command{Op: "topic.rename"}); !errors.Is(err, topics.ErrBadEntry) {
		t.Fatalf("got %v", err)
	}
	if _, err := DecodeEntry([]byte("{")); !errors.Is(err, topics.ErrBadEntry) {
		t.Fatalf("got %v", err)
	}
}

// model is the catalogue as one would write it without thinking of speed.
type model struct {
	nextID topics.TopicID
	live   map[name]*modelTopic
	dying  map[topics.TopicID]bool
}

type modelTopic struct {
	id     topics.TopicID
	cfg    *topics.Config
	rev    uint64
	synced uint64
}

func (m *model) overlaps(account string, cfg *topics.Config, except topics.TopicID) bool {
	for k, t := range m.live {
		if k.account != account || t.id == except {
			continue
		}
		for _, a := range t.cfg.Subjects {
			for _, b := range cfg.Subjects {
				if subject.Overlap(a, b) {
					return true
				}
			}
		}
	}
	return false
}

func TestCatalogueAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New()
		m := &model{nextID: 1, live: map[name]*modelTopic{}, dying: map[topics.TopicID]bool{}}
		accounts := rapid.SampledFrom([]string{"A", "B"})
		names := rapid.SampledFrom([]string{"one", "two", "three"})
		subjects := rapid.SliceOfN(rapid.SampledFrom([]string{"a.b", "a.c", "a.*", "b.>", "b.c.d", "*.c", "c"}), 1, 2)
		draw := func(t *rapid.T) (name, *topics.Config) {
			k := name{accounts.Draw(t, "account"), names.Draw(t, "name")}
			cfg := config(k.name, subjects.Draw(t, "subjects")...)
			cfg.MaxBytes = rapid.Int64Range(-1, 3).Draw(t, "bytes")
			return k, cfg
		}
		check := func(t *rapid.T, got, want *topics.Fault) {
			if got != want {
				t.Fatalf("fault %v, the model says %v", got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				k, cfg := draw(t)
				r := mustApply(t, c, Command{Op: OpCreateTopic, Account: k.account, Config: cfg, Groups: 2})
				switch had := m.live[k]; {
				case had != nil && sameConfig(had.cfg, cfg):
					if r.Fault != nil || r.Created || r.Topic.ID != had.id {
						t.Fatalf("not idempotent: %+v", r)
					}
				case had != nil:
					check(t, r.Fault, FaultNameInUse)
				case m.overlaps(k.account, cfg, 0):
					check(t, r.Fault, FaultOverlap)
				default:
					check(t, r.Fault, nil)
					if r.Topic.ID != m.nextID {
						t.Fatalf("id %d, the model says %d", r.Topic.ID, m.nextID)
					}
					m.live[k] = &modelTopic{id: m.nextID, cfg: cfg, rev: 1}
					m.nextID++
				}
			},
			"update": func(t *rapid.T) {
				k, cfg := draw(t)
				r := mustApply(t, c, Command{Op: OpUpdateTopic, Account: k.account, Config: cfg})
				switch had := m.live[k]; {
				case had == nil:
					check(t, r.Fault, FaultTopicNotFound)
				case sameConfig(had.cfg, cfg):
					check(t, r.Fault, nil)
				case m.overlaps(k.account, cfg, had.id):
					check(t, r.Fault, FaultOverlap)
				default:
					check(t, r.Fault, nil)
					had.cfg, had.rev = cfg, had.rev+1
				}
			},
			"delete": func(t *rapid.T) {
				k, _ := draw(t)
				r := mustApply(t, c, Command{Op: OpDeleteTopic, Account: k.account, Name: k.name})
				if had := m.live[k]; had == nil {
					check(t, r.Fault, FaultTopicNotFound)
				} else {
					m.dying[had.id] = true
					delete(m.live, k)
				}
			},
			"note": func(t *rapid.T) {
				id := topics.TopicID(rapid.Uint64Range(1, uint64(m.nextID)).Draw(t, "id"))
				rev := rapid.Uint64Range(1, 3).Draw(t, "revision")
				mustApply(t, c, Command{Op: OpSyncedTopic, Topic: id, Revision: rev})
				for _, had := range m.live {
					if had.id == id && rev <= had.rev {
						had.synced = max(had.synced, rev)
					}
				}
			},
			"forget": func(t *rapid.T) {
				id := topics.TopicID(rapid.Uint64Range(1, uint64(m.nextID)).Draw(t, "id"))
				mustApply(t, c, Command{Op: OpForgetTopic, Topic: id})
				delete(m.dying, id)
			},
			"restart": func(t *rapid.T) {
				b, err := c.Freeze().AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				fresh := New()
				if err := fresh.UnmarshalBinary(b); err != nil {
					t.Fatal(err)
				}
				again, err := fresh.Freeze().AppendBinary(nil)
				if err != nil || !bytes.Equal(b, again) {
					t.Fatalf("a snapshot of a restored catalogue differs (%v)", err)
				}
				c = fresh
			},
			"": func(t *rapid.T) {
				if len(c.Topics()) != len(m.live)+len(m.dying) {
					t.Fatalf("%d topics, the model has %d and %d", len(c.Topics()), len(m.live), len(m.dying))
				}
				reserved := map[string]int64{}
				for k, want := range m.live {
					got := c.Find(k.account, k.name)
					if got == nil || got.ID != want.id || got.Revision != want.rev || got.Synced != want.synced || !sameConfig(&got.Config, want.cfg) {
						t.Fatalf("%v is %+v, the model has %+v", k, got, want)
					}
					reserved[k.account] += max(want.cfg.MaxBytes, 0)
				}
				for id := range m.dying {
					if got := c.Topic(id); got == nil || got.State != Deleting {
						t.Fatalf("topic %d is %+v, the model says deleting", id, got)
					}
				}
				for _, a := range []string{"A", "B"} {
					if _, file, _ := c.Reserved(a); file != reserved[a] {
						t.Fatalf("%s has %d bytes reserved, the model says %d", a, file, reserved[a])
					}
				}
			},
		})
	})
}

func TestADamagedSnapshotIsRefused(t *testing.T) {
	c := New()
	mustApply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: config("t", "t"), Groups: 1})
	mustApply(t, c, Command{Op: OpAdvertise, Account: "A", ID: "1", Body: []byte(`{"name":"t","subject":"t"}`)})
	b, err := c.Freeze().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 0x10
		var corrupt *CorruptError
		var newer *NewerError // the version has no checksum here; what the snapshot is kept in has
		if err := New().UnmarshalBinary(damaged); !errors.As(err, &corrupt) && (i != len(snapshotMagic) || !errors.As(err, &newer)) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if err := New().UnmarshalBinary(b[:i]); !errors.As(err, &corrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	c := New()
	mustApply(f, c, Command{Op: OpCreateTopic, Account: "A", Config: config("t", "t"), Groups: 1})
	b, err := c.Freeze().AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New()
		if c.UnmarshalBinary(b) == nil {
			if _, err := c.Freeze().AppendBinary(nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkCreateAmongMany(b *testing.B) {
	c := New()
	for i := range 10000 {
		mustApply(b, c, Command{Op: OpCreateTopic, Account: "A", Config: config(fmt.Sprint("t", i), fmt.Sprintf("s.%d", i)), Groups: 1})
	}
	cmd := Command{Op: OpCreateTopic, Account: "A", Config: config("new", "n.*"), Groups: 1}
	b.ReportAllocs()
	for b.Loop() {
		mustApply(b, c, cmd)
		mustApply(b, c, Command{Op: OpDeleteTopic, Account: "A", Name: "new"})
	}
}

// The snapshot is written piece by piece, but its body is what encoding it at once
// would give: programs that read it decode it so.
func TestSnapshotBodyIsOneJSONValue(t *testing.T) {
	c := New()
	for i := range 3 {
		b, err := c.Freeze().AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(c.Freeze().snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if got := b[snapshotHeader:]; string(got) != string(want) {
			t.Errorf("with %d topics the body is\n%s, want\n%s", i, got, want)
		}
		name := fmt.Sprint("T", i)
		if _, err := c.Apply(&Command{Op: OpCreateTopic, Account: "A", Config: &topics.Config{Name: name, Subjects: []string{name + ".>"}}}); err != nil {
			t.Fatal(err)
		}
	}
}
