// Package raftwire is the layout of raft's RPCs between two replicas: a binary one,
// whose decoder makes no copies of entries.
package raftwire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/wire"
)

// Type says which RPC a request is.
type Type uint8

const (
	Append Type = iota + 1
	Vote
	PreVote
	TimeoutNow
	Install
)

// Envelope says for whom an RPC is.
type Envelope struct {
	ID     uint64 // of the question, on its connection
	Type   Type
	Group  uint32
	Target string // the replica it is meant for
	Token  uint64 // of Install: where its snapshot can be had
}

const (
	// copyMax is up to which length the data of an entry is copied rather than sent
	// from where it is.
	copyMax     = 1 << 10
	entryMin    = 8 + 8 + 1 + 8 + 4 + 4
	entriesMax  = 1 << 16
	requestRoom = 256
)

func (e Envelope) append(b []byte) []byte {
	b = append(wire.AppendUint(b, e.ID), byte(e.Type))
	b = binary.LittleEndian.AppendUint32(b, e.Group)
	return wire.AppendUint(wire.AppendString(b, e.Target), e.Token)
}

func appendHeader(b []byte, h raft.RPCHeader) []byte {
	b = append(b, byte(h.ProtocolVersion))
	return wire.AppendBytes(wire.AppendBytes(b, h.ID), h.Addr)
}

func header(f *wire.Fields) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(f.Byte()), ID: f.Bytes(), Addr: f.Bytes()}
}

// EncodeAppend returns the request in pieces; the data of large entries are among
// them as they are.
func EncodeAppend(e Envelope, r *raft.AppendEntriesRequest) [][]byte {
	e.Type = Append
	room := requestRoom
	for _, l := range r.Entries {
		room += entryMin + len(l.Extensions)
		if len(l.Data) <= copyMax {
			room += len(l.Data)
		}
	}
	b := appendHeader(e.append(make([]byte, 0, room)), r.RPCHeader)
	b = wire.AppendUint(b, r.Term)
	for _, v := range []uint64{r.PrevLogEntry, r.PrevLogTerm, r.LeaderCommitIndex} {
		b = wire.AppendUint(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Entries)))
	out := make([][]byte, 0, 2*len(r.Entries)+1)
	start := 0
	for _, l := range r.Entries {
		var at uint64
		if !l.AppendedAt.IsZero() {
			at = uint64(l.AppendedAt.UnixNano())
		}
		b = append(wire.AppendUint(wire.AppendUint(b, l.Index), l.Term), byte(l.Type))
		b = wire.AppendBytes(wire.AppendUint(b, at), l.Extensions)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Data)))
		if len(l.Data) <= copyMax {
			b = append(b, l.Data...)
			continue
		}
		out = append(out, b[start:len(b):len(b)], l.Data)
		start = len(b)
	}
	if start < len(b) {
		out = append(out, b[start:])
	}
	return out
}

