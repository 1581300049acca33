package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/client"
)

// three is one run of the demo on three nodes.
type three struct {
	Options
	*ClusterReport
	quakes  []quake
	flights []flight
	ports   []airport
	c       *client.Client
	pub     *client.Publisher

	watchers []*watcher
	pending  []waiting
	at       int       // how many of the events were published
	paced    time.Time // when the last of them was

	topics [3][]*client.Message // what is stored: quakes, flights, airports
}

// message is one to publish.
type message struct {
	subject, id string
	payload     []byte
}

// waiting is one without receipt.
type waiting struct {
	m      message
	future *client.Future
}

// The parts of the run: in front of each but the first a primary is killed, as long as
// there is an operator whose primary has not been.
const parts = 4

// pace is how long the events of a part are spread over, so that something is on its way
// all the time.
const pace = time.Second

// RunCluster runs the demo on three nodes: earthquakes and flights are published, three
// operators work on them, and the primary of each is killed on the way. The report is
// complete when the error is nil; whether everything is identical is for Faults to say.
// Close it.
func RunCluster(ctx context.Context, o Options) (_ *ClusterReport, err error) {
	if o.Note == nil {
		o.Note = func(string, ...any) {}
	}
	d := &three{Options: o, ClusterReport: &ClusterReport{}}
	if d.quakes, d.flights, d.ports, err = data(); err != nil {
		return nil, err
	}
	if o.Directory == "" {
		if d.Options.Directory, err = os.MkdirTemp("", "herald-demo-"); err != nil {
			return nil, fmt.Errorf("make a temporary directory: %w", err)
		}
		d.temporary = true
	}
	d.ClusterReport.Directory = d.Options.Directory
	defer func() {
		err = errors.Join(err, d.leave())
		if err != nil {
			err = errors.Join(err, d.ClusterReport.Close())
		}
	}()
	began := time.Now()
	for _, step := range []func(context.Context) error{d.begin, d.prepare, d.publishAll, d.readAll, d.compare, d.filter} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	d.Seconds = time.Since(began).Seconds()
	d.Facts = clusterFacts(d.quakes, d.flights, d.ports)
	return d.ClusterReport, nil
}

// begin starts the nodes and connects.
func (d *three) begin(ctx context.Context) (err error) {
	if d.nodes, err = startCluster(ctx, d.Options); err != nil {
		return err
	}
	for _, m := range d.nodes.members {
		d.Nodes = append(d.Nodes, URLs{Client: m.URL, Monitor: m.Monitor})
	}
	d.Note("three nodes on this machine, their data in %s", d.Options.Directory)
	d.c, err = connect(d.nodes.urls())
	return err
}

func connect(url string) (*client.Client, error) {
	return client.Connect(url, client.Name("pubsub demo"), client.ReconnectWait(20*time.Millisecond), client.NATS(nats.ReconnectJitter(0, 0)),
		client.PublishTimeout(time.Second), client.PublishWindow(len(flightsFile)))
}

