package vault

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/backup"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
)

// An export is lines: one that begins a topic, its messages as package record writes
// them, and one that ends it, with their number and checksum.

// LineMax bounds a line of an export: a message of 64 MiB in base64 and some.
const LineMax = 96 << 20

// Heading begins a topic of an export.
type Heading struct {
	Format   int             `json:"herald_topic"` // 1
	Config   json.RawMessage `json:"config"`
	State    json.RawMessage `json:"state"`
	Exported time.Time       `json:"exported"`
}

// ending ends a topic of an export.
type ending struct {
	Messages uint64 `json:"herald_end"`
	SHA256   string `json:"sha256"` // of the lines between
}

// IsFrame tells whether a line begins or ends a topic, so that readers of messages can
// pass it over.
func IsFrame(line []byte) bool {
	return bytes.HasPrefix(line, []byte(`{"herald_topic":`)) || bytes.HasPrefix(line, []byte(`{"herald_end":`))
}

// Selection is which messages are exported; the zero value is all.
type Selection struct {
	From, To     uint64 // sequences; 0 is no bound
	Since, Until time.Time
	Subject      func(subject string) bool // nil: any
	OnlyMessages bool                      // no lines that begin and end topics
}

func (s *Selection) takes(e *backup.Entry) bool {
	at := time.Unix(0, e.Time)
	return e.Sequence >= s.From && (s.To == 0 || e.Sequence <= s.To) &&
		(s.Since.IsZero() || !at.Before(s.Since)) && (s.Until.IsZero() || !at.After(s.Until)) &&
		(s.Subject == nil || s.Subject(e.Name))
}

// Export writes a topic, as it is now, and returns how many messages.
func (b *Broker) Export(ctx context.Context, topic string, sel Selection, now time.Time, w io.Writer, progress func(done, all uint64)) (uint64, error) {
	c, in, err := b.snapshot(ctx, topic, sel.From)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	st, err := c.state()
	if err != nil {
		return 0, err
	}
	out := &lines{w: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	if !sel.OnlyMessages {
		if err := out.frame(Heading{Format: 1, Config: c.Config, State: c.State, Exported: now.UTC()}); err != nil {
			return 0, err
		}
	}
	n, r := uint64(0), backup.NewReader(in, entryMax)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, errors.Join(err, out.w.Flush())
		}
		if e.Sequence == 0 || !sel.takes(e) {
			continue
		}
		if err := out.message(topic, e); err != nil {
			return n, err
		}
		if n++; progress != nil {
			progress(n, st.Messages)
		}
	}
	if !sel.OnlyMessages {
		if err := out.frame(ending{n, hex.EncodeToString(out.sum.Sum(nil))}); err != nil {
			return n, err
		}
	}
	return n, out.w.Flush()
}

// lines writes an export.
type lines struct {
	w    *bufio.Writer
	sum  hash.Hash
	line []byte
}

func (l *lines) frame(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = l.w.Write(append(b, '\n'))
	return err
}

func (l *lines) message(topic string, e *backup.Entry) error {
	m := record.Message{Subject: e.Name, Payload: e.Payload, Topic: topic, Sequence: e.Sequence, Time: time.Unix(0, e.Time)}
	if len(e.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(e.Header)
		if err != nil {
			return fmt.Errorf("headers of message %d of %s: %w", e.Sequence, topic, err)
		}
		m.Headers = h
	}
	var err error
	if l.line, err = record.Append(l.line[:0], m); err != nil {
		return err
	}
	l.line = append(l.line, '\n')
	_, _ = l.sum.Write(l.line) // it never fails
	_, err = l.w.Write(l.line)
	return err
}

// Source reads an export.
type Source struct {
	in     *bufio.Scanner
	number int
}

// NewSource returns a Source of r.
func NewSource(r io.Reader) *Source {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), LineMax)
	return &Source{in: s}
}

