package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// rawConn is a NATS client that costs next to nothing, so that the server is
// what is measured: it sends blocks encoded beforehand and counts what comes
// back without parsing it.
type rawConn struct {
	c   *net.TCPConn
	buf []byte
}

func rawDial(url string) (*rawConn, error) {
	c, err := net.Dial("tcp", url[len("nats://"):])
	if err != nil {
		return nil, err
	}
	r := &rawConn{c: c.(*net.TCPConn), buf: make([]byte, 256<<10)}
	if err := r.send(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":0,"lang":"raw","version":"1"}` + "\r\n"); err != nil {
		return nil, err
	}
	return r, r.barrier()
}

func (r *rawConn) send(s string) error { _, err := io.WriteString(r.c, s); return err }

// barrier returns when the server has worked through everything sent before.
func (r *rawConn) barrier() error {
	if err := r.send("PING\r\n"); err != nil {
		return err
	}
	_ = r.c.SetReadDeadline(time.Now().Add(10 * time.Second))
	defer r.c.SetReadDeadline(time.Time{})
	var seen []byte
	for !bytes.Contains(seen, []byte("PONG\r\n")) {
		n, err := r.c.Read(r.buf)
		if err != nil {
			return err
		}
		seen = append(seen, r.buf[:n]...)
	}
	return nil
}

