package peer_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/replication/peer/peertest"
	"go.uber.org/goleak"
)

// The tests of several nodes wait more than they work: more of them run at once than
// there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // a flag that testing has, and a number
	goleak.VerifyTestMain(m)
}

// watch collects the events of a network.
type watch struct {
	mu     sync.Mutex
	events []peer.Event
}

func watching(n *peer.Network) *watch {
	w := &watch{}
	n.OnChange(func(e peer.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	})
	return w
}

func (w *watch) find(kind peer.EventKind, name string) (peer.Event, bool) {
	return w.findFrom(0, kind, name)
}

// seen returns how many events there were so far.
func (w *watch) seen() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.events)
}

func (w *watch) findFrom(first int, kind peer.EventKind, name string) (peer.Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.events, func(e peer.Event) bool {
		if first--; first >= 0 {
			return false
		}
		return e.Kind == kind && e.Peer.Name == name
	})
	if i < 0 {
		return peer.Event{}, false
	}
	return w.events[i], true
}

func TestOneSeedIsEnough(t *testing.T) {
	c := peertest.NewUnopened(t, "a", "b", "c", "d")
	c.Change(func(o *peer.Options) {
		o.Routes = []string{c.Addr("a")}
	})
	for _, name := range []string{"a", "b", "c", "d"} {
		c.Reopen(name)
		c.Net(name).SetStatus("groups", []byte("of "+name))
	}
	c.Start()
	p, _ := c.Net("d").Peer("b")
	if string(p.Status["groups"]) != "of b" || p.Addr != c.Addr("b") || p.Version != "test" {
		t.Fatalf("d knows of b: %+v", p)
	}
	c.Wait("the route of a to be known as its own", func() bool { return c.Net("a").Routes()[0].Self })
	c.Wait("the route of b to be connected", func() bool {
		r := c.Net("b").Routes()[0]
		return r.Connected && r.Name == "a"
	})
	if known := c.Net("b").Known(); len(known) != 3 {
		t.Fatalf("b knows of %v", known)
	}
	w := watching(c.Net("a"))
	c.Net("c").SetStatus("groups", []byte("new"))
	c.Wait("the status to change", func() bool {
		e, ok := w.find(peer.Status, "c")
		return ok && e.Key == "groups" && string(e.Peer.Status["groups"]) == "new"
	})
	c.Wait("a round trip to be known", func() bool {
		p, _ := c.Net("a").Peer("c")
		return p.RTT > 0
	})
}

