package catalogue

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/heraldmq/herald/topics"
)

// A snapshot is the whole catalogue:
//
//	magic "HCAT", version u8, length u64, crc32c of the body u32, body (JSON)
//
// Integers are little-endian. Equal catalogues give equal bytes. Version 2 has the
// tables of a cluster, version 3 has operators too; a catalogue without them is written
// as the version before, which programs read that know of neither.
const (
	snapshotMagic     = "HCAT"
	snapshotVersion   = 1
	snapshotTables    = 2
	snapshotOperators = 3
	snapshotHeader    = len(snapshotMagic) + 1 + 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type snapshot struct {
	NextTopic topics.TopicID `json:"next_topic"`
	Revision  uint64         `json:"revision"`
	Clock     topics.Nanos   `json:"clock"`
	Topics    []*Topic       `json:"topics"`
	Adverts   []savedAdvert  `json:"advertisements"`
	Nodes     []Node         `json:"nodes,omitempty"`
	Groups    []*Group       `json:"groups,omitempty"`

	LastOperator uint64      `json:"last_operator,omitempty"`
	Operators    []*Operator `json:"operators,omitempty"`
}

type savedAdvert struct {
	Account  string          `json:"account"`
	ID       string          `json:"id"`
	Revision uint64          `json:"revision"`
	Created  topics.Nanos    `json:"created"`
	Changed  topics.Nanos    `json:"changed"`
	By       string          `json:"by,omitempty"`
	Body     json.RawMessage `json:"body"`
}

func saved(a *Advertisement) savedAdvert {
	return savedAdvert{a.Account, a.ID, a.Revision, a.Created, a.Changed, a.By, a.body}
}

// Frozen is a catalogue at one moment, to be written while the catalogue itself
// goes on.
type Frozen struct{ snapshot }

// Freeze returns the catalogue as it is now. It only gathers references.
func (c *Catalogue) Freeze() *Frozen {
	s := c.freeze()
	s.Topics = c.Topics()
	return &Frozen{s}
}

// freeze is Freeze without topics.
func (c *Catalogue) freeze() snapshot {
	s := snapshot{
		NextTopic: c.nextTopic, Revision: c.revision, Clock: c.clock, Nodes: c.Nodes(), Groups: c.Groups(),
		LastOperator: c.lastOperator, Operators: c.Operators(),
	}
	for _, account := range c.AdvertisingAccounts() {
		for _, a := range c.Advertisements(account) {
			s.Adverts = append(s.Adverts, saved(a))
		}
	}
	return s
}

func (f *Frozen) tables() bool { return len(f.Nodes)+len(f.Groups) > 0 }

// WriteTo writes a snapshot, a topic at a time: there can be very many. It encodes
// everything twice, since length and checksum come first.
func (f *Frozen) WriteTo(w io.Writer) (int64, error) {
	var sum counter
	if err := f.encode(&sum); err != nil {
		return 0, err
	}
	version := byte(snapshotVersion)
	if f.tables() {
		version = snapshotTables
	}
	if f.LastOperator > 0 {
		version = snapshotOperators
	}
	head := append([]byte(snapshotMagic), version)
	head = binary.LittleEndian.AppendUint64(head, uint64(sum.n))
	head = binary.LittleEndian.AppendUint32(head, sum.crc)
	if _, err := w.Write(head); err != nil {
		return 0, fmt.Errorf("write the catalogue's snapshot: %w", err)
	}
	b := bufio.NewWriterSize(w, 64<<10)
	if err := f.encode(b); err != nil {
		return 0, err
	}
	if err := b.Flush(); err != nil {
		return 0, fmt.Errorf("write the catalogue's snapshot: %w", err)
	}
	return int64(len(head)) + sum.n, nil
}

// counter is a writer that only sums up.
type counter struct {
	n   int64
	crc uint32
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.crc = crc32.Update(c.crc, castagnoli, p)
	return len(p), nil
}

// encode writes the body: what json.Marshal gives for the snapshot.
func (f *Frozen) encode(w io.Writer) error {
	e := encoder{w: w}
	e.text(`{"next_topic":`)
	e.value(f.NextTopic)
	e.text(`,"revision":`)
	e.value(f.Revision)
	e.text(`,"clock":`)
	e.value(f.Clock)
	e.text(`,"topics":[`)
	for i, t := range f.Topics {
		if i > 0 {
			e.text(",")
		}
		e.value(t)
	}
	e.text(`],"advertisements":`)
	e.value(f.Adverts)
	if f.tables() {
		e.text(`,"nodes":`)
		e.value(f.Nodes)
		e.text(`,"groups":`)
		e.value(f.Groups)
	}
	if f.LastOperator > 0 {
		e.text(`,"last_operator":`)
		e.value(f.LastOperator)
		e.text(`,"operators":`)
		e.value(f.Operators)
	}
	e.text("}")
	if e.err != nil {
		return fmt.Errorf("encode the catalogue: %w", e.err)
	}
	return nil
}

// encoder writes JSON piece by piece until the first error.
type encoder struct {
	w   io.Writer
	err error
}

func (e *encoder) text(s string) {
	if e.err == nil {
		_, e.err = io.WriteString(e.w, s)
	}
}

func (e *encoder) value(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		e.err = cmp.Or(e.err, err)
	}
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

// AppendBinary appends a snapshot.
func (f *Frozen) AppendBinary(dst []byte) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	_, err := f.WriteTo(b)
	return b.Bytes(), err
}

