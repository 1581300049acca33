package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/heraldmq/herald/topics"
)

// Decode reads a request body into v. When strict, fields v doesn't have are
// refused. The error is a fault that can be sent as it is.
func Decode(body []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return invalid(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return InvalidJSON(fmt.Sprintf("more follows the value at offset %d", d.InputOffset()))
	}
	switch r := v.(type) {
	case *StreamRequest:
		return checkStreamWords(&r.Config)
	case *RestoreRequest:
		return checkStreamWords(&r.Config)
	case *ConsumerRequest:
		return checkConsumerWords(r)
	}
	return nil
}

// invalid words a decoder's error; where it knows the place, it says so.
func invalid(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return InvalidJSON(fmt.Sprintf("%s at offset %d", syntax, syntax.Offset))
	}
	return InvalidJSON(err.Error())
}

// Empty refuses a body where none is expected. White space and an empty object
// count as empty: older clients send them.
func Empty(body []byte) error {
	switch string(bytes.TrimSpace(body)) {
	case "", "{}", "[]", "null":
		return nil
	}
	return ErrNotEmptyRequest
}

// A word is a field that takes one of a few values. The empty one is always
// accepted: it stands for the default.
func checkWord[W ~string](value W, known ...W) error {
	if value == "" {
		return nil
	}
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	return InvalidJSON(fmt.Sprintf("can not unmarshal %q", fmt.Sprintf("%q", string(value))))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkStreamWords(c *topics.Config) error {
	return firstError(
		checkWord(c.Retention, topics.RetainLimits, topics.RetainInterest, topics.RetainWorkQueue),
		checkWord(c.Discard, topics.DiscardOld, topics.DiscardNew),
		checkWord(c.Storage, topics.StoreFile, topics.StoreMemory),
		checkCompression(c.Compression),
		checkWord(c.PersistMode, "default", "async"),
	)
}

func checkConsumerWords(r *ConsumerRequest) error {
	c := &r.Config
	return firstError(
		checkAction(r.Action),
		checkWord(c.DeliverPolicy, "undefined", topics.DeliverAll, topics.DeliverLast, topics.DeliverNew,
			topics.DeliverByStartSeq, topics.DeliverByStartTime, topics.DeliverLastPerSubject),
		checkWord(c.AckPolicy, topics.AckNone, topics.AckAll, topics.AckExplicit, topics.AckFlowControl),
		checkWord(c.ReplayPolicy, topics.ReplayInstant, topics.ReplayOriginal),
		checkWord(c.PriorityPolicy, "none", "overflow", "pinned_client", "prioritized"),
	)
}

// The two words below are refused in other terms than the rest.

func checkCompression(c string) error {
	if checkWord(c, "none", "s2") != nil {
		return InvalidJSON("unknown compression algorithm")
	}
	return nil
}

func checkAction(a string) error {
	if checkWord(a, ActionCreate, ActionUpdate) != nil {
		return InvalidJSON(fmt.Sprintf("unknown consumer action: %q", a))
	}
	return nil
}
