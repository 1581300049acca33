package front

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/auth"
)

func wsServer(t *testing.T, w WebsocketOptions, o Options) *Server {
	if w.TLS == nil {
		w.NoTLS = true
	}
	o.Websocket = &w
	return startServer(t, o)
}

func wsURL(s *Server) string { return "ws://" + s.WebsocketAddr().String() }

func wsDial(t *testing.T, s *Server, h http.Header) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.DefaultDialer.Dial(wsURL(s), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(testTimeout))
	return c
}

func wsRead(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	kind, b, err := c.ReadMessage()
	if err != nil || kind != websocket.BinaryMessage {
		t.Fatalf("kind %d, %v", kind, err)
	}
	return string(b)
}

func TestWebsocketNatsGo(t *testing.T) {
	for _, compress := range []bool{false, true} {
		s := wsServer(t, WebsocketOptions{Compression: compress}, Options{})
		nc, err := nats.Connect(wsURL(s), nats.Compression(compress))
		if err != nil {
			t.Fatal(err)
		}
		sub, _ := nc.SubscribeSync("foo.>")
		big := bytes.Repeat([]byte("0123456789"), 50_000)
		for range 5 {
			nc.Publish("foo.big", big)
			nc.Publish("foo.small", []byte("x"))
		}
		for range 5 {
			m, err := sub.NextMsg(testTimeout)
			if err != nil || !bytes.Equal(m.Data, big) {
				t.Fatal(err)
			}
			if m, err = sub.NextMsg(testTimeout); err != nil || string(m.Data) != "x" {
				t.Fatal(err)
			}
		}
		if c := s.Connections(ConnOpen, false)[0]; c.Type != "websocket" {
			t.Fatalf("%+v", c)
		}
		nc.Close()
	}
}

func TestWebsocketTLS(t *testing.T) {
	ca := newAuthority(t)
	s := wsServer(t, WebsocketOptions{TLS: ca.server(t)}, Options{})
	nc, err := nats.Connect("wss://"+s.WebsocketAddr().String(), ca.secure())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.RTT(); err != nil {
		t.Fatal(err)
	}
	if c := s.Connections(ConnOpen, false)[0]; c.TLSVersion == "" {
		t.Fatalf("%+v", c)
	}
}

func TestWebsocketFrameBordersMeanNothing(t *testing.T) {
	s := wsServer(t, WebsocketOptions{}, Options{})
	c := wsDial(t, s, nil)
	if !strings.HasPrefix(wsRead(t, c), "INFO {") {
		t.Fatal("no INFO")
	}
	for _, b := range []byte("CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nPUB foo 2\r\nhi\r\nPING\r\n") {
		c.WriteMessage(websocket.BinaryMessage, []byte{b})
	}
	got := ""
	for !strings.HasSuffix(got, "PONG\r\n") {
		got += wsRead(t, c)
	}
	if got != "MSG foo 1 2\r\nhi\r\nPONG\r\n" {
		t.Fatalf("got %q", got)
	}
}

