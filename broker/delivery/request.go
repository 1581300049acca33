package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/heraldmq/herald/topics"
)

// request is a pull request that waits, and how far it got.
type request struct {
	reply    string
	left     int // messages still to be sent
	sent     int
	maxBytes int // the request has a limit of bytes
	bytes    int // what is left of it
	noWait   bool
	expires  topics.Nanos // 0: never
	every    topics.Nanos // heartbeat; 0: none
	beat     topics.Nanos // when the next heartbeat is due
	received topics.Nanos

	grouped       bool
	minPending    int64
	minAckPending int64
	pin           string
	priority      int
	checked       uint64 // turn in which interest was last checked
}

// wireRequest is a pull request as JSON.
type wireRequest struct {
	Expires       time.Duration `json:"expires"`
	Batch         int           `json:"batch"`
	MaxBytes      int           `json:"max_bytes"`
	NoWait        bool          `json:"no_wait"`
	Heartbeat     time.Duration `json:"idle_heartbeat"`
	Group         string        `json:"group"`
	MinPending    int64         `json:"min_pending"`
	MinAckPending int64         `json:"min_ack_pending"`
	ID            string        `json:"id"`
	Priority      int           `json:"priority"`
}

var (
	errHeartbeatTooLarge = errors.New("heartbeat value too large")
	errPriorityRange     = errors.New("priority must be between 0 and 9")
	errHeartbeatAlone    = errors.New("heartbeat value requires expires")
)

// parseRequest reads the body of a pull request. Its errors are told to the
// client.
func parseRequest(body []byte) (w wireRequest, err error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return wireRequest{Batch: 1}, nil
	}
	if body[0] != '{' {
		n, err := strconv.Atoi(string(body))
		if err != nil {
			return w, fmt.Errorf("invalid batch size %q", trimTo(body, 32))
		}
		return wireRequest{Batch: max(n, 1)}, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return w, fmt.Errorf("invalid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return w, errors.New("invalid JSON: more than one value")
	}
	w.Batch = max(w.Batch, 1)
	switch {
	case w.Heartbeat > 0 && w.Expires <= 0:
		return w, errHeartbeatAlone
	case w.Heartbeat > w.Expires/2:
		return w, errHeartbeatTooLarge
	case w.Priority < 0 || w.Priority > 9:
		return w, errPriorityRange
	}
	return w, nil
}

func trimTo(b []byte, n int) []byte { return b[:min(len(b), n)] }

// queue holds the waiting requests in the order in which they are served.
type queue struct {
	list []*request
}

func (q *queue) len() int { return len(q.list) }

// remove takes a request out, keeping the order of the others.
func (q *queue) remove(i int) {
	copy(q.list[i:], q.list[i+1:])
	q.list[len(q.list)-1] = nil
	q.list = q.list[:len(q.list)-1]
}

// rotate puts a request behind all others.
func (q *queue) rotate(i int) {
	r := q.list[i]
	copy(q.list[i:], q.list[i+1:])
	q.list[len(q.list)-1] = r
}
