package service

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/heraldmq/herald/broker/front"
)

// ask sends a request from a client and decodes its answer; nil: nobody answers.
func ask[T any](t *testing.T, nc *nats.Conn, subject string) *T {
	t.Helper()
	m, err := nc.Request(subject, nil, 5*time.Second)
	if err == nats.ErrNoResponders { //nolint:errorlint // as the client documents it
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	v := new(T)
	if err := json.Unmarshal(m.Data, v); err != nil {
		t.Fatalf("%s: %v in %s", subject, err, m.Data)
	}
	return v
}

func TestARoomIsAMicroService(t *testing.T) {
	srv, err := front.New(front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	s := Subscriptions{Identity: Identity{Name: "a-room", ID: "ID1", Version: "1.2.3", Description: "a room"}}
	defer s.Close()
	err = s.Serve(srv.GlobalAccount(), map[string]front.Handler{
		"ROOM.GOOD": func(m *front.Message) { m.Respond(nil, []byte(`{}`)) },
		"ROOM.BAD": func(m *front.Message) {
			s.Failed(m.Account, string(m.Subject), "it is bad")
			m.Respond(nil, []byte(`{}`))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("nats://" + srv.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for subject, times := range map[string]int{"ROOM.GOOD": 3, "ROOM.BAD": 2} {
		for range times {
			ask[struct{}](t, nc, subject)
		}
	}
	id := micro.ServiceIdentity{Name: "a-room", ID: "ID1", Version: "1.2.3", Metadata: map[string]string{}}
	for _, of := range []string{".a-room", ".a-room.ID1"} {
		if got := ask[micro.Ping](t, nc, "$SRV.PING"+of); !reflect.DeepEqual(got, &micro.Ping{ServiceIdentity: id, Type: micro.PingResponseType}) {
			t.Errorf("ping%s: %+v", of, got)
		}
		info := &micro.Info{ServiceIdentity: id, Type: micro.InfoResponseType, Description: "a room", Endpoints: []micro.EndpointInfo{
			{Name: "BAD", Subject: "ROOM.BAD", Metadata: map[string]string{}}, {Name: "GOOD", Subject: "ROOM.GOOD", Metadata: map[string]string{}},
		}}
		if got := ask[micro.Info](t, nc, "$SRV.INFO"+of); !reflect.DeepEqual(got, info) {
			t.Errorf("info%s: %+v, wanted %+v", of, got, info)
		}
		stats := ask[micro.Stats](t, nc, "$SRV.STATS"+of)
		if stats == nil || stats.Type != micro.StatsResponseType || stats.Started.IsZero() || len(stats.Endpoints) != 2 {
			t.Fatalf("stats%s: %+v", of, stats)
		}
		if e := stats.Endpoints[0]; e.Name != "BAD" || e.NumRequests != 2 || e.NumErrors != 2 || e.LastError != "it is bad" {
			t.Errorf("stats%s: %+v", of, e)
		}
		if e := stats.Endpoints[1]; e.Name != "GOOD" || e.NumRequests != 3 || e.NumErrors != 0 {
			t.Errorf("stats%s: %+v", of, e)
		}
	}
	// Who asks for all means the services of users; and one that isn't there doesn't answer.
	for _, subject := range []string{"$SRV.PING", "$SRV.INFO", "$SRV.STATS", "$SRV.PING.other", "$SRV.PING.a-room.ID2"} {
		if got := ask[micro.Ping](t, nc, subject); got != nil {
			t.Errorf("%s is answered: %+v", subject, got)
		}
	}
	s.End(srv.GlobalAccount())
	if got := ask[micro.Ping](t, nc, "$SRV.PING.a-room"); got != nil {
		t.Errorf("answered after the end: %+v", got)
	}
}
