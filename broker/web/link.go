package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"
)

// credentials are what a request shows.
type credentials struct {
	User  string `json:"user,omitempty"`
	Pass  string `json:"pass,omitempty"`
	Token string `json:"auth_token,omitempty"`
}

// message is one that came over a link. It owns its bytes.
type message struct {
	subject, reply  string
	header, payload []byte
}

// status is the number in the first line of the header, 0 without one.
func (m *message) status() (code int, text string) {
	rest, ok := bytes.CutPrefix(m.header, []byte("NATS/1.0 "))
	if !ok {
		return 0, ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\r\n"))
	number, text, _ := strings.Cut(string(line), " ")
	code, _ = strconv.Atoi(number) // 0 is no status
	return code, text
}

// link is a client's connection to the broker. Its methods may be called by any
// number of goroutines.
type link struct {
	conn net.Conn
	done chan struct{} // closed when the reader has ended

	write sync.Mutex

	mu      sync.Mutex
	subs    map[string]func(*message) // by sid
	answers map[string]chan *message  // by the last token of the reply
	pongs   []chan struct{}
	next    int
	refused string // the last -ERR
	inbox   string // "" until the first request
	end     func(why string)
}

var (
	errAuth    = errors.New("the broker knows no user with these credentials")
	errGone    = errors.New("the connection to the broker ended")
	errNobody  = errors.New("nobody answers")
	errRefused = errors.New("refused")
)

// openTime bounds the beginning of a link.
const openTime = 10 * time.Second

// open speaks the beginning of the protocol. Ended, if set, is called once when the
// connection has ended by itself.
func open(conn net.Conn, c credentials, name string) (*link, error) {
	l := &link{conn: conn, done: make(chan struct{}), subs: map[string]func(*message){}, answers: map[string]chan *message{}}
	_ = conn.SetDeadline(time.Now().Add(openTime))
	r := bufio.NewReaderSize(conn, 32<<10)
	line, err := r.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "INFO ") {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %s", errGone, strings.TrimSpace(line))
	}
	connect, err := json.Marshal(struct {
		credentials
		Name         string `json:"name"`
		Lang         string `json:"lang"`
		Version      string `json:"version"`
		Protocol     int    `json:"protocol"`
		Headers      bool   `json:"headers"`
		NoResponders bool   `json:"no_responders"`
		Echo         bool   `json:"echo"`
	}{c, name, "herald-web", "1", 1, true, true, true})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nPING\r\n", connect); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	for {
		line, err := r.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "-ERR"):
			_ = conn.Close()
			if strings.Contains(line, "Authorization") {
				return nil, errAuth
			}
			return nil, fmt.Errorf("%w: %s", errRefused, errText(line))
		case err != nil:
			_ = conn.Close()
			return nil, fmt.Errorf("%w: %w", errGone, err)
		case strings.HasPrefix(line, "PONG"):
			_ = conn.SetDeadline(time.Time{})
			go l.read(r)
			return l, nil
		}
	}
}

func errText(line string) string {
	return strings.Trim(strings.TrimSpace(strings.TrimPrefix(line, "-ERR")), "'")
}

// close ends the link and waits for its reader, which must not call it.
func (l *link) close() {
	_ = l.conn.Close()
	<-l.done
}

