package catalogue

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/fields"
)

// Summary is what a digest is made of, at one moment. Topics are in it by a sum that is
// kept up to date: there can be very many, and a digest is asked for every few seconds.
type Summary struct {
	frozen Frozen // without topics
	topics int
	sum    uint64
}

// Summary returns the catalogue's, as it is now. It only gathers references.
func (c *Catalogue) Summary() *Summary {
	return &Summary{Frozen{c.freeze()}, len(c.topics), c.sum}
}

// Digest returns a figure that is equal for equal catalogues. It encodes all but the
// topics, so it is made beside the application of commands.
func (s *Summary) Digest() (uint64, error) {
	h := sha256.New()
	if err := s.frozen.encode(h); err != nil {
		return 0, err
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(s.topics))
	binary.LittleEndian.PutUint64(b[8:], s.sum)
	h.Write(b[:])
	return binary.LittleEndian.Uint64(h.Sum(nil)), nil
}

// sum returns a figure that is equal for equal topics.
func (t *Topic) sum() uint64 {
	b := fields.Uint(make([]byte, 0, 256), 1, uint64(t.ID))
	b = fields.Uint(b, 2, uint64(t.Group))
	b = fields.Item(b, 3, t.Account)
	b = fields.Int(b, 4, int64(t.Created))
	b = fields.Item(b, 5, string(t.State))
	b = fields.Uint(b, 6, t.Revision)
	b = fields.Uint(b, 7, t.Synced)
	b = fields.Uint(b, 8, t.Moves)
	if m := t.Move; m != nil {
		b = fields.Uint(b, 9, m.Number)
		b = fields.Uint(b, 10, uint64(m.Other))
		b = fields.Bool(b, 11, m.Switched)
		b = fields.Bool(b, 12, m.Cancelled)
	}
	b, err := topics.AppendConfig(b, &t.Config)
	if err != nil {
		return 0 // a time without a text; it is the same on every replica
	}
	return xxhash.Sum64(b)
}
