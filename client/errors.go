package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The kinds of failure. Match them with errors.Is; the text of an error is for
// people.
var (
	// ErrNoResponders: nobody listens on the subject, or no topic captures it.
	// Start the responder, or create the topic; retrying at once won't help.
	ErrNoResponders = errors.New("no responders")
	// ErrTimeout: no answer in time. Whether the broker acted is unknown; repeat
	// with the same MessageID to be sure.
	ErrTimeout = errors.New("timed out")
	// ErrNotFound: no such topic, consumer, message or advertisement.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the name is taken by something different, or an expected
	// sequence did not hold. Read again, decide, and try with the new state.
	ErrConflict = errors.New("conflict")
	// ErrRefused: the broker understood and will not do it: authentication,
	// permissions, or a rule of the topic or an advertisement.
	ErrRefused = errors.New("refused")
	// ErrInvalid: the request itself is wrong; it will never succeed unchanged.
	ErrInvalid = errors.New("invalid")
	// ErrNoSpace: a limit is reached, of the topic, the account or the disk.
	// Purge, raise the limit, or wait until consumers have caught up.
	ErrNoSpace = errors.New("no space")
	// ErrTooLarge: the message is larger than the connection or topic takes.
	ErrTooLarge = errors.New("too large")
	// ErrUnavailable: no broker can be reached or none can act just now. Retry.
	ErrUnavailable = errors.New("unavailable")
	// ErrClosed: the client, subscription or publisher was closed by its owner.
	ErrClosed = errors.New("closed")
)

// Error is what every operation of this package fails with. errors.Is matches
// both Kind and the cause.
type Error struct {
	Op     string // what was tried: "publish", "create topic", …
	Target string // on what: a subject, a topic, a URL; may be empty
	Kind   error  // one of the sentinels above, or nil when unclassified
	Code   int    // the broker's error code (10059, …), 0 when it gave none
	Err    error  // the cause
}

// Error says what was tried on what, and why it failed.
func (e *Error) Error() string {
	text := e.Op
	if e.Target != "" {
		text += " " + e.Target
	}
	return text + ": " + e.Err.Error()
}

// Unwrap lets errors.Is and errors.As see the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// failed wraps err as an *Error; nil stays nil, and an *Error is kept as it is.
func failed(op, target string, err error) error {
	if err == nil {
		return nil
	}
	var already *Error
	if errors.As(err, &already) {
		return err
	}
	code, kind := classify(err)
	return &Error{Op: op, Target: target, Kind: kind, Code: code, Err: err}
}

// invalid reports a fault of the caller found before anything was sent.
func invalid(op, target, format string, args ...any) error {
	return &Error{Op: op, Target: target, Kind: ErrInvalid, Err: fmt.Errorf(format, args...)}
}

// classify is the one place that decides which kind an error of nats.go is.
func classify(err error) (code int, kind error) {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return int(api.ErrorCode), classifyCode(int(api.ErrorCode), api.Code)
	}
	for _, row := range []struct {
		kind   error
		causes []error
	}{
		{ErrNoResponders, []error{nats.ErrNoResponders, jetstream.ErrNoStreamResponse}},
		{ErrTimeout, []error{nats.ErrTimeout, context.DeadlineExceeded, jetstream.ErrAsyncPublishTimeout, jetstream.ErrNoHeartbeat}},
		{ErrNotFound, []error{jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound, jetstream.ErrMsgNotFound, jetstream.ErrNoMessages, jetstream.ErrConsumerDeleted}},
		{ErrRefused, []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrPermissionViolation}},
		{ErrTooLarge, []error{nats.ErrMaxPayload}},
		{ErrClosed, []error{nats.ErrConnectionClosed, nats.ErrConnectionDraining, jetstream.ErrJetStreamPublisherClosed, jetstream.ErrMsgIteratorClosed}},
		{ErrUnavailable, []error{nats.ErrNoServers, nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, jetstream.ErrServerShutdown, jetstream.ErrConsumerLeadershipChanged}},
		{ErrConflict, []error{jetstream.ErrConsumerNameAlreadyInUse}},
		{ErrInvalid, []error{nats.ErrBadSubject, nats.ErrBadQueueName, nats.ErrInvalidArg, jetstream.ErrInvalidSubject, jetstream.ErrInvalidStreamName, jetstream.ErrInvalidConsumerName, jetstream.ErrStreamNameRequired, jetstream.ErrInvalidOption}},
	} {
		for _, cause := range row.causes {
			if errors.Is(err, cause) {
				return 0, row.kind
			}
		}
	}
	return 0, nil
}

// classifyCode maps the broker's error codes. The ones that share a status with
// others of a different kind are listed; the rest follow their status.
func classifyCode(code, status int) error {
	switch code {
	case 10058, 10013, 10105, 10148, // names in use
		10070, 10071, 10164, 10193, 10065: // expectations, overlapping subjects
		return ErrConflict
	case 10054, 10097: // message, headers
		return ErrTooLarge
	case 10023, 10002, 10026, 10027, 10028, 10047, 10077, 10122, 10167, 20004, 20012, 20052: // resources and limits
		return ErrNoSpace
	case 10149:
		return ErrNotFound
	case 10109, 10110, 10111, 10060, 20031: // sealed, purge, rollup, expected stream; not as advertised
		return ErrRefused
	}
	switch {
	case status == 404:
		return ErrNotFound
	case status == 401 || status == 403:
		return ErrRefused
	case status == 408:
		return ErrTimeout
	case status == 409:
		return ErrConflict
	case status == 413:
		return ErrTooLarge
	case status == 429 || status == 507:
		return ErrNoSpace
	case status == 503:
		return ErrUnavailable
	case status >= 400 && status < 500:
		return ErrInvalid
	}
	return nil
}
