package jsapi

import (
	"encoding/json"
	"errors"

	"github.com/heraldmq/herald/topics"
)

// typePrefix starts the type of every API reply.
const typePrefix = "io.nats.jetstream.api.v1."

// Reply is the head of every API reply.
type Reply struct {
	Type  string `json:"type"`
	Error *Error `json:"error,omitempty"`
}

// TypeOf returns the full name of a reply type, such as "stream_info_response".
func TypeOf(short string) string { return typePrefix + short }

// Head returns the head of a reply of the given short type.
func Head(short string) Reply { return Reply{Type: typePrefix + short} }

// Error is a refusal on the wire.
type Error struct {
	Code        int    `json:"code"`
	ErrCode     uint16 `json:"err_code,omitempty"`
	Description string `json:"description,omitempty"`
}

// ErrorOf turns any error into one a client understands: a topics.Fault as it
// is, everything else as "temporarily unavailable" with the cause kept out of
// the reply (the caller logs it). nil stays nil.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	var f *topics.Fault
	if !errors.As(err, &f) {
		f = ErrClusterUnavailable
	}
	return &Error{Code: f.Status, ErrCode: f.ErrCode, Description: f.Text}
}

// Marshal encodes a reply. What can't be encoded, such as a client's time that is
// in the year 10000 here, becomes an error reply: nothing a client sends may end
// the process.
func Marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(struct { // two numbers and a text always encode
			Error *Error `json:"error"`
		}{&Error{Code: 500, ErrCode: ErrClusterUnavailable.ErrCode, Description: "reply can not be encoded: " + err.Error()}})
	}
	return b
}

// SuccessReply answers requests that only succeed or fail. The short types that
// use it: stream_delete_response, stream_msg_delete_response,
// stream_leader_stepdown_response, consumer_delete_response,
// consumer_leader_stepdown_response, consumer_unpin_response,
// meta_leader_stepdown_response, meta_server_remove_response.
type SuccessReply struct {
	Reply
	Success bool `json:"success,omitempty"`
}

// PageRequest asks for a page of a list.
type PageRequest struct {
	Offset int `json:"offset"`
}

// Page says which part of a list a reply holds.
type Page struct {
	Total  int `json:"total"`
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
}

// Window applies a page to a list of n items: Total, Offset and Limit are set
// and the bounds of the slice returned. An offset out of range gives nothing.
func Window(n, offset, limit int) (p Page, from, to int) {
	offset = max(offset, 0)
	from = min(offset, n)
	to = min(from+limit, n)
	return Page{Total: n, Offset: from, Limit: limit}, from, to
}
