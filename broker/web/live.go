package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/nats-io/nuid"
)

// openLive feeds the queue with what is published from now on.
func (u *subscriber) openLive(ctx context.Context) error {
	take := func(m *message) {
		if code, _ := m.status(); code != 0 {
			return
		}
		if !u.out.push(item{}, func(n uint64) []byte { return appendMessage(nil, n, m, nil) }) {
			u.full()
		}
	}
	if u.p.where == "" {
		return u.link.subscribe(ctx, u.p.subject, take)
	}
	inbox := "_INBOX." + nuid.Next()
	if err := u.link.subscribe(ctx, inbox, take); err != nil {
		return err
	}
	var answer struct {
		Error *apiError `json:"error"`
	}
	return u.ask(ctx, "$HERALD.FILTER.SUBSCRIBE", map[string]string{
		"subject": u.p.subject, "where": u.p.where, "codec": u.p.codec, "deliver": inbox,
	}, &answer, &answer.Error)
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// failure says an error of the broker's API as ours.
func (e *apiError) failure() *failure {
	status := e.Code
	if status < 400 || status > 599 {
		status = http.StatusBadRequest
	}
	return &failure{status, e.Description}
}

// ask makes a request of the broker and decodes the answer; problem is where it tells
// of an error.
func (u *subscriber) ask(ctx context.Context, subject string, body, into any, problem **apiError) error {
	b := []byte{}
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	m, err := u.link.request(ctx, subject, nil, b)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(m.payload, into); err != nil {
		return fmt.Errorf("the answer of %s: %w", subject, err)
	}
	if *problem != nil {
		return (*problem).failure()
	}
	return nil
}
