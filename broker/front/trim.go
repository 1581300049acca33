package front

import (
	"bytes"
	"strconv"
)

// A subscription may be given a limit (UNSUB with a maximum) while a publisher
// has deliveries for it staged under a match that knew of none. Those are
// counted when the batch is handed over; what is then too many is cut out of
// the staged bytes, so that the limit holds exactly. It happens once per limit
// at most, so it may be slow.

// settle counts n deliveries of a subscription that had no limit when they were
// staged, and returns how many of them are too many.
func (u *sub) settle(n int) (excess int) {
	total, most := u.delivered.Add(int64(n)), u.max.Load()
	if most <= 0 || total < most {
		return 0
	}
	excess = min(n, int(total-most))
	u.delivered.Add(-int64(excess))
	if u.sess != nil {
		u.sess.removeSub(u)
	}
	return excess
}

// settle counts what is staged per receiver.
func (st *stager) settle() {
	for i, r := range st.counted {
		if excess := r.sub.settle(r.n); excess > 0 && r.stage != nil {
			g := r.stage
			g.msgs -= excess
			g.spool = st.cut(g.spool.take(nil), r.sub.sid, excess)
		}
		r.n = 0
		st.counted[i] = nil
	}
	st.counted = st.counted[:0]
}

// cut returns the bytes of pieces without the last n messages for sid. It
// releases pieces.
func (st *stager) cut(pieces []piece, sid string, n int) (out spool) {
	var flat []byte
	for _, p := range pieces {
		flat = append(flat, p.b...)
	}
	releaseAll(pieces)
	frames := framesOf(flat)
	drop := make([]bool, len(frames))
	for i := len(frames) - 1; i >= 0 && n > 0; i-- {
		if frames[i].sid == sid {
			drop[i] = true
			n--
		}
	}
	at := 0
	for i, f := range frames {
		if !drop[i] {
			out.append2(&st.srv.chunks, flat[at:f.end], nil)
		}
		at = f.end
	}
	return out
}

// frame is one operation as it is sent to a client; sid is empty unless it is a
// message.
type frame struct {
	sid string
	end int
}

// framesOf cuts bytes that the broker wrote itself into operations.
func framesOf(b []byte) (frames []frame) {
	for at := 0; at < len(b); {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			return append(frames, frame{end: len(b)})
		}
		line := bytes.TrimRight(b[at:at+n], "\r")
		f := frame{end: at + n + 1}
		if words := bytes.Fields(line); len(words) >= 4 && bytes.HasSuffix(words[0], []byte("MSG")) {
			if size, err := strconv.Atoi(string(words[len(words)-1])); err == nil {
				f.sid = string(words[2])
				f.end = min(f.end+size+2, len(b))
			}
		}
		frames = append(frames, f)
		at = f.end
	}
	return frames
}
