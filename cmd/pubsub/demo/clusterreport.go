package demo

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/heraldmq/herald/client"
)

// Kill is a primary that was killed.
type Kill struct {
	Node         string   `json:"node"`
	Operators    []string `json:"operators"`    // whose primary it was
	After        int      `json:"after_events"` // sent until then
	SilentMillis int64    `json:"without_result_ms"`
	BackMillis   int64    `json:"node_back_ms"` // from the kill until the node served again
}

// OperatorResult is what an operator gave.
type OperatorResult struct {
	Name      string `json:"name"`
	Results   int    `json:"results"`
	Rows      int    `json:"rows"`      // of its table in the end
	Differing int    `json:"differing"` // results that differ from a run in which nothing fails
	Wrong     int    `json:"wrong"`     // rows that differ from a plain computation

	results []*client.Message
}

// ClusterReport is what the demo on three nodes found.
type ClusterReport struct {
	Nodes       []URLs           `json:"nodes"`
	Quakes      int              `json:"earthquakes"` // published, as the next two
	Flights     int              `json:"flights"`
	Airports    int              `json:"airports"`
	Acked       int              `json:"acked"`
	Republished int              `json:"republished"`  // sent again because their receipt was lost
	FoundStored int              `json:"found_stored"` // of those, the ones the topic had already
	Stored      int              `json:"stored"`
	Missing     int              `json:"missing"`
	Damaged     int              `json:"damaged"` // or stored twice
	Kills       []Kill           `json:"kills"`
	Operators   []OperatorResult `json:"operators"`
	Strong      int              `json:"strong"`   // earthquakes for which the filter's condition holds
	Filtered    int              `json:"filtered"` // those that the broker picked
	Seconds     float64          `json:"seconds"`
	Facts       []string         `json:"facts"`
	Directory   string           `json:"directory"`

	temporary bool
	nodes     *cluster
	keep      *client.Client
}

// Published is how many messages were.
func (r *ClusterReport) Published() int { return r.Quakes + r.Flights + r.Airports }

// Faults says what does not add up; "" is all well.
func (r *ClusterReport) Faults() string {
	var faults []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	check(r.Acked == r.Published(), "%d of %d messages have a receipt", r.Acked, r.Published())
	check(r.Stored == r.Published(), "%d messages stored of %d", r.Stored, r.Published())
	check(r.Missing == 0, "%d missing", r.Missing)
	check(r.Damaged == 0, "%d damaged or stored twice", r.Damaged)
	check(len(r.Kills) > 0, "no primary was killed")
	check(len(r.Operators) == 3, "%d operators instead of 3", len(r.Operators))
	for _, o := range r.Operators {
		check(o.Results > 0, "operator %s gave nothing", o.Name)
		check(o.Differing == 0, "%d results of operator %s differ from a run without a failure", o.Differing, o.Name)
		check(o.Wrong == 0, "%d rows of operator %s are wrong", o.Wrong, o.Name)
	}
	check(r.Filtered == r.Strong, "the filter picked %d of %d events", r.Filtered, r.Strong)
	return strings.Join(faults, ", ")
}

// Pairs is the report for people.
func (r *ClusterReport) Pairs() [][2]string {
	pairs := [][2]string{
		{"nodes", fmt.Sprintf("%d, with a replica of each topic and operator on each", len(r.Nodes))},
		{"published", fmt.Sprintf("%d earthquakes, %d flights, %d airports", r.Quakes, r.Flights, r.Airports)},
	}
	for _, k := range r.Kills {
		pairs = append(pairs, [2]string{"killed", fmt.Sprintf("%s with kill -9 after %d events, the primary of %s: %d ms without a result", k.Node, k.After, strings.Join(k.Operators, " and "), k.SilentMillis)})
	}
	pairs = append(pairs,
		[2]string{"sent again", fmt.Sprintf("%d without receipt, of which %d were stored already and found by their id", r.Republished, r.FoundStored)},
		[2]string{"acked, stored", fmt.Sprintf("%d, %d: each once, every byte compared", r.Acked, r.Stored)})
	for _, o := range r.Operators {
		pairs = append(pairs, [2]string{o.Name, fmt.Sprintf("%d results; identical to a run without a failure: %s; its %d rows to a plain computation: %s", o.Results, yes(o.Differing, "results differ"), o.Rows, yes(o.Wrong, "rows differ"))})
	}
	pairs = append(pairs,
		[2]string{"filter", fmt.Sprintf("the broker picked %d earthquakes of magnitude %.1f or more; there are %d", r.Filtered, strong, r.Strong)},
		[2]string{"took", fmt.Sprintf("%.1f s", r.Seconds)})
	for i, fact := range r.Facts {
		pairs = append(pairs, [2]string{[]string{"in the data", ""}[min(i, 1)], fact})
	}
	if r.keep != nil {
		for i, n := range r.Nodes {
			pairs = append(pairs, [2]string{[]string{"nodes", ""}[min(i, 1)], n.Client + " " + n.Monitor})
		}
		pairs = append(pairs, [2]string{"try", "pubsub -s " + r.Nodes[0].Client + " operator top"})
	}
	return pairs
}

func yes(n int, what string) string {
	if n == 0 {
		return "yes"
	}
	return fmt.Sprintf("NO, %d %s", n, what)
}

// Close ends the nodes and removes a temporary directory.
func (r *ClusterReport) Close() error {
	var errs []error
	if r.keep != nil {
		errs = append(errs, r.keep.Close())
		r.keep = nil
	}
	if r.nodes != nil {
		errs = append(errs, r.nodes.stop())
		r.nodes = nil
	}
	if r.temporary {
		errs = append(errs, os.RemoveAll(r.Directory))
	}
	return errors.Join(errs...)
}
