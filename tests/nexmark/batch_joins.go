package main

import (
	"cmp"
	"slices"
)

// byID finds people and auctions.
func byID(kind Kind, all []Event) map[int64]Event {
	m := map[int64]Event{}
	for _, e := range of(kind, all) {
		m[e.ID] = e
	}
	return m
}

func q3(all []Event) (out []row) {
	people := byID(Person, all)
	for _, a := range of(Auction, all) {
		p, there := people[a.Seller]
		if there && a.Category == 10 && (p.State == "OR" || p.State == "ID" || p.State == "CA") {
			out = append(out, row{"name": p.Name, "city": p.City, "state": p.State, "id": a.ID})
		}
	}
	return out
}

// offers are each auction's bids in its time, as of returns them.
func offers(all []Event) map[int64][]Event {
	auctions := byID(Auction, all)
	m := map[int64][]Event{}
	for _, b := range of(Bid, all) {
		if a, there := auctions[b.On]; there && b.At >= a.At && b.At <= a.Expires {
			m[b.On] = append(m[b.On], b)
		}
	}
	return m
}

// winner is the highest bid, of equals the earliest, then the one that came first.
func winner(bids []Event) Event {
	best := bids[0]
	for _, b := range bids[1:] {
		if b.Price > best.Price {
			best = b
		}
	}
	return best
}

// q4's mean is a double; the SQL's would be cut to a whole number.
func q4(all []Event) (out []row) {
	auctions := byID(Auction, all)
	sums, counts := map[int64]int64{}, map[int64]int64{}
	for id, bids := range offers(all) {
		c := auctions[id].Category
		sums[c] += winner(bids).Price
		counts[c]++
	}
	for c, n := range counts {
		out = append(out, row{"category": c, "mean": float64(sums[c]) / float64(n)})
	}
	return out
}

// q6 goes by each auction's last bid in time, then by its id: see queries/q6.yaml.
func q6(all []Event) (out []row) {
	auctions := byID(Auction, all)
	type sold struct{ seller, last, id, price int64 }
	var sales []sold
	for id, bids := range offers(all) {
		sales = append(sales, sold{auctions[id].Seller, bids[len(bids)-1].At, id, winner(bids).Price})
	}
	slices.SortFunc(sales, func(x, y sold) int { return cmp.Or(cmp.Compare(x.last, y.last), cmp.Compare(x.id, y.id)) })
	prices := map[int64][]int64{}
	for _, s := range sales {
		prices[s.seller] = append(prices[s.seller], s.price)
		last := prices[s.seller]
		last = last[max(0, len(last)-10):]
		sum := int64(0)
		for _, p := range last {
			sum += p
		}
		out = append(out, row{"seller": s.seller, "mean": float64(sum) / float64(len(last))})
	}
	return out
}

func q8(all []Event) (out []row) {
	type opened struct{ seller, window int64 }
	sellers := map[opened]bool{}
	for _, a := range of(Auction, all) {
		sellers[opened{a.Seller, a.At / (10 * second)}] = true
	}
	for _, p := range of(Person, all) {
		w := p.At / (10 * second)
		if sellers[opened{p.ID, w}] {
			out = append(out, row{"id": p.ID, "name": p.Name, "window_start": stamp(w * 10 * second)})
		}
	}
	return out
}

func q9(all []Event) (out []row) {
	auctions := byID(Auction, all)
	for id, bids := range offers(all) {
		a, b := auctions[id], winner(bids)
		out = append(out, row{
			"rank": 1, "id": id, "item_name": a.Item, "seller": a.Seller, "category": a.Category, "expires": a.Expires,
			"bidder": b.Bidder, "price": b.Price, "bid_time": b.At,
		})
	}
	return out
}

func q20(all []Event) (out []row) {
	auctions := byID(Auction, all)
	for _, b := range of(Bid, all) {
		if a, there := auctions[b.On]; there && a.Category == 10 {
			out = append(out, row{
				"auction": b.On, "bidder": b.Bidder, "price": b.Price, "bid_time": b.At,
				"item_name": a.Item, "initial_bid": a.InitialBid, "reserve": a.Reserve, "seller": a.Seller, "category": a.Category,
			})
		}
	}
	return out
}
