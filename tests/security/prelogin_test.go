package security

import (
	"bytes"
	"compress/flate"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/tests/harness"
)

// doors is a broker process that wants a password on every listener.
type doors struct {
	*harness.Broker
	tcp, tls, web, webTLS, http string // addresses
}

// openDoors starts a broker with all kinds of listeners. A process has one kind of
// client listener, so the one with TLS is a second process.
func openDoors(t *testing.T) (plain, secure *doors) {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	selfSigned(t, cert, key)
	at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	run := func(tlsText, webTLS string) *doors {
		web, mon := harness.FreePort(t), harness.FreePort(t)
		b := harness.New(t, fmt.Sprintf(`
authorization { user: u, password: p, timeout: 5 }
jetstream { enabled: true, store_dir: "store" }
websocket { host: "127.0.0.1", port: %d, %s, compression: true }
http: "127.0.0.1:%d"
%s`, web, webTLS, mon, tlsText))
		if err := b.Run(); err != nil {
			t.Fatal(err)
		}
		return &doors{Broker: b, tcp: at(b.Port), web: at(web), http: at(mon)}
	}
	pair := fmt.Sprintf("tls { cert_file: %q, key_file: %q }", cert, key)
	plain, secure = run("", "no_tls: true"), run(pair, pair)
	secure.tls, secure.webTLS = secure.tcp, secure.web
	return plain, secure
}

func selfSigned(t *testing.T, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// resident is the memory of the process now, and the most it ever was, in bytes.
func (d *doors) resident(t *testing.T) (now, most int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		t.Skipf("SKIPPED: no /proc here: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64) // 0 for lines that aren't numbers
		switch f[0] {
		case "VmRSS:":
			now = n << 10
		case "VmHWM:":
			most = n << 10
		}
	}
	return now, most
}

// healthy fails when the process has died or panicked, or lets nobody in any
// more.
func (d *doors) healthy(t *testing.T, after string) {
	t.Helper()
	select {
	case <-d.Exited():
		t.Fatalf("the broker died of %s:\n%s", after, d.Output())
	default:
	}
	if out := d.Output(); strings.Contains(out, "panic") || strings.Contains(out, "goroutine ") {
		t.Fatalf("a panic after %s:\n%s", after, out)
	}
	nc, err := nats.Connect(d.URL, nats.UserInfo("u", "p"), nats.NoReconnect(), nats.Timeout(patience), nats.Secure(&tls.Config{InsecureSkipVerify: true}))
	if d.tls == "" {
		nc, err = nats.Connect(d.URL, nats.UserInfo("u", "p"), nats.NoReconnect(), nats.Timeout(patience))
	}
	if err != nil {
		t.Fatalf("nobody gets in after %s: %v", after, err)
	}
	nc.Close()
}

// upgrade is the request that opens a websocket.
const upgrade = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n\r\n"

// frame is a masked frame whose mask is zero.
func frame(first byte, payload []byte) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, 0x80|126, byte(n>>8), byte(n))
	default:
		b = append(b, 0x80|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// bomb is a compressed frame of n bytes of text once decompressed, an unfinished
// CONNECT.
func bomb(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, `CONNECT {"user":"`) // into memory
	_, _ = w.Write(bytes.Repeat([]byte{'a'}, n))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return frame(0xc2, bytes.TrimSuffix(b.Bytes(), []byte{0, 0, 0xff, 0xff}))
}

// halfOpen is how many connections stay half open at once.
const halfOpen = 1000

// memoryMost is by how much a broker may grow by that: 40 KiB for each, and the
// runtime's share.
const memoryMost = 64 << 20