// prepare advertises the earthquakes, makes the other topics and deploys the operators.
func (d *three) prepare(ctx context.Context) (err error) {
	feed := feed()
	feed.Keep.Replicas = 3
	if err := until(ctx, "the advertisement", func() (bool, error) {
		d.pub, err = d.c.Advertise(ctx, feed)
		return err == nil, err
	}); err != nil {
		return err
	}
	for _, cfg := range []client.TopicConfig{
		{Name: "flights", Subjects: []string{"flights.>"}, Replicas: 3},
		{Name: "airports", Subjects: []string{"airports.*"}, MaxMsgsPerSubject: 1, Replicas: 3},
	} {
		if err := until(ctx, "topic "+cfg.Name, func() (bool, error) {
			_, err := d.c.CreateTopic(ctx, cfg)
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	for _, text := range operatorFiles {
		var to client.OperatorChange
		if err := until(ctx, "an operator", func() (bool, error) {
			err := d.c.Operators(ctx, "DEPLOY", client.OperatorRequest{Spec: text}, &to)
			return err == nil, err
		}); err != nil {
			return err
		}
		d.Operators = append(d.Operators, OperatorResult{Name: to.Operator.Name})
	}
	d.Note("advertised the earthquakes, made the topics, and deployed three operators, each with a replica on every node")
	for _, m := range d.nodes.members {
		w, err := watch(m.Name, m.URL, d.Operators)
		if err != nil {
			return err
		}
		d.watchers = append(d.watchers, w)
	}
	// Airports first: a flight gets the names that are in the table when it is read.
	for _, p := range d.ports {
		d.send(ctx, message{"airports." + p.IATA, "airport " + p.IATA, p.line})
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	d.Airports = len(d.ports)
	return until(ctx, "the table of airports", func() (bool, error) {
		i, err := d.info(ctx, "flights_named")
		if err != nil {
			return false, err
		}
		read := uint64(0) // by whoever led
		for _, r := range i.Replicas {
			read += r.Stats.In
		}
		return read >= uint64(len(d.ports)), nil
	})
}

func (d *three) info(ctx context.Context, name string) (i client.OperatorInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return i, d.c.Operators(ctx, "INFO", client.OperatorRequest{Name: name}, &i)
}

// mixed is all events, earthquakes among flights, each in their order.
func (d *three) mixed() ([]message, error) {
	all := make([]message, 0, len(d.quakes)+len(d.flights))
	feed := feed()
	for q, f := 0, 0; q < len(d.quakes) || f < len(d.flights); {
		if f == len(d.flights) || q*len(d.flights) < f*len(d.quakes) {
			subject, err := feed.Fill(d.quakes[q].tokens())
			if err != nil {
				return nil, err
			}
			all = append(all, message{subject, d.quakes[q].ID, d.quakes[q].line})
			q++
			continue
		}
		all = append(all, message{"flights." + d.flights[f].Origin, fmt.Sprint("flight ", f), d.flights[f].line})
		f++
	}
	d.Quakes, d.Flights = len(d.quakes), len(d.flights)
	return all, nil
}

// publishAll publishes the events part by part, with a kill in front of each but the first.
func (d *three) publishAll(ctx context.Context) error {
	all, err := d.mixed()
	if err != nil {
		return err
	}
	for part := range parts {
		upTo := len(all) * (part + 1) / parts
		if part == 0 {
			if err := d.publishPaced(ctx, all[:upTo]); err != nil {
				return err
			}
			continue
		}
		if err := d.killOne(ctx, all[d.at:upTo]); err != nil {
			return err
		}
	}
	return d.caughtUp(ctx)
}

// send publishes one message; what can't even be sent is sent again later.
func (d *three) send(ctx context.Context, m message) {
	f, err := d.c.PublishAsync(ctx, m.subject, m.payload, client.MessageID(m.id))
	if err != nil {
		f = nil
	}
	d.pending = append(d.pending, waiting{m, f})
}

// publishPaced publishes messages over a while and waits for their receipts.
func (d *three) publishPaced(ctx context.Context, all []message) error {
	const slices = 100
	tick := time.NewTicker(pace / slices)
	defer tick.Stop()
	for i := range slices {
		for _, m := range all[len(all)*i/slices : len(all)*(i+1)/slices] {
			d.send(ctx, m)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.at += len(all)
	d.paced = time.Now()
	return d.settle(ctx)
}

// settle waits for receipts, and publishes again what got none until it has one. The ids
// make that safe: what was stored without its receipt getting through is found, not stored
// twice.
func (d *three) settle(ctx context.Context) error {
	for deadline := time.Now().Add(patience); ; {
		var lost []message
		for _, p := range d.pending {
			if p.future == nil {
				lost = append(lost, p.m)
				continue
			}
			r, err := p.future.Wait(ctx)
			switch {
			case err != nil:
				lost = append(lost, p.m)
				continue
			case r.Duplicate:
				d.FoundStored++
			}
			d.Acked++
		}
		d.pending = d.pending[:0]
		if len(lost) == 0 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%d messages have no receipt after %s", len(lost), patience), ctx.Err())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		d.Republished += len(lost)
		for _, m := range lost {
			d.send(ctx, m)
		}
	}
}

// killOne kills the primary of an operator whose primary was not killed yet while a part is
// published, and waits until its node is back and everything has been worked on.
func (d *three) killOne(ctx context.Context, part []message) error {
	node, hit, err := d.victim(ctx)
	if err != nil {
		return err
	}
	if node == "" {
		return d.publishPaced(ctx, part)
	}
	burst := part[:len(part)/10] // is on its way when the node dies
	for _, m := range burst {
		d.send(ctx, m)
	}
	d.at += len(burst)
	k := Kill{Node: node, Operators: hit, After: d.at}
	killed := time.Now()
	back, err := d.nodes.kill(node)
	if err != nil {
		return err
	}
	if err := d.publishPaced(ctx, part[len(burst):]); err != nil {
		return err
	}
	if err := d.caughtUp(ctx); err != nil {
		return err
	}
	for _, name := range hit {
		k.SilentMillis = max(k.SilentMillis, d.silence(node, name, killed, d.paced).Milliseconds())
	}
	if err := back(ctx); err != nil {
		return err
	}
	k.BackMillis = time.Since(killed).Milliseconds()
	d.Kills = append(d.Kills, k)
	d.Note("killed %s (kill -9), the primary of %s, after %d events: %d ms without a result; its node is back", node, strings.Join(hit, " and "), k.After, k.SilentMillis)
	return nil
}

// victim is a node that leads operators whose primary has not been killed.
func (d *three) victim(ctx context.Context) (node string, hit []string, err error) {
	err = until(ctx, "primaries", func() (bool, error) {
		node, hit = "", nil
		for i := range d.Operators {
			o := &d.Operators[i]
			if slices.ContainsFunc(d.Kills, func(k Kill) bool { return slices.Contains(k.Operators, o.Name) }) {
				continue
			}
			info, err := d.info(ctx, o.Name)
			if err != nil || info.Leader == "" {
				return false, err
			}
			if node == "" || node == info.Leader {
				node, hit = info.Leader, append(hit, o.Name)
			}
		}
		return true, nil
	})
	return node, hit, err
}

// caughtUp waits until every operator has given a result for each record published so far.
func (d *three) caughtUp(ctx context.Context) error {
	for i := range d.Operators {
		in := "quakes"
		if d.Operators[i].Name == "flights_named" {
			in = "flights"
		}
		if err := until(ctx, "the results of "+d.Operators[i].Name, func() (bool, error) {
			want, err := d.stored(ctx, in)
			if err != nil {
				return false, err
			}
			have, err := d.stored(ctx, d.Operators[i].Name)
			if err == nil && have < want {
				err = fmt.Errorf("there are %d of %d", have, want)
			}
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (d *three) stored(ctx context.Context, topic string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	t, err := d.c.Topic(ctx, topic)
	if err != nil {
		return 0, err
	}
	return t.State.Msgs, nil
}

// readAll reads what the topics hold from the beginning.
func (d *three) readAll(ctx context.Context) (err error) {
	for i, topic := range []string{"quakes", "flights", "airports"} {
		if d.topics[i], err = readTopic(ctx, d.c, topic, 0); err != nil {
			return err
		}
	}
	for i := range d.Operators {
		if d.Operators[i].results, err = readTopic(ctx, d.c, d.Operators[i].Name, 0); err != nil {
			return err
		}
	}
	return nil
}

// readTopic reads a topic that is to have n messages, or what there is after some time.
func readTopic(ctx context.Context, c *client.Client, topic string, n int) (all []*client.Message, err error) {
	var info *client.TopicInfo
	err = until(ctx, fmt.Sprintf("%d messages in %s", n, topic), func() (bool, error) {
		info, err = c.Topic(ctx, topic)
		return err == nil && info.State.LastSeq >= uint64(n), err
	})
	if info == nil || info.State.Msgs == 0 {
		return nil, err
	}
	done := make(chan struct{})
	sub, err := c.Subscribe(cmp.Or(slices.Concat(info.Config.Subjects, []string{topic})...), func(m *client.Message) error {
		if all = append(all, m); m.Stored.Sequence == info.State.LastSeq {
			close(done)
		}
		return nil
	}, client.From(client.First()))
	if err != nil {
		return nil, err
	}
	select {
	case <-done:
	case <-time.After(patience):
		err = fmt.Errorf("topic %s could not be read in %s", topic, patience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return all, errors.Join(err, sub.Close())
}

// strong is the condition that the broker filters by.
const strong = 5.0

// filter has the broker pick the strong events out of the topic.
func (d *three) filter(ctx context.Context) error {
	for _, q := range d.quakes {
		if q.Mag != nil && *q.Mag >= strong {
			d.Strong++
		}
	}
	all := make(chan struct{}, len(d.quakes))
	sub, err := d.c.Subscribe("quakes.>", func(*client.Message) error {
		all <- struct{}{}
		return nil
	}, client.From(client.First()), client.Where(fmt.Sprintf("mag >= %.1f", strong)))
	if err != nil {
		return err
	}
	for enough := time.After(patience); d.Filtered < d.Strong; {
		select {
		case <-all:
			d.Filtered++
			continue
		case <-enough:
		case <-ctx.Done():
		}
		break
	}
	if err := sub.Close(); err != nil {
		return err
	}
	d.Filtered += len(all)
	return ctx.Err()
}

// leave disconnects. With Keep the advertisement stays until its lease ends.
func (d *three) leave() error {
	var errs []error
	for _, w := range d.watchers {
		errs = append(errs, w.c.Close())
	}
	if d.c == nil {
		return errors.Join(errs...)
	}
	if d.Keep {
		d.keep = d.c // holds the lease
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, d.c.Close())...)
}
