package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

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

// printTypes prints the schema of an advertisement, or types of it for programs.
func (a *app) printTypes(cmd *cobra.Command, c *client.Client, f *discoverFlags) error {
	ad, err := a.schemaOf(cmd, c, f.q)
	if err != nil {
		return err
	}
	if ad.Schema.Format != "json-schema" {
		return &problem{code: exitError, what: fmt.Sprintf("the schema of %s is %s: there is no JSON Schema of it", ad.Name, ad.Schema.Format), err: client.ErrInvalid}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(ad.Schema.Text()), "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.env.Out, "%s\n", pretty.Bytes())
	return err
}
