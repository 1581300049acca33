package demo

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/client"
)

// Report is what the demo found.
type Report struct {
	Published     int      `json:"published"`         // events of the file
	Acked         int      `json:"acked"`             // events with a receipt
	CrashedAfter  int      `json:"crashed_after"`     // events sent when the broker was killed
	Republished   int      `json:"republished"`       // sent again because their receipt was lost
	FoundStored   int      `json:"found_stored"`      // of those, the ones the topic had already
	Live          int      `json:"live_received"`     // events that reached the live subscriber
	MissingLive   int      `json:"live_missing"`      // those that didn't
	LiveRepeats   int      `json:"live_repeats"`      // live copies of what was sent again
	Stored        int      `json:"stored"`            // messages in the topic
	Replayed      int      `json:"replayed"`          // messages read from the beginning
	Duplicates    int      `json:"duplicates"`        // events that are stored twice
	Missing       int      `json:"missing"`           // events that are not stored
	Damaged       int      `json:"damaged"`           // messages that differ from what was sent
	OutOfOrder    int      `json:"out_of_order"`      // messages not in the order they were sent
	Results       int      `json:"operator_results"`  // what the operator gave
	Differing     int      `json:"results_differing"` // of those, the ones that differ from a run without a failure
	RestartMillis int64    `json:"restart_ms"`        // from the kill until clients were let in
	Seconds       float64  `json:"seconds"`           // the whole demo
	Facts         []string `json:"facts"`
	URLs          URLs     `json:"urls"`
	Directory     string   `json:"directory"`

	temporary bool
	child     *child
	keep      *client.Client
}

// Faults says what does not add up; "" is all well.
func (r *Report) Faults() string {
	var faults []string
	for _, c := range []struct {
		ok   bool
		text string
	}{
		{r.Acked == r.Published, fmt.Sprintf("%d of %d published events have a receipt", r.Acked, r.Published)},
		{r.Live == r.Published, fmt.Sprintf("%d of %d events arrived live", r.Live, r.Published)},
		{r.Stored == r.Published, fmt.Sprintf("%d messages stored of %d events", r.Stored, r.Published)},
		{r.Replayed == r.Stored, fmt.Sprintf("%d of %d stored messages replayed", r.Replayed, r.Stored)},
		{r.Duplicates == 0, fmt.Sprintf("%d duplicates", r.Duplicates)},
		{r.Missing == 0, fmt.Sprintf("%d missing", r.Missing)},
		{r.Damaged == 0, fmt.Sprintf("%d damaged", r.Damaged)},
		{r.Results > 0 || r.Published == 0, "the operator gave nothing"},
		{r.Differing == 0, fmt.Sprintf("%d results of the operator differ from a run without a failure", r.Differing)},
		{r.OutOfOrder == 0, fmt.Sprintf("%d out of order", r.OutOfOrder)},
	} {
		if !c.ok {
			faults = append(faults, c.text)
		}
	}
	return strings.Join(faults, ", ")
}

// Pairs is the report for people.
func (r *Report) Pairs() [][2]string {
	pairs := [][2]string{
		{"published", fmt.Sprintf("%d events, in the order they were reported", r.Published)},
		{"killed", fmt.Sprintf("kill -9 after %d events; serving again after %d ms", r.CrashedAfter, r.RestartMillis)},
		{"sent again", fmt.Sprintf("%d without receipt, of which %d were stored already and found by their id", r.Republished, r.FoundStored)},
		{"acked", fmt.Sprint(r.Acked)},
		{"live received", fmt.Sprintf("%d (and %d repeats of what was sent again)", r.Live, r.LiveRepeats)},
		{"stored", fmt.Sprint(r.Stored)},
		{"replayed", fmt.Sprintf("%d, every byte compared", r.Replayed)},
		{"duplicates", fmt.Sprint(r.Duplicates)},
		{"missing", fmt.Sprint(r.Missing)},
		{"operator", fmt.Sprintf("%d results; %d differ from a run in which nothing fails", r.Results, r.Differing)},
		{"took", fmt.Sprintf("%.1f s", r.Seconds)},
	}
	for i, fact := range r.Facts {
		pairs = append(pairs, [2]string{[]string{"in the data", ""}[min(i, 1)], fact})
	}
	if r.keep != nil {
		pairs = append(pairs, [2]string{"client", r.URLs.Client}, [2]string{"monitoring", r.URLs.Monitor}, [2]string{"websocket", r.URLs.Websocket},
			[2]string{"try", "pubsub -s " + r.URLs.Client + " sub 'quakes.>' --last-per-subject"})
	}
	return pairs
}

// Close ends the broker and removes a temporary directory.
func (r *Report) Close() error {
	var errs []error
	if r.keep != nil {
		errs = append(errs, r.keep.Close())
		r.keep = nil
	}
	if r.child != nil {
		errs = append(errs, r.child.stop())
		r.child = nil
	}
	if r.temporary {
		errs = append(errs, os.RemoveAll(r.Directory))
	}
	return errors.Join(errs...)
}

// facts are things worth knowing about the data.
func facts(all []quake) []string {
	byNet := map[string]int{}
	var strongest, deepest, latest *quake
	disordered, negative, felt := 0, 0, 0
	for i := range all {
		q := &all[i]
		byNet[q.Net]++
		if q.Mag != nil && (strongest == nil || *q.Mag > *strongest.Mag) {
			strongest = q
		}
		if q.Mag != nil && *q.Mag < 0 {
			negative++
		}
		if q.Depth != nil && (deepest == nil || *q.Depth > *deepest.Depth) {
			deepest = q
		}
		if latest == nil || q.Updated-q.Time > latest.Updated-latest.Time {
			latest = q
		}
		if i > 0 && q.Time < all[i-1].Time {
			disordered++
		}
		if q.Felt != nil {
			felt += *q.Felt
		}
	}
	nets := slices.SortedFunc(maps.Keys(byNet), func(a, b string) int { return byNet[b] - byNet[a] })
	at := time.UnixMilli(strongest.Time).UTC().Format("2 January 2006 15:04 UTC")
	late := time.Duration(latest.Updated-latest.Time) * time.Millisecond
	return []string{
		fmt.Sprintf("the strongest: magnitude %.1f, %s, %s", *strongest.Mag, strongest.Place, at),
		fmt.Sprintf("the deepest: %.0f km, %s", *deepest.Depth, deepest.Place),
		fmt.Sprintf("%d events shook the ground before the one reported before them; the latest report came %.1f days after", disordered, late.Hours()/24),
		fmt.Sprintf("%d networks; %s reported most (%d), then %s (%d)", len(byNet), nets[0], byNet[nets[0]], nets[1], byNet[nets[1]]),
		fmt.Sprintf("%d events are so weak that their magnitude is negative; people wrote %d times that they felt one", negative, felt),
	}
}
