package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// TestFullDisk fills the disk under a running broker: publishes are refused with
// an error and reads go on; once there is space again, publishes are accepted
// without anybody's help. Nothing acknowledged is lost.
func TestFullDisk(t *testing.T) {
	d := newDisk(t, 300)
	b := startOn(t, d)
	nc := connect(t, b)
	createTopic(t, nc)
	js, err := jetstream.New(nc)
	must(t, err)
	l := &ledger{lines: quakes(t), acked: map[int]uint64{}}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	publish := func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		m := l.message(l.sent)
		m.Data = append(m.Data, make([]byte, 64<<10)...)
		ack, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err == nil {
			l.acked[l.sent] = ack.Sequence
		}
		l.sent++
		return err
	}
	for range 20 {
		must(t, publish())
	}
	filler := filepath.Join(d.Dir, "filler")
	for _, block := range []string{"1M", "4k", "512"} {
		// dd ends with an error when the disk is full: that is the point.
		_ = exec.Command("dd", "if=/dev/zero", "of="+filler+block, "bs="+block).Run()
	}
	refused := error(nil)
	for i := 0; i < 6000 && refused == nil; i++ {
		refused = publish()
	}
	if refused == nil {
		t.Fatal("the disk is full and publishes are still accepted")
	}
	t.Logf("refused with: %v", refused)
	select {
	case <-b.Exited():
		t.Fatalf("the broker ended instead of refusing:\n%s", b.Output())
	default:
	}
	stream, err := js.Stream(ctx, topic)
	must(t, err)
	if _, err := stream.GetMsg(ctx, 1); err != nil {
		t.Fatalf("reading while the disk is full: %v", err)
	}
	for _, block := range []string{"1M", "4k", "512"} {
		must(t, os.Remove(filler+block))
	}
	for end := time.Now().Add(30 * time.Second); publish() != nil; {
		if time.Now().After(end) {
			t.Fatal("publishes are still refused 30 s after space was freed")
		}
		<-time.After(100 * time.Millisecond)
	}
	for n, seq := range l.acked {
		if _, err := stream.GetMsg(ctx, seq); err != nil {
			t.Fatalf("message %d, acknowledged at %d: %v", n, seq, err)
		}
	}
	t.Logf("%d acknowledged, all there", len(l.acked))
}

// TestFailedSync makes an fdatasync fail under load. The process must end within
// a second (a failed sync is never retried), start again and hold all it
// acknowledged.
func TestFailedSync(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("SKIPPED: no strace on this machine")
	}
	b := harness.New(t, fmt.Sprintf("server_name: n1\njetstream { enabled: true, store_dir: %q }\n", "store"))
	must(t, b.Run())
	nc := connect(t, b)
	createTopic(t, nc)
	l := &ledger{lines: quakes(t), acked: map[int]uint64{}}

	trace := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=20+", "-p", fmt.Sprint(b.PID()))
	must(t, trace.Start())
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { l.publish(nc, 50, stop); close(done) }()
	select {
	case <-b.Exited():
	case <-time.After(20 * time.Second):
		t.Fatalf("the broker outlived failing fdatasyncs:\n%s", b.Output())
	}
	close(stop)
	<-done
	nc.Close()
	_ = trace.Process.Kill()
	_ = trace.Wait()
	b.Kill()
	must(t, b.Run())
	l.check(t, connect(t, b))
}
