package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/topics/filter"
)

const (
	pullMost    = 256
	pullExpires = 30 * time.Second
	pullBeat    = 5 * time.Second // of the broker, while a pull waits
	pullSilence = 12 * time.Second
	pullPause   = 250 * time.Millisecond // after something went wrong
	readerIdle  = time.Minute            // a private reader without user
	codeNoTopic = 10059
	codeNoRead  = 10014
)

// stored feeds the queue from a topic.
type stored struct {
	u     *subscriber
	topic string
	wg    sync.WaitGroup

	name string // the consumer's
	seq  uint64 // the last message's sequence; the next reader starts behind it
	wake chan struct{}

	mu    sync.Mutex
	round *round
}

// round is one consumer's life: a private one is made anew when it is lost.
type round struct {
	inbox string
	next  uint64 // the expected number of the next delivery to a private reader
	left  atomic.Int64
	heard atomic.Int64 // ns
	lost  atomic.Bool
}

// openStored finds the topic and makes or finds the reader.
func (u *subscriber) openStored(ctx context.Context) (*stored, error) {
	t := &stored{u: u, topic: u.p.topic, wake: make(chan struct{}, 1)}
	if t.topic == "" {
		var names struct {
			Error   *apiError `json:"error"`
			Streams []string  `json:"streams"`
		}
		err := u.ask(ctx, u.s.o.API+".STREAM.NAMES", map[string]string{"subject": u.p.subject}, &names, &names.Error)
		if err != nil {
			return nil, err
		}
		if len(names.Streams) == 0 {
			return nil, &failure{http.StatusNotFound, "no topic keeps messages of " + u.p.subject + ": create one, or leave from and durable out to listen live"}
		}
		t.topic = names.Streams[0]
	}
	if err := t.reader(ctx); err != nil {
		return nil, err
	}
	t.wg.Go(t.pull)
	return t, nil
}

