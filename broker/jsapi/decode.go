package jsapi

import (
	"bytes"
	"encoding/json"
	"fmt"

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
		return InvalidJSON(err.Error())
	}
	if d.More() {
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
		checkWord(c.Compression, "none", "s2"),
		checkWord(c.PersistMode, "default", "async"),
	)
}

func checkConsumerWords(r *ConsumerRequest) error {
	c := &r.Config
	return firstError(
		checkWord(r.Action, ActionCreateOrUpdate, ActionCreate, ActionUpdate),
		checkWord(c.DeliverPolicy, topics.DeliverAll, topics.DeliverLast, topics.DeliverNew,
			topics.DeliverByStartSeq, topics.DeliverByStartTime, topics.DeliverLastPerSubject),
		checkWord(c.AckPolicy, topics.AckNone, topics.AckAll, topics.AckExplicit, topics.AckFlowControl),
		checkWord(c.ReplayPolicy, topics.ReplayInstant, topics.ReplayOriginal),
		checkWord(c.PriorityPolicy, "none", "overflow", "pinned_client", "prioritized"),
	)
}
