package operate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// Savepoints are objects of a NATS object store of the account, the bucket below: they are
// as durable and as replicated as any topic, are repaired like one, and can be copied
// elsewhere with any NATS client (nats object get herald-savepoints OPERATOR/NAME).
const (
	savepointBucket = "herald-savepoints"
	savepointTopic  = "OBJ_" + savepointBucket
	savepointChunks = "$O." + savepointBucket + ".C."
	savepointMetas  = "$O." + savepointBucket + ".M."

	chunkBytes = 128 << 10
	// chunksAtOnce are stored with one entry of the log.
	chunksAtOnce = 4
)

// savepointBit is set in the number of the producer that stores an operator's savepoints.
const savepointBit = uint64(1) << 61

// Savepoint is an operator's state under a name.
type Savepoint struct {
	Name      string    `json:"name"`
	Operator  string    `json:"operator"`
	Version   string    `json:"version,omitempty"`
	Epoch     uint64    `json:"epoch"`
	Instances []Cut     `json:"instances"`
	Created   time.Time `json:"created"`
	Bytes     uint64    `json:"bytes"`
	Object    string    `json:"object"` // the object store's name for its content
	Digest    string    `json:"digest"`
}

// Cut is an instance's part of a savepoint: its state after a step.
type Cut struct {
	Seq   uint64 `json:"seq"`
	Keys  int64  `json:"keys"`
	Bytes int64  `json:"bytes"`
	// Ends is up to where each input is read, and Waits how many parcels wait to be sent to
	// topics of other groups.
	Ends  []topics.Sequence `json:"ends,omitempty"`
	Waits int               `json:"waits,omitempty"`
}

// objectMeta is what an object store keeps of an object.
type objectMeta struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Options     struct {
		ChunkBytes uint32 `json:"max_chunk_size"`
	} `json:"options"`
	Bucket  string    `json:"bucket"`
	NUID    string    `json:"nuid"`
	Size    uint64    `json:"size"`
	ModTime time.Time `json:"mtime"`
	Chunks  uint32    `json:"chunks"`
	Digest  string    `json:"digest,omitempty"`
	Deleted bool      `json:"deleted,omitempty"`
}

const metaSavepoint = "herald-savepoint" // in Metadata: the Savepoint as JSON

func metaSubject(operator, name string) string {
	return savepointMetas + base64.URLEncoding.EncodeToString([]byte(operator+"/"+name))
}

// savepointsOf returns the topic of an account's savepoints; with replicas > 0 it is made
// where it is missing.
func (e *Engine) savepointsOf(ctx context.Context, account string, replicas int) (*state.Topic, error) {
	if t, ok := e.state.Topic(account, savepointTopic); ok || replicas == 0 {
		return t, nil
	}
	t, _, err := e.state.CreateTopic(ctx, account, topics.Config{
		Name: savepointTopic, Description: "Savepoints of operators", Subjects: []string{savepointChunks + ">", savepointMetas + ">"},
		Retention: topics.RetainLimits, Discard: topics.DiscardNew, Storage: topics.StoreFile, AllowRollup: true, AllowDirect: true,
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, Replicas: replicas, Duplicates: 2 * time.Minute,
	})
	return t, err
}

// objectWriter stores an object, piece by piece; nobody sees it before finish.
type objectWriter struct {
	ctx    context.Context
	t      *state.Topic
	guard  topics.Guard
	nuid   string
	buf    []byte
	sent   []topics.Publish // not yet
	chunks uint32
	size   uint64
	sum    hash.Hash
}

// newObject begins an object for an operator. Another one that is under way for the same
// operator fails from then on.
func (e *Engine) newObject(ctx context.Context, t *state.Topic, operator uint64) (*objectWriter, error) {
	id := operator | savepointBit
	epoch, err := t.Group().DeclareProducer(ctx, id, uint64(e.state.Now()))
	if err != nil {
		return nil, err
	}
	return &objectWriter{ctx: ctx, t: t, guard: topics.Guard{Producer: id, Epoch: epoch}, nuid: nuid.Next(), sum: sha256.New()}, nil
}

// Write implements io.Writer.
func (w *objectWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), chunkBytes-len(w.buf))
		w.buf = append(w.buf, rest[:n]...)
		if rest = rest[n:]; len(w.buf) == chunkBytes {
			if err := w.chunk(); err != nil {
				return len(p) - len(rest), err
			}
		}
	}
	return len(p), nil
}

func (w *objectWriter) chunk() error {
	_, _ = w.sum.Write(w.buf) // never fails
	w.size += uint64(len(w.buf))
	w.chunks++
	w.sent = append(w.sent, topics.Publish{Topic: w.t.ID(), Subject: []byte(savepointChunks + w.nuid), Payload: w.buf})
	w.buf = nil
	if len(w.sent) < chunksAtOnce {
		return nil
	}
	return w.send()
}

