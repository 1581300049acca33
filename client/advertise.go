package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The subjects of the advertise service; docs/advertise.md is their contract.
const (
	advPut      = "$HERALD.ADV.PUT"
	advGet      = "$HERALD.ADV.GET"
	advList     = "$HERALD.ADV.LIST"
	advRenew    = "$HERALD.ADV.RENEW"
	advWithdraw = "$HERALD.ADV.WITHDRAW"
	advSample   = "$HERALD.ADV.SAMPLE"
	advCheck    = "$HERALD.ADV.CHECK"
)

// advReply is any answer of the advertise service.
type advReply struct {
	Error          *jetstream.APIError `json:"error"`
	Advertisement  *Advertisement      `json:"advertisement"`
	Advertisements []Advertisement     `json:"advertisements"`
	Total          int                 `json:"total"`
	Offset         int                 `json:"offset"`
	Revision       uint64              `json:"revision"`
	Resumed        bool                `json:"resumed"`
	Observed       []Observed          `json:"observed"`
	Undeclared     []Observed          `json:"undeclared"`
	Nearest        *Nearest            `json:"nearest"`
	Warnings       []string            `json:"warnings"`
	Subscribers    int                 `json:"subscribers"`
}

// advRequest asks the advertise service.
func (c *Client) advRequest(ctx context.Context, op, target, subject string, body any) (*advReply, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	b, err := json.Marshal(body)
	if err != nil {
		return nil, failed(op, target, err)
	}
	m, err := c.nc.RequestWithContext(ctx, subject, b)
	if errors.Is(err, nats.ErrNoResponders) {
		err = errNoService
	}
	if err != nil {
		return nil, failed(op, target, err)
	}
	return advAnswer(op, target, m)
}

var errNoService = fmt.Errorf("the broker has no advertise service (is it Herald?): %w", nats.ErrNoResponders)

// advAnswer reads an answer of the advertise service.
func advAnswer(op, target string, m *nats.Msg) (*advReply, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nil, failed(op, target, errNoService)
	}
	var reply advReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return nil, failed(op, target, fmt.Errorf("answer of the advertise service: %w", err))
	}
	if reply.Error != nil {
		return nil, failed(op, target, reply.Error)
	}
	return &reply, nil
}

// advKey names an advertisement in requests.
type advKey struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
}

// Key is the part of an owner that advertisements of one name are told apart by.
func (o Owner) Key() string {
	if o.Team == "" || o.Service == "" {
		return o.Team + o.Service
	}
	return o.Team + "/" + o.Service
}

// PutAdvertisement declares ad, or changes it, without a handle that renews it:
// for permanent leases, and for tools. It returns ad as the broker has it.
func (c *Client) PutAdvertisement(ctx context.Context, ad Advertisement, options ...PutOption) (*Advertisement, error) {
	var set putting
	for _, o := range options {
		o(&set)
	}
	if set.force {
		extra := map[string]json.RawMessage{"force": json.RawMessage("true")}
		for k, v := range ad.Extra {
			extra[k] = v
		}
		ad.Extra = extra
	}
	reply, err := c.advRequest(ctx, "advertise", ad.Name, advPut, ad)
	if err != nil {
		return nil, err
	}
	if reply.Advertisement == nil {
		return nil, failed("advertise", ad.Name, errors.New("the broker's answer has no advertisement"))
	}
	if set.warn != nil {
		for _, w := range reply.Warnings {
			set.warn(w)
		}
	}
	return reply.Advertisement, nil
}

// PutOption changes how an advertisement is put.
type PutOption func(*putting)

type putting struct {
	force bool
	warn  func(string)
}

// Force puts a schema that is not compatible with the one in use, instead of being
// refused. It is for the user who put the advertisement.
func Force() PutOption { return func(p *putting) { p.force = true } }

// OnWarning is told what the broker finds worth a warning (an example that has what looks
// like a password), instead of nobody. It is called before PutAdvertisement returns.
func OnWarning(f func(string)) PutOption { return func(p *putting) { p.warn = f } }

// WithdrawAdvertisement ends an advertisement; its topic and messages stay. The
// owner is needed only when several advertise under the name.
func (c *Client) WithdrawAdvertisement(ctx context.Context, name string, owner Owner) error {
	_, err := c.advRequest(ctx, "withdraw", name, advWithdraw, advKey{name, owner.Key()})
	return err
}

// HoldAdvertisement makes the connection one of those that keep an advertisement alive, and
// that may publish where it is exclusive; for as long as the connection lasts, and its ttl.
// The owner is needed only when several advertise under the name. Advertise does it by
// itself, again and again.
func (c *Client) HoldAdvertisement(ctx context.Context, name string, owner Owner) error {
	_, err := c.advRequest(ctx, "hold", name, advRenew, advKey{name, owner.Key()})
	return err
}

// AdvertiseOption changes one setting of [Client.Advertise] from its default.
type AdvertiseOption func(*Publisher)

// OnSubscribers is called with the number of those who read what is advertised
// (subscriptions, consumers of its topic, operators): with the first one once it is known,
// and whenever it changes. It is called on one goroutine of the publisher's and must not
// call Close; default: nobody is told.
func OnSubscribers(f func(n int)) AdvertiseOption {
	return func(p *Publisher) { p.onSubscribers = f }
}

