package jetstream

import (
	"slices"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics/subject"
)

// streams returns the account's streams that capture a subject of pattern ("" is
// all), by name.
func (a *accountAPI) streams(pattern string) []*state.Topic {
	var out []*state.Topic
	a.s.o.State.Topics(a.name, func(t *state.Topic) bool {
		if pattern == "" || slices.ContainsFunc(t.Config().Subjects, func(s string) bool {
			return subject.Overlap(s, pattern)
		}) {
			out = append(out, t)
		}
		return true
	})
	return out
}

func (r *request) streamNames() (any, error) {
	var req jsapi.StreamListRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	all := r.api.streams(req.Subject)
	page, from, to := jsapi.Window(len(all), req.Offset, jsapi.NamesLimit)
	reply := &jsapi.StreamNamesReply{Reply: r.head(), Page: page}
	for _, t := range all[from:to] {
		reply.Streams = append(reply.Streams, t.Name())
	}
	return reply, nil
}

func (r *request) streamList() (any, error) {
	var req jsapi.StreamListRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	all := r.api.streams(req.Subject)
	page, from, to := jsapi.Window(len(all), req.Offset, jsapi.ListLimit)
	reply := &jsapi.StreamListReply{Reply: r.head(), Page: page, Streams: []*jsapi.StreamInfo{}}
	for _, t := range all[from:to] {
		info := r.api.s.summary(t)
		info.Cluster = r.api.s.cluster(t)
		reply.Streams = append(reply.Streams, info)
	}
	return reply, nil
}

func (r *request) accountInfo() (any, error) {
	limits := r.api.limits.Load()
	if limits == nil {
		return nil, jsapi.ErrNotEnabledForAccount
	}
	u := r.api.s.o.State.Usage(r.api.name)
	stats := r.api.stats()
	stats.Inflight-- // this request is none of those that are asked about
	return &jsapi.AccountInfoReply{Reply: r.head(), AccountInfo: &jsapi.AccountInfo{
		Usage: jsapi.Usage{
			Memory: u.MemoryBytes, Storage: u.FileBytes,
			ReservedMemory: uint64(max(u.MemoryReserved, 0)), ReservedStorage: uint64(max(u.FileReserved, 0)),
			Streams: u.Topics, Consumers: u.Consumers,
		},
		Limits: *limits, Domain: r.api.s.o.Domain, API: stats,
	}}, nil
}
