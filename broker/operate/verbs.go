package operate

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Request is the body of every request.
type Request struct {
	Name  string `json:"name,omitempty"`
	Spec  string `json:"spec,omitempty"`  // DEPLOY, UPDATE: the YAML file
	File  string `json:"file,omitempty"`  // DEPLOY, UPDATE: its name, for what is wrong with it
	Reset bool   `json:"reset,omitempty"` // UPDATE: begin with no state
	Dry   bool   `json:"dry_run,omitempty"`
	Skip  bool   `json:"skip,omitempty"` // RESUME: pass the record over in front of which it stopped
	Key   string `json:"key,omitempty"`  // STATE: only keys that contain it
	Limit int    `json:"limit,omitempty"`
	// Savepoint is a savepoint's name: of the operator, or OPERATOR/NAME. DEPLOY, UPDATE
	// and RESTORE begin with its state.
	Savepoint string `json:"savepoint,omitempty"`
	Shadow    bool   `json:"shadow,omitempty"` // UPDATE: run it beside the operator, without outputs
	// Partitions is how many instances RESCALE gives it.
	Partitions int `json:"partitions,omitempty"`

	may        func(subject string) bool                 // nil: anything
	advertises func(pattern string, publishes bool) bool // likewise
}

func (s *service) verbs() map[string]handler {
	read := func(f func(ctx context.Context, account string, r *Request) (any, error)) handler {
		return func(ctx context.Context, account string, body []byte, c *front.ClientInfo) (any, error) {
			r := Request{may: c.MayPublish, advertises: c.MayAdvertise}
			if len(body) > 0 {
				if err := json.Unmarshal(body, &r); err != nil {
					return nil, refuse(400, "request body: %v", err)
				}
			}
			return f(ctx, account, &r)
		}
	}
	return map[string]handler{
		"DEPLOY": read(s.deploy), "UPDATE": read(s.update), "LIST": read(s.list), "INFO": read(s.info), "GRAPH": read(s.graph),
		"PAUSE": read(s.pause), "RESUME": read(s.resume), "REMOVE": read(s.remove), "RESCALE": read(s.rescale), "CANCEL": read(s.cancel), "LOGS": read(s.logs), "STATE": read(s.state),
		"SAVEPOINT.CREATE": read(s.savepointCreate), "SAVEPOINT.LIST": read(s.savepointList), "SAVEPOINT.INFO": read(s.savepointInfo),
		"SAVEPOINT.REMOVE": read(s.savepointRemove), "RESTORE": read(s.restore), "PROMOTE": read(s.promote), "DISCARD": read(s.discard),
	}
}

// Deployed is the answer to DEPLOY and UPDATE. Steps says what becomes of the state of
// each step: new, kept or dropped.
type Deployed struct {
	Operator *catalogue.Operator `json:"operator"`
	Created  bool                `json:"created,omitempty"`
	Steps    map[string]string   `json:"steps,omitempty"`
}

// fileless begins each line of what is wrong with a spec (Options.Compile).
var fileless = regexp.MustCompile(`(?m)^operator(:\d+:\d+: )`)

// wrongIn is what is wrong with a spec, by line and column of the file it was in.
func wrongIn(file string, err error) string {
	if file == "" {
		return err.Error()
	}
	return fileless.ReplaceAllString(err.Error(), strings.ReplaceAll(file, "$", "$$")+"$1")
}

// plan checks a spec against what there is, and says where the operator lives.
func (s *service) plan(ctx context.Context, account string, r *Request, ids map[string]uint16) (*graph.Graph, *catalogue.Operator, error) {
	g, err := s.e.o.Compile(account, []byte(r.Spec), ids)
	if err != nil {
		return nil, nil, refuse(400, "%s", wrongIn(r.File, err))
	}
	o := &catalogue.Operator{
		Account: account, Name: g.Name, Version: g.Version, Spec: g.JSON, Digest: hex.EncodeToString(g.Digest[:]),
		Epoch: 1, State: catalogue.Running, Revision: 1, IDs: map[string]uint16{},
	}
	for i := range g.Nodes {
		o.IDs[g.Nodes[i].Name] = g.Nodes[i].ID
	}
	st := s.e.state
	for i := range g.Inputs {
		in := &g.Inputs[i]
		t, ok := st.Topic(account, in.Topic)
		if !ok {
			return nil, nil, refuse(404, "input %s: there is no topic %s: an operator reads what is kept; make the topic first (pubsub topic add %s …)", in.Name, in.Topic, in.Topic)
		}
		o.Starts, o.Inputs = append(o.Starts, s.begins(t, in)), append(o.Inputs, t.ID())
		if o.Group == 0 {
			o.Group = t.Group().ID()
		}
	}
	if err := keepable(st, account, g); err != nil {
		return nil, nil, err
	}
	first := ""
	for i := range g.Sinks {
		name := g.Sinks[i].Topic
		if name == "" {
			continue
		}
		t, err := s.output(ctx, account, r, &g.Sinks[i])
		if err != nil {
			return nil, nil, err
		}
		if t == nil {
			continue // a dry run makes none
		}
		if first == "" {
			first, o.Group = name, t.Group().ID()
		}
	}
	o.Groups = s.e.spread(o.Group, g.Partitions)
	o.Unadvertised, err = s.mayAdvertise(account, r, g)
	return g, o, err
}

