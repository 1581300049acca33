package operate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics/catalogue"
)

// hurt changes a byte in the tables of an operator's state on a node, while it runs, until that
// is found out, and they are put aside. publish sends records that touch the state.
func (p *place) hurt(id uint64, publish func()) {
	p.Helper()
	dir := p.ops.dir(unitKey{id: id})
	done := map[string]bool{}
	wait(p, "the damage", func() (bool, string) {
		if aside, err := filepath.Glob(filepath.Join(asideOf(dir), "tree-*", "*.sst")); err != nil || len(aside) > 0 {
			return err == nil, fmt.Sprint(err)
		}
		top, _ := p.Topic("A", "OUT")
		if err := top.Group().Store().Flush(); err != nil {
			p.Fatal(err)
		}
		tables, err := filepath.Glob(filepath.Join(dir, "tree-*", "*.sst"))
		if err != nil {
			p.Fatal(err)
		}
		for _, name := range tables {
			if done[name] {
				continue
			}
			switch err := flip(name, 20); {
			case err == nil:
				done[name] = true
			case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, io.EOF): // just compacted away, or being written
				p.Fatal(err)
			}
		}
		publish()
		return false, fmt.Sprint(len(done), " tables were changed")
	})
}

// flip changes a byte of a file.
func flip(name string, at int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b := []byte{0}
	if _, err = f.ReadAt(b, at); err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, at)
	}
	return errors.Join(err, f.Close())
}

// The files of a replica's state are damaged while it runs, a standby's or the primary's: it
// puts them aside and gets the state of another one, and the output is the same. Where the
// standbys of a passive operator have an older state and the steps behind it, one of them leads.
func TestADamagedStateIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"delta", "replay", "auto\nrecovery: passive\ncheckpoint: 1h", "auto\nrecovery: passive\ncheckpoint: 20ms"} {
		for _, whose := range []string{"standby", "primary", "idle standby"} {
			mode := strings.Fields(how)[len(strings.Fields(how))-1]
			if mode == "1h" && whose == "standby" || mode != "delta" && whose == "idle standby" {
				continue // it reads nothing of it
			}
			t.Run(mode+"-"+whose, func(t *testing.T) {
				t.Parallel()
				f := startFleetWith(t, func(_ *state.Options, oo *Options) { oo.Patience = 2 * time.Second })
				f.withTopics()
				text := fmt.Sprintf(counting, how+"\nstate: {backend: pebble}")
				o := f.any().deploy(text)
				sent := 0
				publish := func() {
					for range 20 {
						f.any().publish(fmt.Sprintf(`{"k":"k%d","v":%d}`, sent%7, 3+sent))
						sent++
					}
					f.any().lines(sent)
				}
				publish()
				wait(t, "a leader", func() (bool, string) { return f.leader() != nil, "" })
				hurt := f.leader()
				for _, p := range f.nodes {
					if whose != "primary" && p != f.leader() {
						hurt = p
					}
				}
				wait(t, "the state", func() (bool, string) {
					r := hurt.reportOf(o.ID)
					return r.Seq > 0 && r.Epoch == 1 && hurt.ops.unit(unitKey{id: o.ID}, nil).store.Load().InFiles(), fmt.Sprintf("%+v", r)
				})
				if whose == "idle standby" { // it is found out by others, and nothing comes that wakes it
					hurt.hurt(o.ID, func() {
						_ = hurt.ops.unit(unitKey{id: o.ID}, nil).store.Load().Scan(nil, nil, func(_, _ []byte) bool { return true })
					})
				} else {
					hurt.hurt(o.ID, publish)
				}
				publish()
				wait(t, "the rebuilding", func() (bool, string) {
					r := hurt.reportOf(o.ID)
					return r.Stats.Rebuilt > 0 && !r.Faulty && r.Seq > 0, fmt.Sprintf("%+v", r)
				})
				publish()
				if now := f.any().Operator("A", "counts"); now.State != catalogue.Running {
					t.Errorf("it is %s: %s", now.State, now.Error)
				}
				wait(t, "the output", func() (bool, string) {
					return same(f.any().output(), batch(t, text, f.any().input()))
				})
				if r := hurt.reportOf(o.ID); mode == "1h" && r.Leads {
					t.Error("it leads, and nobody had the state")
				}
				if mode == "delta" || mode == "replay" {
					f.level(o.ID)
				}
			})
		}
	}
}

// An operator alone, whose state is damaged, fails with what to do; the broker and the other
// operators go on, also after a restart. With reset it begins anew.
func TestAnOperatorAloneWhoseStateIsDamaged(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"running", "stopped"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := open(t, dir, nil)
			defer func() { p.close() }()
			p.topics(1)
			if _, _, err := p.CreateTopic(t.Context(), "A", conf(1, "FAR", "far.>")); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf(counting, "delta\nstate: {backend: pebble}")
			other := strings.NewReplacer("operator: counts", "operator: others", "topic: OUT, subject: 'out", "topic: FAR, subject: 'far").Replace(text)
			o := p.deploy(text)
			p.deploy(other)
			sent := 0
			publish := func() {
				for range 20 {
					p.publish(fmt.Sprintf(`{"k":"k%d","v":%d}`, sent%7, 3+sent))
					sent++
				}
				wait(t, "the input", func() (bool, string) { n := len(p.input()); return n == sent, fmt.Sprint(n) })
				wait(t, "the other's output", func() (bool, string) { return same(p.outputOf("FAR"), batchOf(t, other, "FAR", p.input())) })
			}
			publish()
			p.lines(sent)
			if when == "running" {
				p.hurt(o.ID, publish)
			} else {
				p.close()
				tables, err := filepath.Glob(filepath.Join(p.ops.dir(unitKey{id: o.ID}), "tree-*", "*.sst"))
				if err != nil || len(tables) == 0 {
					t.Fatal(tables, err)
				}
				for _, name := range tables {
					if err := flip(name, 20); err != nil {
						t.Fatal(err)
					}
				}
				p = open(t, dir, nil)
				publish()
			}
			failed := func() {
				t.Helper()
				wait(t, "the failure", func() (bool, string) {
					now := p.Operator("A", "counts")
					return now.State == catalogue.Failed && now.Lost, fmt.Sprintf("%s: %s", now.State, now.Error)
				})
				for _, part := range []string{".sst", ".damaged", "restore a savepoint", "with reset"} {
					if why := p.Operator("A", "counts").Error; !strings.Contains(why, part) {
						t.Errorf("it doesn't say %q: %s", part, why)
					}
				}
			}
			failed()
			n := len(p.output())
			publish()
			p.close()
			p = open(t, dir, nil)
			failed()
			publish()
			if len(p.output()) != n {
				t.Errorf("it goes on with %d outputs behind %d", len(p.output())-n, n)
			}
			p.reset(text)
			publish()
			if _, err := p.ops.service.remove(t.Context(), "A", &Request{Name: "counts"}); err != nil {
				t.Fatal(err)
			}
			wait(t, "the removal", func() (bool, string) {
				left, err := filepath.Glob(p.ops.dir(unitKey{id: o.ID}) + "*")
				return err == nil && len(left) == 0, fmt.Sprint(left, err)
			})
		})
	}
}
