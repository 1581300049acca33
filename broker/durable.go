package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/advertise"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jetstream"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/monitor"
	"github.com/heraldmq/herald/broker/operate"
	"github.com/heraldmq/herald/broker/scheduling"
	"github.com/heraldmq/herald/broker/sourcing"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// durable is the durable side of a broker: the replicated state, the delivery
// engine of each group and the JetStream API, joined to the front.
type durable struct {
	b       *Broker
	state   *state.State
	fresh   bool // there was nothing in the directory
	engines engines
	api     *jetstream.Service
	copies  *sourcing.Engine   // mirrors and sources
	plans   *scheduling.Engine // scheduled messages
	adverts *advertise.Service
	ops     *operate.Engine
	inputs  readInputs // of operators, for adverts
	letters letters

	unused chan unusedConsumer // consumers to delete; the worker's queue
	ctx    context.Context     // ends with close; of the worker's requests
	cancel context.CancelFunc
	wg     sync.WaitGroup

	held atomic.Pointer[map[string]monitor.Usage] // by account, "" for all; nil without server limits

	mu        sync.Mutex
	interests map[topics.TopicID]map[string]*front.TopicInterest // by subject
}

type unusedConsumer struct {
	topic topics.TopicID
	name  string
}

// unusedMax bounds the deletions that wait; the engine asks again for what
// finds no place.
const unusedMax = 1024

