package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/asyncapi"
	"github.com/heraldmq/herald/cmd/pubsub/internal/vault"
)

// definitionStep is what is done about one definition.
type definitionStep struct {
	Kind        string   `json:"kind"`
	Name        string   `json:"name"`
	Action      string   `json:"action"` // create, change, same
	Differences []string `json:"differences,omitempty"`

	apply func(ctx context.Context) error
}

// importDefinitions does what the text says, in the order of what needs what, and returns
// what was done, or with --dry-run would be. Topics get so many replicas; 0: as it says.
func (a *app) importDefinitions(cmd *cobra.Command, text []byte, replicas int) ([]definitionStep, error) {
	d, err := readDefinitions(text)
	if err != nil {
		return nil, err
	}
	c, b, err := a.vaultBroker(cmd)
	if err != nil {
		return nil, err
	}
	done := []definitionStep{}
	for _, part := range []struct {
		list []yaml.Node
		plan func(context.Context, json.RawMessage) (definitionStep, error)
	}{
		{d.Topics, func(ctx context.Context, raw json.RawMessage) (definitionStep, error) { return planTopic(ctx, b, raw) }},
		{d.Consumers, func(ctx context.Context, raw json.RawMessage) (definitionStep, error) {
			return planConsumer(ctx, b, raw)
		}},
		{d.Advertisements, func(ctx context.Context, raw json.RawMessage) (definitionStep, error) {
			return planAdvertisement(ctx, c, raw)
		}},
		{d.Operators, func(ctx context.Context, raw json.RawMessage) (definitionStep, error) {
			return a.planOperator(ctx, cmd, c, raw)
		}},
	} {
		for i := range part.list {
			raw, err := asyncapi.JSON(&part.list[i])
			if err != nil {
				return done, &problem{code: exitUsage, what: "the definitions: " + err.Error(), err: err}
			}
			if raw, err = withReplicas(raw, replicas); err != nil {
				return done, err
			}
			step, err := part.plan(cmd.Context(), raw)
			if err == nil && !a.dryRun && step.Action != "same" {
				err = step.apply(cmd.Context())
			}
			if err != nil {
				return done, a.vaultProblem(cmd, err, step.Name, "")
			}
			done = append(done, step)
		}
	}
	return done, nil
}

// withReplicas changes the number of replicas in a definition that has one.
func withReplicas(raw json.RawMessage, n int) (json.RawMessage, error) {
	if n <= 0 {
		return raw, nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return raw, nil // what it is instead is told by who reads it
	}
	number := json.RawMessage(strconv.Itoa(n))
	switch {
	case string(all["num_replicas"]) == "0":
		return raw, nil // a consumer's: as many as its topic
	case all["num_replicas"] != nil:
		all["num_replicas"] = number
	case all["durable"] != nil:
		var durable map[string]json.RawMessage
		if json.Unmarshal(all["durable"], &durable) != nil || durable["replicas"] == nil {
			return raw, nil
		}
		durable["replicas"] = number
		b, err := json.Marshal(durable)
		if err != nil {
			return nil, err
		}
		all["durable"] = b
	default:
		return raw, nil
	}
	return json.Marshal(all)
}

// settings are the settings of a topic or consumer, by their names on the wire.
type settings map[string]any

func readSettings(raw json.RawMessage) (settings, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var s settings
	if err := dec.Decode(&s); err != nil || s == nil {
		return nil, &problem{code: exitUsage, what: "a definition is a mapping of its settings", err: errors.Join(err, client.ErrInvalid)}
	}
	return s, s.exact()
}

// exact makes durations nanoseconds and drops the broker's notes.
func (s settings) exact() error {
	for key, v := range s {
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				if key == "metadata" && brokersNote(name) {
					delete(v, name)
				}
			}
			if err := settings(v).exact(); err != nil {
				return err
			}
		case string:
			if !slices.Contains(spans, key) {
				continue
			}
			ns, err := exactSpan(key, v)
			if err != nil {
				return err
			}
			s[key] = ns
		case []any:
			for i := range v {
				text, ok := v[i].(string)
				if !ok || !slices.Contains(spans, key) {
					continue
				}
				ns, err := exactSpan(key, text)
				if err != nil {
					return err
				}
				v[i] = ns
			}
		}
	}
	return nil
}

