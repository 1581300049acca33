package jetstream

import "github.com/heraldmq/herald/broker/jsapi"

// snapshot and restore refuse backups: the archive format isn't written yet.

func (r *request) snapshot() (any, error) {
	if _, err := r.topic(); err != nil {
		return nil, err
	}
	return nil, jsapi.StreamSnapshot("not supported by this server")
}

func (r *request) restore() (any, error) {
	if _, ok := r.api.topic(r.stream); ok {
		return nil, jsapi.ErrStreamNameRestoreExist
	}
	return nil, jsapi.StreamRestore("not supported by this server")
}