// CorruptError tells that a snapshot of the catalogue can't be read. The node
// must not go on with an empty catalogue instead.
type CorruptError struct{ Why string }

func (e *CorruptError) Error() string { return "catalogue snapshot is damaged: " + e.Why }

// NewerError tells that a snapshot of the catalogue is of a version that only a newer
// program knows: it is not damaged, and must be left as it is.
type NewerError struct{ Version, Reads uint32 }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the catalogue's snapshot was written by a newer version of the program: it is of version %d, and this one reads up to %d; nothing was changed, start the newer version again",
		e.Version, e.Reads)
}

// NewerFormat is the version that the snapshot is of.
func (e *NewerError) NewerFormat() uint32 { return e.Version }

// UnmarshalBinary replaces the catalogue by a snapshot's. After an error the
// catalogue is as it was.
func (c *Catalogue) UnmarshalBinary(b []byte) error {
	if len(b) < snapshotHeader || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return &CorruptError{"no header"}
	}
	rest := b[len(snapshotMagic):]
	n, sum, body := binary.LittleEndian.Uint64(rest[1:]), binary.LittleEndian.Uint32(rest[9:]), rest[13:]
	whole := n == uint64(len(body)) && crc32.Checksum(body, castagnoli) == sum
	if rest[0] > snapshotOperators && whole {
		return &NewerError{Version: uint32(rest[0]), Reads: snapshotOperators}
	}
	if rest[0] < snapshotVersion || rest[0] > snapshotOperators {
		return &CorruptError{fmt.Sprintf("version %d, this program reads %d to %d", rest[0], snapshotVersion, snapshotOperators)}
	}
	if n != uint64(len(body)) {
		return &CorruptError{fmt.Sprintf("%d bytes, the header says %d", len(body), n)}
	}
	if !whole {
		return &CorruptError{"checksum differs"}
	}
	var s snapshot
	if err := json.Unmarshal(body, &s); err != nil {
		return &CorruptError{err.Error()}
	}
	fresh := New()
	fresh.nextTopic, fresh.revision, fresh.clock = max(s.NextTopic, 1), s.Revision, s.Clock
	for _, t := range s.Topics {
		if t == nil || t.ID == 0 || t.ID >= fresh.nextTopic {
			return &CorruptError{"a topic's identifier is out of range"}
		}
		fresh.enter(t)
		if t.State == Deleting {
			continue
		}
		if fresh.accounts[t.Account] == nil {
			fresh.accounts[t.Account] = newAccount()
		}
		fresh.claim(t)
	}
	for _, v := range s.Adverts {
		a, fault := v.restore()
		if fault != nil {
			return &CorruptError{fault.Text}
		}
		if fresh.adverts[v.Account] == nil {
			fresh.adverts[v.Account] = map[Key]*Advertisement{}
		}
		fresh.adverts[v.Account][a.Key()] = a
		fresh.placeAdvert(a)
	}
	for _, n := range s.Nodes {
		fresh.nodes[n.Name] = n
	}
	for _, g := range s.Groups {
		if g == nil || g.ID == topics.CatalogueGroup || len(g.Nodes) == 0 {
			return &CorruptError{"a group without nodes"}
		}
		fresh.groups[g.ID] = g
	}
	if err := fresh.restoreOperators(&s); err != nil {
		return err
	}
	*c = *fresh
	return nil
}
