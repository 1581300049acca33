package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Kind is what happened.
type Kind uint8

// The kinds of events: 1, 3 and 46 of every 50.
const (
	Person Kind = iota
	Auction
	Bid
)

// Subjects are the kinds' subjects in the topic.
var Subjects = [...]string{"nexmark.person", "nexmark.auction", "nexmark.bid"}

// Event is one event with the fields that its kind has. Times are ms since 1970.
type Event struct {
	Number int64 // from 0
	Kind   Kind
	At     int64

	ID int64 // of a person or an auction

	Name, Email, Card, City, State string // of a person

	Item, Description    string // of an auction
	InitialBid, Reserve  int64
	Expires              int64
	Seller, Category     int64
	On, Bidder, Price    int64 // of a bid: On is the auction
	Channel, URL, Filler string
}

// Generator makes the events of a run. Its fields must not be changed once it is used;
// then any number of goroutines may use it.
type Generator struct {
	Seed uint64
	Base time.Time // of the first event
	Rate int64     // events per second of event time
	// Group is how many events in a row have their times mixed up; up to 1 is none.
	Group int64
}

// The proportions, and how far what is hot reaches.
const (
	cycle, people, auctions = 50, 1, 3

	firstID      = 1000
	inFlight     = 100  // auctions that get bids
	activePeople = 1000 // who sell and bid
	lead         = 10   // ids that are used before their time
	hotAuction   = 100  // one auction of as many is hot
	hotPerson    = 100
	firstOfKind  = 10 // category
	categories   = 5
	manyChannels = 10_000
)

// lastPerson and lastAuction are the newest ids (from 0) once event n has happened.
func lastPerson(n int64) int64 { return n / cycle }

func lastAuction(n int64) int64 {
	switch round, r := n/cycle, n%cycle; {
	case r < people:
		return round*auctions - 1
	case r < people+auctions:
		return round*auctions + r - people
	default:
		return round*auctions + auctions - 1
	}
}

// at is the time of the n-th event in order, in ms.
func (g *Generator) at(n int64) int64 { return g.Base.UnixMilli() + n*1000/g.Rate }

// time is the time of event n, mixed up within its group.
func (g *Generator) time(n int64) int64 {
	if g.Group > 1 {
		first := n - n%g.Group
		n = first + (n-first)*953%g.Group
	}
	return g.at(n)
}

// Event makes event n.
func (g *Generator) Event(n int64) Event {
	r := random(mix(g.Seed) ^ mix(uint64(n)+0x9e3779b97f4a7c15))
	e := Event{Number: n, At: g.time(n)}
	switch k := n % cycle; {
	case k < people:
		g.person(&e, &r)
	case k < people+auctions:
		g.auction(&e, &r)
	default:
		g.bid(&e, &r)
	}
	return e
}

// Stripe calls f with the events from first on, each step-th, up to but not with end:
// with a step of n, n producers make all events between them.
func (g *Generator) Stripe(first, step, end int64, f func(e *Event)) {
	for n := first; n < end; n += step {
		e := g.Event(n)
		f(&e)
	}
}

var (
	firstNames = [...]string{"Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"}
	lastNames  = [...]string{"Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"}
	cities     = [...]string{"Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"}
	states     = [...]string{"AZ", "CA", "ID", "OR", "WA", "WY"}
	channels   = [...]string{"Google", "Facebook", "Baidu", "Apple"}
)

func (g *Generator) person(e *Event, r *random) {
	e.Kind, e.ID = Person, firstID+lastPerson(e.Number)
	e.Name = firstNames[r.below(int64(len(firstNames)))] + " " + lastNames[r.below(int64(len(lastNames)))]
	e.Email = r.letters(7) + "@" + r.letters(5) + ".com"
	e.Card = fmt.Sprintf("%04d %04d %04d %04d", r.below(10000), r.below(10000), r.below(10000), r.below(10000))
	e.City, e.State = cities[r.below(int64(len(cities)))], states[r.below(int64(len(states)))]
	e.Filler = r.filler(200 - 8 - len(e.Name) - len(e.Email) - len(e.Card) - len(e.City) - len(e.State))
}

