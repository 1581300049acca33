package consumer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
)

// A config is kept encoded: decoded it takes 600 bytes, most of them zero, and
// is asked for only by the API.
//
//	config  (field number, value)… for every field that isn't zero
//	value   string: length, bytes · list of strings: count, strings ·
//	        number: z varint · list of numbers: count, z varints · bool: nothing ·
//	        time: z seconds since 1970, nanoseconds · map: count, strings in pairs
//
// configFields gives the numbers, from 1. Append only: they are a format.
var configFields = []string{
	"Durable", "Name", "Description", "DeliverPolicy", "OptStartSeq", "OptStartTime", "AckPolicy", "AckWait",
	"MaxDeliver", "BackOff", "FilterSubject", "FilterSubjects", "ReplayPolicy", "RateLimit", "SampleFrequency",
	"MaxWaiting", "MaxAckPending", "FlowControl", "HeadersOnly", "MaxRequestBatch", "MaxRequestExpires",
	"MaxRequestMaxBytes", "DeliverSubject", "DeliverGroup", "Heartbeat", "InactiveThreshold", "Replicas",
	"MemoryStorage", "Direct", "Sourcing", "Metadata", "PauseUntil", "PriorityGroups", "PriorityPolicy",
	"PriorityTimeout",
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// appendConfig appends cfg. Equal configs give equal bytes.
func appendConfig(dst []byte, cfg *topics.ConsumerConfig) []byte {
	v := reflect.ValueOf(cfg).Elem()
	for i, at := range configPlaces {
		f := v.Field(at)
		if f.IsZero() || (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0 {
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(i+1))
		switch x := f.Interface().(type) {
		case bool:
		case uint64:
			dst = binary.AppendVarint(dst, int64(x))
		case []string:
			dst = binary.AppendUvarint(dst, uint64(len(x)))
			for _, s := range x {
				dst = appendString(dst, s)
			}
		case []time.Duration:
			dst = binary.AppendUvarint(dst, uint64(len(x)))
			for _, d := range x {
				dst = binary.AppendVarint(dst, int64(d))
			}
		case *time.Time:
			dst = binary.AppendVarint(dst, x.Unix())
			dst = binary.AppendUvarint(dst, uint64(x.Nanosecond()))
		case map[string]string:
			dst = binary.AppendUvarint(dst, uint64(len(x)))
			for _, k := range slices.Sorted(maps.Keys(x)) {
				dst = appendString(appendString(dst, k), x[k])
			}
		default:
			if f.CanInt() {
				dst = binary.AppendVarint(dst, f.Int())
			} else {
				dst = appendString(dst, f.String())
			}
		}
	}
	return dst
}

// configPlaces says where in the struct each of configFields is: looking that up by
// name takes most of the time of reading a config, and a start reads all of them.
var configPlaces = func() []int {
	places := make([]int, len(configFields))
	t := reflect.TypeFor[topics.ConsumerConfig]()
	for i, name := range configFields {
		f, ok := t.FieldByName(name)
		if !ok || len(f.Index) != 1 {
			panic("topics.ConsumerConfig has no field " + name)
		}
		places[i] = f.Index[0]
	}
	return places
}()

// parseConfig reads what appendConfig wrote.
func parseConfig(data string) (cfg topics.ConsumerConfig, err error) {
	p := parser{b: []byte(data)}
	v := reflect.ValueOf(&cfg).Elem()
	for len(p.b) > 0 {
		n := p.uvarint("config field")
		if p.err == nil && (n == 0 || n > uint64(len(configFields))) {
			return cfg, fmt.Errorf("%w: config field %d is unknown, was it written by a newer version?", ErrBadRecord, n)
		}
		if p.err != nil {
			return cfg, p.err
		}
		parseField(&p, v.Field(configPlaces[n-1]))
	}
	return cfg, p.err
}

func parseField(p *parser, f reflect.Value) {
	const what = "config value"
	switch f.Interface().(type) {
	case bool:
		f.SetBool(true)
	case uint64:
		f.SetUint(uint64(p.varint(what)))
	case []string:
		var list []string
		for range p.uvarint(what) {
			if list = append(list, string(p.bytes(what))); p.err != nil {
				return
			}
		}
		f.Set(reflect.ValueOf(list))
	case []time.Duration:
		var list []time.Duration
		for range p.uvarint(what) {
			if list = append(list, time.Duration(p.varint(what))); p.err != nil {
				return
			}
		}
		f.Set(reflect.ValueOf(list))
	case *time.Time:
		sec, nsec := p.varint(what), p.uvarint(what)
		if nsec >= uint64(time.Second) {
			p.fail(what)
			return
		}
		t := time.Unix(sec, int64(nsec)).UTC()
		f.Set(reflect.ValueOf(&t))
	case map[string]string:
		m := map[string]string{}
		for range p.uvarint(what) {
			k := string(p.bytes(what))
			if m[k] = string(p.bytes(what)); p.err != nil {
				return
			}
		}
		f.Set(reflect.ValueOf(m))
	default:
		if f.CanInt() {
			f.SetInt(p.varint(what))
		} else {
			f.SetString(string(p.bytes(what)))
		}
	}
}

// AppendConfig appends a config as logs have it. Equal configs give equal bytes.
func AppendConfig(dst []byte, cfg *topics.ConsumerConfig) []byte {
	return appendConfig(append(dst, configVersion), cfg)
}

// configVersion is what a config in a log begins with. In versions before it was JSON, which
// begins with a brace.
const configVersion = 1

// ParseConfig reads what AppendConfig wrote, also in versions before. An error is
// ErrBadRecord.
func ParseConfig(b []byte) (cfg topics.ConsumerConfig, err error) {
	switch {
	case len(b) > 0 && b[0] == '{':
		if err := json.Unmarshal(b, &cfg); err != nil {
			return cfg, fmt.Errorf("%w: config: %w", ErrBadRecord, err)
		}
		return cfg, nil
	case len(b) == 0 || b[0] != configVersion:
		return cfg, fmt.Errorf("%w: a config of version %v, was it written by a newer version?", ErrBadRecord, b[:min(len(b), 1)])
	}
	return parseConfig(string(b[1:]))
}

// AsMade tells whether the consumer's config is still the one given.
func (c *Consumer) AsMade(cfg topics.ConsumerConfig) bool {
	return string(appendConfig(nil, &cfg)) == c.config
}
