package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
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
	bare          bool          // not JSON: a number, or nothing
}

var (
	errHeartbeatTooLarge = errors.New("heartbeat value too large")
	//lint:ignore ST1005 the text is the one clients know
	errPriorityRange = errors.New("Priority must be between 0 and 9")
)

// parseRequest reads the body of a pull request. Its errors are told to the
// client. It is lenient where nats-server is: what is neither JSON nor a number
// asks for one message, and unknown fields mean nothing.
func parseRequest(body []byte) (w wireRequest, err error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' {
		n, err := strconv.Atoi(string(body))
		if err != nil {
			n = 1
		}
		return wireRequest{Batch: max(n, 1), bare: true}, nil
	}
	if !w.parseFlat(body) {
		w = wireRequest{}
		if err := json.Unmarshal(body, &w); err != nil {
			return w, err
		}
	}
	w.Batch = max(w.Batch, 1)
	switch {
	case w.Heartbeat > 0 && w.Heartbeat > w.Expires/2:
		return w, errHeartbeatTooLarge
	case w.Priority < 0 || w.Priority > 9:
		return w, errPriorityRange
	}
	return w, nil
}

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