// output returns the topic of an output, which is made where the spec says how.
func (s *service) output(ctx context.Context, account string, r *Request, sink *graph.Sink) (*state.Topic, error) {
	if t, ok := s.e.state.Topic(account, sink.Topic); ok {
		return t, nil
	}
	if sink.Create == nil {
		return nil, refuse(404, "output %s: there is no topic %s; make it first (pubsub topic add %s …), or say with create: {…} how it is made", sink.Name, sink.Topic, sink.Topic)
	}
	if want := "$JS.API.STREAM.CREATE." + sink.Topic; r.may != nil && !r.may(want) {
		return nil, refuse(403, "output %s: to make the topic %s takes the permission to publish to %s", sink.Name, sink.Topic, want)
	}
	if r.Dry {
		return nil, nil
	}
	t, err := s.e.o.Create(ctx, account, *sink.Create)
	if err != nil {
		return nil, fmt.Errorf("make the topic %s of output %s: %w", sink.Topic, sink.Name, err)
	}
	s.e.o.Log.Info("Topic made for an operator", "topic", sink.Topic, "account", account, "group", t.Group().ID())
	return t, nil
}

// begins is behind which sequence an input begins.
func (s *service) begins(t *state.Topic, in *graph.Input) topics.Sequence {
	data := t.Data()
	switch f := in.From; {
	case f.Sequence > 0:
		return f.Sequence - 1
	case data == nil:
		return 0
	case f.New:
		_, last := data.Bounds()
		return last
	case f.Time != 0:
		return max(data.SequenceAt(topics.Nanos(f.Time)), 1) - 1
	}
	return 0
}

func (s *service) deploy(ctx context.Context, account string, r *Request) (any, error) {
	_, o, err := s.plan(ctx, account, r, nil)
	if err != nil {
		return nil, err
	}
	if old := s.e.state.Operator(account, o.Name); old != nil {
		if old.Digest == o.Digest {
			return Deployed{Operator: old}, nil
		}
		return nil, refuse(409, "operator %s is deployed already, with another spec: update it", o.Name)
	}
	d := Deployed{Operator: o, Created: true}
	if r.Savepoint != "" {
		if o, d.Steps, err = s.withSavepoint(ctx, account, r, nil); err != nil {
			return nil, err
		}
		d.Operator = o
	}
	if r.Dry {
		return d, nil
	}
	put, err := s.e.state.PutOperator(ctx, o)
	if err != nil {
		return nil, err
	}
	s.e.o.Log.Info("Operator deployed", "operator", put.Name, "account", account, "id", put.ID)
	d.Operator = put
	return d, nil
}