// openDurable opens what the store directory holds and begins to serve it.
func (b *Broker) openDurable() (*durable, error) {
	o := b.options.Load()
	d := &durable{
		b: b, interests: map[topics.TopicID]map[string]*front.TopicInterest{},
		unused: make(chan unusedConsumer, unusedMax),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.letters.d = d
	so := state.Options{
		Dir: filepath.Join(b.storeDir, "herald"), ServerName: b.name(o), Domain: o.JetStream.Domain, Tags: o.Tags,
		Replier: func(a *front.Account) state.Replier { return a.NewPublisher() },
		Account: b.front.Account,
		Limits:  d.limits,
		Batches: batchLimits(&o.JetStream.Limits),
		Now:     b.clock(),
		Log:     b.cfg.Log, Fatal: b.fail,
	}
	if b.links != nil {
		so.Network, so.NodeID = b.links.net, b.links.net.Name()
		so.OnRemoved, so.WriteFirst = b.onRemoved, o.Cluster.WriteFirst
	}
	_, err := os.Stat(so.Dir)
	d.fresh = errors.Is(err, os.ErrNotExist)
	if d.state, err = state.Open(so); err != nil {
		d.cancel()
		return nil, err
	}
	d.join(o)
	if b.links != nil {
		b.links.start()
	}
	if err := d.serve(o); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// clock is what entries are stamped with; nil is the system's.
func (b *Broker) clock() func() topics.Nanos {
	off := b.cfg.ClockOffset
	if off == 0 {
		return nil
	}
	b.cfg.Log.Warn("THE CLOCK OF DURABLE TOPICS IS OFF ON PURPOSE: this is for tests only", "by", off.String())
	return func() topics.Nanos { return topics.Nanos(time.Now().Add(off).UnixNano()) }
}

// join makes the rooms that work on the state.
func (d *durable) join(o *config.Options) {
	b := d.b
	d.wg.Go(d.work)
	d.plans = scheduling.New(scheduling.Options{Account: b.front.Account, Now: d.now, Log: b.cfg.Log})
	so := sourcing.Options{
		State: d.state, Account: b.front.Account, APIPrefix: domainAPI(o.JetStream.Domain), Log: b.cfg.Log,
	}
	ao := advertise.Options{
		Catalogue: d.state, Log: b.cfg.Log, Now: func() time.Time { return time.Now().Add(b.cfg.ClockOffset) },
		MayKeep: func(account string) bool { return b.options.Load().LimitsOf(account) != nil },
		Ident:   b.front.ReadIdent, Identity: b.identity("advertise", "advertise", "what is on the bus"), Readers: d.readers,
	}
	var peers jetstream.Cluster
	var near operate.Peers
	if b.links != nil {
		all := jetstream.NewNodes(d.state, b.links.net, b.links.mesh)
		peers, so.Peers, ao.Peers, near = all, all, all, all
		ao.Seen = func(t *state.Topic, node string) { d.api.Seen(t, node) }
	}
	d.copies = sourcing.New(so)
	d.ops = d.newOperators(near)
	l := o.JetStream.Limits
	d.api = jetstream.New(jetstream.Options{
		State: d.state, Peers: peers, Server: b.front, Filters: b.filters, Engine: d.engines.of, Sources: d.copies.Info, Mirrors: d.copies.Mirrors, Now: d.now,
		ServerName: b.name(o), Domain: o.JetStream.Domain, Cluster: o.Cluster.Name, Lenient: !o.JetStream.Strict,
		MaxDuplicates: l.DuplicateWindow, MaxRequestBatch: l.MaxRequestBatch, MaxAckPending: max(l.MaxAckPending, 0), MaxConsumers: l.DefaultMaxConsumers,
		QueueLimit: o.JetStream.RequestQueue, Log: b.cfg.Log,
	})
	d.adverts = advertise.New(ao)
	d.wg.Go(d.letters.run)
}

// now is the time that entries get.
func (d *durable) now() time.Time { return time.Unix(0, int64(d.state.Now())) }

// serve begins to apply to the rooms what the groups decide, and to answer the
// API.
func (d *durable) serve(o *config.Options) error {
	h := state.Hooks{
		OnTopic: d.onTopic,
		OnLeaving: func(t *state.Topic) {
			if e := d.engines.of(t.Group().ID()); e != nil {
				e.TopicLeaving(t.ID())
			}
		},
		OnGrown: func(g *state.Group, ids []topics.TopicID) {
			if e := d.engines.of(g.ID()); e != nil {
				e.Grown(ids)
			}
			d.copies.Grown(ids)
			d.plans.Grown(ids)
		},
		OnGroup: d.onGroup,
		OnLeader: func(g *state.Group, leads bool) {
			if e := d.engines.of(g.ID()); e != nil {
				e.Lead(leads)
			}
			d.copies.Lead()
			d.plans.Lead()
			if leads {
				d.api.Leads(g.ID())
			}
		},
		OnLeaderKnown: func(g *state.Group, leader string) {
			d.api.LeaderKnown(g.ID(), leader)
			d.copies.Lead()
		},
		OnCatalogueLeader: func(leads bool) {
			d.adverts.Lead(leads)
			if leads {
				d.api.Leads(topics.CatalogueGroup)
			}
		},
		OnConsumer: func(t *state.Topic, name string, c state.Change) {
			tell := func() {
				if e := d.engines.of(t.Group().ID()); e != nil {
					e.ConsumerChanged(t.ID(), name, consumerChange(c))
				}
			}
			if c == state.Created {
				d.api.ConsumerCreated(t.ID(), name, tell)
				return
			}
			tell()
		},
		OnBatchAbandoned: d.api.BatchAbandoned,
		OnAdvertisement:  d.adverts.Changed,
		OnAdvertisements: d.adverts.Restored,
	}
	d.operatorHooks(&h)
	d.ops.Attach(d.state)
	if err := d.state.Start(h); err != nil {
		return err
	}
	d.api.Start()
	return d.enable(o)
}

func batchLimits(l *config.JetStreamLimits) state.BatchLimits {
	return state.BatchLimits{
		AtomicPerTopic: l.BatchPerStream, AtomicTotal: l.BatchTotal, AtomicMessages: l.BatchMessages,
		FastPerTopic: l.BatchPerStream, FastTotal: l.BatchTotal, Idle: l.BatchTimeout,
	}
}

// consumerChange says a change in the engine's words, to which being moved is
// one more way to be updated.
func consumerChange(c state.Change) delivery.Change {
	switch c {
	case state.Created:
		return delivery.Created
	case state.Deleted:
		return delivery.Deleted
	}
	return delivery.Updated
}

// enable tells the API which accounts may have topics, and how many, and lets
// every account advertise.
func (d *durable) enable(o *config.Options) error {
	var errs []error
	for _, a := range d.b.front.Accounts() {
		if limits := o.LimitsOf(a.Name()); limits == nil {
			errs = append(errs, d.api.RefuseAccount(a.Name()))
		} else {
			errs = append(errs, d.api.EnableAccount(a.Name(), accountLimits(limits)), d.ops.Serve(a))
		}
		if !a.System() {
			errs = append(errs, d.adverts.Serve(a))
		}
	}
	return errors.Join(errs...)
}

func accountLimits(l *config.AccountLimits) jsapi.AccountLimits {
	return jsapi.AccountLimits{
		MaxMemory: l.MaxMemory, MaxStorage: l.MaxStore, MaxStreams: l.MaxStreams, MaxConsumers: l.MaxConsumers,
		MaxAckPending: l.MaxAckPending, MemoryMaxStreamBytes: l.MemoryMaxStream, StoreMaxStreamBytes: l.StoreMaxStream,
		MaxBytesRequired: l.MaxBytesRequired,
	}
}

// limits says what an account may hold: its own limits, and what the other
// accounts leave of the server's where that is less. The latter is as of the
// last measuring, which may be a second ago.
func (d *durable) limits(account string) catalogue.Limits {
	o := d.b.options.Load()
	l := o.LimitsOf(account)
	if l == nil {
		return catalogue.Limits{}
	}
	file, memory := l.MaxStore, l.MaxMemory
	if held := d.held.Load(); held != nil {
		mine := (*held)[account]
		all := (*held)[""]
		file = lower(file, o.JetStream.MaxStore, all.Store-mine.Store)
		memory = lower(memory, o.JetStream.MaxMemory, all.Memory-mine.Memory)
	}
	return catalogue.Limits{
		Topics: l.MaxStreams, Consumers: l.MaxConsumers, FileBytes: file, MemoryBytes: memory,
		FileTopicMax: l.StoreMaxStream, MemoryTopicMax: l.MemoryMaxStream, BytesRequired: l.MaxBytesRequired,
	}
}

// lower returns the lower of an account's limit and of what is left of the
// server's; 0 or less is no limit, so what is used up is a limit of one byte.
func lower(account, server int64, others uint64) int64 {
	if server <= 0 {
		return account
	}
	left := max(server-int64(others), 1)
	if account <= 0 {
		return left
	}
	return min(account, left)
}

// measure notes what each account holds, "" for all together.
func (d *durable) measure() {
	js := d.b.options.Load().JetStream
	if js.MaxStore <= 0 && js.MaxMemory <= 0 {
		return
	}
	held := map[string]monitor.Usage{}
	for _, a := range append(d.b.options.Load().DurableAccounts(), "") {
		held[a] = d.Usage(a)
	}
	d.held.Store(&held)
}

// domainAPI is the API prefix of a domain, "" without one.
func domainAPI(domain string) string {
	if domain == "" {
		return ""
	}
	return "$JS." + domain + ".API"
}

// work deletes the consumers that nobody uses any more and measures, now and
// then, how much of the server's storage each account takes.
func (d *durable) work() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
			d.measure()
		case u := <-d.unused:
			t, ok := d.state.TopicByID(u.topic)
			if !ok {
				continue
			}
			ctx, cancel := context.WithTimeout(d.ctx, 10*time.Second)
			if _, err := d.state.DeleteConsumer(ctx, t, u.name); err != nil && d.ctx.Err() == nil {
				d.b.cfg.Log.Debug("An unused consumer could not be deleted yet", "topic", t.Name(), "consumer", u.name, "error", err)
			}
			cancel()
		}
	}
}

// quiet tells those who wait for messages that the server stops.
func (d *durable) quiet() {
	for _, e := range d.engines.all() {
		e.Close()
	}
}

// close stops the API, the engines and the state, in this order.
func (d *durable) close() error {
	d.api.Close()
	d.ops.Stop()
	d.copies.Close()
	d.plans.Close()
	d.adverts.Close()
	d.quiet()
	d.cancel()
	d.wg.Wait()
	d.mu.Lock()
	for _, subjects := range d.interests {
		for _, i := range subjects {
			i.Remove()
		}
	}
	clear(d.interests)
	d.mu.Unlock()
	defer d.ops.Close() // what is still committed is taken in
	return d.state.Close()
}