// consumerConfig is what the API wants of a consumer.
type consumerConfig struct {
	Name              string            `json:"name,omitempty"`
	Durable           string            `json:"durable_name,omitempty"`
	DeliverPolicy     string            `json:"deliver_policy"`
	OptStartSeq       uint64            `json:"opt_start_seq,omitempty"`
	OptStartTime      *time.Time        `json:"opt_start_time,omitempty"`
	AckPolicy         string            `json:"ack_policy"`
	FilterSubject     string            `json:"filter_subject,omitempty"`
	FilterSubjects    []string          `json:"filter_subjects,omitempty"`
	ReplayPolicy      string            `json:"replay_policy"`
	InactiveThreshold time.Duration     `json:"inactive_threshold,omitempty"`
	MemStorage        bool              `json:"mem_storage,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
}

// config is the consumer that the subscriber asks for.
func (t *stored) config() consumerConfig {
	p := &t.u.p
	c := consumerConfig{
		DeliverPolicy: p.policy, OptStartSeq: p.startSeq, AckPolicy: "none", ReplayPolicy: "instant", FilterSubject: p.subject,
		Name: "web-" + nuid.Next(), InactiveThreshold: readerIdle, MemStorage: true,
	}
	if !p.startTime.IsZero() {
		c.OptStartTime = &p.startTime
	}
	if t.seq > 0 {
		c.DeliverPolicy, c.OptStartSeq, c.OptStartTime = "by_start_sequence", t.seq+1, nil
	}
	if p.durable != "" {
		c.Name, c.Durable, c.AckPolicy, c.InactiveThreshold, c.MemStorage = p.durable, p.durable, "explicit", 0, false
	}
	if p.where != "" {
		c.Metadata = map[string]string{filter.KeyWhere: p.where}
		if p.codec != "" {
			c.Metadata[filter.KeyCodec] = p.codec
		}
	}
	return c
}

// reader makes the consumer, or finds a named one, and listens to it.
func (t *stored) reader(ctx context.Context) error {
	u := t.u
	want := t.config()
	if u.p.durable != "" {
		found, err := t.existing(ctx, &want)
		if err != nil {
			return err
		}
		if found {
			return t.listen(ctx, want.Name)
		}
	}
	var made struct {
		Error *apiError `json:"error"`
	}
	err := u.ask(ctx, u.s.o.API+".CONSUMER.CREATE."+t.topic+"."+want.Name, map[string]any{"stream_name": t.topic, "config": want}, &made, &made.Error)
	if err != nil {
		return err
	}
	return t.listen(ctx, want.Name)
}

// existing looks for a named reader, which must read the same.
func (t *stored) existing(ctx context.Context, want *consumerConfig) (bool, error) {
	var info struct {
		Error  *apiError      `json:"error"`
		Config consumerConfig `json:"config"`
	}
	err := t.u.ask(ctx, t.u.s.o.API+".CONSUMER.INFO."+t.topic+"."+want.Name, nil, &info, &info.Error)
	if info.Error != nil && info.Error.ErrCode == codeNoRead {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	have := info.Config.FilterSubjects
	if info.Config.FilterSubject != "" {
		have = []string{info.Config.FilterSubject}
	}
	same := slices.Equal(have, []string{want.FilterSubject}) || len(have) == 0 && want.FilterSubject == ">"
	if !same || info.Config.Metadata[filter.KeyWhere] != want.Metadata[filter.KeyWhere] {
		return false, &failure{http.StatusConflict, "reader " + want.Name + " of topic " + t.topic + " exists and reads something else (another subject or where); use another name or delete it"}
	}
	return true, nil
}

// listen begins a round with the consumer.
func (t *stored) listen(ctx context.Context, name string) error {
	r := &round{inbox: "_INBOX." + nuid.Next(), next: 1}
	r.heard.Store(time.Now().UnixNano())
	if err := t.u.link.subscribe(ctx, r.inbox, func(m *message) { t.take(r, m) }); err != nil {
		return err
	}
	t.mu.Lock()
	t.name, t.round = name, r
	t.mu.Unlock()
	return nil
}

// take handles what comes from the consumer, on the link's reader.
func (t *stored) take(r *round, m *message) {
	r.heard.Store(time.Now().UnixNano())
	if code, text := m.status(); code != 0 {
		t.status(r, code, text)
		return
	}
	at, ok := placeOf(m.reply)
	t.mu.Lock()
	ok = ok && t.round == r && !r.lost.Load()
	if ok && t.u.p.durable == "" {
		if at.consumer != r.next {
			r.lost.Store(true) // something is missing: read on from the last message
			ok = false
		}
		r.next++
	}
	if ok {
		t.seq = max(t.seq, at.seq)
	}
	t.mu.Unlock()
	if !ok {
		t.nudge()
		return
	}
	it := item{seq: at.seq}
	if t.u.p.durable != "" {
		it.ack = m.reply
	}
	if !t.u.out.push(it, func(n uint64) []byte { return appendMessage(nil, n, m, &at) }) {
		t.u.full() // can't be: no more is asked for than there is room
	}
	if r.left.Add(-1) <= 0 {
		t.nudge()
	}
}

// status handles what the broker says about a pull.
func (t *stored) status(r *round, code int, text string) {
	switch {
	case code == 100:
		return // a sign of life
	case code == 409 && text == "Consumer Deleted" && t.u.p.durable != "":
		t.u.stop(&failure{http.StatusGone, "the reader " + t.u.p.durable + " was deleted"})
		return
	case code == 409 && text == "Consumer Deleted", code == 503:
		r.lost.Store(true)
	}
	r.left.Store(0)
	t.nudge()
}

func (t *stored) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// pull asks for messages while there is room for them, until the subscriber ends.
func (t *stored) pull() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for t.u.ctx.Err() == nil {
		t.mu.Lock()
		r := t.round
		t.mu.Unlock()
		silent := time.Since(time.Unix(0, r.heard.Load())) > pullSilence
		if _, size := t.u.out.waiting(); (r.left.Load() <= 0 || silent) && size < t.u.s.o.MaxPending/2 && !t.again(r, silent) {
			select {
			case <-time.After(pullPause):
			case <-t.u.ctx.Done():
			}
			continue
		}
		select {
		case <-t.wake:
		case <-tick.C: // the queue may have emptied
		case <-t.u.ctx.Done():
		}
	}
}

// again makes a lost private reader anew, and asks for more.
func (t *stored) again(r *round, silent bool) bool {
	if t.u.p.durable == "" && (r.lost.Load() || silent) {
		ctx, cancel := context.WithTimeout(t.u.ctx, openTime)
		defer cancel()
		if err := t.reader(ctx); err != nil {
			if f := failed(err); f.Status == http.StatusNotFound {
				t.u.stop(f) // the topic is gone
			}
			return false
		}
		t.mu.Lock()
		r = t.round
		t.mu.Unlock()
	}
	n := pullMost
	if t.u.p.window > 0 {
		n = min(n, t.u.p.window)
	}
	body, err := json.Marshal(map[string]any{
		"batch": n, "expires": pullExpires, "idle_heartbeat": pullBeat, "max_bytes": t.u.s.o.MaxPending / 2,
	})
	if err != nil {
		return false
	}
	r.left.Store(int64(n))
	r.heard.Store(time.Now().UnixNano())
	t.mu.Lock()
	name := t.name
	t.mu.Unlock()
	return t.u.link.publish(t.u.s.o.API+".CONSUMER.MSG.NEXT."+t.topic+"."+name, r.inbox, nil, body) == nil
}

// close ends the feed; a private reader is deleted.
func (t *stored) close() {
	t.wg.Wait()
	if t.u.p.durable == "" {
		_ = t.u.link.publish(t.u.s.o.API+".CONSUMER.DELETE."+t.topic+"."+t.name, "", nil, nil) // it ends by itself otherwise
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = t.u.link.flush(ctx)
		cancel()
	}
}