// send stores what waits, once.
func (w *objectWriter) send() error {
	if len(w.sent) == 0 {
		return nil
	}
	w.guard.Seq++
	for {
		r, err := w.t.Group().AskGuarded(w.ctx, &state.Guarded{Guard: w.guard, Publishes: w.sent})
		switch {
		case err == nil && r.Verdict == topics.GuardRefused && r.Fault != nil:
			return fmt.Errorf("store a savepoint: %w", r.Fault)
		case err == nil && r.Verdict == topics.GuardRefused:
			return refuse(409, "another savepoint of the operator was begun meanwhile")
		case err == nil:
			w.sent = nil
			return nil
		case w.ctx.Err() != nil:
			return fmt.Errorf("store a savepoint: %w", err)
		}
		select { // what isn't known, or can't be taken now, is sent again: it is applied once
		case <-w.ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// finish makes the object visible under a name.
func (w *objectWriter) finish(s *Savepoint, now time.Time) error {
	if len(w.buf) > 0 {
		if err := w.chunk(); err != nil {
			return err
		}
	}
	if err := w.send(); err != nil {
		return err
	}
	s.Bytes, s.Object, s.Created = w.size, w.nuid, now.UTC()
	s.Digest = "SHA-256=" + base64.URLEncoding.EncodeToString(w.sum.Sum(nil))
	about, err := json.Marshal(s)
	if err != nil {
		return err
	}
	m := objectMeta{
		Name: s.Operator + "/" + s.Name, Description: "State of operator " + s.Operator, Metadata: map[string]string{metaSavepoint: string(about)},
		Bucket: savepointBucket, NUID: w.nuid, Size: w.size, ModTime: now.UTC(), Chunks: w.chunks, Digest: s.Digest,
	}
	m.Options.ChunkBytes = chunkBytes
	body, err := json.Marshal(&m)
	if err != nil {
		return err
	}
	w.sent = []topics.Publish{{
		Topic: w.t.ID(), Subject: []byte(metaSubject(s.Operator, s.Name)), Header: []byte("NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"), Payload: body,
	}}
	return w.send()
}

// drop takes away what was stored of an object.
func (e *Engine) dropObject(ctx context.Context, t *state.Topic, nuid string) error {
	_, err := e.state.Purge(ctx, t, store.Purge{Subject: savepointChunks + nuid})
	return err
}

// page reads some messages of a topic, wherever it is.
func (e *Engine) page(ctx context.Context, t *state.Topic, subjects []string, from topics.Sequence) ([]topics.Message, topics.Sequence, error) {
	if data := t.Data(); data != nil {
		return data.Read(topics.NewFilter(subjects), from, 16, 4<<20, nil)
	}
	if e.o.Fetch == nil {
		return nil, from, fmt.Errorf("topic %s has no replica here", t.Name())
	}
	return e.o.Fetch(ctx, t, subjects, from)
}

// savepoints returns an account's savepoints by operator and name; operator "" means all.
func (e *Engine) savepoints(ctx context.Context, account, operator string) (all []Savepoint, err error) {
	t, err := e.savepointsOf(ctx, account, 0)
	if t == nil || err != nil {
		return []Savepoint{}, err
	}
	byName := map[string]Savepoint{}
	for from := topics.Sequence(1); ; {
		messages, next, err := e.page(ctx, t, []string{savepointMetas + ">"}, from)
		if err != nil {
			return nil, err
		}
		for i := range messages {
			var m objectMeta
			var s Savepoint
			if json.Unmarshal(messages[i].Payload, &m) != nil || m.Deleted || json.Unmarshal([]byte(m.Metadata[metaSavepoint]), &s) != nil {
				continue // an object that somebody else has put here
			}
			if operator == "" || s.Operator == operator {
				byName[s.Operator+"/"+s.Name] = s
			}
		}
		if len(messages) == 0 {
			break
		}
		from = next
	}
	all = []Savepoint{}
	for _, s := range byName {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Savepoint) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// objectReader reads an object's chunks.
type objectReader struct {
	ctx  context.Context
	e    *Engine
	t    *state.Topic
	s    *Savepoint
	from topics.Sequence
	rest []byte
	more [][]byte
	size uint64
	sum  hash.Hash
}

func (e *Engine) readObject(ctx context.Context, t *state.Topic, s *Savepoint) *objectReader {
	return &objectReader{ctx: ctx, e: e, t: t, s: s, from: 1, sum: sha256.New()}
}

var errObject = errors.New("the savepoint is not whole")

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if len(r.more) > 0 {
			r.rest, r.more = r.more[0], r.more[1:]
			r.size += uint64(len(r.rest))
			_, _ = r.sum.Write(r.rest) // never fails
			continue
		}
		if r.size >= r.s.Bytes {
			return 0, r.end()
		}
		messages, next, err := r.e.page(r.ctx, r.t, []string{savepointChunks + r.s.Object}, r.from)
		if err != nil {
			return 0, err
		}
		if len(messages) == 0 {
			return 0, fmt.Errorf("%w: it has %d of %d bytes", errObject, r.size, r.s.Bytes)
		}
		for i := range messages {
			r.more = append(r.more, bytes.Clone(messages[i].Payload))
		}
		r.from = next
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *objectReader) end() error {
	if got := "SHA-256=" + base64.URLEncoding.EncodeToString(r.sum.Sum(nil)); got != r.s.Digest {
		return fmt.Errorf("%w: its digest is %s instead of %s", errObject, got, r.s.Digest)
	}
	return io.EOF
}
