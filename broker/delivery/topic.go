package delivery

import (
	"strings"
	"sync"

	"github.com/heraldmq/herald/topics"
)

// scanMost is how many new messages a topic looks at to find out whom they
// concern; when there are more, everybody hungry is woken.
const scanMost = 2048

// topic is the engine's side of one topic: its loaded readers, and which of them
// are hungry.
type topic struct {
	e       *Engine
	id      topics.TopicID
	account string
	name    string
	data    Topic

	mu      sync.RWMutex
	readers map[string]*reader
	ended   []byte // set once the topic has let go of its readers

	hungryMu sync.Mutex
	all      []*reader           // hungry, without a filter
	filtered map[string][]hungry // by the literal tokens their pattern begins with
	waiting  int                 // readers in filtered
	scanned  topics.Sequence     // messages up to here have been looked at
	state    taskState           // of the scan
	buffer   []topics.Message    // owned by the scan
}

// hungry is a pattern of a hungry reader. A reader with several patterns has
// several; the round tells entries of an earlier hunger.
type hungry struct {
	r     *reader
	round uint64
}

func newTopic(e *Engine, data Topic) *topic {
	cfg := data.Config()
	return &topic{
		e: e, id: data.ID(), account: data.Account(), name: cfg.Name, data: data,
		readers: map[string]*reader{}, filtered: map[string][]hungry{},
	}
}

func (t *topic) find(name string) *reader {
	if t == nil {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.readers[name]
}

// add keeps r, or returns the reader that was faster.
func (t *topic) add(r *reader) *reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return nil
	}
	if old := t.readers[r.name]; old != nil {
		return old
	}
	t.readers[r.name] = r
	return r
}

func (t *topic) remove(name string) *reader {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.readers[name]
	delete(t.readers, name)
	return r
}

// end lets go of all readers.
func (t *topic) end(status []byte) {
	t.mu.Lock()
	t.ended = status
	list := t.readers
	t.readers = map[string]*reader{}
	t.mu.Unlock()
	for _, r := range list {
		r.end(status)
	}
}

// hunger notes that a reader has somebody to deliver to and nothing to deliver.
// last is the topic's last sequence as the caller knows it. The caller must look
// for new messages once more afterwards: some may have come between its last look
// and the note.
func (t *topic) hunger(r *reader, patterns []string, last topics.Sequence) {
	t.hungryMu.Lock()
	defer t.hungryMu.Unlock()
	if r.hungry {
		return
	}
	r.hungry = true
	r.round++
	if len(patterns) == 0 {
		t.all = append(t.all, r)
		return
	}
	if t.waiting == 0 {
		t.scanned = last // nobody cared for what came so far
	}
	t.waiting++
	for _, p := range patterns {
		k := literalStart(p)
		t.filtered[k] = append(t.filtered[k], hungry{r, r.round})
	}
}

// literalStart returns the tokens of a pattern before its first wildcard.
func literalStart(pattern string) string {
	end := 0
	for rest := pattern; ; {
		token, tail, more := strings.Cut(rest, ".")
		if token == "*" || token == ">" {
			return pattern[:max(end-1, 0)]
		}
		if !more {
			return pattern
		}
		end += len(token) + 1
		rest = tail
	}
}

// grown wakes those without a filter, and has a worker look for the others.
func (t *topic) grown() {
	t.hungryMu.Lock()
	list := t.all
	t.all = nil
	for _, r := range list {
		r.hungry = false
	}
	scan := t.waiting > 0
	t.hungryMu.Unlock()
	for _, r := range list {
		r.wake()
	}
	if scan && t.state.wake() {
		t.e.pool.push(t)
	}
}

// turn looks for those the new messages concern.
func (t *topic) turn(*worker) {
	t.state.begin()
	first, last := t.data.Bounds()
	t.hungryMu.Lock()
	from := max(t.scanned+1, first)
	t.scanned = max(t.scanned, last)
	t.hungryMu.Unlock()
	if last >= from+scanMost {
		t.wakeFiltered()
	} else {
		t.scan(from, last)
	}
	if t.state.finish() {
		t.e.pool.push(t)
	}
}

func (t *topic) scan(from, last topics.Sequence) {
	for from <= last {
		msgs, next, err := t.data.Read(nil, from, 256, 1<<20, t.buffer[:0])
		if err != nil {
			t.wakeFiltered() // each finds out for itself
			return
		}
		for i := range msgs {
			t.wakeFor(msgs[i].Subject)
		}
		clear(msgs)
		t.buffer = msgs[:0]
		if next <= from {
			return
		}
		from = next
	}
}

// wakeFor wakes the hungry readers that a subject may concern. One that is woken
// for nothing goes hungry again.
func (t *topic) wakeFor(subject string) {
	t.hungryMu.Lock()
	defer t.hungryMu.Unlock()
	if t.waiting == 0 {
		return
	}
	t.wakeUnder("", subject)
	for i := 0; i < len(subject); i++ {
		if subject[i] == '.' {
			t.wakeUnder(subject[:i], subject)
		}
	}
	t.wakeUnder(subject, subject)
}

func (t *topic) wakeUnder(start, subject string) {
	list, ok := t.filtered[start]
	if !ok {
		return
	}
	kept := list[:0]
	for _, h := range list {
		if !h.r.hungry || h.r.round != h.round {
			continue
		}
		if !h.r.filter.Load().Match(subject) {
			kept = append(kept, h)
			continue
		}
		h.r.hungry = false
		t.waiting--
		h.r.wake()
	}
	clear(list[len(kept):])
	if len(kept) == 0 {
		delete(t.filtered, start)
		return
	}
	t.filtered[start] = kept
}

func (t *topic) wakeFiltered() {
	t.hungryMu.Lock()
	old := t.filtered
	t.filtered, t.waiting = map[string][]hungry{}, 0
	t.hungryMu.Unlock()
	for _, list := range old {
		for _, h := range list {
			t.hungryMu.Lock()
			fresh := h.r.hungry && h.r.round == h.round
			if fresh {
				h.r.hungry = false
			}
			t.hungryMu.Unlock()
			if fresh {
				h.r.wake()
			}
		}
	}
}

// sated takes back a hunger.
func (t *topic) sated(r *reader, filtered bool) {
	t.hungryMu.Lock()
	defer t.hungryMu.Unlock()
	if !r.hungry {
		return
	}
	r.hungry = false
	if filtered {
		t.waiting--
		return // the entries are recognised by their round
	}
	for i, o := range t.all {
		if o == r {
			t.all = append(t.all[:i], t.all[i+1:]...)
			return
		}
	}
}