func exactSpan(key, text string) (json.Number, error) {
	d, err := parseDuration(text)
	if err != nil {
		return "", &problem{code: exitUsage, what: fmt.Sprintf("the definitions: %s: %v", key, err), err: err}
	}
	return json.Number(fmt.Sprint(int64(d))), nil
}

func (s settings) name(keys ...string) string {
	for _, key := range keys {
		if name, ok := s[key].(string); ok && name != "" {
			return name
		}
	}
	return ""
}

// differences says in which of its settings want differs from what is; absent settings are
// those that say nothing.
func (s settings) differences(is settings) (list []string) {
	for _, key := range sortedNames(s) {
		was, now := compact(is[key]), compact(s[key])
		if was == now || nothing(is[key]) && nothing(s[key]) {
			continue
		}
		list = append(list, fmt.Sprintf("%s: %s → %s", key, or(was, "none"), now))
	}
	return list
}

func nothing(v any) bool {
	switch compact(v) {
	case "", "null", "0", `""`, "false", "[]", "{}":
		return true
	}
	return false
}

func compact(v any) string {
	if v == nil {
		return ""
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(out.String())
}

// over is what is, with want laid over it.
func (s settings) over(is settings) settings {
	out := settings{}
	for key, v := range is {
		out[key] = v
	}
	for key, v := range s {
		out[key] = v
	}
	return out
}

// lookUp asks for the settings of something; nil when it is not there.
func lookUp(ctx context.Context, b *vault.Broker, subject string) (settings, error) {
	var info struct{ Config json.RawMessage }
	err := b.Call(ctx, subject, struct{}{}, &info)
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Code == 404 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return readSettings(info.Config)
}

func planTopic(ctx context.Context, b *vault.Broker, raw json.RawMessage) (definitionStep, error) {
	step := definitionStep{Kind: "topic"}
	want, err := readSettings(raw)
	if err != nil {
		return step, err
	}
	if step.Name = want.name("name"); step.Name == "" {
		return step, &problem{code: exitUsage, what: "the definitions: a topic has no name", err: client.ErrInvalid}
	}
	is, err := lookUp(ctx, b, "STREAM.INFO."+step.Name)
	if err != nil {
		return step, err
	}
	return step.compare(want, is, func(ctx context.Context, create bool, s settings) error {
		verb := "STREAM.UPDATE."
		if create {
			verb = "STREAM.CREATE."
		}
		return b.Call(ctx, verb+step.Name, s, &struct{}{})
	}), nil
}

func planConsumer(ctx context.Context, b *vault.Broker, raw json.RawMessage) (definitionStep, error) {
	step := definitionStep{Kind: "consumer"}
	var line struct {
		Topic  string
		Config json.RawMessage
	}
	if err := json.Unmarshal(raw, &line); err != nil || line.Topic == "" || len(line.Config) == 0 {
		return step, &problem{code: exitUsage, what: "the definitions: a consumer is {topic: NAME, config: {…}}", err: client.ErrInvalid}
	}
	want, err := readSettings(line.Config)
	if err != nil {
		return step, err
	}
	name := want.name("durable_name", "name")
	if step.Name = line.Topic + "/" + name; name == "" {
		return step, &problem{code: exitUsage, what: fmt.Sprintf("the definitions: a consumer of topic %s has no durable_name", line.Topic), err: client.ErrInvalid}
	}
	want["name"], want["durable_name"] = name, name
	is, err := lookUp(ctx, b, "CONSUMER.INFO."+line.Topic+"."+name)
	if err != nil {
		return step, err
	}
	return step.compare(want, is, func(ctx context.Context, create bool, s settings) error {
		action := "update"
		if create {
			action = "create"
		}
		return b.Call(ctx, "CONSUMER.CREATE."+line.Topic+"."+name, map[string]any{"stream_name": line.Topic, "config": s, "action": action}, &struct{}{})
	}), nil
}

// compare decides what is to be done.
func (s definitionStep) compare(want, is settings, apply func(ctx context.Context, create bool, all settings) error) definitionStep {
	if is == nil {
		s.Action = "create"
		s.apply = func(ctx context.Context) error { return apply(ctx, true, want) }
		return s
	}
	s.Action = "same"
	if s.Differences = want.differences(is); len(s.Differences) > 0 {
		s.Action = "change"
		s.apply = func(ctx context.Context) error { return apply(ctx, false, want.over(is)) }
	}
	return s
}

func planAdvertisement(ctx context.Context, c *client.Client, raw json.RawMessage) (definitionStep, error) {
	step := definitionStep{Kind: "advertisement"}
	var want client.Advertisement
	if err := json.Unmarshal(raw, &want); err != nil {
		return step, &problem{code: exitUsage, what: "the definitions: an advertisement: " + err.Error(), err: err}
	}
	step.Name = want.Name
	step.apply = func(ctx context.Context) error {
		_, err := c.PutAdvertisement(ctx, want)
		return err
	}
	there, err := c.Discover(ctx, client.Query{Name: want.Name})
	if err != nil {
		return step, err
	}
	i := slices.IndexFunc(there, func(o client.Advertisement) bool { return o.Name == want.Name && o.Owner.Key() == want.Owner.Key() })
	if i < 0 {
		step.Action = "create"
		return step, nil
	}
	text, err := bareAdvertisement(&there[i])
	if err != nil {
		return step, err
	}
	is, err := readSettings(text)
	if err != nil {
		return step, err
	}
	if text, err = bareAdvertisement(&want); err != nil {
		return step, err
	}
	given, err := readSettings(text)
	if err != nil {
		return step, err
	}
	step.Action = "same"
	if step.Differences = given.differences(is); len(step.Differences) > 0 {
		step.Action = "change"
	}
	return step, nil
}

func (a *app) planOperator(ctx context.Context, cmd *cobra.Command, c *client.Client, raw json.RawMessage) (definitionStep, error) {
	step := definitionStep{Kind: "operator"}
	want, err := readSettings(raw)
	if err != nil {
		return step, err
	}
	if step.Name = want.name("operator", "name"); step.Name == "" {
		return step, &problem{code: exitUsage, what: "the definitions: an operator has no name", err: client.ErrInvalid}
	}
	r := client.OperatorRequest{Spec: string(raw)}
	var g struct{ Spec json.RawMessage }
	err = c.Operators(ctx, "GRAPH", client.OperatorRequest{Name: step.Name}, &g)
	if errors.Is(err, client.ErrNotFound) {
		step.Action = "create"
		step.apply = func(ctx context.Context) error { return c.Operators(ctx, "DEPLOY", r, &client.OperatorChange{}) }
		return step, nil
	}
	if err != nil {
		return step, err
	}
	is, err := readSettings(g.Spec)
	if err != nil {
		return step, err
	}
	step.Action = "same"
	if step.Differences = append(want.differences(is), missing(is, want)...); len(step.Differences) == 0 {
		return step, nil
	}
	step.Action = "change"
	step.apply = func(ctx context.Context) error {
		var d client.OperatorChange
		dry := r
		dry.Dry = true
		if err := c.Operators(ctx, "UPDATE", dry, &d); err != nil {
			return err
		}
		for _, s := range sortedKeys(d.Steps) {
			if d.Steps[s] == "dropped" {
				if err := a.confirm(cmd, fmt.Sprintf("Drop the state of step %s of operator %s?", s, step.Name)); err != nil {
					return err
				}
			}
		}
		return c.Operators(ctx, "UPDATE", r, &d)
	}
	return step, nil
}

// missing are settings that a whole spec no longer has.
func missing(is, want settings) (list []string) {
	for _, key := range sortedNames(is) {
		if _, ok := want[key]; !ok && !nothing(is[key]) {
			list = append(list, key+": removed")
		}
	}
	return list
}
