package schema

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/topics/value"
)

// framed is a codec whose payloads begin as those of Confluent's serializers do: a zero, the
// id of a schema in a registry in four bytes (big end first), of Protobuf also the place of
// the message in its file: how many numbers follow, and these, as zigzag varints; the first
// message alone is a single zero.
type framed struct {
	codec
	id      uint32
	has     bool // id is known
	writers map[uint32]*avroType
	message []int64 // of Protobuf; nil of Avro
}

const frameSize = 5

// bare is a codec without its framing.
func bare(c codec) codec {
	if f, is := c.(*framed); is {
		return f.codec
	}
	return c
}

// frame puts Confluent's framing around a codec.
func frame(src Source, inner codec) (codec, *SourceError) {
	f := &framed{codec: inner}
	if src.ID != "" {
		id, err := strconv.ParseUint(src.ID, 10, 31)
		if err != nil {
			return nil, &SourceError{Where: "/id", Reason: fmt.Sprintf("%q is no id of a schema, which is a number below 2^31", src.ID)}
		}
		f.id, f.has = uint32(id), true
	}
	switch s := inner.(type) {
	case *protoSchema:
		f.message = messagePath(s.desc)
	case *avroSchema:
		if src.Writers == "" {
			break
		}
		all, err := value.Parse([]byte(src.Writers), value.Options{})
		if err != nil || all.Kind() != value.Object || all.Len() > writersMax {
			return nil, &SourceError{Where: "/writers", Reason: fmt.Sprintf("with the framing confluent they are an object of at most %d schemas by their id", writersMax)}
		}
		f.writers = map[uint32]*avroType{}
		for i := range all.Len() {
			one := all.Field(i)
			where := pointer("writers", pointer(one.Name, ""))
			id, err := strconv.ParseUint(one.Name, 10, 31)
			if err != nil {
				return nil, &SourceError{Where: where, Reason: fmt.Sprintf("%q is no id of a schema", one.Name)}
			}
			_, t, bad := s.writer(one.Value, where)
			if bad != nil {
				return nil, bad
			}
			f.writers[uint32(id)] = t
		}
	}
	return f, nil
}

func (f *framed) validate(payload []byte) *Invalid {
	_, bad := f.read(payload)
	return bad
}

func (f *framed) decode(payload []byte) (value.Value, error) {
	v, bad := f.read(payload)
	if bad != nil {
		return value.Value{}, bad
	}
	return v, nil
}

func (f *framed) read(payload []byte) (value.Value, *Invalid) {
	if len(payload) < frameSize || payload[0] != 0 {
		return value.Value{}, broken("encoding", "it does not begin with 0 and the id of a schema in four bytes, as the framing confluent has it")
	}
	id := binary.BigEndian.Uint32(payload[1:])
	body := payload[frameSize:]
	if w := f.writers[id]; w != nil && (!f.has || id != f.id) {
		return readAvro(w, body)
	}
	if (f.has || len(f.writers) > 0) && (!f.has || id != f.id) {
		return value.Value{}, broken("encoding", "it was written with the schema of id %d; known are %s", id, f.known())
	}
	if f.message != nil {
		var bad *Invalid
		if body, bad = f.readMessage(body); bad != nil {
			return value.Value{}, bad
		}
	}
	v, err := f.codec.decode(body)
	if err != nil {
		if bad, ok := err.(*Invalid); ok { //nolint:errorlint // decode says that it is one
			return value.Value{}, bad
		}
		return value.Value{}, broken("encoding", "%s", err)
	}
	return v, nil
}

func (f *framed) known() string {
	ids := slices.Collect(maps.Keys(f.writers))
	if f.has {
		ids = append(ids, f.id)
	}
	slices.Sort(ids)
	var texts []string
	for _, id := range slices.Compact(ids) {
		texts = append(texts, strconv.FormatUint(uint64(id), 10))
	}
	return strings.Join(texts, ", ")
}

// readMessage passes over which message of its file a payload is.
func (f *framed) readMessage(b []byte) ([]byte, *Invalid) {
	ends := broken("encoding", "it ends before it says which message of its file it is")
	n, used := binary.Varint(b)
	if used <= 0 {
		return nil, ends
	}
	b = b[used:]
	path := []int64{0}
	if n != 0 {
		if n < 0 || n > value.DepthMax {
			return nil, broken("encoding", "it says that its message lies %d messages deep", n)
		}
		path = nil
		for range n {
			i, used := binary.Varint(b)
			if used <= 0 {
				return nil, ends
			}
			path, b = append(path, i), b[used:]
		}
	}
	if !slices.Equal(path, f.message) {
		return nil, broken("encoding", "it is message %v of its file, not %v, which the codec names", path, f.message)
	}
	return b, nil
}

func (f *framed) encode(dst []byte, v value.Value) ([]byte, error) {
	if !f.has {
		return dst, broken("encoding", "the codec names no id, by which readers would know the schema")
	}
	out := binary.BigEndian.AppendUint32(append(dst, 0), f.id)
	switch {
	case f.message == nil:
	case slices.Equal(f.message, []int64{0}):
		out = append(out, 0)
	default:
		out = binary.AppendVarint(out, int64(len(f.message)))
		for _, i := range f.message {
			out = binary.AppendVarint(out, i)
		}
	}
	out, err := f.codec.encode(out, v)
	if err != nil {
		return dst, err
	}
	return out, nil
}