// Encode returns any other request.
func Encode(e Envelope, command any) ([]byte, error) {
	b := make([]byte, 0, requestRoom)
	switch r := command.(type) {
	case *raft.RequestVoteRequest:
		e.Type = Vote
		b = wire.AppendUint(appendHeader(e.append(b), r.RPCHeader), r.Term)
		b = wire.AppendUint(wire.AppendUint(b, r.LastLogIndex), r.LastLogTerm)
		return append(b, flag(r.LeadershipTransfer)), nil
	case *raft.RequestPreVoteRequest:
		e.Type = PreVote
		b = wire.AppendUint(appendHeader(e.append(b), r.RPCHeader), r.Term)
		return wire.AppendUint(wire.AppendUint(b, r.LastLogIndex), r.LastLogTerm), nil
	case *raft.TimeoutNowRequest:
		e.Type = TimeoutNow
		return appendHeader(e.append(b), r.RPCHeader), nil
	case *raft.InstallSnapshotRequest:
		e.Type = Install
		b = append(appendHeader(e.append(b), r.RPCHeader), byte(r.SnapshotVersion))
		b = wire.AppendBytes(wire.AppendUint(b, r.Term), r.Leader)
		b = wire.AppendUint(wire.AppendUint(b, r.LastLogIndex), r.LastLogTerm)
		b = wire.AppendBytes(wire.AppendBytes(b, r.Peers), r.Configuration)
		return wire.AppendUint(wire.AppendUint(b, r.ConfigurationIndex), uint64(r.Size)), nil
	}
	return nil, fmt.Errorf("peer: no RPC of raft: %T", command)
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// DecodeEnvelope reads the beginning of a request.
func DecodeEnvelope(f *wire.Fields) Envelope {
	return Envelope{ID: f.Uint(), Type: Type(f.Byte()), Group: f.Uint32(), Target: f.String(), Token: f.Uint()}
}

// DecodeRequest reads the rest: one of raft's requests, by pointer. Entries alias
// what f reads.
func DecodeRequest(t Type, f *wire.Fields) (any, error) {
	var command any
	switch t {
	case Append:
		command = appendRequest(f)
	case Vote:
		command = &raft.RequestVoteRequest{
			RPCHeader: header(f), Term: f.Uint(),
			LastLogIndex: f.Uint(), LastLogTerm: f.Uint(), LeadershipTransfer: f.Byte() == 1,
		}
	case PreVote:
		command = &raft.RequestPreVoteRequest{RPCHeader: header(f), Term: f.Uint(), LastLogIndex: f.Uint(), LastLogTerm: f.Uint()}
	case TimeoutNow:
		command = &raft.TimeoutNowRequest{RPCHeader: header(f)}
	case Install:
		command = &raft.InstallSnapshotRequest{
			RPCHeader: header(f), SnapshotVersion: raft.SnapshotVersion(f.Byte()), Term: f.Uint(), Leader: f.Bytes(),
			LastLogIndex: f.Uint(), LastLogTerm: f.Uint(), Peers: f.Bytes(), Configuration: f.Bytes(),
			ConfigurationIndex: f.Uint(), Size: int64(f.Uint()),
		}
	default:
		return nil, fmt.Errorf("%w: RPC %d", wire.ErrFrame, t)
	}
	return command, f.Err()
}

func appendRequest(f *wire.Fields) *raft.AppendEntriesRequest {
	r := &raft.AppendEntriesRequest{
		RPCHeader: header(f), Term: f.Uint(),
		PrevLogEntry: f.Uint(), PrevLogTerm: f.Uint(), LeaderCommitIndex: f.Uint(),
	}
	n := int(f.Uint32())
	if n == 0 || n > entriesMax || n > f.Len()/entryMin {
		if n > 0 {
			f.Fail(fmt.Errorf("%w: %d entries in %d bytes", wire.ErrFrame, n, f.Len()))
		}
		return r
	}
	logs := make([]raft.Log, n)
	r.Entries = make([]*raft.Log, n)
	for i := range logs {
		l := &logs[i]
		l.Index, l.Term, l.Type = f.Uint(), f.Uint(), raft.LogType(f.Byte())
		if at := f.Uint(); at != 0 {
			l.AppendedAt = time.Unix(0, int64(at))
		}
		l.Extensions, l.Data = f.Bytes(), f.Bytes()
		r.Entries[i] = l
	}
	return r
}

// EncodeResponse returns what raft answered.
func EncodeResponse(response any) ([]byte, error) {
	b := make([]byte, 0, 96)
	switch r := response.(type) {
	case *raft.AppendEntriesResponse:
		b = wire.AppendUint(wire.AppendUint(appendHeader(b, r.RPCHeader), r.Term), r.LastLog)
		return append(b, flag(r.Success), flag(r.NoRetryBackoff)), nil
	case *raft.RequestVoteResponse:
		b = wire.AppendBytes(wire.AppendUint(appendHeader(b, r.RPCHeader), r.Term), r.Peers)
		return append(b, flag(r.Granted)), nil
	case *raft.RequestPreVoteResponse:
		return append(wire.AppendUint(appendHeader(b, r.RPCHeader), r.Term), flag(r.Granted)), nil
	case *raft.TimeoutNowResponse:
		return appendHeader(b, r.RPCHeader), nil
	case *raft.InstallSnapshotResponse:
		return append(wire.AppendUint(appendHeader(b, r.RPCHeader), r.Term), flag(r.Success)), nil
	}
	return nil, fmt.Errorf("peer: no answer of raft: %T", response)
}

// DecodeResponse reads an answer into one of raft's responses.
func DecodeResponse(b []byte, response any) error {
	f := wire.NewFields(b)
	switch r := response.(type) {
	case *raft.AppendEntriesResponse:
		*r = raft.AppendEntriesResponse{RPCHeader: header(f), Term: f.Uint(), LastLog: f.Uint(), Success: f.Byte() == 1, NoRetryBackoff: f.Byte() == 1}
	case *raft.RequestVoteResponse:
		*r = raft.RequestVoteResponse{RPCHeader: header(f), Term: f.Uint(), Peers: f.Bytes(), Granted: f.Byte() == 1}
	case *raft.RequestPreVoteResponse:
		*r = raft.RequestPreVoteResponse{RPCHeader: header(f), Term: f.Uint(), Granted: f.Byte() == 1}
	case *raft.TimeoutNowResponse:
		*r = raft.TimeoutNowResponse{RPCHeader: header(f)}
	case *raft.InstallSnapshotResponse:
		*r = raft.InstallSnapshotResponse{RPCHeader: header(f), Term: f.Uint(), Success: f.Byte() == 1}
	default:
		return fmt.Errorf("peer: no answer of raft: %T", response)
	}
	return f.Err()
}
