package catalogue

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/fields"
)

// An entry of group 0 is a number of commands that were proposed together:
//
//	magic u8, version u8, time i64 (ns, when it was proposed), count u32,
//	then for each: length u32, the command
//
// A command is its operation u8 and fields (package fields). Integers are little-endian.
// Entries of versions before are one command in JSON, which begins with a brace.
const (
	entryMagic   = 0xc5
	entryVersion = 1
	entryHeader  = 1 + 1 + 8 + 4
)

// ops are the operations by their number, from 1. A number is never given to another.
var ops = []Op{
	OpCreateTopic, OpUpdateTopic, OpSyncedTopic, OpDeleteTopic, OpForgetTopic, OpMoveTopic, OpMark,
	OpPutOperator, OpDropOperator, OpAdvertise, OpPutNode, OpPutGroup, OpWithdraw,
}

// The tags of a command. The tables' rows are JSON.
const (
	tagAccount fields.Tag = iota + 1
	tagName
	tagConfig // topics.AppendConfig
	tagLimits
	tagGroups
	tagTopic
	tagRevision
	tagStep
	tagTarget
	tagNode
	tagGroup
	tagOperator
	tagID
	tagOwner
	tagBody
	tagExpired
	tagTime // only where it isn't the entry's
	tagBy
)

// AppendEntry appends an entry of commands that Encode made; they are all of one time.
func AppendEntry(dst []byte, at topics.Nanos, commands [][]byte) []byte {
	n := entryHeader
	for _, c := range commands {
		n += 4 + len(c)
	}
	dst = slices.Grow(dst, n)
	dst = binary.LittleEndian.AppendUint64(append(dst, entryMagic, entryVersion), uint64(at))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(commands)))
	for _, c := range commands {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(c)))
		dst = append(dst, c...)
	}
	return dst
}

// DecodeEntry reads an entry of group 0, also one of a version before. An error is
// topics.ErrBadEntry: the process must not go on past it.
func DecodeEntry(b []byte) ([]*Command, error) {
	if len(b) > 0 && b[0] == '{' {
		c, err := decodeJSON(b)
		return []*Command{c}, err
	}
	if len(b) < entryHeader || b[0] != entryMagic {
		return nil, fmt.Errorf("%w: of group 0: no header", topics.ErrBadEntry)
	}
	if b[1] != entryVersion {
		return nil, fmt.Errorf("%w: of group 0: version %d is not known to this program", topics.ErrBadEntry, b[1])
	}
	at, n, rest := topics.Nanos(binary.LittleEndian.Uint64(b[2:])), binary.LittleEndian.Uint32(b[10:]), b[entryHeader:]
	if uint64(n) > uint64(len(rest)/5) {
		return nil, fmt.Errorf("%w: of group 0: %d commands in %d bytes", topics.ErrBadEntry, n, len(rest))
	}
	all := make([]*Command, 0, n)
	for range n {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, fmt.Errorf("%w: of group 0: it is cut short", topics.ErrBadEntry)
		}
		size := binary.LittleEndian.Uint32(rest)
		c, err := DecodeCommand(rest[4 : 4+size])
		if err != nil {
			return nil, err
		}
		if c.Time == 0 {
			c.Time = at
		}
		all = append(all, c)
		rest = rest[4+size:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: of group 0: %d bytes behind the last command", topics.ErrBadEntry, len(rest))
	}
	return all, nil
}

// Check tells what no program would apply: an error here is a mistake of whoever made the
// command, and would end every node that found it in the log.
func (c *Command) Check() error {
	var ok bool
	switch c.Op {
	case OpCreateTopic, OpUpdateTopic:
		ok = c.Config != nil && c.Config.Name != ""
	case OpMoveTopic:
		ok = c.Step == MoveStart || c.Step == MoveSwitch || c.Step == MoveDone
	case OpPutOperator:
		ok = c.Operator.valid()
	case OpPutNode:
		ok = c.Node != nil && c.Node.Name != ""
	case OpPutGroup:
		ok = c.Group.valid()
	default:
		ok = slices.Contains(ops, c.Op)
	}
	if !ok {
		return fmt.Errorf("%w: catalogue command %q lacks what it is about", topics.ErrBadEntry, c.Op)
	}
	return nil
}

