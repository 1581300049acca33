package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/backup"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

// A restore makes a stream that captures nothing, limits nothing and reads from no
// other; fills it with what the backup holds, at the same sequences and with the
// same times; and then gives it the config it is to have. When that fails at any
// point, the stream is deleted again. One that a crash has left half full is
// recognised by its metadata, and deleted at the next start.

// keyRestoring is in the metadata of a stream that is being filled.
const keyRestoring = "_herald.restoring"

const (
	// restorePatience is how long the sender may leave a restore without a chunk.
	restorePatience = 10 * time.Second
	// A restore writes so much before it looks what came of it.
	restoreMessages = 256
	restoreBytes    = 1 << 20
	// gapMost bounds the sequences a backup may leave out in all: each costs the
	// store a bit and an apply step. skipStep is how many go at once.
	gapMost  = 1 << 26
	skipStep = 1 << 16
	// restoreEntryMax bounds one message of a backup.
	restoreEntryMax = 64 << 20
)

func (r *request) restore() (any, error) {
	var req jsapi.RestoreRequest
	if len(r.msg.Payload) == 0 {
		return nil, jsapi.ErrBadRequest
	}
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if req.Config.Name != r.stream {
		return nil, jsapi.ErrStreamMismatch
	}
	if _, ok := r.api.topic(r.stream); ok && !r.continues() {
		return nil, jsapi.ErrStreamNameRestoreExist
	}
	if f := completeStream(&req.Config, r.api.s.environment(r.api), false); f != nil {
		return nil, f
	}
	if f := r.api.s.unsupported(&req.Config); f != nil {
		return nil, f
	}
	b := &restore{
		s: r.api.s, api: r.api, cfg: req.Config, client: r.msg.Client, start: r.api.s.o.Now(),
		chunks: make(chan *front.Message, 4), subject: "$JS.SNAPSHOT.RESTORE." + r.stream + "." + nuid.Next(),
	}
	if err := r.prepare(b, &req.State); err != nil {
		return nil, err
	}
	var err error
	if b.sub, err = r.api.account.Subscribe(b.subject, "", b.take); err != nil {
		return nil, err
	}
	if !r.api.s.transfer(b.run) {
		b.sub.Close()
		if b.topic != nil {
			b.drop()
		}
		return nil, jsapi.StreamRestore("too many backups and restores are going on")
	}
	return &jsapi.RestoreReply{Reply: r.head(), DeliverSubject: b.subject}, nil
}

// restore is a backup that is being received.
type restore struct {
	s       *Service
	api     *accountAPI
	cfg     topics.Config
	client  *front.ClientInfo
	start   time.Time
	subject string
	sub     *front.Internal
	chunks  chan *front.Message

	// Owned by run.

	topic   *state.Topic   // in a cluster it is made before
	first   uint64         // its first sequence then
	current *front.Message // being read, not answered yet
	rest    []byte         // of it
	ended   bool           // the empty chunk has come
	total   int64
}

// take gets the chunks, on their publisher's goroutine. One that comes before the
// last was answered waits; more are too many and get no answer.
func (b *restore) take(m *front.Message) {
	if len(m.Reply) == 0 {
		return
	}
	select {
	case b.chunks <- m.Clone():
	default:
	}
}