func (s *Source) line() ([]byte, error) {
	for s.in.Scan() {
		s.number++
		if line := s.in.Bytes(); len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
	if err := s.in.Err(); err != nil {
		return nil, fmt.Errorf("read the export: %w", err)
	}
	return nil, io.EOF
}

// Next returns the next topic, or io.EOF. Its messages must have been read.
func (s *Source) Next() (*Heading, string, error) {
	line, err := s.line()
	if err != nil {
		return nil, "", err
	}
	var h Heading
	if !bytes.HasPrefix(line, []byte(`{"herald_topic":`)) || json.Unmarshal(line, &h) != nil || h.Format != 1 {
		return nil, "", fmt.Errorf("line %d does not begin a topic: %w", s.number, ErrNoExport)
	}
	var named struct{ Name string }
	if err := json.Unmarshal(h.Config, &named); err != nil || named.Name == "" {
		return nil, "", fmt.Errorf("line %d has no topic's config: %w", s.number, ErrNoExport)
	}
	return &h, named.Name, nil
}

// ErrNoExport is returned for what is not an export.
var ErrNoExport = errors.New("not an export of topics")

// Messages calls f with the messages up to the end of the topic, and checks that they
// are all there and unchanged.
func (s *Source) Messages(f func(record.Message) error) (uint64, error) {
	sum, n := sha256.New(), uint64(0)
	for {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return n, fmt.Errorf("the export is %w: it ends in the middle of a topic, behind line %d", ErrDamaged, s.number)
		}
		if err != nil {
			return n, err
		}
		if IsFrame(line) {
			var e ending
			if err := json.Unmarshal(line, &e); err != nil || !bytes.HasPrefix(line, []byte(`{"herald_end":`)) {
				return n, fmt.Errorf("the export is %w: line %d does not end the topic", ErrDamaged, s.number)
			}
			if e.Messages != n || e.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
				return n, fmt.Errorf("the export is %w: the messages up to line %d are not those that were written", ErrDamaged, s.number)
			}
			return n, nil
		}
		_, _ = sum.Write(line)
		_, _ = sum.Write([]byte("\n"))
		m, err := record.Parse(line)
		if err != nil {
			return n, fmt.Errorf("line %d: %w", s.number, err)
		}
		if m.Sequence == 0 || m.Time.IsZero() {
			return n, fmt.Errorf("the export is %w: line %d has no sequence or time", ErrDamaged, s.number)
		}
		n++
		if err := f(m); err != nil {
			return n, err
		}
	}
}

// Skip reads the messages up to the end of the topic, and checks them.
func (s *Source) Skip() (uint64, error) {
	return s.Messages(func(record.Message) error { return nil })
}

// Import makes the topic that h begins, with its messages at their sequences and times.
// When it fails nothing of the topic stays. The topic must not exist.
func (b *Broker) Import(ctx context.Context, s *Source, h *Heading, name string, change Change, progress func(done uint64)) (n uint64, err error) {
	config, name, err := changed(h.Config, name, change)
	if err != nil {
		return 0, err
	}
	done := uint64(0)
	err = b.restore(ctx, name, config, h.State, func(w io.Writer) error {
		out := backup.NewWriter(w)
		err := out.Write(&backup.Entry{Name: backup.StateName, Time: h.Exported.UnixNano(), Payload: h.State})
		if err == nil {
			n, err = s.Messages(func(m record.Message) error {
				if done++; progress != nil {
					progress(done)
				}
				return out.Write(entry(m))
			})
		}
		if err == nil {
			err = out.Finish()
		}
		return errors.Join(err, out.Close())
	})
	return n, err
}

// entry is a message as the broker stores it.
func entry(m record.Message) *backup.Entry {
	e := &backup.Entry{Name: m.Subject, Time: m.Time.UnixNano(), Sequence: m.Sequence, Payload: m.Payload}
	if len(m.Headers) > 0 {
		var b strings.Builder
		b.WriteString("NATS/1.0\r\n")
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			for _, value := range m.Headers[name] {
				b.WriteString(name + ": " + value + "\r\n")
			}
		}
		b.WriteString("\r\n")
		e.Header = []byte(b.String())
	}
	return e
}