func (g *Generator) auction(e *Event, r *random) {
	e.Kind, e.ID = Auction, firstID+lastAuction(e.Number)
	e.Item, e.Description = r.letters(20), r.letters(100)
	e.InitialBid = r.price()
	e.Reserve = e.InitialBid + r.price()
	horizon := g.at(e.Number+inFlight*cycle/auctions) - g.at(e.Number)
	e.Expires = e.At + 1 + r.below(max(2*horizon, 1))
	e.Seller = firstID + g.anyone(e.Number, r, 0)
	e.Category = firstOfKind + r.below(categories)
	e.Filler = r.filler(500 - 7*8 - len(e.Item) - len(e.Description))
}

// LengthMax is how long an auction may take.
func (g *Generator) LengthMax() time.Duration {
	return time.Duration(2*(inFlight*cycle/auctions)*1000/g.Rate+2) * time.Millisecond
}

func (g *Generator) bid(e *Event, r *random) {
	e.Kind = Bid
	last := lastAuction(e.Number)
	if r.below(2) > 0 {
		e.On = firstID + last/hotAuction*hotAuction
	} else {
		least := max(last-inFlight, 0)
		e.On = firstID + least + r.below(last-least+1+lead)
	}
	e.Bidder = firstID + g.anyone(e.Number, r, 1)
	e.Price = r.price()
	if r.below(2) > 0 {
		e.Channel = channels[r.below(int64(len(channels)))]
		e.URL = "https://www.nexmark.com/" + e.Channel + "/item.htm?query=1"
	} else {
		c := r.below(manyChannels)
		e.Channel = "channel-" + strconv.FormatInt(c, 10)
		e.URL = "https://www.nexmark.com/" + r.letters(4) + "/" + r.letters(4) + "/item.htm?query=1"
		if c%10 > 0 {
			e.URL += "&channel_id=" + strconv.FormatInt(c, 10)
		}
	}
	e.Filler = r.filler(100 - 4*8)
}

// anyone is a hot person three times of four, else one of those who are active.
func (g *Generator) anyone(n int64, r *random, hot int64) int64 {
	last := lastPerson(n)
	if r.below(4) > 0 {
		return last/hotPerson*hotPerson + hot
	}
	active := min(last+1, activePeople)
	return last + 1 - active + r.below(active+lead)
}

// AppendJSON appends the event as the topic's messages have it.
func (e *Event) AppendJSON(dst []byte) []byte {
	switch e.Kind {
	case Person:
		return fmt.Appendf(dst, `{"id":%d,"name":%q,"email_address":%q,"credit_card":%q,"city":%q,"state":%q,"date_time":%d,"extra":%q}`,
			e.ID, e.Name, e.Email, e.Card, e.City, e.State, e.At, e.Filler)
	case Auction:
		return fmt.Appendf(dst, `{"id":%d,"item_name":%q,"description":%q,"initial_bid":%d,"reserve":%d,"date_time":%d,"expires":%d,"seller":%d,"category":%d,"extra":%q}`,
			e.ID, e.Item, e.Description, e.InitialBid, e.Reserve, e.At, e.Expires, e.Seller, e.Category, e.Filler)
	}
	return fmt.Appendf(dst, `{"auction":%d,"bidder":%d,"price":%d,"channel":%q,"url":%q,"date_time":%d,"extra":%q}`,
		e.On, e.Bidder, e.Price, e.Channel, e.URL, e.At, e.Filler)
}

// random is splitmix64 (Steele, Lea and Flood, 2014).
type random uint64

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// below is one of 0 to n-1; that it is not quite even doesn't matter here.
func (r *random) below(n int64) int64 { return int64(r.next() % uint64(n)) }

// price is 100 to 10^8 cents, each power of ten as often as another.
func (r *random) price() int64 {
	u := float64(r.next()>>11) / (1 << 53)
	return int64(math.Round(math.Pow(10, u*6) * 100))
}

func (r *random) letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.next()%26)
	}
	return string(b)
}

// filler is letters that bring an event near its size, a fifth more or less.
func (r *random) filler(n int) string {
	if n <= 0 {
		return ""
	}
	fifth := int64(n / 5)
	return r.letters(n - int(fifth) + int(r.below(2*fifth+1)))
}
