package state

import (
	"encoding/binary"
	"fmt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// Bodies of a data group's records, besides publishes and those of consumers
// that exist. All integers are little-endian; texts are length u16, bytes; a
// config is what topics.AppendConfig and consumer.AppendConfig make (JSON in
// versions before) and takes the rest.
//
//	topic create     topic u64, time of creation i64, account, config
//	topic update     topic u64, config
//	topic delete     topic u64
//	topic move       topic u64, number u64, pass u64, step u8, what the step has (topics/store)
//	purge            topic u64, sequence u64, keep u64, subject
//	message delete   topic u64, sequence u64
//	expire           topic u64
//	consumer create  topic u64, most consumers of the account u32 (0: no limit), name, config
//	consumer update  topic u64, name, config
//	consumer delete  topic u64, name
//	consumer reset   topic u64, sequence u64, name
//	consumer pause   topic u64, until i64 (ns), name
//	consumer restore topic u64, name, what consumer.AppendBinary wrote
//	atomic           count u32
//	link             chain u32, from 1
//	producer         producer u64, epoch u64 (0: it is removed)
//	guard            topics.AppendGuard; the records that it guards follow it
//	step             what operators/engine makes of it
//	letterbox        topic u64, what u8, producer u64, partition u32, number u64 (letterbox.go)
//	storage limits   any number of: account, file bytes i64, memory bytes i64 (0 or less: no limit)

func appendTopic(dst []byte, id topics.TopicID) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(id))
}

func appendText(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// body reads a record's body from the front. The first thing that isn't there
// makes bad stick; what is read afterwards is zero.
type body struct {
	rest []byte
	bad  bool
}

func (b *body) u64() uint64 {
	if len(b.rest) < 8 {
		b.bad, b.rest = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(b.rest)
	b.rest = b.rest[8:]
	return v
}

func (b *body) u32() uint32 {
	if len(b.rest) < 4 {
		b.bad, b.rest = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint32(b.rest)
	b.rest = b.rest[4:]
	return v
}

func (b *body) topic() topics.TopicID { return topics.TopicID(b.u64()) }

func (b *body) text() string {
	if len(b.rest) < 2 {
		b.bad, b.rest = true, nil
		return ""
	}
	n := int(binary.LittleEndian.Uint16(b.rest))
	if n > len(b.rest)-2 {
		b.bad, b.rest = true, nil
		return ""
	}
	s := string(b.rest[2 : 2+n])
	b.rest = b.rest[2+n:]
	return s
}

// config reads the rest of the body as a topic's config.
func (b *body) config(into *topics.Config) {
	c, err := topics.ParseConfig(b.rest)
	b.rest = nil
	if b.bad = b.bad || err != nil; !b.bad {
		*into = *c
	}
}

// consumerConfig reads the rest of the body as a consumer's config.
func (b *body) consumerConfig(into *topics.ConsumerConfig) {
	c, err := consumer.ParseConfig(b.rest)
	b.rest = nil
	if b.bad = b.bad || err != nil; !b.bad {
		*into = c
	}
}

func bodyOf(raw []byte) body { return body{rest: raw} }

// err tells what is wrong with a body of a kind, if anything is.
func (b *body) err(kind topics.RecordKind) error {
	if b.bad {
		return fmt.Errorf("%w: body of a record of kind %d", topics.ErrBadEntry, kind)
	}
	return nil
}

// storageLimit is what an account may hold in a group's topics.
type storageLimit struct {
	account      string
	file, memory int64
}

func appendStorageLimit(dst []byte, l storageLimit) []byte {
	dst = appendText(dst, l.account)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(l.file))
	return binary.LittleEndian.AppendUint64(dst, uint64(l.memory))
}