func TestCallsAndStreams(t *testing.T) {
	c := peertest.New(t, "a", "b")
	big := bytes.Repeat([]byte("0123456789"), 1<<20)
	held := make(chan struct{})
	b := c.Net("b")
	b.Handle("echo", func(_ context.Context, from string, body []byte) ([]byte, error) {
		return append([]byte(from+" "), body...), nil
	})
	b.Handle("fail", func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("no such thing") })
	b.Handle("panic", func(context.Context, string, []byte) ([]byte, error) { panic("oh") })
	b.Handle("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		close(held)
		return nil, ctx.Err()
	})
	b.HandleStream("big", func(_ context.Context, _ string, _ []byte, w io.Writer) error {
		_, err := w.Write(big)
		return err
	})
	b.HandleStream("broken", func(_ context.Context, _ string, _ []byte, w io.Writer) error {
		_, _ = w.Write([]byte("half"))
		return errors.New("the rest is damaged")
	})
	left := make(chan error, 1)
	b.HandleStream("endless", func(_ context.Context, _ string, _ []byte, w io.Writer) error {
		for {
			if _, err := w.Write(big); err != nil {
				left <- err
				return err
			}
		}
	})
	c.Start()
	a, ctx := c.Net("a"), context.Background()

	if got, err := a.Call(ctx, "b", "echo", []byte("x")); err != nil || string(got) != "a x" {
		t.Fatalf("%q, %v", got, err)
	}
	var remote *peer.RemoteError
	if _, err := a.Call(ctx, "b", "fail", nil); !errors.As(err, &remote) || remote.Text != "no such thing" {
		t.Fatal(err)
	}
	if _, err := a.Call(ctx, "b", "panic", nil); !errors.As(err, &remote) {
		t.Fatal(err)
	}
	if _, err := a.Call(ctx, "b", "nothing", nil); !errors.Is(err, peer.ErrNoHandler) {
		t.Fatal(err)
	}
	if _, err := a.Call(ctx, "z", "echo", nil); !errors.Is(err, peer.ErrNoPeer) {
		t.Fatal(err)
	}
	if _, err := a.Call(ctx, "b", "echo", make([]byte, peer.CallBytesMax+1)); !errors.Is(err, peer.ErrTooLarge) {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := a.Call(short, "b", "hang", nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-held

	read := func(method string) ([]byte, error) {
		r, err := a.OpenStream(ctx, "b", method, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	if got, err := read("big"); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if got, err := read("broken"); string(got) != "half" || !errors.As(err, &remote) {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := read("nothing"); !errors.Is(err, peer.ErrNoHandler) {
		t.Fatal(err)
	}
	r, err := a.OpenStream(ctx, "b", "endless", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := <-left; err == nil {
		t.Fatal("the writer wasn't told")
	}
	if r, err = a.OpenStream(ctx, "b", "endless", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		c.Kill("b")
	}()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, peer.ErrLinkLost) {
		t.Fatal(err)
	}
	<-left
	<-killed
	r.Close()
}

func TestASlowChannelStallsOnlyItself(t *testing.T) {
	c := peertest.New(t, "a", "b")
	release, got := make(chan struct{}), make(chan string, 10_000)
	c.Net("b").HandleChannel(100, 199, func(from string, ch peer.Channel, chunk []byte) {
		if ch == 100 {
			<-release
		}
		got <- string(chunk)
	})
	c.Start()
	a := c.Net("a")
	chunk := make([]byte, peer.ChunkBytesMax)
	sent := 0
	for ; ; sent++ {
		if err := a.Send("b", 100, chunk); err == peer.ErrFull {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if err := a.Send("b", 101, []byte{byte(i), byte(i >> 8)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if s := <-got; s != string([]byte{byte(i), byte(i >> 8)}) {
			t.Fatalf("chunk %d is %x", i, s)
		}
	}
	if q := a.Queued("b", 100); q < peer.QueueBytesMax-2*peer.CreditBytes || q > peer.QueueBytesMax {
		t.Fatalf("%d bytes are queued", q)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := a.WaitRoom(ctx, "b", 100, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	close(release)
	if err := a.WaitRoom(context.Background(), "b", 100, 1); err != nil {
		t.Fatal(err)
	}
	for range sent {
		<-got
	}
	if err := a.Send("b", 101, make([]byte, peer.ChunkBytesMax+1)); err != peer.ErrTooLarge {
		t.Fatal(err)
	}
	if err := a.Send("z", 101, nil); err != peer.ErrNoPeer {
		t.Fatal(err)
	}
}

func TestAPeerThatDiesIsNoticedAtOnceAndComesBack(t *testing.T) {
	c := peertest.New(t, "a", "b")
	w := watching(c.Net("a"))
	c.Start()
	start := time.Now()
	c.Kill("b")
	c.Wait("the refusal", func() bool { _, ok := w.find(peer.Refused, "b"); return ok })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if e, ok := w.find(peer.Down, "b"); !ok || !e.Reset {
		t.Fatalf("down: %+v", e)
	}
	c.Reopen("b").Start()
	c.WaitConnected("a", "b")
}

func TestASilentPeerIsGivenUp(t *testing.T) {
	for name, cut := range map[string]func(c *peertest.Cluster){
		"both ways": func(c *peertest.Cluster) { c.Cut("a", "b") },
		"one way":   func(c *peertest.Cluster) { c.CutOneWay("a", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := peertest.New(t, "a", "b")
			w := watching(c.Net("a"))
			c.Start()
			before := w.seen() // of two connections that met, one was given up
			cut(c)
			c.WaitPeer("a", "b", false)
			c.WaitPeer("b", "a", false)
			c.Wait("the event", func() bool { _, ok := w.findFrom(before, peer.Down, "b"); return ok })
			if e, _ := w.findFrom(before, peer.Down, "b"); name == "both ways" && e.Reset {
				t.Errorf("a peer that said nothing is reported to have ended: %v", e.Err)
			}
			c.HealAll()
			c.WaitConnected("a", "b")
			if _, ok := w.find(peer.Refused, "b"); ok {
				t.Error("somebody listened all the time")
			}
		})
	}
}

func TestWhoDoesNotBelongIsRefused(t *testing.T) {
	for name, change := range map[string]struct {
		change func(o *peer.Options)
		says   string
	}{
		"secret":  {func(o *peer.Options) { o.Secret = "other" }, "secrets differ"},
		"none":    {func(o *peer.Options) { o.Secret = "" }, "only one of the two has a secret"},
		"format":  {func(o *peer.Options) { o.Format = 9 }, "format 9"},
		"cluster": {func(o *peer.Options) { o.Cluster = "x" }, "cluster"},
		"name":    {func(o *peer.Options) { o.Name = "a" }, "name of this node"},
	} {
		t.Run(name, func(t *testing.T) {
			var logs [2]syncBuffer
			c := peertest.NewUnopened(t, "a", "b")
			i := 0
			c.Change(func(o *peer.Options) {
				o.Log = textLog(&logs[i])
				if i == 1 {
					change.change(o)
				}
				i++
			})
			c.Reopen("a").Start()
			c.Reopen("b").Start()
			for i := range logs {
				c.Wait("the log of "+string(rune('a'+i)), func() bool { return strings.Contains(logs[i].String(), change.says) })
				if strings.Contains(logs[i].String(), "password") {
					t.Error("the log has the secret")
				}
			}
			if len(c.Net("a").Peers())+len(c.Net("b").Peers()) > 0 {
				t.Error("they are connected")
			}
		})
	}
}

func TestAnotherNodeWithANameThatIsTakenIsRefused(t *testing.T) {
	c := peertest.New(t, "a", "b")
	c.Start()
	var log syncBuffer
	c.Change(func(o *peer.Options) { o.Port, o.Log = 0, textLog(&log) })
	second, err := peer.Open(c.Options("b"))
	if err != nil {
		t.Fatal(err)
	}
	second.Start()
	c.Wait("the refusal", func() bool { return strings.Contains(log.String(), "another node with the name b") })
	if _, ok := c.Net("a").Peer("b"); !ok || len(second.Peers()) > 0 {
		t.Error("the first one lost its connection")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestARemovedNodeIsRefusedUntilItIsAllowed(t *testing.T) {
	c := peertest.New(t, "a", "b", "c")
	w := watching(c.Net("b"))
	c.Start()
	c.Net("a").Disconnect("b", "it was removed")
	c.WaitPeer("a", "b", false)
	c.WaitPeer("b", "a", false)
	c.Wait("the reason", func() bool {
		e, ok := w.find(peer.Down, "a")
		return ok && strings.Contains(e.Err.Error(), "it was removed")
	})
	c.Net("a").Allow("b")
	c.WaitConnected("a", "b", "c")
}

func TestNothingIsOpenToOthersUnprotected(t *testing.T) {
	for name, o := range map[string]peer.Options{
		"listen": {Name: "a", Cluster: "c", Host: "0.0.0.0"},
		"route":  {Name: "a", Cluster: "c", Routes: []string{"192.0.2.1:6222"}},
	} {
		if _, err := peer.Open(o); err == nil || !strings.Contains(err.Error(), "cluster.authorization") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
