package jetstream

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
	"github.com/heraldmq/herald/topics/transform"
)

// A sourceKind words the faults of a mirror or of a source.
type sourceKind struct {
	word            string
	name            *topics.Fault
	multipleFilters *topics.Fault
	overlapping     *topics.Fault
	consumer        *topics.Fault
	filter          func(string) *topics.Fault
	transform       func(string) *topics.Fault
}

var (
	mirrorKind = sourceKind{
		word: "mirror", name: jsapi.ErrMirrorStreamName,
		multipleFilters: jsapi.ErrMirrorMultipleFilters, overlapping: jsapi.ErrMirrorOverlappingFilters,
		consumer: jsapi.ErrMirrorConsumer, filter: jsapi.MirrorFilter, transform: jsapi.MirrorTransform,
	}
	originKind = sourceKind{
		word: "source", name: jsapi.ErrSourceStreamName,
		multipleFilters: jsapi.ErrSourceMultipleFilters, overlapping: jsapi.ErrSourceOverlappingFilters,
		consumer: jsapi.ErrSourceConsumer, filter: jsapi.SourceFilter, transform: jsapi.SourceTransform,
	}
)

func streamMirror(c *topics.Config, env *environment, _ bool) *topics.Fault {
	m := c.Mirror
	if m == nil {
		return nil
	}
	switch {
	case len(c.Subjects) > 0:
		return jsapi.ErrMirrorWithSubjects
	case len(c.Sources) > 0:
		return jsapi.ErrMirrorWithSources
	case c.FirstSeq > 0:
		return jsapi.ErrMirrorFirstSeq
	case c.AllowAtomic:
		return jsapi.ErrMirrorAtomic
	case c.AllowBatched:
		return jsapi.ErrMirrorBatched
	case m.Name == c.Name && m.External == nil:
		return badConfig("detected cycle")
	case m.OptStartSeq > 0 && m.OptStartTime != nil:
		return jsapi.ErrMirrorStartSeqAndTime
	}
	return checkSource(m, &mirrorKind, env)
}

func streamSources(c *topics.Config, env *environment, _ bool) *topics.Fault {
	seen := make(map[string]bool, len(c.Sources))
	consumers := make(map[string]bool, len(c.Sources))
	for _, s := range c.Sources {
		if s == nil {
			return jsapi.ErrSourceStreamName
		}
		if s.Name == c.Name && s.External == nil {
			return badConfig("detected cycle")
		}
		if f := checkSource(s, &originKind, env); f != nil {
			return f
		}
		key, _ := json.Marshal([]any{s.Name, s.FilterSubject, s.SubjectTransforms, s.External})
		if seen[string(key)] {
			return jsapi.ErrSourceDuplicate
		}
		seen[string(key)] = true
		if s.Consumer != nil {
			if consumers[s.Name+"\x00"+s.Consumer.Name] {
				return jsapi.ErrSourceConsumerDuplicate
			}
			consumers[s.Name+"\x00"+s.Consumer.Name] = true
		}
	}
	return nil
}

// streamCycle refuses a stream that could get a message by two ways, or its own
// again: it follows mirrors and sources through the account's streams.
func streamCycle(c *topics.Config, env *environment, _ bool) *topics.Fault {
	if env.stream == nil || c.Mirror == nil && len(c.Sources) == 0 {
		return nil
	}
	visited := map[string]bool{}
	for todo := []*topics.Config{c}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		visited[at.Name] = true
		follow := func(s *topics.StreamSource, closes bool) bool {
			switch {
			case s == nil || s.External != nil:
			case visited[s.Name]:
				return !closes
			default:
				if next := env.stream(s.Name); next != nil {
					todo = append(todo, next)
				}
			}
			return true
		}
		for _, s := range at.Sources {
			if !follow(s, overlapsAny(at.Subjects, s.FilterSubject)) {
				return badConfig("detected cycle")
			}
		}
		if !follow(at.Mirror, true) {
			return badConfig("detected cycle")
		}
	}
	return nil
}

// overlapsAny tells whether a filter may let through what subjects capture; no
// filter lets everything through.
func overlapsAny(subjects []string, filter string) bool {
	return filter == "" || slices.ContainsFunc(subjects, func(s string) bool { return subject.Overlap(s, filter) })
}

func checkSource(s *topics.StreamSource, kind *sourceKind, env *environment) *topics.Fault {
	if checkStreamName(s.Name) != nil {
		return kind.name
	}
	if s.FilterSubject != "" {
		if len(s.SubjectTransforms) > 0 {
			return kind.multipleFilters
		}
		if !subject.Valid(s.FilterSubject) {
			colon := ":"
			if kind == &mirrorKind {
				colon = ""
			}
			return jsapi.StreamCreate("subject filter '" + s.FilterSubject + "' for the " + kind.word + colon + " invalid subject")
		}
	}
	for i, t := range s.SubjectTransforms {
		if t.Source != "" && !subject.Valid(t.Source) {
			return kind.filter("invalid subject " + t.Source)
		}
		if _, err := transform.New(t.Source, t.Destination); err != nil {
			return kind.transform(err.Error())
		}
		for _, o := range s.SubjectTransforms[:i] {
			if subject.Overlap(orAll(o.Source), orAll(t.Source)) {
				return kind.overlapping
			}
		}
	}
	if f := checkExternal(s.External, env); f != nil {
		return f
	}
	if s.Consumer != nil && (checkConsumerName(s.Consumer.Name) != nil ||
		!subject.ValidLiteral(s.Consumer.DeliverSubject)) {
		return kind.consumer
	}
	return nil
}

func checkExternal(e *topics.ExternalStream, env *environment) *topics.Fault {
	if e == nil {
		return nil
	}
	for _, p := range env.apiPrefixes {
		if e.API == p {
			return jsapi.ExternalAPIOverlap(e.API, p)
		}
	}
	if e.Deliver != "" && strings.ContainsAny(e.Deliver, "*>") {
		return jsapi.ExternalDeliverWildcards(e.Deliver)
	}
	return nil
}

func orAll(pattern string) string {
	if pattern == "" {
		return ">"
	}
	return pattern
}
