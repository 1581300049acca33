package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/backup"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
	"github.com/heraldmq/herald/topics/subject"
)

// The flow of a backup: chunks go to the receiver, who answers each; so many bytes
// may be under way.
const (
	chunkDefault  = 128 << 10
	chunkMin      = 1 << 10
	chunkMax      = 1 << 20
	windowDefault = 8 << 20
	windowMax     = 32 << 20
	// chunkPatience is how long a receiver may keep the next chunk waiting, and
	// interestPatience how long it may take to listen at all.
	chunkPatience    = 5 * time.Second
	interestPatience = 2 * time.Second
	interestPoll     = 10 * time.Millisecond
)

// transfersMax bounds the backups and restores that go on at once.
const transfersMax = 8

// transfer runs a backup or restore beside the workers; false when there are too
// many. Close waits for it.
func (s *Service) transfer(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.transfers >= transfersMax {
		return false
	}
	s.transfers++
	s.moving.Go(func() {
		defer func() {
			s.mu.Lock()
			s.transfers--
			s.mu.Unlock()
		}()
		run()
	})
	return true
}

func (r *request) snapshot() (any, error) {
	var req jsapi.SnapshotRequest
	if len(r.msg.Payload) == 0 {
		return nil, jsapi.ErrBadRequest
	}
	t, err := r.topic()
	if err != nil {
		return nil, err
	}
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if !subject.ValidLiteral(req.DeliverSubject) {
		return nil, jsapi.ErrSnapshotDeliver
	}
	ctx, cancel := r.wait()
	defer cancel()
	if e := r.api.s.engine(t); e != nil {
		e.Record()
	}
	t.Group().Settle(ctx)
	b := &snapshot{s: r.api.s, api: r.api, topic: t, req: req, client: r.msg.Client, state: t.Data().State(), start: r.api.s.o.Now()}
	if req.NoConsumers {
		b.state.Consumers = 0
	} else {
		b.takeConsumers()
	}
	answered := make(chan struct{}) // the config comes before the first chunk
	if !r.api.s.transfer(func() {
		<-answered
		b.run()
	}) {
		return nil, jsapi.StreamSnapshot("too many backups and restores are going on")
	}
	r.after = append(r.after, func() { close(answered) })
	cfg := *t.Config()
	cfg.Metadata = jsapi.ReplyMetadata(cfg.Metadata)
	st := streamState(b.state)
	return &jsapi.SnapshotReply{Reply: r.head(), Config: &cfg, State: &st}, nil
}

// snapshot is a backup that is being sent.
type snapshot struct {
	s         *Service
	api       *accountAPI
	topic     *state.Topic
	req       jsapi.SnapshotRequest
	client    *front.ClientInfo
	state     topics.State // what the backup holds: nothing behind its last message
	consumers []*consumer.Consumer
	start     time.Time
}

// takeConsumers notes how far the consumers have come.
func (b *snapshot) takeConsumers() {
	b.topic.Data().Consumers(func(c *consumer.Consumer) bool {
		b.consumers = append(b.consumers, c)
		return true
	})
	b.state.Consumers = len(b.consumers)
}

func (b *snapshot) run() {
	name := b.topic.Name()
	b.api.advise(jsapi.AdvisoryPrefix+"STREAM.SNAPSHOT_CREATE."+name, &jsapi.SnapshotCreate{
		Event: b.api.event("snapshot_create"), Stream: name, State: streamState(b.state),
		Client: clientInfo(b.client, b.api), Domain: b.s.o.Domain,
	})
	err := b.send()
	done := &jsapi.SnapshotComplete{
		Event: b.api.event("snapshot_complete"), Stream: name, Start: b.start.UTC(), End: b.s.o.Now().UTC(),
		Client: clientInfo(b.client, b.api), Domain: b.s.o.Domain,
	}
	if err != nil {
		done.Error = err.Error()
		b.s.o.Log.Warn("a backup was not completed", "account", b.api.name, "stream", name, "error", err)
	}
	b.api.advise(jsapi.AdvisoryPrefix+"STREAM.SNAPSHOT_COMPLETE."+name, done)
}

// errNoInterest and errNoFlow end a backup whose receiver is gone or stands still.
var (
	errNoInterest = errors.New("no interest")
	errNoFlow     = errors.New("no flow response")
)

// send sends the archive in chunks, and an empty message with a status at its end.
func (b *snapshot) send() error {
	c, err := b.newChunker()
	if err != nil {
		return err
	}
	defer c.close()
	err = c.awaitInterest()
	if err == nil {
		err = b.write(c)
	}
	status := "204"
	switch {
	case errors.Is(err, errNoInterest):
		status = "408 No Interest"
	case errors.Is(err, errNoFlow):
		status = "408 No Flow Response"
	case err != nil:
		status = "500 " + oneLine(err.Error())
	}
	c.out.Deliver(c.to, c.to, "", []byte("NATS/1.0 "+status+"\r\n\r\n"), nil)
	c.out.Flush()
	return err
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' {
			b[i] = ' '
		}
	}
	return string(b)
}

// write writes the archive into c.
func (b *snapshot) write(c *chunker) error {
	w := backup.NewWriter(c)
	err := b.entries(w)
	if err == nil {
		err = w.Finish()
	}
	if e := w.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = c.finish()
	}
	return err
}