func (s *service) update(ctx context.Context, account string, r *Request) (any, error) {
	if r.Shadow {
		return s.shadowed(ctx, account, r)
	}
	_, o, err := s.plan(ctx, account, r, nil)
	if err != nil {
		return nil, err
	}
	old := s.e.state.Operator(account, o.Name)
	if old == nil {
		return nil, catalogue.FaultNoOperator
	}
	if r.Savepoint != "" {
		return s.putSavepoint(ctx, account, r, old)
	}
	g, o, err := s.plan(ctx, account, r, old.IDs)
	if err != nil {
		return nil, err
	}
	if old.Next != nil {
		return nil, refuse(409, "its instances are being replaced; try again in a moment")
	}
	rescales := len(old.Homes()) != max(g.Partitions, 1)
	if rescales && r.Reset {
		return nil, refuse(400, "it has %d partitions and is to have %d: rescale it first (pubsub operator rescale %s %d), then reset it", len(old.Homes()), max(g.Partitions, 1), o.Name, max(g.Partitions, 1))
	}
	o.Lives(old)
	o.Epoch, o.Revision = old.Epoch+1, old.Revision+1
	if r.Reset && s.lost(ctx, old) {
		o.Outbox = o.Epoch
	}
	d := Deployed{Operator: o, Steps: map[string]string{}}
	for i := range g.Nodes {
		if !g.Nodes[i].Stateless() {
			d.Steps[g.Nodes[i].Name] = stepNew
		}
	}
	if !r.Reset {
		was, err := s.e.o.Compile(account, old.Spec, old.IDs)
		if err != nil {
			return nil, refuse(400, "what is deployed can't be compiled any more (%v): its state can't be kept", err)
		}
		if err := sameInputs(was, g); err != nil {
			return nil, err
		}
		if forgetful(was) && !forgetful(g) {
			return nil, refuse(400, "with recovery %s its state is nowhere but where it runs, which is not enough for recovery %s: update it with reset, and it begins anew", was.Recovery, g.Recovery)
		}
		o.Starts, o.From = old.Starts, old.From
		if fresh := otherTopics(old, o.Inputs); len(fresh) > 0 {
			if rescales {
				return nil, refuse(400, "input %s is another topic than before: resume it, or update it with as many partitions as it has, first", g.Inputs[fresh[0]].Name)
			}
			o.Renew(fresh)
		}
		if o.Kept, d.Steps = fits(was, g); old.Skip != nil && !slices.Contains(otherTopics(old, o.Inputs), old.Skip.Input) {
			o.Skip = old.Skip // what was passed over has perhaps not been passed yet
		}
	}
	if rescales {
		c := s.e.replaced(old, old.Group, max(g.Partitions, 1))
		c.Next.Version, c.Next.Spec, c.Next.Digest, c.Next.IDs, c.Next.Kept, c.Next.Shadow = o.Version, o.Spec, o.Digest, o.IDs, o.Kept, nil
		c.Unadvertised = o.Unadvertised
		o = c
	}
	if d.Operator = o; r.Dry {
		return d, nil
	}
	if d.Operator, err = s.e.state.PutOperator(ctx, o); err != nil {
		return nil, err
	}
	return d, nil
}

// sameInputs tells why the places that were read up to can't be kept.
func sameInputs(was, is *graph.Graph) error {
	same := slices.EqualFunc(was.Inputs, is.Inputs, func(a, b graph.Input) bool { return a.Topic == b.Topic && a.Name == b.Name })
	if !same {
		return refuse(400, "its inputs are others than before: update it with reset, and it begins anew")
	}
	return nil
}

// change changes what the catalogue says of an operator.
func (s *service) change(ctx context.Context, account string, r *Request, f func(o *catalogue.Operator) error) (any, error) {
	for {
		old := s.e.state.Operator(account, r.Name)
		if old == nil {
			return nil, catalogue.FaultNoOperator
		}
		o := *old
		if err := f(&o); err != nil {
			return nil, err
		}
		o.Revision++
		n, err := s.e.state.PutOperator(ctx, &o)
		if errors.Is(err, catalogue.FaultOperatorChanged) && ctx.Err() == nil {
			continue
		}
		return Deployed{Operator: n}, err
	}
}

func (s *service) pause(ctx context.Context, account string, r *Request) (any, error) {
	return s.change(ctx, account, r, func(o *catalogue.Operator) error {
		if o.State == catalogue.Failed {
			return refuse(409, "it has failed: %s", o.Error)
		}
		o.State = catalogue.Paused
		return nil
	})
}

func (s *service) resume(ctx context.Context, account string, r *Request) (any, error) {
	return s.change(ctx, account, r, func(o *catalogue.Operator) error {
		if r.Skip {
			if o.At == nil {
				return refuse(409, "there is no record to skip: %s", cmp.Or(o.Error, "it has not failed"))
			}
			o.Skip = o.At
		}
		if err := s.renew(o); err != nil {
			return err
		}
		o.State, o.Error, o.At, o.Lost = catalogue.Running, "", nil, false
		return nil
	})
}

func (s *service) remove(ctx context.Context, account string, r *Request) (any, error) {
	if err := s.e.state.DropOperator(ctx, account, r.Name, 0); err != nil {
		return nil, err
	}
	return map[string]string{"removed": r.Name}, nil
}

func (s *service) list(_ context.Context, account string, _ *Request) (any, error) {
	all := s.e.state.Operators(account)
	if all == nil {
		all = []*catalogue.Operator{}
	}
	return map[string]any{"operators": all}, nil
}
