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
	if err := r.api.s.freshCatalogue(); err != nil {
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
	if err := r.api.s.freshCatalogue(); err != nil {
		return nil, err
	}
	all := r.api.streams(req.Subject)
	page, from, to := jsapi.Window(len(all), req.Offset, jsapi.ListLimit)
	reply := &jsapi.StreamListReply{Reply: r.head(), Page: page, Streams: []*jsapi.StreamInfo{}}
	if r.api.s.clustered() {
		infos, missing := r.api.s.gather(all[from:to])
		reply.Streams, reply.Missing = append(reply.Streams, infos...), missing
		return reply, nil
	}
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
	if r.api.s.clustered() {
		return r.clusterAccountInfo(limits)
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

// clusterAccountInfo gathers what the nodes know.
func (r *request) clusterAccountInfo(limits *jsapi.AccountLimits) (any, error) {
	s := r.api.s
	if err := s.freshCatalogue(); err != nil {
		return nil, err
	}
	all := s.usage(r.api.name)
	all.API.Inflight = max(all.API.Inflight, 1) - 1
	all.Usage.Streams = len(r.api.streams("")) // also those whose leader didn't answer
	return &jsapi.AccountInfoReply{Reply: r.head(), AccountInfo: &jsapi.AccountInfo{
		Usage: all.Usage, Limits: *limits, Domain: s.o.Domain, API: all.API,
	}}, nil
}
