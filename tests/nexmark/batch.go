package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// row is an output as it should be. What is compared is its JSON with fields by name.
type row map[string]any

const second, day = 1000, 86_400_000

// of returns the events of a kind by time, then as they came: how ties are told apart.
func of(kind Kind, all []Event) (out []Event) {
	for _, e := range all {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return out
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// euros is a price at 0.908, exactly.
func euros(cents int64) json.Number {
	m := cents * 908
	return json.Number(fmt.Sprintf("%d.%03d", m/1000, m%1000))
}

func bidRow(b *Event) row {
	return row{"auction": b.On, "bidder": b.Bidder, "price": b.Price, "channel": b.Channel, "url": b.URL, "date_time": b.At, "extra": b.Filler}
}

// each makes rows of bids; nil leaves one out.
func each(all []Event, f func(b *Event) row) (out []row) {
	for _, b := range of(Bid, all) {
		if r := f(&b); r != nil {
			out = append(out, r)
		}
	}
	return out
}

func q0(all []Event) []row { return each(all, bidRow) }

func q1(all []Event) []row {
	return each(all, func(b *Event) row {
		return row{"auction": b.On, "bidder": b.Bidder, "price": euros(b.Price), "date_time": b.At, "extra": b.Filler}
	})
}

func q2(all []Event) []row {
	return each(all, func(b *Event) row {
		if b.On%123 != 0 {
			return nil
		}
		return row{"auction": b.On, "price": b.Price}
	})
}

// q10's rows have their subject as well.
func q10(all []Event) []row {
	return each(all, func(b *Event) row {
		r := bidRow(b)
		r["subject"] = "q10." + time.UnixMilli(b.At).UTC().Format("2006-01-02.15:04")
		return r
	})
}

func q13(all []Event) []row {
	return each(all, func(b *Event) row {
		return row{"auction": b.On, "bidder": b.Bidder, "price": b.Price, "date_time": b.At, "value": fmt.Sprintf("side %d", b.On%sideRows)}
	})
}

func q14(all []Event) []row {
	return each(all, func(b *Event) row {
		if b.Price*908 <= 1_000_000*1000 || b.Price*908 >= 50_000_000*1000 {
			return nil
		}
		light := "otherTime"
		switch h := time.UnixMilli(b.At).UTC().Hour(); {
		case h >= 8 && h <= 18:
			light = "dayTime"
		case h <= 6 || h >= 20:
			light = "nightTime"
		}
		return row{"auction": b.On, "bidder": b.Bidder, "price": euros(b.Price), "bid_time_type": light, "date_time": b.At, "c_counts": strings.Count(b.Filler, "c")}
	})
}

// groups divides bids, each group's as of returns them.
func groups[K comparable](all []Event, key func(b *Event) K) map[K][]Event {
	m := map[K][]Event{}
	for _, b := range of(Bid, all) {
		m[key(&b)] = append(m[key(&b)], b)
	}
	return m
}

type pair struct{ a, b int64 }

// q5 counts each window's bids by auction; ties are kept.
func q5(all []Event) (out []row) {
	counts := map[int64]map[int64]int{} // by the window's end and auction
	for _, b := range of(Bid, all) {
		for end := b.At/(2*second)*(2*second) + 2*second; end <= b.At+10*second; end += 2 * second {
			if counts[end] == nil {
				counts[end] = map[int64]int{}
			}
			counts[end][b.On]++
		}
	}
	for end, auctions := range counts {
		most := 0
		for _, n := range auctions {
			most = max(most, n)
		}
		for a, n := range auctions {
			if n == most {
				out = append(out, row{"auction": a, "num": n, "window_end": stamp(end)})
			}
		}
	}
	return out
}

// q7 keeps ties. A bid is in one window, also one on a boundary, which the SQL's BETWEEN
// puts into two.
func q7(all []Event) (out []row) {
	for w, bids := range groups(all, func(b *Event) int64 { return b.At / (10 * second) }) {
		most := slices.MaxFunc(bids, func(x, y Event) int { return cmp.Compare(x.Price, y.Price) }).Price
		for _, b := range bids {
			if b.Price == most {
				out = append(out, row{"auction": b.On, "price": b.Price, "bidder": b.Bidder, "date_time": b.At, "window_end": stamp((w + 1) * 10 * second)})
			}
		}
	}
	return out
}

func q11(all []Event) (out []row) {
	for bidder, bids := range groups(all, func(b *Event) int64 { return b.Bidder }) {
		start, n := 0, len(bids)
		for i := 1; i <= n; i++ {
			if i < n && bids[i].At < bids[i-1].At+10*second {
				continue
			}
			out = append(out, row{"bidder": bidder, "window_start": stamp(bids[start].At), "window_end": stamp(bids[i-1].At + 10*second), "bids": i - start})
			start = i
		}
	}
	return out
}

// q12's windows are the clock's: only how many bids each bidder has can be said.
func q12(all []Event) (out []row) {
	for bidder, bids := range groups(all, func(b *Event) int64 { return b.Bidder }) {
		out = append(out, row{"bidder": bidder, "bids": len(bids)})
	}
	return out
}

func q17(all []Event) (out []row) {
	for k, bids := range groups(all, func(b *Event) pair { return pair{b.On, b.At / day} }) {
		var ranks [3]int
		least, most, total := bids[0].Price, bids[0].Price, int64(0)
		for _, b := range bids {
			switch {
			case b.Price < 10_000:
				ranks[0]++
			case b.Price < 1_000_000:
				ranks[1]++
			default:
				ranks[2]++
			}
			least, most, total = min(least, b.Price), max(most, b.Price), total+b.Price
		}
		out = append(out, row{
			"auction": k.a, "day": k.b, "total_bids": len(bids), "rank1_bids": ranks[0], "rank2_bids": ranks[1], "rank3_bids": ranks[2],
			"min_price": least, "max_price": most, "avg_price": float64(total) / float64(len(bids)), "sum_price": total,
		})
	}
	return out
}

// q18's last bid is the latest by time, of equals the one that came last.
func q18(all []Event) (out []row) {
	for _, bids := range groups(all, func(b *Event) pair { return pair{b.Bidder, b.On} }) {
		r := bidRow(&bids[len(bids)-1])
		r["rank"] = 1
		out = append(out, r)
	}
	return out
}

// q19 ranks by price, of equals the earliest first, then as they came.
func q19(all []Event) (out []row) {
	for _, bids := range groups(all, func(b *Event) int64 { return b.On }) {
		slices.SortStableFunc(bids, func(x, y Event) int { return cmp.Compare(y.Price, x.Price) })
		for i := range min(len(bids), 10) {
			r := bidRow(&bids[i])
			r["rank"] = i + 1
			out = append(out, r)
		}
	}
	return out
}
