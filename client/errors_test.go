package client

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestEveryErrorHasItsKind(t *testing.T) {
	api := func(code, status int) error {
		return fmt.Errorf("nats: %w", &jetstream.APIError{Code: status, ErrorCode: jetstream.ErrorCode(code), Description: "x"})
	}
	for _, c := range []struct {
		err  error
		kind error
		code int
	}{
		{nats.ErrNoResponders, ErrNoResponders, 0},
		{jetstream.ErrNoStreamResponse, ErrNoResponders, 0},
		{nats.ErrTimeout, ErrTimeout, 0},
		{context.DeadlineExceeded, ErrTimeout, 0},
		{jetstream.ErrAsyncPublishTimeout, ErrTimeout, 0},
		{nats.ErrNoServers, ErrUnavailable, 0},
		{nats.ErrAuthorization, ErrRefused, 0},
		{nats.ErrPermissionViolation, ErrRefused, 0},
		{nats.ErrMaxPayload, ErrTooLarge, 0},
		{nats.ErrConnectionClosed, ErrClosed, 0},
		{nats.ErrBadSubject, ErrInvalid, 0},
		{jetstream.ErrStreamNotFound, ErrNotFound, 10059},
		{jetstream.ErrConsumerNotFound, ErrNotFound, 10014},
		{jetstream.ErrMsgNotFound, ErrNotFound, 10037},
		{jetstream.ErrStreamNameAlreadyInUse, ErrConflict, 10058},
		{api(10071, 400), ErrConflict, 10071},
		{api(10164, 400), ErrConflict, 10164},
		{api(10065, 400), ErrConflict, 10065},
		{api(10077, 503), ErrNoSpace, 10077},
		{api(10023, 503), ErrNoSpace, 10023},
		{api(10054, 400), ErrTooLarge, 10054},
		{api(10060, 400), ErrRefused, 10060},
		{api(10008, 503), ErrUnavailable, 10008},
		{api(10025, 400), ErrInvalid, 10025},
		{api(20001, 400), ErrInvalid, 20001},
		{api(20002, 404), ErrNotFound, 20002},
		{api(20004, 400), ErrNoSpace, 20004},
		{api(20013, 503), ErrUnavailable, 20013},
		{api(20005, 409), ErrConflict, 20005},
		{errors.New("something else"), nil, 0},
	} {
		err := failed("do", "x", c.err)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || e.Kind != c.kind {
			t.Errorf("%v is %v with code %d, want %v with %d", c.err, e.Kind, e.Code, c.kind, c.code)
		}
		if c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%v is not %v", err, c.kind)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%v hides its cause", err)
		}
	}
	if failed("do", "x", nil) != nil {
		t.Error("no error became one")
	}
}

func TestErrorsAreWrappedOnce(t *testing.T) {
	first := failed("inner", "a", nats.ErrTimeout)
	if again := failed("outer", "b", first); again.Error() != "inner a: nats: timeout" {
		t.Errorf("got %q", again)
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a.*", "a.b", true},
		{"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a", true},
		{"*.b", "a.*", true},
		{"*.b", "a.c", false},
		{"a.*.c", "a.b.>", true},
	} {
		if got := overlap(c.a, c.b); got != c.want || overlap(c.b, c.a) != c.want {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}
