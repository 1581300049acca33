package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var testLimits = Limits{ControlLine: 256, Payload: 64}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Command
	}{
		{"PUB a 2\r\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Payload: b("hi"), Tail: b("2\r\nhi\r\n")}},
		{"pub a r 2\r\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Reply: b("r"), Payload: b("hi"), Tail: b("r 2\r\nhi\r\n")}},
		{"PUB\ta\t 2 \r\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Payload: b("hi")}},
		{"PUB  a 2\r\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Payload: b("hi"), Tail: b("2\r\nhi\r\n")}},
		{"PUB a 02\r\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Payload: b("hi")}},
		{"PUB a 2\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Payload: b("hi")}},
		{"PUB a 0\r\n\r\n", Command{Verb: Pub, Subject: b("a"), Payload: b(""), Tail: b("0\r\n\r\n")}},
		{"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", Command{Verb: HPub, Subject: b("a"), Header: b("NATS/1.0\r\n\r\n"), Payload: b("hi"), Tail: b("12 14\r\nNATS/1.0\r\n\r\nhi\r\n")}},
		{"HPUB a r 0 2\r\nhi\r\n", Command{Verb: Pub, Subject: b("a"), Reply: b("r"), Payload: b("hi")}},
		{"SUB a 1\r\n", Command{Verb: Sub, Subject: b("a"), SID: b("1")}},
		{"sUb a  q\t1\r\n", Command{Verb: Sub, Subject: b("a"), Queue: b("q"), SID: b("1")}},
		{"UNSUB 1\r\n", Command{Verb: Unsub, SID: b("1")}},
		{"UNSUB 1 5\n", Command{Verb: Unsub, SID: b("1"), Max: 5}},
		{"PING\r\n", Command{Verb: Ping}},
		{"pong \r\n", Command{Verb: Pong}},
		{"CONNECT {\"a\": 1} \r\n", Command{Verb: Connect, Arg: b(`{"a": 1}`)}},
		{"+OK\r\n", Command{Verb: OK}},
		{"-ERR 'x'\r\n", Command{Verb: Err, Arg: b("'x'")}},
		{"INFO {}\r\n", Command{Verb: Info, Arg: b("{}")}},
	} {
		var got Command
		n, _, err := Next([]byte(c.in+"PING\r\n"), &got, testLimits)
		if err != nil || n != len(c.in) {
			t.Errorf("%q: length %d, error %v", c.in, n, err)
			continue
		}
		if !equal(&got, &c.want) {
			t.Errorf("%q: got %+v, want %+v", c.in, got, c.want)
		}
		for i := range len(c.in) {
			if n, _, err := Next([]byte(c.in[:i]), &got, testLimits); n != 0 || err != nil {
				t.Errorf("the first %d bytes of %q: length %d, error %v", i, c.in, n, err)
			}
		}
	}
}

func b(s string) []byte { return []byte(s) }

func equal(a, c *Command) bool {
	return a.Verb == c.Verb && bytes.Equal(a.Subject, c.Subject) && bytes.Equal(a.Reply, c.Reply) &&
		bytes.Equal(a.Queue, c.Queue) && bytes.Equal(a.SID, c.SID) && a.Max == c.Max &&
		bytes.Equal(a.Header, c.Header) && bytes.Equal(a.Payload, c.Payload) &&
		bytes.Equal(a.Tail, c.Tail) && (a.Tail == nil) == (c.Tail == nil) && bytes.Equal(a.Arg, c.Arg)
}

func TestNextErrors(t *testing.T) {
	long := strings.Repeat("x", 300)
	for in, want := range map[string]error{
		"GET / HTTP/1.1\r\n":       ErrOperation,
		"X":                        ErrOperation,
		"\r\n":                     ErrOperation,
		"PI NG\r\n":                ErrOperation,
		"PUBa 1\r\nx\r\n":          ErrOperation,
		"RS+ a b\r\n":              ErrOperation,
		"PUB a 1\r\nxyz":           ErrOperation, // no CRLF behind the payload
		"PUB a\r\n":                ErrArguments,
		"PUB a b c d\r\n":          ErrArguments,
		"PUB a -1\r\n":             ErrArguments,
		"PUB a 99999999999999\r\n": ErrArguments,
		"PUB a\rb 1\r\n":           ErrArguments,
		"HPUB a 5\r\n":             ErrArguments,
		"HPUB a 5 3\r\n":           ErrArguments,
		"SUB\r\n":                  ErrOperation,
		"SUB a\r\n":                ErrArguments,
		"SUB a b c d\r\n":          ErrArguments,
		"UNSUB \r\n":               ErrArguments,
		"PUB a 65\r\n":             ErrPayload,
		"PUB " + long:              ErrControlLine,
		"SUB " + long + " 1\r\n":   ErrControlLine,
		"CONNECT " + long:          ErrControlLine,
	} {
		var c Command
		if n, _, err := Next([]byte(in), &c, testLimits); !errors.Is(err, want) || n != 0 {
			t.Errorf("%q: length %d, error %v, want %v", in, n, err, want)
		}
	}
}

func TestNextTellsWhatItNeeds(t *testing.T) {
	var c Command
	in := "PUB a 50\r\nx"
	if n, need, err := Next([]byte(in), &c, testLimits); n != 0 || need != 10+50+2 || err != nil {
		t.Fatal(n, need, err)
	}
}

// FuzzNext feeds the parser any bytes under several limits, whole and in part.
func FuzzNext(f *testing.F) {
	for _, s := range []string{
		"PUB a 2\r\nhi\r\n", "HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", "SUB a q 1\r\n", "UNSUB 1 2\r\n",
		"CONNECT {}\r\nPING\r\nPONG\r\n", "+OK\r\n-ERR 'x'\r\nINFO {}\r\n", "pub\t a\t\t1\nx\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, l := range []Limits{{}, testLimits, {ControlLine: 4096, Payload: 1}} {
			buf := in
			for len(buf) > 0 {
				var c Command
				n, need, err := Next(buf, &c, l)
				if n < 0 || n > len(buf) || need < 0 || err != nil && n != 0 {
					t.Fatalf("length %d, need %d, error %v of %d bytes", n, need, err, len(buf))
				}
				if n == 0 {
					if err == nil && need > 0 && need <= len(buf) {
						t.Fatalf("needs %d of the %d bytes it has", need, len(buf))
					}
					if err == nil && l.ControlLine > 0 && need == 0 && len(buf) > l.ControlLine+2 {
						t.Fatalf("%d bytes without an end were accepted", len(buf))
					}
					break
				}
				checkCommand(t, &c, buf[:n], l)
				buf = buf[n:]
			}
		}
	})
}

func checkCommand(t *testing.T, c *Command, line []byte, l Limits) {
	if l.Payload > 0 && len(c.Header)+len(c.Payload) > l.Payload {
		t.Fatalf("a message of %d bytes was accepted", len(c.Header)+len(c.Payload))
	}
	for _, tok := range [][]byte{c.Subject, c.Reply, c.Queue, c.SID} {
		if bytes.ContainsAny(tok, " \t\r\n") {
			t.Fatalf("token %q", tok)
		}
	}
	if c.Verb != Pub && c.Verb != HPub {
		return
	}
	// What was read, written anew, reads the same.
	tail := AppendTail(nil, c.Reply, c.Header, c.Payload)
	if c.Tail != nil && !bytes.Equal(tail, c.Tail) {
		t.Fatalf("tail %q, written anew %q", c.Tail, tail)
	}
	again := append([]byte("PUB "), c.Subject...)
	if len(c.Header) > 0 {
		again = append([]byte("HPUB "), c.Subject...)
	}
	again = append(append(again, ' '), tail...)
	var d Command
	if n, _, err := Next(again, &d, Limits{}); err != nil || n != len(again) || !bytes.Equal(d.Payload, c.Payload) || !bytes.Equal(d.Header, c.Header) {
		t.Fatalf("%q written anew as %q: %v", line, again, err)
	}
}

func FuzzConnect(f *testing.F) {
	f.Add([]byte(`{"verbose":false,"user":"a","pass":"b","protocol":1}`))
	f.Fuzz(func(t *testing.T, in []byte) { _, _ = ParseConnect(in) })
}

func BenchmarkNext(b *testing.B) {
	in := []byte("PUB bench.sub 128\r\n" + strings.Repeat("x", 128) + "\r\n")
	var c Command
	for b.Loop() {
		if n, _, err := Next(in, &c, Limits{ControlLine: 4096, Payload: 1 << 20}); n == 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