func TestWebsocketOrigin(t *testing.T) {
	for _, c := range []struct {
		w      WebsocketOptions
		origin string
		ok     bool
	}{
		{WebsocketOptions{}, "", true},
		{WebsocketOptions{}, "self", true},
		{WebsocketOptions{}, "http://evil.example", false},
		{WebsocketOptions{}, "null", false},
		{WebsocketOptions{}, "https://self", false},
		{WebsocketOptions{AnyOrigin: true}, "http://evil.example", true},
		{WebsocketOptions{AllowedOrigins: []string{"https://good.example"}}, "https://good.example:443", true},
		{WebsocketOptions{AllowedOrigins: []string{"https://good.example"}}, "http://good.example", false},
		{WebsocketOptions{AllowedOrigins: []string{"https://good.example"}}, "https://good.example.evil.example", false},
	} {
		s := wsServer(t, c.w, Options{})
		h := http.Header{}
		if c.origin != "" {
			origin := strings.Replace(c.origin, "https://self", "https://"+s.WebsocketAddr().String(), 1)
			if origin == "self" {
				origin = "http://" + s.WebsocketAddr().String()
			}
			h.Set("Origin", origin)
		}
		conn, _, err := websocket.DefaultDialer.Dial(wsURL(s), h)
		if (err == nil) != c.ok {
			t.Errorf("origin %q under %+v: %v", c.origin, c.w, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestWebsocketCookiesAndProxies(t *testing.T) {
	s := wsServer(t, WebsocketOptions{UserCookie: "u", PassCookie: "p"},
		Options{Auth: auth.Config{Users: []auth.User{{Name: "ann", Password: "pw", ConnectionTypes: []string{"WEBSOCKET"}}}}})
	c := wsDial(t, s, http.Header{"Cookie": {"u=ann; p=pw"}, "X-Forwarded-For": {"10.1.2.3, 10.9.9.9"}})
	wsRead(t, c)
	c.WriteMessage(websocket.BinaryMessage, []byte("CONNECT {\"verbose\":false}\r\nPING\r\n"))
	if got := wsRead(t, c); got != "PONG\r\n" {
		t.Fatalf("got %q", got)
	}
	if got := s.Connections(ConnOpen, false)[0]; got.IP != "10.1.2.3" || got.AuthorizedUser != "ann" {
		t.Fatalf("%+v", got)
	}
	bad := wsDial(t, s, http.Header{"Cookie": {"u=ann; p=wrong"}})
	wsRead(t, bad)
	bad.WriteMessage(websocket.BinaryMessage, []byte("CONNECT {}\r\n"))
	if got := wsRead(t, bad); got != "-ERR 'Authorization Violation'\r\n" {
		t.Fatalf("got %q", got)
	}
	if _, _, err := bad.ReadMessage(); !websocket.IsCloseError(err, websocket.ClosePolicyViolation) {
		t.Fatalf("got %v", err)
	}
}

// TestWebsocketBombs: neither a compressed nor a plain message larger than
// allowed is taken in, before any login.
func TestWebsocketBombs(t *testing.T) {
	s := wsServer(t, WebsocketOptions{Compression: true}, Options{
		MaxPayload: 1 << 10,
		Auth:       auth.Config{Users: []auth.User{{Name: "u", Password: "p"}}},
	})
	d := *websocket.DefaultDialer
	d.EnableCompression = true
	c, _, err := d.Dial(wsURL(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(testTimeout))
	wsRead(t, c)
	c.SetCompressionLevel(flate.BestCompression)
	// Compressed it's small; it begins like a line that never ends.
	c.WriteMessage(websocket.BinaryMessage, append([]byte("CONNECT "), bytes.Repeat([]byte("{"), 1<<20)...))
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			break
		}
	}
	eventually(t, "everybody gone", func() bool { return len(s.Connections(ConnOpen, false)) == 0 })
}

// TestWebsocketRawFrames: malformed frames end the connection and nothing
// else.
func TestWebsocketRawFrames(t *testing.T) {
	s := wsServer(t, WebsocketOptions{}, Options{})
	for _, frame := range []string{
		"\x82\x05hello", // not masked
		"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", // endless
		"\xf2\x80\x00\x00\x00\x00",                                 // reserved bits
		"\x83\x80\x00\x00\x00\x00",                                 // reserved opcode
		"\x89\xfe\x00\x80\x00\x00\x00\x00",                         // control frame too long
		"\x80\x80\x00\x00\x00\x00",                                 // continuation of nothing
		"\x88\x81\x00\x00\x00\x00x",                                // close with one byte
		"\x02",
	} {
		conn, err := net.Dial("tcp", s.WebsocketAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n%s", frame)
		time.AfterFunc(50*time.Millisecond, func() { conn.(*net.TCPConn).CloseWrite() })
		rc := &rawConn{Conn: conn, t: t}
		conn.SetReadDeadline(time.Now().Add(testTimeout))
		var buf [4096]byte
		for {
			if _, err := rc.Conn.Read(buf[:]); err != nil {
				if n, ok := err.(net.Error); ok && n.Timeout() {
					t.Errorf("%q: stays open", frame)
				}
				break
			}
		}
		conn.Close()
	}
	if _, _, err := websocket.DefaultDialer.Dial(wsURL(s)+"/mqtt", nil); err == nil {
		t.Error("/mqtt is served")
	}
	eventually(t, "everybody gone", func() bool { return len(s.Connections(ConnOpen, false)) == 0 })
}

// FuzzWebsocket sends frames of any make to a session, before and after login.
func FuzzWebsocket(f *testing.F) {
	frame := func(first byte, payload string) string {
		return string([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
	}
	for _, in := range []string{
		frame(0x82, "PING\r\n"), frame(0x02, "PI") + frame(0x80, "NG\r\n"), frame(0x89, "x") + frame(0x88, "\x03\xe8"), frame(0x81, "PUB a 1\r\nx\r\n"),
		frame(0xc2, "\x0a\xf0\x74\x03\x00"), frame(0x8a, ""), frame(0xf2, "x"), "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x82\xfe\x00", frame(0x80, "x"), frame(0x88, "x"),
	} {
		f.Add([]byte(in), false)
		f.Add([]byte(in), true)
	}
	s := startServer(f, Options{
		Websocket: &WebsocketOptions{Host: "127.0.0.1", NoTLS: true, Compression: true},
		Auth:      auth.Config{Users: []auth.User{{Name: "u", Password: "p"}}},
	})
	login := frame(0x82, "CONNECT {\"user\":\"u\",\"pass\":\"p\",\"verbose\":false}\r\nSUB > 1\r\n")
	const upgrade = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n\r\n"
	f.Fuzz(func(t *testing.T, in []byte, connected bool) {
		c, err := net.Dial("tcp", s.WebsocketAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		text := upgrade
		if connected {
			text += login
		}
		_, _ = c.Write(append([]byte(text), in...)) // it may be cut off
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the session outlives the connection")
		}
	})
}
