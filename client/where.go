package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Where gets only the messages that a condition holds for, instead of all of the
// subject: CEL over subject, headers and payload (`amount > 100 && header["Region"] ==
// "eu"`), evaluated by the broker. A message it can't be evaluated over (a missing
// field, a payload that isn't JSON) doesn't match, and is counted where the
// subscription is shown. A live condition can't ask for time or seq.
func Where(condition string) SubscribeOption {
	return func(s *subscription) { s.where = condition }
}

// Codec says how a condition reads payloads, instead of as JSON: an object of JSON with
// their schema, like {"avro": {…}} or {"protobuf": "syntax = …", "message": "shop.Order"}.
// [Schema.Codec] makes one of what is advertised. It stays the same when the advertisement
// changes. Without [Where] it means nothing.
func Codec(codec string) SubscribeOption {
	return func(s *subscription) { s.codec = codec }
}

// keyCodec is the metadata for a consumer's codec.
const keyCodec = "herald.codec"

// Codec returns the schema as [Codec] takes it: "json" for a JSON Schema and for none. The
// error is that there is no inline schema.
func (s *Schema) Codec() (string, error) {
	if s == nil || s.Format == "json-schema" || s.Format == "none" {
		return "json", nil
	}
	if len(s.Inline) == 0 {
		return "", errors.New("the " + s.Format + " schema is not inline")
	}
	m := map[string]any{s.Format: s.Inline}
	for name, text := range map[string]string{"message": s.Message, "framing": s.Framing, "id": s.ID} {
		if text != "" {
			m[name] = text
		}
	}
	if len(s.Writers) > 0 {
		m["writers"] = s.Writers
	}
	b, err := json.Marshal(m)
	return string(b), err
}

// filtered is the broker's answer to a condition.
type filtered struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     uint16 `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	ID      string `json:"id"`
	Subject string `json:"subject"` // where the messages come
	Queue   string `json:"queue"`
}

// filter asks the broker to filter a subject; with an id, to go on as before.
func (c *Client) filter(ctx context.Context, subject string, set subscription, id string) (f filtered, err error) {
	body, err := json.Marshal(map[string]string{"subject": subject, "where": set.where, "codec": set.codec, "queue": set.queue, "id": id})
	if err != nil {
		return f, err
	}
	m, err := c.nc.RequestWithContext(ctx, "$HERALD.FILTER.SUBSCRIBE", body)
	if errors.Is(err, nats.ErrNoResponders) {
		return f, &Error{Op: "filter", Target: subject, Kind: ErrNoResponders, Err: errors.New("the server does not filter live messages: it isn't a Herald broker")}
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(m.Data, &f); err != nil {
		return f, fmt.Errorf("the answer about the filter: %w", err)
	}
	if e := f.Error; e != nil {
		api := &jetstream.APIError{Code: e.Code, ErrorCode: jetstream.ErrorCode(e.ErrCode), Description: e.Description}
		return f, &Error{Op: "filter", Target: subject, Kind: classifyCode(int(e.ErrCode), e.Code), Code: int(e.ErrCode), Err: errors.New(api.Description)}
	}
	return f, nil
}

// keepFiltered asks again whenever the connection is back: the broker may have been
// restarted and know nothing of the filter. It ends when done is closed.
func (c *Client) keepFiltered(s *Subscription, set subscription, id string, done <-chan struct{}) {
	if set.queue != "" {
		id = "" // that of a group is found by what it asks for
	}
	back := c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer c.nc.RemoveStatusListener(back)
	for {
		select {
		case <-done:
			return
		case status, ok := <-back:
			if !ok || status == nats.CLOSED {
				return
			}
		}
		ctx, cancel := c.bounded(context.Background())
		_, err := c.filter(ctx, s.subject, set, id)
		cancel()
		if err != nil {
			c.set.onError(failed("filter again", s.subject, err))
		}
	}
}