// onEnd sets what is called when the link ends, by whatever cause.
func (l *link) onEnd(f func(why string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = f
}

// read handles what comes until the connection ends.
func (l *link) read(r *bufio.Reader) {
	defer close(l.done)
	for {
		err := l.one(r)
		if err == nil {
			continue
		}
		_ = l.conn.Close()
		l.mu.Lock()
		end, why := l.end, l.refused
		for _, c := range l.pongs {
			close(c)
		}
		l.pongs = nil
		l.mu.Unlock()
		if end != nil {
			end(why)
		}
		return
	}
}

func (l *link) one(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	line = bytes.TrimRight(line, "\r\n")
	switch {
	case bytes.HasPrefix(line, []byte("MSG ")):
		return l.message(r, line[4:], false)
	case bytes.HasPrefix(line, []byte("HMSG ")):
		return l.message(r, line[5:], true)
	case bytes.Equal(line, []byte("PING")):
		// Not on this goroutine: it must go on reading while the broker writes.
		go func() { _ = l.send("PONG\r\n", nil) }()
	case bytes.Equal(line, []byte("PONG")):
		l.mu.Lock()
		if len(l.pongs) > 0 {
			close(l.pongs[0])
			l.pongs = l.pongs[1:]
		}
		l.mu.Unlock()
	case bytes.HasPrefix(line, []byte("-ERR")):
		l.mu.Lock()
		l.refused = errText(string(line))
		l.mu.Unlock()
	}
	return nil
}

// message reads a message whose line says subject, sid, reply and lengths.
func (l *link) message(r *bufio.Reader, line []byte, headers bool) error {
	f := strings.Fields(string(line))
	want := 3
	if headers {
		want = 4
	}
	if len(f) != want && len(f) != want+1 {
		return fmt.Errorf("web: the broker sent a line with %d words", len(f))
	}
	m := &message{subject: f[0]}
	if len(f) > want {
		m.reply = f[2]
	}
	size, err := strconv.Atoi(f[len(f)-1])
	head := 0
	if err == nil && headers {
		head, err = strconv.Atoi(f[len(f)-2])
	}
	if err != nil || head > size {
		return errors.New("web: the broker sent a length that is none")
	}
	body := make([]byte, size+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	m.header, m.payload = body[:head:head], body[head:size]
	l.mu.Lock()
	h := l.subs[f[1]]
	l.mu.Unlock()
	if h != nil {
		h(m)
	}
	return nil
}

// send writes one piece of protocol.
func (l *link) send(line string, body []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	bufs := net.Buffers{[]byte(line)}
	if body != nil {
		bufs = append(bufs, body, []byte("\r\n"))
	}
	if _, err := bufs.WriteTo(l.conn); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// subscribe calls h with what comes, on the link's reader. It returns once the broker
// knows, or has refused.
func (l *link) subscribe(ctx context.Context, subject string, h func(*message)) error {
	_, err := l.listen(ctx, subject, h)
	return err
}

// unsubscribe ends a subscription that listen made.
func (l *link) unsubscribe(sid string) {
	l.mu.Lock()
	delete(l.subs, sid)
	l.mu.Unlock()
	_ = l.send("UNSUB "+sid+"\r\n", nil) // a link that has ended has no subscriptions
}

// listen is subscribe, and returns what unsubscribe takes.
func (l *link) listen(ctx context.Context, subject string, h func(*message)) (string, error) {
	l.mu.Lock()
	l.next++
	sid := strconv.Itoa(l.next)
	l.subs[sid] = h
	l.refused = ""
	l.mu.Unlock()
	if err := l.send("SUB "+subject+" "+sid+"\r\n", nil); err != nil {
		return "", err
	}
	if err := l.flush(ctx); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != "" {
		return "", fmt.Errorf("%w: %s", errRefused, l.refused)
	}
	return sid, nil
}

// flush returns when the broker has handled everything sent before.
func (l *link) flush(ctx context.Context) error {
	pong := make(chan struct{})
	l.mu.Lock()
	l.pongs = append(l.pongs, pong)
	l.mu.Unlock()
	if err := l.send("PING\r\n", nil); err != nil {
		return err
	}
	select {
	case <-pong:
		return nil
	case <-l.done:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// publish sends a message. header is a whole block, or empty.
func (l *link) publish(subject, reply string, header, payload []byte) error {
	line := subject + " "
	if reply != "" {
		line += reply + " "
	}
	if len(header) == 0 {
		return l.send(fmt.Sprintf("PUB %s%d\r\n", line, len(payload)), append([]byte{}, payload...))
	}
	body := append(append([]byte{}, header...), payload...)
	return l.send(fmt.Sprintf("HPUB %s%d %d\r\n", line, len(header), len(body)), body)
}

// request sends a message and waits for the answer to it.
func (l *link) request(ctx context.Context, subject string, header, payload []byte) (*message, error) {
	inbox, err := l.inboxFor(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.next++
	token := strconv.Itoa(l.next)
	answer := make(chan *message, 1)
	l.answers[token] = answer
	l.refused = ""
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.answers, token)
		l.mu.Unlock()
	}()
	if err := l.publish(subject, inbox+"."+token, header, payload); err != nil {
		return nil, err
	}
	if err := l.flush(ctx); err != nil { // tells of a refusal without waiting in vain
		return nil, err
	}
	l.mu.Lock()
	refused := l.refused
	l.mu.Unlock()
	if refused != "" {
		return nil, fmt.Errorf("%w: %s", errRefused, refused)
	}
	select {
	case m := <-answer:
		if code, _ := m.status(); code == 503 {
			return nil, fmt.Errorf("%w: %s", errNobody, subject)
		}
		return m, nil
	case <-l.done:
		return nil, errGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inboxFor subscribes to where answers come, once.
func (l *link) inboxFor(ctx context.Context) (string, error) {
	l.mu.Lock()
	inbox := l.inbox
	l.mu.Unlock()
	if inbox != "" {
		return inbox, nil
	}
	inbox = "_INBOX." + nuid.Next()
	err := l.subscribe(ctx, inbox+".*", func(m *message) {
		l.mu.Lock()
		c := l.answers[m.subject[strings.LastIndexByte(m.subject, '.')+1:]]
		l.mu.Unlock()
		if c != nil {
			select {
			case c <- m:
			default: // one answer is enough
			}
		}
	})
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inbox = inbox
	return inbox, nil
}
