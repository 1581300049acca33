package observe

import "time"

// counts are what is added up.
type counts struct{ msgs, bytes, checked, failed int64 }

func (c *counts) add(o counts) {
	c.msgs += o.msgs
	c.bytes += o.bytes
	c.checked += o.checked
	c.failed += o.failed
}

// window adds up over the last so many spans of time, the present one included.
type window struct {
	width time.Duration
	spans []counts
	at    int64 // number of the present span
}

func newWindow(width time.Duration, spans int) window {
	return window{width: width, spans: make([]counts, spans)}
}

// move forgets what is too old.
func (w *window) move(now time.Time) {
	at := now.UnixNano() / int64(w.width)
	if at <= w.at {
		return // also when the clock was set back: it goes on in the present span
	}
	for i := max(w.at+1, at-int64(len(w.spans))+1); i <= at; i++ {
		w.spans[i%int64(len(w.spans))] = counts{}
	}
	w.at = at
}

func (w *window) add(now time.Time, c counts) {
	w.move(now)
	w.spans[w.at%int64(len(w.spans))].add(c)
}

func (w *window) sum(now time.Time) (c counts) {
	w.move(now)
	for _, s := range w.spans {
		c.add(s)
	}
	return c
}
