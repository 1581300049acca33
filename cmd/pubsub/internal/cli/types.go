package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/topics/schema"
)

// infer proposes a schema for payloads; broken is how many of them are not JSON.
func infer(payloads [][]byte) (text string, broken int, err error) {
	text, stats := schema.Infer(payloads)
	if stats.Samples == 0 {
		return "", stats.Broken, errors.New("none of the messages is JSON: there is nothing to propose")
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(text), "", "  "); err != nil {
		return "", 0, err
	}
	return pretty.String(), stats.Broken, nil
}

// schemaOf finds the schema of the one advertisement that is asked for.
func (a *app) schemaOf(cmd *cobra.Command, c *client.Client, q client.Query) (*client.Advertisement, error) {
	ads, err := c.Discover(cmd.Context(), q)
	if err != nil {
		return nil, err
	}
	var found []*client.Advertisement
	for i := range ads {
		if d := ads[i].Derived(); ads[i].Schema == nil && d != nil {
			ads[i].Schema = d
		}
		if ads[i].Schema != nil && ads[i].Schema.Text() != "" {
			found = append(found, &ads[i])
		}
	}
	switch {
	case len(ads) == 0:
		return nil, a.advertisementProblem(cmd, &client.Error{Op: "discover", Target: q.Name, Kind: client.ErrNotFound, Err: errors.New("nobody advertises it")}, q.Name)
	case len(found) == 0:
		return nil, &problem{code: exitNotFound, what: fmt.Sprintf("%s has no schema of its own", q.Name), next: "pubsub advertise infer " + q.Name, err: client.ErrNotFound}
	case len(found) > 1:
		return nil, usage(cmd, "several owners advertise %s: say --team", q.Name)
	}
	return found[0], nil
}

// printTypes prints the schema of an advertisement as JSON Schema, or types of it for
// programs. Go's are of package messages.
func (a *app) printTypes(cmd *cobra.Command, c *client.Client, f *discoverFlags) error {
	ad, err := a.schemaOf(cmd, c, f.q)
	if err != nil {
		return err
	}
	s, err := schema.Compile(schema.Source{Format: schema.Format(ad.Schema.Format), Text: ad.Schema.Text(), Message: ad.Schema.Message})
	if err != nil {
		return &problem{code: exitError, what: err.Error(), err: err}
	}
	to := schema.JSONSchemaText
	switch {
	case f.golang:
		to = schema.Go
	case f.ts:
		to = schema.TypeScript
	}
	text, err := schema.Generate(s, to, ad.Name)
	if err != nil {
		return &problem{code: exitError, what: err.Error(), err: err}
	}
	if to == schema.JSONSchemaText {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(text), "", "  "); err != nil {
			return err
		}
		text = pretty.String()
	}
	_, err = fmt.Fprintln(a.env.Out, strings.TrimRight(text, "\n"))
	return err
}
