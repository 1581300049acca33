package advertise

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/catalogue"
)

// BenchmarkPublish is what one message costs a connection that publishes in batches of a
// thousand, over loopback and with nobody listening: without the advertise service, with it
// and nothing advertised, and as advertisements say more and more about the messages.
// Compare the rows of one run.
func BenchmarkPublish(b *testing.B) {
	const order = `{"id":12345678,"customer":"c-0042","amount":129.95,"lines":3,"note":"` + "0123456789012345678901234567890123456789012345678901234567890123" + `"}`
	const asSchema = `"schema":{"format":"json-schema","inline":{"type":"object","required":["id","amount"],"properties":{"id":{"type":"integer","minimum":1},"customer":{"type":"string"},"amount":{"type":"number"},"lines":{"type":"integer"}}}}`
	for _, c := range []struct {
		name string
		ad   string // "": none; "-": no service
	}{
		{"no service", "-"},
		{"nothing advertised", ""},
		{"advertised", `{"name":"o","subject":"orders.{region}","lease":{"mode":"permanent"}}`},
		{"advertised with a key", `{"name":"o","subject":"orders.{region}","key":{"token":"region"},"lease":{"mode":"permanent"}}`},
		{"schema not enforced", `{"name":"o","subject":"orders.{region}","lease":{"mode":"permanent"},` + asSchema + `}`},
		{"something else enforced", `{"name":"o","subject":"others.{region}","enforce":"reject","lease":{"mode":"permanent"},` + asSchema + `}`},
		{"schema enforced", `{"name":"o","subject":"orders.{region}","enforce":"reject","lease":{"mode":"permanent"},` + asSchema + `}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			srv, err := front.New(front.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if err := srv.Start(); err != nil {
				b.Fatal(err)
			}
			defer srv.Close()
			if c.ad != "-" {
				m := &memory{c: catalogue.New()}
				s := New(Options{Catalogue: m})
				defer s.Close()
				m.told = s.Changed
				if c.ad != "" {
					if _, err := m.apply(catalogue.Command{Op: catalogue.OpAdvertise, Account: srv.GlobalAccount().Name(), ID: "1", Body: []byte(c.ad)}); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.Serve(srv.GlobalAccount()); err != nil {
					b.Fatal(err)
				}
			}
			d := net.Dialer{}
			conn, err := d.DialContext(context.Background(), "tcp", srv.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			const batch = 1000
			var out bytes.Buffer
			out.WriteString("CONNECT {\"verbose\":false}\r\n")
			for i := range batch {
				fmt.Fprintf(&out, "PUB orders.r%d %d\r\n%s\r\n", i%8, len(order), order)
			}
			out.WriteString("PING\r\n")
			in := make([]byte, 4096)
			said := false
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(out.Bytes()); err != nil {
					b.Fatal(err)
				}
				for answered := false; !answered; {
					n, err := conn.Read(in)
					if err != nil && err != io.EOF {
						b.Fatal(err)
					}
					answered = bytes.Contains(in[:n], []byte("PONG"))
					if bytes.Contains(in[:n], []byte("-ERR")) {
						b.Fatalf("%s", in[:n])
					}
				}
				if !said {
					out.Next(len("CONNECT {\"verbose\":false}\r\n"))
					said = true
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/msg")
		})
	}
}