// Read implements io.Reader over the chunks. A chunk is answered when the next one
// is wanted.
func (b *restore) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.ended {
			return 0, io.EOF
		}
		if b.current != nil {
			b.current.Respond(nil, nil)
			b.current = nil
		}
		timer := time.NewTimer(restorePatience)
		select {
		case b.current = <-b.chunks:
		case <-timer.C:
			return 0, errors.New("stalled: no more chunks came")
		case <-b.s.ctx.Done():
			timer.Stop()
			return 0, errors.New("the server shuts down")
		}
		timer.Stop()
		b.rest, b.ended = b.current.Payload, len(b.current.Payload) == 0
		b.total += int64(len(b.rest))
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *restore) run() {
	defer b.sub.Close()
	b.api.advise(jsapi.AdvisoryPrefix+"STREAM.RESTORE_CREATE."+b.cfg.Name, &jsapi.RestoreCreate{
		Event: b.api.event("restore_create"), Stream: b.cfg.Name, Client: clientInfo(b.client, b.api), Domain: b.s.o.Domain,
	})
	err := b.fill()
	if err == nil {
		_, err = io.Copy(io.Discard, b) // up to the empty chunk, whose answer says how it went
	}
	if err == nil {
		err = b.finish()
	}
	if err != nil && b.topic != nil {
		b.drop()
	}
	reply := &jsapi.StreamCreateReply{Reply: jsapi.Head("stream_create_response")}
	if err != nil {
		var f *topics.Fault
		if !errors.As(err, &f) {
			f = jsapi.StreamRestore(err.Error())
		}
		reply.Error = jsapi.ErrorOf(f)
		b.s.o.Log.Warn("a restore failed", "account", b.api.name, "stream", b.cfg.Name, "error", err)
	} else {
		reply.StreamInfo = b.s.changed(b.topic)
	}
	if b.current != nil {
		b.current.Respond(nil, jsapi.Marshal(reply))
	}
	b.api.advise(jsapi.AdvisoryPrefix+"STREAM.RESTORE_COMPLETE."+b.cfg.Name, &jsapi.RestoreComplete{
		Event: b.api.event("restore_complete"), Stream: b.cfg.Name, Start: b.start.UTC(), End: b.s.o.Now().UTC(),
		Bytes: b.total, Client: clientInfo(b.client, b.api), Domain: b.s.o.Domain,
	})
}

func (b *restore) wait() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(b.s.ctx), b.s.o.Timeout)
}

// bare is the config of the stream while it is filled by somebody.
func (b *restore) bare(first uint64, by string) topics.Config {
	cfg := b.cfg
	cfg.Subjects, cfg.Mirror, cfg.Sources, cfg.Republish, cfg.SubjectTransform = nil, nil, nil, nil, nil
	cfg.Retention, cfg.Discard, cfg.DiscardNewPer = topics.RetainLimits, topics.DiscardOld, false
	cfg.MaxMsgs, cfg.MaxBytes, cfg.MaxMsgsPer, cfg.MaxMsgSize, cfg.MaxAge = -1, -1, -1, -1, 0
	cfg.Sealed, cfg.AllowMsgSchedules, cfg.SubjectDeleteMarkerTTL = false, false, 0
	cfg.FirstSeq = first
	cfg.Metadata = map[string]string{keyRestoring: by}
	return cfg
}

// fill makes the stream and stores what the backup holds.
func (b *restore) fill() error {
	in := backup.NewReader(b, restoreEntryMax)
	e, err := in.Next()
	if err != nil {
		return ended(err)
	}
	var st jsapi.StreamState
	if e.Name != backup.StateName {
		return fmt.Errorf("%w: it doesn't begin with the stream's state", backup.ErrArchive)
	}
	if err := json.Unmarshal(e.Payload, &st); err != nil {
		return fmt.Errorf("%w: %w", backup.ErrArchive, err)
	}
	if st.FirstSeq > st.LastSeq+1 || st.LastSeq > 1<<62 || st.Consumers < 0 {
		return fmt.Errorf("%w: messages %d to %d", backup.ErrArchive, st.FirstSeq, st.LastSeq)
	}
	if err := b.open(max(st.FirstSeq, 1)); err != nil {
		return err
	}
	w := &refill{b: b, group: b.topic.Group(), last: max(st.FirstSeq, 1) - 1, gaps: gapMost}
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if e.Sequence == 0 {
			if err := b.consumer(e); err != nil {
				return err
			}
			continue
		}
		if err := w.add(e); err != nil {
			return err
		}
	}
	return w.end(st.LastSeq)
}

// open makes the stream, unless it is made already.
func (b *restore) open(first uint64) error {
	if b.topic != nil {
		if first != b.first {
			return fmt.Errorf("%w: it begins at message %d, the request said %d", backup.ErrArchive, first, b.first)
		}
		return nil
	}
	ctx, cancel := b.wait()
	defer cancel()
	t, created, err := b.s.o.State.CreateTopic(ctx, b.api.name, b.bare(first, "true"))
	if err != nil {
		return err
	}
	if !created {
		return jsapi.ErrStreamNameRestoreExist
	}
	b.topic = t
	return nil
}

