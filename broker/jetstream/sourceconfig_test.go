package jetstream

import (
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestStreamsMayNotFeedThemselves: also when what comes round has been mirrored or
// sourced on the way, or would come by two ways.
func TestStreamsMayNotFeedThemselves(t *testing.T) {
	source := func(name, filter string) *topics.StreamSource {
		return &topics.StreamSource{Name: name, FilterSubject: filter}
	}
	streams := map[string]*topics.Config{
		"O":  {Name: "O", Subjects: []string{"o.>"}},
		"M":  {Name: "M", Mirror: source("O", "")},
		"S":  {Name: "S", Subjects: []string{"s.>"}, Sources: []*topics.StreamSource{source("X1", "s.a")}},
		"S2": {Name: "S2", Subjects: []string{"s2.>"}, Sources: []*topics.StreamSource{source("X1", "elsewhere")}},
		"F":  {Name: "F", Sources: []*topics.StreamSource{{Name: "X1", External: &topics.ExternalStream{API: "far"}}}},
	}
	env := testEnvironment()
	env.stream = func(name string) *topics.Config { return streams[name] }
	for _, tt := range []struct {
		config string
		ok     bool
	}{
		{`{"sources":[{"name":"O"}]}`, true},
		{`{"sources":[{"name":"M"}]}`, true},
		{`{"sources":[{"name":"O"},{"name":"M"}]}`, false},
		{`{"sources":[{"name":"S"}]}`, false},
		{`{"sources":[{"name":"S2"}]}`, true},
		{`{"sources":[{"name":"F"}]}`, true},
		{`{"mirror":{"name":"M"}}`, true},
		{`{"mirror":{"name":"S"}}`, false},
		{`{"sources":[{"name":"UNKNOWN"}]}`, true},
	} {
		r := parseStream(t, tt.config)
		r.Name = "X1"
		code := uint16(10052)
		if tt.ok {
			code = 0
		}
		expectFault(t, tt.config, completeStream(&r.Config, env, false), code, "detected cycle")
	}
}
