package operators_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is a record of the input.
type event struct {
	K  string `json:"k"`
	V  int64  `json:"v"`
	At int64  `json:"at"` // milliseconds since 1970
	N  int    `json:"n"`
}

func (e event) json() []byte { b, _ := json.Marshal(e); return b } // can't fail

// What follows computes from all events at once, with maps and sorts and nothing of the
// operators, what each of them should have given.

const (
	tumble = 10_000
	quiet  = 5_000
	apart  = 2_000 // of a join
)

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

func byKey(all []event) map[string][]event {
	groups := map[string][]event{}
	for _, e := range all {
		groups[e.K] = append(groups[e.K], e)
	}
	return groups
}

func batchFilter(all []event) (rows []string) {
	for _, e := range all {
		if e.V%3 == 0 {
			rows = append(rows, string(e.json()))
		}
	}
	return rows
}

func batchCount(all []event) (rows []string) {
	n, total := map[string]int{}, map[string]int64{}
	for _, e := range all {
		n[e.K]++
		total[e.K] += e.V
		rows = append(rows, fmt.Sprintf(`{"k":%q,"n":%d,"total":%d}`, e.K, n[e.K], total[e.K]))
	}
	return rows
}

// span is a window of a key.
type span struct {
	k          string
	start, end int64
	n, sum     int64
}

func inOrder(a, b span) int { return cmp.Or(cmp.Compare(a.end, b.end), strings.Compare(a.k, b.k)) }

// batchWindow are the windows that are over when event time has come to until.
func batchWindow(all []event, until int64) (rows []string) {
	windows := map[string]span{}
	for _, e := range all {
		start := e.At - e.At%tumble
		id := fmt.Sprint(e.K, start)
		w := windows[id]
		windows[id] = span{e.K, start, start + tumble, w.n + 1, w.sum + e.V}
	}
	for _, w := range slices.SortedFunc(maps.Values(windows), inOrder) {
		if w.end <= until {
			rows = append(rows, fmt.Sprintf(`{"k":%q,"window_start":%q,"window_end":%q,"n":%d,"total":%d}`, w.k, stamp(w.start), stamp(w.end), w.n, w.sum))
		}
	}
	return rows
}

// sessions are a key's records with less than quiet between them.
func sessions(all []event, until int64) (over []span) {
	for k, events := range byKey(all) {
		slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
		var at *span
		for _, e := range events {
			if at == nil || e.At >= at.end {
				over = append(over, span{k: k, start: e.At})
				at = &over[len(over)-1]
			}
			at.end, at.n, at.sum = e.At+quiet, at.n+1, at.sum+e.V
		}
	}
	over = slices.DeleteFunc(over, func(s span) bool { return s.end > until })
	slices.SortFunc(over, inOrder)
	return over
}

func batchSession(all []event, until int64) (rows []string) {
	for _, s := range sessions(all, until) {
		rows = append(rows, fmt.Sprintf(`{"k":%q,"window_start":%q,"window_end":%q,"n":%d}`, s.k, stamp(s.start), stamp(s.end), s.n))
	}
	return rows
}

// batchTop are the ranks in the end: the three largest of each key, the earliest first.
func batchTop(all []event) (rows []string) {
	for k, events := range byKey(all) {
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(b.V, a.V), cmp.Compare(a.At, b.At)) })
		for rank, e := range events[:min(3, len(events))] {
			rows = append(rows, fmt.Sprintf("%s %d: %d", k, rank+1, e.N))
		}
	}
	return rows
}

func batchJoin(left, right []event) (rows []string) {
	others := byKey(right)
	for _, l := range left {
		for _, r := range others[l.K] {
			if d := r.At - l.At; d >= -apart && d <= apart {
				rows = append(rows, fmt.Sprintf(`{"k":%q,"left":%d,"right":%d}`, l.K, l.N, r.N))
			}
		}
	}
	return rows
}

func batchTable(all []event, names map[string]string) (rows []string) {
	for _, e := range all {
		if name, ok := names[e.K]; ok {
			rows = append(rows, fmt.Sprintf(`{"n":%d,"name":%q}`, e.N, name))
		}
	}
	return rows
}
