package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// TestRefillSpeed fills an empty replica with 1 GiB while others publish: at half the
// speed at least at which the disk takes one file.
func TestRefillSpeed(t *testing.T) {
	if testing.Short() || os.Getenv("HERALD_LONG") == "" {
		t.Skip("writes some gigabytes; set HERALD_LONG=1")
	}
	const size = 1 << 30
	f := startFleet(t, 3)
	f.create("a", replicated(3, "T", "T.>"))
	f.calm()
	_, followers := f.others()
	empty, stays := followers[0], followers[1]
	f.kill(empty)
	if err := os.RemoveAll(filepath.Join(f.dir, empty)); err != nil {
		t.Fatal(err)
	}
	f.flood(stays, size)
	disk := diskSpeed(t, f.dir, 256<<20)

	done := make(chan struct{})
	var live sync.WaitGroup
	var worst, count atomic.Int64
	live.Go(func() {
		paced := time.NewTicker(5 * time.Millisecond)
		defer paced.Stop()
		for {
			select {
			case <-done:
				return
			case <-paced.C:
			}
			began := time.Now()
			if f.publish(stays, "T", "T.live", "", "x") == "" {
				t.Error("a publish was not answered")
			}
			worst.Store(max(worst.Load(), int64(time.Since(began))))
			count.Add(1)
		}
	})
	began := time.Now()
	m := f.open(f.network(empty, f.seeds[int(empty[0]-'a')]))
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := began.Add(5 * time.Minute); ; <-look.C {
		topic, ok := m.Topic("A", "T")
		if ok && topic.Data() != nil && topic.Data().State().Bytes >= size {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it isn't filled")
		}
	}
	took := time.Since(began)
	close(done)
	live.Wait()
	speed := float64(size) / took.Seconds() / (1 << 20)
	t.Logf("filled in %s: %.0f MiB/s; the disk takes %.0f MiB/s; %d live publishes, the slowest took %s",
		took.Round(time.Millisecond), speed, disk, count.Load(), time.Duration(worst.Load()))
	if speed < disk/2 {
		t.Errorf("that is less than half")
	}
}

// flood publishes so many bytes, a few at a time.
func (f *fleet) flood(on string, bytes int) {
	f.Helper()
	topic, _ := f.nodes[on].Topic("A", "T")
	payload := []byte(strings.Repeat("0123456789abcdef", 4096))
	f.mu.Lock()
	answers := make(chan string, 64)
	f.acks["_FLOOD"] = answers
	f.mu.Unlock()
	free := 32
	for sent := 0; sent < bytes; sent += len(payload) {
		for ; free == 0; free++ {
			select {
			case <-answers:
			case <-time.After(time.Minute):
				f.Fatal("no answer")
			}
		}
		free--
		topic.Group().Capture([]front.Captured{{
			Topic: topic.ID(), Subject: fmt.Appendf(nil, "T.%d", sent%7), Reply: []byte("_FLOOD"), Payload: payload,
		}})
	}
	for ; free < 32; free++ {
		<-answers
	}
}

// diskSpeed returns how many MiB a second the disk takes of a file, with its sync.
func diskSpeed(t *testing.T, dir string, size int) float64 {
	t.Helper()
	name := filepath.Join(dir, "speed")
	defer os.Remove(name)
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	began := time.Now()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for range size >> 20 {
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return float64(size>>20) / time.Since(began).Seconds()
}
