package raftwire

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/wire"
)

var head = raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a/1"), Addr: []byte("a")}

func requests() map[Type]any {
	return map[Type]any{
		Append: &raft.AppendEntriesRequest{RPCHeader: head, Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 6, Entries: []*raft.Log{
			{Index: 8, Term: 3, Type: raft.LogCommand, Data: []byte("small"), Extensions: []byte("x")},
			{Index: 9, Term: 3, Type: raft.LogCommand, Data: bytes.Repeat([]byte("large"), 10_000), AppendedAt: time.Unix(5, 6)},
			{Index: 10, Term: 3, Type: raft.LogNoop},
		}},
		Vote:       &raft.RequestVoteRequest{RPCHeader: head, Term: 3, LastLogIndex: 4, LastLogTerm: 2, LeadershipTransfer: true},
		PreVote:    &raft.RequestPreVoteRequest{RPCHeader: head, Term: 3, LastLogIndex: 4, LastLogTerm: 2},
		TimeoutNow: &raft.TimeoutNowRequest{RPCHeader: head},
		Install:    &raft.InstallSnapshotRequest{RPCHeader: head, SnapshotVersion: 1, Term: 3, Leader: []byte("a"), LastLogIndex: 4, LastLogTerm: 2, Configuration: []byte("c"), ConfigurationIndex: 1, Size: 99},
	}
}

func encode(t testing.TB, e Envelope, command any) []byte {
	t.Helper()
	if r, ok := command.(*raft.AppendEntriesRequest); ok {
		return bytes.Join(EncodeAppend(e, r), nil)
	}
	b, err := Encode(e, command)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRequestsArriveAsTheyWere(t *testing.T) {
	for typ, want := range requests() {
		e := Envelope{ID: 1, Type: typ, Group: 2, Target: "b/2", Token: 9}
		f := wire.NewFields(encode(t, e, want))
		if got := DecodeEnvelope(f); got != e {
			t.Errorf("%+v", got)
		}
		got, err := DecodeRequest(typ, f)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n%+v\n%+v", err, got, want)
		}
	}
}

func TestAnswersArriveAsTheyWere(t *testing.T) {
	for _, want := range []any{
		&raft.AppendEntriesResponse{RPCHeader: head, Term: 1, LastLog: 2, Success: true, NoRetryBackoff: true},
		&raft.RequestVoteResponse{RPCHeader: head, Term: 1, Granted: true},
		&raft.RequestPreVoteResponse{RPCHeader: head, Term: 1, Granted: true},
		&raft.TimeoutNowResponse{RPCHeader: head},
		&raft.InstallSnapshotResponse{RPCHeader: head, Term: 1, Success: true},
	} {
		b, err := EncodeResponse(want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := DecodeResponse(b, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n%+v\n%+v", err, got, want)
		}
		if err := DecodeResponse(b[:len(b)-1], got); err == nil {
			t.Errorf("%T: half an answer is taken", want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for typ, r := range requests() {
		f.Add(encode(f, Envelope{Type: typ, Target: "b/2"}, r))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		x := wire.NewFields(in)
		e := DecodeEnvelope(x)
		command, err := DecodeRequest(e.Type, x)
		if err != nil {
			return
		}
		// What was read is written back so that it is read as the same again.
		x = wire.NewFields(encode(t, e, command))
		e2 := DecodeEnvelope(x)
		again, err := DecodeRequest(e2.Type, x)
		if err != nil || e2 != e || !reflect.DeepEqual(again, command) {
			t.Fatalf("%v\n%+v\n%+v", err, command, again)
		}
	})
}

func FuzzResponse(f *testing.F) {
	b, _ := EncodeResponse(&raft.AppendEntriesResponse{RPCHeader: head, Term: 1})
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, r := range []any{&raft.AppendEntriesResponse{}, &raft.RequestVoteResponse{}, &raft.InstallSnapshotResponse{}} {
			_ = DecodeResponse(in, r)
		}
	})
}