// Encode returns the command as a part of an entry.
func (c *Command) Encode() ([]byte, error) {
	op := slices.Index(ops, c.Op) + 1
	if op == 0 {
		return nil, fmt.Errorf("encode a command: the operation %q is not known", c.Op)
	}
	b := append(make([]byte, 0, 192), byte(op))
	b = fields.Text(b, tagAccount, c.Account)
	b = fields.Text(b, tagName, c.Name)
	b = fields.Int(b, tagGroups, int64(c.Groups))
	b = fields.Uint(b, tagTopic, uint64(c.Topic))
	b = fields.Uint(b, tagRevision, c.Revision)
	b = fields.Text(b, tagStep, c.Step)
	b = fields.Uint(b, tagTarget, uint64(c.Target))
	b = fields.Text(b, tagID, c.ID)
	b = fields.Text(b, tagOwner, c.Owner)
	b = fields.Text(b, tagBy, c.By)
	b = fields.Bool(b, tagExpired, c.Expired)
	b = fields.Int(b, tagTime, int64(c.Time))
	var err error
	if c.Config != nil {
		var cfg []byte
		cfg, err = topics.AppendConfig(nil, c.Config)
		b = fields.Item(b, tagConfig, cfg)
	}
	part := func(t fields.Tag, there bool, v any) {
		if !there || err != nil {
			return
		}
		var body []byte
		if body, err = json.Marshal(v); err == nil {
			b = fields.Item(b, t, body)
		}
	}
	part(tagBody, len(c.Body) > 0, c.Body)
	part(tagLimits, c.Limits != nil, c.Limits)
	part(tagNode, c.Node != nil, c.Node)
	part(tagGroup, c.Group != nil, c.Group)
	part(tagOperator, c.Operator != nil, c.Operator)
	if err != nil {
		return nil, fmt.Errorf("encode the %s command: %w", c.Op, err)
	}
	return b, nil
}

// DecodeCommand reads what Encode gave. An error is topics.ErrBadEntry.
func DecodeCommand(b []byte) (*Command, error) {
	if len(b) == 0 || b[0] == 0 || int(b[0]) > len(ops) {
		return nil, fmt.Errorf("%w: a catalogue command that is not known to this version", topics.ErrBadEntry)
	}
	c := &Command{Op: ops[b[0]-1]}
	r := fields.Read(b[1:])
	for r.Next() {
		if err := c.read(&r); err != nil {
			return nil, fmt.Errorf("%w: catalogue command %s: %w", topics.ErrBadEntry, c.Op, err)
		}
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: catalogue command %s: %w", topics.ErrBadEntry, c.Op, err)
	}
	return c, nil
}

func (c *Command) read(r *fields.Reader) (err error) {
	switch r.Tag() {
	case tagAccount:
		c.Account = r.Text()
	case tagName:
		c.Name = r.Text()
	case tagConfig:
		c.Config, err = topics.ParseConfig(r.Bytes())
	case tagLimits:
		err = json.Unmarshal(r.Bytes(), &c.Limits)
	case tagGroups:
		c.Groups = int(r.Int())
	case tagTopic:
		c.Topic = topics.TopicID(r.Uint())
	case tagRevision:
		c.Revision = r.Uint()
	case tagStep:
		c.Step = MoveStep(r.Text())
	case tagTarget:
		c.Target = topics.GroupID(r.Uint())
	case tagNode:
		err = json.Unmarshal(r.Bytes(), &c.Node)
	case tagGroup:
		err = json.Unmarshal(r.Bytes(), &c.Group)
	case tagOperator:
		err = json.Unmarshal(r.Bytes(), &c.Operator)
	case tagID:
		c.ID = r.Text()
	case tagOwner:
		c.Owner = r.Text()
	case tagBy:
		c.By = r.Text()
	case tagBody:
		c.Body = slices.Clone(r.Bytes())
	case tagExpired:
		c.Expired = r.Bool()
	case tagTime:
		c.Time = topics.Nanos(r.Int())
	default:
		r.Unknown()
	}
	return err
}

// decodeJSON reads a command of a version before.
func decodeJSON(b []byte) (*Command, error) {
	var c Command
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%w: catalogue command: %w", topics.ErrBadEntry, err)
	}
	return &c, nil
}