// ended makes an early end of a backup an error that says so.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is empty", backup.ErrArchive)
	}
	return err
}

func (b *restore) consumer(e *backup.Entry) error {
	name, ok := strings.CutPrefix(e.Name, backup.ConsumerPrefix)
	if !ok || checkConsumerName(name) != nil {
		return fmt.Errorf("%w: an entry called %q", backup.ErrArchive, e.Name)
	}
	c, err := restoredConsumer(name, e.Payload, topics.NanosOf(b.s.o.Now()))
	if err != nil {
		return fmt.Errorf("%w: %w", backup.ErrArchive, err)
	}
	ctx, cancel := b.wait()
	defer cancel()
	return b.s.o.State.RestoreConsumer(ctx, b.topic, c)
}

// finish gives the stream its config.
func (b *restore) finish() error {
	ctx, cancel := b.wait()
	defer cancel()
	_, err := b.s.o.State.UpdateTopic(ctx, b.api.name, b.cfg)
	if err != nil {
		return err
	}
	b.api.advise(jsapi.AdvisoryPrefix+"STREAM.CREATED."+b.cfg.Name, &jsapi.StreamAction{
		Event: b.api.event("stream_action"), Stream: b.cfg.Name, Action: jsapi.ActionCreated, Domain: b.s.o.Domain,
	})
	return nil
}

// refill stores messages at their sequences.
type refill struct {
	b     *restore
	group *state.Group
	last  uint64
	gaps  uint64 // that may still be left out
	wait  []chan error
	bytes int
}

func (w *refill) add(e *backup.Entry) error {
	if !subject.ValidLiteral(e.Name) { // it would become a line of the protocol
		return fmt.Errorf("%w: message %d is of subject %q", backup.ErrArchive, e.Sequence, e.Name)
	}
	if e.Sequence <= w.last || e.Sequence > 1<<62 || len(e.Header)+len(e.Payload) > restoreEntryMax {
		return fmt.Errorf("%w: message %d behind %d", backup.ErrArchive, e.Sequence, w.last)
	}
	if err := w.skip(e.Sequence - 1); err != nil {
		return err
	}
	w.last = e.Sequence
	w.put(state.Addition{
		Publish: topics.Publish{
			Flags:   topics.PublishSourced | topics.PublishTimed | topics.PublishRestored,
			Subject: []byte(e.Name), Header: e.Header, Payload: e.Payload, Time: topics.Nanos(e.Time),
		},
		After: topics.Sequence(e.Sequence - 1),
	})
	if w.bytes += len(e.Header) + len(e.Payload); len(w.wait) >= restoreMessages || w.bytes >= restoreBytes {
		return w.settle()
	}
	return nil
}

func (w *refill) put(a state.Addition) {
	done := make(chan error, 1)
	w.wait = append(w.wait, done)
	a.Done = func(r topics.PublishResult, err error) {
		if err == nil && r.Fault != nil {
			err = r.Fault
		}
		done <- err
	}
	w.group.Append(w.b.topic, a)
}

// skip uses up the sequences up to last, some at a time: applying them takes a
// while.
func (w *refill) skip(last uint64) error {
	gap := last - w.last
	if gap > w.gaps {
		return fmt.Errorf("more than %d sequences are left out of it", gapMost)
	}
	w.gaps -= gap
	for gap > skipStep {
		w.last += skipStep
		gap -= skipStep
		ctx, cancel := w.b.wait()
		err := w.b.s.o.State.SkipTo(ctx, w.b.topic, topics.Sequence(w.last))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits until what was put is stored.
func (w *refill) settle() error {
	var failed error
	for _, done := range w.wait {
		if err := <-done; err != nil && failed == nil {
			failed = err
		}
	}
	w.wait, w.bytes = w.wait[:0], 0
	return failed
}

func (w *refill) end(last uint64) error {
	if err := w.settle(); err != nil {
		return err
	}
	if last <= w.last {
		return nil
	}
	if err := w.skip(last); err != nil {
		return err
	}
	ctx, cancel := w.b.wait()
	defer cancel()
	return w.b.s.o.State.SkipTo(ctx, w.b.topic, topics.Sequence(last))
}