// discard reads until at least want bytes have come, telling the kernel to
// throw them away instead of copying them.
func (r *rawConn) discard(want int64, got *atomic.Int64) error {
	sys, err := r.c.SyscallConn()
	if err != nil {
		return err
	}
	for total := int64(0); total < want; {
		var n int
		var rerr error
		err := sys.Read(func(fd uintptr) bool {
			n, _, rerr = unix.Recvfrom(int(fd), r.buf[:1<<17], unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			return rerr != unix.EAGAIN
		})
		if err == nil {
			err = rerr
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", total, want, err)
		}
		total += int64(n)
		got.Store(total)
	}
	return nil
}

// pubBlock returns a block of count publishes of size bytes.
func pubBlock(subject string, size, count int) []byte {
	one := append([]byte("PUB "+subject+" "+strconv.Itoa(size)+"\r\n"), bytes.Repeat([]byte("x"), size)...)
	one = append(one, "\r\n"...)
	return bytes.Repeat(one, count)
}

// rawLive publishes total messages from each of pubs connections to subs
// subscribers of them all, and returns deliveries per second.
func rawLive(url string, pubs, subs, size, total int) (float64, error) {
	subject := "bench.live"
	delivered := int64(len(fmt.Sprintf("MSG %s 1 %d\r\n", subject, size)) + size + 2)
	perSub := int64(total) * int64(pubs)
	errs := make(chan error, pubs+subs)
	var conns []*rawConn
	defer func() {
		for _, c := range conns {
			c.c.Close()
		}
	}()
	for range subs {
		c, err := rawDial(url)
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
		if err := c.send("SUB " + subject + " 1\r\n"); err != nil {
			return 0, err
		}
		if err := c.barrier(); err != nil {
			return 0, err
		}
		var got atomic.Int64
		go func() { errs <- c.discard(perSub*delivered, &got) }()
	}
	block := max(1, min(64<<10/(size+32), total))
	data := pubBlock(subject, size, block)
	one := len(data) / block
	began := time.Now()
	for range pubs {
		c, err := rawDial(url)
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
		go func() {
			for left := total; left > 0; {
				n := min(left, block)
				if _, err := c.c.Write(data[:n*one]); err != nil {
					errs <- err
					return
				}
				left -= n
			}
			errs <- nil
		}()
	}
	for range pubs + subs {
		select {
		case err := <-errs:
			if err != nil {
				return 0, err
			}
		case <-time.After(2 * time.Minute):
			return 0, fmt.Errorf("live %d→%d did not end in 2 minutes", pubs, subs)
		}
	}
	return float64(perSub) * float64(subs) / time.Since(began).Seconds(), nil
}

// rawDurable publishes total messages of size bytes with at most window of them
// unacknowledged, and returns acknowledged messages per second.
func rawDurable(url, subject string, size, window, total int) (float64, error) {
	c, err := rawDial(url)
	if err != nil {
		return 0, err
	}
	defer c.c.Close()
	if err := c.send("SUB _INBOX.raw.* 1\r\n"); err != nil {
		return 0, err
	}
	if err := c.barrier(); err != nil {
		return 0, err
	}
	one := append([]byte("PUB "+subject+" _INBOX.raw.1 "+strconv.Itoa(size)+"\r\n"), bytes.Repeat([]byte("x"), size)...)
	one = append(one, "\r\n"...)
	block := max(1, min(window, 64<<10/len(one)))
	data := bytes.Repeat(one, block)

	began := time.Now()
	sent, acked, lines := 0, 0, 0
	for acked < total {
		for sent < total && sent-acked < window {
			n := min(block, total-sent, window-(sent-acked))
			if _, err := c.c.Write(data[:n*len(one)]); err != nil {
				return 0, err
			}
			sent += n
		}
		_ = c.c.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := c.c.Read(c.buf)
		if err != nil {
			return 0, fmt.Errorf("after %d of %d acks: %w", acked, total, err)
		}
		// An ack is two lines, MSG and its JSON.
		if bytes.Contains(c.buf[:n], []byte(`"error"`)) {
			return 0, fmt.Errorf("refused: %s", c.buf[:min(n, 300)])
		}
		if i := bytes.Index(c.buf[:n], []byte("PING\r\n")); i >= 0 {
			lines--
			if err := c.send("PONG\r\n"); err != nil {
				return 0, err
			}
		}
		lines += bytes.Count(c.buf[:n], []byte{'\n'})
		acked = lines / 2
	}
	return float64(total) / time.Since(began).Seconds(), nil
}

// rawConsume pulls total messages of size bytes from a consumer and acknowledges
// each when ack is set; it returns messages per second.
func rawConsume(url, stream, consumer string, ack bool, size, total int) (float64, error) {
	c, err := rawDial(url)
	if err != nil {
		return 0, err
	}
	defer c.c.Close()
	if err := c.send("SUB _INBOX.raw.* 1\r\n"); err != nil {
		return 0, err
	}
	if err := c.barrier(); err != nil {
		return 0, err
	}
	batch := inFlight(size) // two requests are open at a time
	next := func() string {
		body := fmt.Sprintf(`{"batch":%d,"expires":30000000000}`, batch)
		return fmt.Sprintf("PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s _INBOX.raw.1 %d\r\n%s\r\n", stream, consumer, len(body), body)
	}
	began := time.Now()
	if err := c.send(next() + next()); err != nil {
		return 0, err
	}
	buf := make([]byte, 0, 1<<20)
	var acks []byte
	got, since := 0, 0
	for got < total {
		_ = c.c.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := c.c.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return 0, fmt.Errorf("after %d of %d messages: %w", got, total, err)
		}
		buf = buf[:len(buf)+n]
		used := 0
		acks = acks[:0]
		for {
			eol := bytes.IndexByte(buf[used:], '\n')
			if eol < 0 {
				break
			}
			line := buf[used : used+eol]
			if !bytes.HasPrefix(line, []byte("MSG ")) {
				if bytes.HasPrefix(line, []byte("HMSG ")) {
					length, _ := strconv.Atoi(string(bytes.TrimSpace(line[bytes.LastIndexByte(line, ' ')+1:])))
					if len(buf)-used-eol-1 < length+2 {
						break
					}
					// A status ends one of the two requests: the lead moved, or it expired.
					if status := buf[used+eol+1:]; bytes.HasPrefix(status, []byte("NATS/1.0 4")) || bytes.HasPrefix(status, []byte("NATS/1.0 5")) {
						acks = append(acks, next()...)
					}
					used += eol + 1 + length + 2
					continue
				}
				used += eol + 1
				continue
			}
			last := bytes.LastIndexByte(line, ' ')
			length := 0
			for _, d := range line[last+1:] {
				if d >= '0' && d <= '9' {
					length = length*10 + int(d-'0')
				}
			}
			if len(buf)-used-eol-1 < length+2 {
				break
			}
			if ack {
				reply := line[bytes.LastIndexByte(line[:last], ' ')+1 : last]
				acks = append(append(append(acks, "PUB "...), reply...), " 4\r\n+ACK\r\n"...)
			}
			used += eol + 1 + length + 2
			got++
			if since++; since == batch {
				since = 0
				acks = append(acks, next()...)
			}
		}
		buf = append(buf[:0], buf[used:]...)
		if len(acks) > 0 {
			if _, err := c.c.Write(acks); err != nil {
				return 0, err
			}
		}
	}
	return float64(total) / time.Since(began).Seconds(), c.barrier()
}
