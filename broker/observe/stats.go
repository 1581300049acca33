package observe

import "time"

// Stats is what was counted, by one node or, merged, by several.
type Stats struct {
	Pattern string `json:"pattern"`

	Msgs    int64 `json:"msgs"` // since counting began
	Bytes   int64 `json:"bytes"`
	Msgs1m  int64 `json:"msgs_1m"`
	Bytes1m int64 `json:"bytes_1m"`
	Msgs1h  int64 `json:"msgs_1h"`
	Bytes1h int64 `json:"bytes_1h"`

	Last       time.Time `json:"last,omitzero"` // message
	Publishers int       `json:"publishers"`    // clients that published within five minutes
	// ManyPublishers: there were more than a node tells apart (1,024).
	ManyPublishers bool `json:"many_publishers,omitempty"`

	Checked1h int64 `json:"checked_1h"` // messages held against the schema
	Failed1h  int64 `json:"failed_1h"`

	ByKey     bool   `json:"by_key,omitempty"`    // Registers are of keys, else of subjects
	Registers []byte `json:"registers,omitempty"` // HyperLogLog
}

// Distinct estimates how many different keys, or subjects, there were (standard error
// 3.2 %).
func (s *Stats) Distinct() int64 { return estimate(s.Registers) }

// Merge adds what another node has counted of the same.
func (s *Stats) Merge(o *Stats) {
	s.Msgs += o.Msgs
	s.Bytes += o.Bytes
	s.Msgs1m += o.Msgs1m
	s.Bytes1m += o.Bytes1m
	s.Msgs1h += o.Msgs1h
	s.Bytes1h += o.Bytes1h
	s.Checked1h += o.Checked1h
	s.Failed1h += o.Failed1h
	s.Publishers += o.Publishers
	s.ManyPublishers = s.ManyPublishers || o.ManyPublishers
	s.ByKey = s.ByKey || o.ByKey
	if o.Last.After(s.Last) {
		s.Last = o.Last
	}
	s.Registers = mergeRegisters(s.Registers, o.Registers)
}
