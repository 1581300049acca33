package spec

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// createKeys are what an output may say of a topic that is made for it.
var createKeys = []string{
	"description", "discard", "duplicates", "max_age", "max_bytes", "max_msg_size", "max_msgs", "max_msgs_per_subject",
	"replicas", "retention", "storage", "subjects",
}

// create makes the config of the topic that is made where an output's doesn't exist; nil
// where none is to be made.
func (c *compiler) create(o *Output) *topics.Config {
	if o.Create.IsNull() {
		return nil
	}
	cfg := &topics.Config{
		Name: o.Topic.Text, Retention: topics.RetainLimits, Discard: topics.DiscardOld, Storage: topics.StoreFile,
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, Replicas: 1, AllowDirect: true,
		Subjects: []string{subjectPattern(o)},
	}
	for i := range o.Create.Len() {
		c.createKey(o, cfg, o.Create.Field(i))
	}
	return cfg
}

func (c *compiler) createKey(o *Output, cfg *topics.Config, f value.Field) {
	bad := func(want string) {
		c.problem(o.At, "create of output %s: %s is %s, not %s", o.Topic.Text, f.Name, want, value.AppendJSON(nil, f.Value))
	}
	number := func() int64 {
		n, ok := f.Value.Int()
		if m := sizeText.FindStringSubmatch(f.Value.Str()); m != nil && f.Value.Kind() == value.String {
			if n, ok = parseSize(m); !ok {
				n = -1
			}
		}
		if !ok || n < 1 {
			bad("a number from 1, or a size like 256MiB")
		}
		return n
	}
	choice := func(known ...string) string {
		s := f.Value.Str()
		for _, k := range known {
			if s == k {
				return s
			}
		}
		bad(listed(known))
		return known[0]
	}
	age := func() time.Duration {
		d, err := ParseDuration(f.Value.Str())
		if err != nil || d <= 0 {
			bad("a duration like 10s, 5m, 1h or 7d")
		}
		return d
	}
	switch f.Name {
	case "description":
		cfg.Description = f.Value.Str()
	case "discard":
		cfg.Discard = topics.Discard(choice(string(topics.DiscardOld), string(topics.DiscardNew)))
	case "duplicates":
		cfg.Duplicates = age()
	case "max_age":
		cfg.MaxAge = age()
	case "max_bytes":
		cfg.MaxBytes = number()
	case "max_msg_size":
		cfg.MaxMsgSize = int32(min(number(), 1<<30))
	case "max_msgs":
		cfg.MaxMsgs = number()
	case "max_msgs_per_subject":
		cfg.MaxMsgsPer = number()
	case "replicas":
		cfg.Replicas = int(min(number(), 1<<20))
	case "retention":
		cfg.Retention = topics.Retention(choice(string(topics.RetainLimits), string(topics.RetainInterest), string(topics.RetainWorkQueue)))
	case "storage":
		cfg.Storage = topics.Storage(choice(string(topics.StoreFile), string(topics.StoreMemory)))
	case "subjects":
		cfg.Subjects = nil
		for _, s := range f.Value.List() {
			cfg.Subjects = append(cfg.Subjects, s.Str())
		}
		if len(cfg.Subjects) == 0 {
			bad("a list of subjects")
		}
	default:
		c.problem(o.At, "create of output %s: %s is not known%s; there are %s", o.Topic.Text, f.Name, meant(f.Name, createKeys), listed(createKeys))
	}
}

func parseSize(m []string) (int64, bool) {
	v, err := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]int{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[m[2]]
	return v << shift, err == nil && v <= 1<<62>>shift
}

var filled = regexp.MustCompile(`\{[^{}]*\}`)

// subjectPattern is the subjects that an output publishes on: each token with a field in it
// may be any.
func subjectPattern(o *Output) string {
	if !o.Subject.Set() {
		return o.Topic.Text
	}
	tokens := strings.Split(filled.ReplaceAllString(o.Subject.Text, "\x00"), ".")
	for i, t := range tokens {
		if strings.Contains(t, "\x00") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}