// Advertise declares what will be published and returns the handle to do it
// with. The lease is renewed until the handle is closed; when the connection or
// the broker was away for longer than the lease, it is declared again. With Keep
// set the topic exists when Advertise returns, and [Publisher.Send] stores.
func (c *Client) Advertise(ctx context.Context, ad Advertisement, options ...AdvertiseOption) (*Publisher, error) {
	got, err := c.PutAdvertisement(ctx, ad)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	p := &Publisher{client: c, want: ad, cancel: cancel, done: make(chan struct{}), ad: *got, told: make(chan *nats.Msg, 16)}
	for _, o := range options {
		o(p)
	}
	if !c.adopt(p) {
		cancel()
		return nil, &Error{Op: "advertise", Target: ad.Name, Kind: ErrClosed, Err: errors.New("the client is closed")}
	}
	if p.onSubscribers != nil {
		p.watchSubscribers()
	}
	go p.renew(life)
	return p, nil
}

// Publisher sends what was advertised.
type Publisher struct {
	client        *Client
	want          Advertisement
	onSubscribers func(int)
	cancel        context.CancelFunc
	done          chan struct{} // closed when renewing has ended

	close sync.Once
	err   error

	mu sync.Mutex
	ad Advertisement

	// Owned by Advertise until renew starts, by renew then.

	told chan *nats.Msg // of subscribers
	sub  *nats.Subscription
}

// Advertisement is what was advertised, as the broker has it.
func (p *Publisher) Advertisement() Advertisement {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ad
}

// Send publishes one message on the advertised subject with its named tokens
// filled in (nil when it has none): durably, with a receipt, when the
// advertisement keeps messages, else live with an empty receipt.
func (p *Publisher) Send(ctx context.Context, tokens Tokens, payload []byte, options ...PublishOption) (Receipt, error) {
	subject, err := p.want.Fill(tokens)
	if err != nil {
		return Receipt{}, err
	}
	if p.want.Keep == nil {
		return Receipt{}, p.client.Publish(subject, payload, options...)
	}
	return p.client.PublishDurable(ctx, subject, payload, options...)
}

// SendAsync is Send of a durable advertisement without waiting for the receipt;
// see [Client.PublishAsync].
func (p *Publisher) SendAsync(ctx context.Context, tokens Tokens, payload []byte, options ...PublishOption) (*Future, error) {
	subject, err := p.want.Fill(tokens)
	if err != nil {
		return nil, err
	}
	return p.client.PublishAsync(ctx, subject, payload, options...)
}

// Close withdraws the advertisement, unless its lease is permanent, and ends
// the renewals. Topic and messages stay.
func (p *Publisher) Close() error {
	p.close.Do(func() {
		p.cancel()
		<-p.done
		p.client.release(p)
		if p.want.Lease.Mode == LeasePermanent || !p.client.nc.IsConnected() {
			return // the lease ends by itself
		}
		p.err = p.client.WithdrawAdvertisement(context.Background(), p.want.Name, p.want.Owner)
		if errors.Is(p.err, ErrNotFound) {
			p.err = nil
		}
	})
	return p.err
}

// renew keeps the lease alive: three times per lease, and after each reconnect. It tells
// of subscribers besides.
func (p *Publisher) renew(ctx context.Context) {
	defer close(p.done)
	var ticks <-chan time.Time
	lease := p.Advertisement().Lease
	// A permanent one has nothing to renew but, where it is exclusive, the right to publish.
	renews := lease.Mode != LeasePermanent || p.want.Exclusive
	if lease.Mode != LeasePermanent {
		every := time.Duration(lease.TTL) / 3
		if every <= 0 {
			every = 10 * time.Second
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		ticks = ticker.C
	}
	back := p.client.nc.StatusChanged(nats.CONNECTED)
	defer p.client.nc.RemoveStatusListener(back)
	defer p.unwatchSubscribers()
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case m := <-p.told:
			p.tellSubscribers(m)
			continue
		case <-ticks:
		case _, open := <-back:
			if !open {
				back = nil
				continue
			}
			again = true
		}
		if !p.client.nc.IsConnected() {
			continue
		}
		if renews {
			if err := p.renewOnce(ctx); err != nil && ctx.Err() == nil {
				p.client.set.onError(err)
			}
		}
		if again && p.onSubscribers != nil {
			p.watchSubscribers()
		}
	}
}

// watchSubscribers asks the broker to tell how many read, now and whenever it changes.
func (p *Publisher) watchSubscribers() {
	p.unwatchSubscribers()
	nc := p.client.nc
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, p.told)
	if err == nil {
		p.sub = sub
		var body []byte
		body, err = json.Marshal(map[string]any{"name": p.want.Name, "owner": p.want.Owner.Key(), "subscribers": true})
		if err == nil {
			err = nc.PublishRequest(advGet, inbox, body)
		}
	}
	if err != nil {
		p.client.set.onError(failed("watch the subscribers of", p.want.Name, err))
	}
}

func (p *Publisher) unwatchSubscribers() {
	if p.sub != nil {
		_ = p.sub.Unsubscribe() // fails only on a closed connection
		p.sub = nil
	}
}

func (p *Publisher) tellSubscribers(m *nats.Msg) {
	if p.sub == nil || m.Subject != p.sub.Subject {
		return // of an inbox before
	}
	var reply struct {
		Subscribers *int                `json:"subscribers"`
		Error       *jetstream.APIError `json:"error"`
	}
	err := json.Unmarshal(m.Data, &reply)
	switch {
	case err == nil && reply.Subscribers != nil:
		p.onSubscribers(*reply.Subscribers)
	case reply.Error != nil:
		p.client.set.onError(failed("watch the subscribers of", p.want.Name, reply.Error))
	}
}

func (p *Publisher) renewOnce(ctx context.Context) error {
	_, err := p.client.advRequest(ctx, "renew the lease of", p.want.Name, advRenew, advKey{p.want.Name, p.want.Owner.Key()})
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	got, err := p.client.PutAdvertisement(ctx, p.want)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.ad = *got
	p.mu.Unlock()
	return nil
}