// TestMemoryBeforeLogin holds a thousand connections of each kind open that send
// as much as they can without logging in.
func TestMemoryBeforeLogin(t *testing.T) {
	if testing.Short() {
		t.Skip("holds thousands of connections")
	}
	plain, secure := openDoors(t)
	connectText := `CONNECT {"verbose":false,"user":"` + strings.Repeat("a", 4000)
	zip := bomb(t, 8<<20)
	for _, c := range []struct {
		kind string
		d    *doors
		addr string
		send string
	}{
		{"tcp, silent", plain, plain.tcp, ""},
		{"tcp, half a CONNECT", plain, plain.tcp, connectText},
		{"tcp, half a message", plain, plain.tcp, "PUB a 1000000\r\n" + strings.Repeat("x", 100<<10)},
		{"tls, silent", secure, secure.tls, ""},
		{"tls, half a handshake", secure, secure.tls, "\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb" + strings.Repeat("\x00", 8<<10)},
		{"websocket, silent", plain, plain.web, ""},
		{"websocket, half a header", plain, plain.web, "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 15<<10)},
		{"websocket, too much header", plain, plain.web, "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 256<<10)},
		{"websocket, upgraded", plain, plain.web, upgrade},
		{"websocket, half a CONNECT", plain, plain.web, upgrade + string(frame(0x82, []byte(connectText)))},
		{"websocket, a frame that says it is huge", plain, plain.web, upgrade + "\x82\xff\x00\x00\x00\x7f\xff\xff\xff\xff\x00\x00\x00\x00"},
		{"websocket, half a large frame", plain, plain.web, upgrade + "\x82\xff\x00\x00\x00\x00\x00\x7f\x00\x00\x00\x00\x00\x00" + strings.Repeat("P", 3000)},
		{"websocket, compressed bomb", plain, plain.web, upgrade + string(zip)},
		{"websocket, bomb in fragments", plain, plain.web, upgrade + string(frame(0x42, zip[len(zip)-2000:])) + string(frame(0x00, zip[len(zip)-2000:]))},
		{"websocket with tls, silent", secure, secure.webTLS, ""},
		{"http, silent", plain, plain.http, ""},
		{"http, half a header", plain, plain.http, "GET /varz HTTP/1.1\r\nX: " + strings.Repeat("x", 15<<10)},
		{"http, a body", plain, plain.http, "POST /varz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 100<<10)},
	} {
		before, _ := c.d.resident(t)
		conns := make([]net.Conn, 0, halfOpen)
		for range halfOpen {
			conn, err := net.DialTimeout("tcp", c.addr, patience)
			if err != nil {
				t.Fatalf("%s: %v", c.kind, err)
			}
			conns = append(conns, conn)
			// What isn't read must not hold this up.
			_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.WriteString(conn, c.send)
		}
		after, most := c.d.resident(t)
		t.Logf("%-40s %5d KiB for each of %d (most ever %d MiB)", c.kind, (after-before)/halfOpen>>10, halfOpen, most>>20)
		if after-before > memoryMost {
			t.Errorf("%s: the broker grew by %d MiB", c.kind, (after-before)>>20)
		}
		if most > 4*memoryMost {
			t.Errorf("%s: the broker took %d MiB", c.kind, most>>20)
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		c.d.healthy(t, c.kind)
	}
}

// TestGarbageBeforeLogin throws random bytes, bent protocol and bent frames at
// every listener.
func TestGarbageBeforeLogin(t *testing.T) {
	plain, secure := openDoors(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := mathrand.New(mathrand.NewPCG(seed, 1))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return string(b)
	}
	words := []string{
		"INFO {}\r\n", "INFO {", "CONNECT {}\r\n", "CONNECT {\"user\":\"u\",\"pass\":\"p\"}\r\n", "CONNECT null\r\n", "CONNECT []\r\n", "CONNECT {\"sig\":\"" + strings.Repeat("A", 86) + "\",\"nkey\":\"UX\"}\r\n",
		"CONNECT {\"jwt\":\"eyJ0eXAiOiJKV1QifQ.e30.AA\",\"sig\":\"AA\"}\r\n", "CONNECT {\"protocol\":-99999999999999999999}\r\n", "CONNECT " + strings.Repeat("[", 3000) + "\r\n", "PING\r\n", "PONG\r\n", "+OK\r\n", "-ERR 'x'\r\n",
		"PUB a 0\r\n\r\n", "PUB a 99999999999\r\n", "PUB a -1\r\n", "HPUB a 5 3\r\n", "HPUB a 0 0\r\n\r\n", "SUB a 1\r\n", "SUB > a b c\r\n", "UNSUB 1 -1\r\n", "RS+ A b\r\n", "LS+ a\r\n", "RMSG A b 0\r\n\r\n", "A+ x\r\n", "\r\n", "\x00", "GET / HTTP/1.1\r\n\r\n",
		"\x16\x03\x01", "\x16\x03\x03\x00\x01\x00", "PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n", "\r\n\r\n\x00\r\nQUIT\n",
	}
	frames := func() string {
		b := frame(byte(r.IntN(256)), []byte(words[r.IntN(len(words))]))
		for range r.IntN(3) {
			b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
		}
		return string(b)
	}
	kinds := map[string]func() string{
		"noise": func() string { return noise(r.IntN(600)) },
		"words": func() (s string) {
			for range r.IntN(6) {
				s += words[r.IntN(len(words))]
			}
			return s
		},
		"frames": func() string { return upgrade + frames() + frames() + frames() },
		"bent upgrade": func() string {
			b := []byte(upgrade)
			for range r.IntN(4) {
				b[r.IntN(len(b))] = byte(r.IntN(256))
			}
			return string(b)
		},
		"paths": func() string {
			return strings.Replace(upgrade, "GET /", "GET "+[]string{"/mqtt", "/leafnode", "/x/mqtt", "//", "/..", "*", "http://x/"}[r.IntN(7)], 1)
		},
	}
	const rounds = 60
	for kind, text := range kinds {
		for _, d := range []*doors{plain, secure} {
			for _, addr := range []string{d.tcp, d.web, d.http} {
				for range rounds {
					conn, err := net.DialTimeout("tcp", addr, patience)
					if err != nil {
						t.Fatalf("%s: %v", kind, err)
					}
					_, _ = io.WriteString(conn, text()) // it may be cut off
					if r.IntN(2) == 0 {
						_ = conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
						_, _ = io.ReadFull(conn, make([]byte, 200))
					}
					_ = conn.Close()
				}
			}
			d.healthy(t, kind)
		}
	}
	// The same inside TLS.
	for range rounds {
		conn, err := tls.Dial("tcp", secure.web, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, kinds["frames"]()) // it may be cut off
		_ = conn.Close()
	}
	secure.healthy(t, "frames in TLS")
}

// TestBombsAreCutOff: a compressed message that is larger than a client may send
// ends the connection, whoever sends it.
func TestBombsAreCutOff(t *testing.T) {
	plain, _ := openDoors(t)
	login := string(frame(0x82, []byte("CONNECT {\"user\":\"u\",\"pass\":\"p\",\"verbose\":false}\r\n")))
	for _, first := range []string{"", login} {
		_, before := plain.resident(t)
		conn, err := net.Dial("tcp", plain.web)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, upgrade+first+string(bomb(t, 64<<20))) // it may be cut off before the end
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection stays")
		}
		if _, after := plain.resident(t); after-before > 32<<20 {
			t.Errorf("a bomb took %d MiB", (after-before)>>20)
		}
	}
	plain.healthy(t, "a bomb")
}
