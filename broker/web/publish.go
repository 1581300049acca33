package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/heraldmq/herald/topics/subject"
)

const publishTime = 10 * time.Second

// publish serves POST /publish: the body is the payload. It answers with the PubAck
// when a topic keeps the message, with 202 when it was only sent.
func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	ack, err := s.publishOne(w, r)
	if err != nil {
		s.stats.publishFailed.Add(1)
		s.refuse(w, r, *failed(err))
		return
	}
	s.stats.published.Add(1)
	if ack == nil {
		answer(w, http.StatusAccepted, map[string]bool{"live": true})
		return
	}
	answer(w, http.StatusOK, json.RawMessage(ack))
}

func (s *Server) publishOne(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	to := cmp.Or(r.PathValue("subject"), r.URL.Query().Get("subject"))
	if !subject.Valid(to) || !subject.IsLiteral(to) {
		return nil, &failure{http.StatusBadRequest, "subject: want the subject to publish to, without wildcards, in the path or as ?subject="}
	}
	header, f := headerBlock(r.Header)
	if f != nil {
		return nil, f
	}
	most := s.o.Front.Options().MaxPayload
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(max(most, 1))))
	if err != nil || len(header)+len(body) > most {
		return nil, &failure{http.StatusRequestEntityTooLarge, "the message is larger than max_payload, or did not arrive whole"}
	}
	l, err := s.publisher(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), publishTime)
	defer cancel()
	ack, err := s.send(ctx, l, to, header, body)
	if err != nil && !errors.Is(err, errRefused) {
		l.close() // an answer may still be on its way
		return ack, err
	}
	s.release(s.credentials(r), l)
	return ack, err
}

// send publishes and returns the PubAck, nil when no topic keeps the message.
func (s *Server) send(ctx context.Context, l *idleLink, to string, header, body []byte) ([]byte, error) {
	a := s.o.Front.Account(l.client().Account)
	if a == nil || !a.Captures(to) {
		l.mu.Lock()
		l.refused = ""
		l.mu.Unlock()
		if err := l.publish(to, "", header, body); err != nil {
			return nil, err
		}
		if err := l.flush(ctx); err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.refused != "" {
			return nil, &failure{http.StatusForbidden, l.refused}
		}
		return nil, nil
	}
	m, err := l.request(ctx, to, header, body)
	if err != nil {
		return nil, err
	}
	var ack struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.payload, &ack); err != nil {
		return nil, &failure{http.StatusBadGateway, "somebody else than the topic answered"}
	}
	if e := ack.Error; e != nil {
		status := e.Code
		if status < 400 || status > 599 {
			status = http.StatusBadRequest
		}
		return nil, &failure{status, e.Description}
	}
	return m.payload, nil
}

// headerBlock makes a message's header of those of a request that are meant for it:
// Nats-… and Herald-…. Nil when there is none.
func headerBlock(h http.Header) ([]byte, *failure) {
	var names []string
	for name := range h {
		if strings.HasPrefix(name, "Nats-") || strings.HasPrefix(name, "Herald-") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	block := []byte("NATS/1.0\r\n")
	for _, name := range names {
		for _, v := range h[name] {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return nil, &failure{http.StatusBadRequest, "header " + name + " has control characters"}
			}
			block = append(append(append(append(block, natsName(name)...), ": "...), v...), "\r\n"...)
		}
	}
	return append(block, "\r\n"...), nil
}

// natsName writes a header as NATS does where HTTP's libraries write it otherwise:
// names keep their case on the bus.
func natsName(name string) string { return strings.ReplaceAll(name, "-Ttl", "-TTL") }