func (b *snapshot) entries(w *backup.Writer) error {
	now := b.start.UnixNano()
	st, err := json.Marshal(streamState(b.state))
	if err != nil {
		return fmt.Errorf("encode the state of a backup: %w", err)
	}
	if err := w.Write(&backup.Entry{Name: backup.StateName, Time: now, Payload: st}); err != nil {
		return err
	}
	for _, c := range b.consumers {
		body, err := json.Marshal(consumerBackup(c, b.state.Last))
		if err != nil {
			return fmt.Errorf("encode a consumer of a backup: %w", err)
		}
		if err := w.Write(&backup.Entry{Name: backup.ConsumerPrefix + c.Name(), Time: now, Payload: body}); err != nil {
			return err
		}
	}
	var msgs []topics.Message
	for next := max(b.state.First, topics.Sequence(b.req.FirstSeq)); next <= b.state.Last; {
		if b.s.ctx.Err() != nil {
			return errors.New("the server shuts down")
		}
		if msgs, next, err = b.topic.Data().Read(nil, next, 256, 1<<20, msgs[:0]); err != nil {
			var broken *store.CorruptError
			if errors.As(err, &broken) {
				return fmt.Errorf("a message can't be read: %w", err)
			}
			return err
		}
		for i := range msgs {
			m := &msgs[i]
			if m.Sequence > b.state.Last {
				return nil
			}
			err := w.Write(&backup.Entry{
				Name: m.Subject, Time: int64(m.Time), Sequence: uint64(m.Sequence), Header: m.Header, Payload: m.Payload,
			})
			if err != nil {
				return err
			}
		}
		if len(msgs) == 0 {
			return nil
		}
	}
	return nil
}

// chunker is an io.Writer that sends what it is given in chunks of one size.
type chunker struct {
	to    string
	acks  string
	out   *front.Publisher
	watch func() // ends the watch of the receiver's interest
	sub   *front.Internal
	ctx   context.Context

	buf   []byte // cap is a chunk's size
	index int
	slots chan struct{} // chunks that may be sent; the rest are under way
	gone  chan struct{} // holds one: the receiver no longer listens
	heard func(literal bool) bool
}

func (b *snapshot) newChunker() (*chunker, error) {
	size := b.req.ChunkSize
	if size == 0 {
		size = chunkDefault
	}
	window := b.req.WindowSize
	if window == 0 {
		window = windowDefault
	}
	size = min(max(size, chunkMin), chunkMax)
	window = max(min(window, windowMax), size)
	c := &chunker{
		to: b.req.DeliverSubject, acks: "$JS.SNAPSHOT.ACK." + b.topic.Name() + "." + nuid.Next(),
		out: b.api.account.NewPublisher(), ctx: b.s.ctx, buf: make([]byte, 0, size),
		slots: make(chan struct{}, window/size), gone: make(chan struct{}, 1),
	}
	for range cap(c.slots) {
		c.slots <- struct{}{}
	}
	var err error
	if c.sub, err = b.api.account.Subscribe(c.acks+".>", "", func(*front.Message) {
		select {
		case c.slots <- struct{}{}:
		default: // an answer too many
		}
	}); err != nil {
		return nil, err
	}
	c.watch = b.api.account.WatchInterest(c.to, func(has bool) {
		if !has {
			select {
			case c.gone <- struct{}{}:
			default:
			}
		}
	})
	c.heard = func(literal bool) bool {
		if literal {
			return b.api.account.LiteralInterest(c.to)
		}
		return b.api.account.HasInterest(c.to)
	}
	return c, nil
}

func (c *chunker) close() {
	c.watch()
	c.sub.Close()
}

// awaitInterest gives the receiver a moment to subscribe. Clients name an inbox that
// their pattern for replies matches, and subscribe to it itself only after the reply:
// what came before would be lost.
func (c *chunker) awaitInterest() error {
	look := time.NewTicker(interestPoll)
	defer look.Stop()
	for end := time.Now().Add(interestPatience); time.Now().Before(end); {
		if c.heard(true) {
			return nil
		}
		select {
		case <-look.C:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	if !c.heard(false) {
		return errNoInterest
	}
	return nil
}

// Write implements io.Writer.
func (c *chunker) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		k := min(cap(c.buf)-len(c.buf), len(p))
		c.buf = append(c.buf, p[:k]...)
		p, n = p[k:], n+k
		if len(c.buf) == cap(c.buf) {
			if err := c.chunk(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

var _ io.Writer = (*chunker)(nil)

// chunk sends what has been gathered, once there is room.
func (c *chunker) chunk() error {
	timer := time.NewTimer(chunkPatience)
	defer timer.Stop()
	select {
	case <-c.slots:
	case <-c.gone:
		return errNoInterest
	case <-timer.C:
		return errNoFlow
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	c.index++
	c.out.Deliver(c.to, c.to, fmt.Sprintf("%s.%d.%d", c.acks, len(c.buf), c.index), nil, c.buf)
	c.out.Flush()
	c.buf = c.buf[:0]
	return nil
}

func (c *chunker) finish() error {
	if len(c.buf) == 0 {
		return nil
	}
	return c.chunk()
}
