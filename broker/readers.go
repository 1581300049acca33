package broker

import (
	"sync"

	"github.com/heraldmq/herald/broker/advertise"
	"github.com/heraldmq/herald/operators/spec"
)

// readInputs are the inputs of operators that were asked about, by the digest of their
// spec, which never changes. What nobody runs any more is dropped when it gets many.
type readInputs struct {
	mu       sync.Mutex
	byDigest map[string][]readInput
}

type readInput struct {
	topic    string
	subjects []string // none: all of the topic
}

// readInputsMax bounds what is remembered.
const readInputsMax = 4096

func (c *readInputs) of(digest string, text []byte) []readInput {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in, known := c.byDigest[digest]; known {
		return in
	}
	if len(c.byDigest) >= readInputsMax || c.byDigest == nil {
		c.byDigest = map[string][]readInput{}
	}
	var in []readInput
	if s, err := spec.Parse("operator", text); err == nil {
		for i := range s.Inputs {
			in = append(in, readInput{s.Inputs[i].Topic.Text, s.Inputs[i].Subjects})
		}
	}
	c.byDigest[digest] = in
	return in
}

// readers are an account's operators by the subjects they read.
func (d *durable) readers(account string) (all []advertise.Reader) {
	for _, o := range d.state.Operators(account) {
		r := advertise.Reader{Name: o.Name}
		for _, in := range d.inputs.of(o.Digest, o.Spec) {
			patterns := in.subjects
			if t, ok := d.state.Topic(account, in.topic); ok && len(patterns) == 0 {
				patterns = t.Config().Subjects
			}
			r.Patterns = append(r.Patterns, patterns...)
		}
		all = append(all, r)
	}
	return all
}
