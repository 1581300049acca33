package delivery

import (
	"context"
	"time"

	"github.com/heraldmq/herald/topics"
)

// A consumer with metadata "herald.dlq.subject" gives a message up only once a copy of it
// is stored under that subject. Until then the message is pending and counts against
// max_ack_pending: a subject whose topic can't take messages stops the consumer, in the
// end, and loses nothing. Who terminates a message and asks for an answer gets it when the
// dead letter is stored. How letters come to their topic: burial.go.

// Letters is the way of dead letters to the topics that keep them. All methods may be called
// by any number of goroutines.
type Letters interface {
	// Keeper returns the topic that keeps a subject, false if none does.
	Keeper(account, subject string) (topics.TopicID, bool)
	// Send has the topic of a parcel store it, whole and once, however often and by whoever
	// it is sent. With Stored and Closed the answer is final. The error says why the topic
	// refuses it as it is, or why its fate is not known yet.
	Send(ctx context.Context, p *Parcel) (Fate, error)
	// Close has the topic of a parcel never store it. The answer is Stored when it has done
	// so before, and else Closed.
	Close(ctx context.Context, p *Parcel) (Fate, error)
}

// Parcel is dead letters of one consumer that are stored together.
type Parcel struct {
	Account  string
	Subject  string // of the letters
	From     topics.TopicID
	Consumer topics.ConsumerID
	Number   uint64 // see consumer.Parcel
	To       topics.TopicID
	Letters  []Letter
	// Given is the body of the RecordLetters by which the consumer gives the messages up. It
	// may be applied together with the storing.
	Given []byte
	// Behind is set with Closed: where the topic is. The next number must be higher.
	Behind uint64
}

// Letter is one dead letter.
type Letter struct{ Header, Payload []byte }

// Fate is what became of a parcel.
type Fate int

// The fates.
const (
	Unknown Fate = iota // it may be stored, or come to be
	Stored
	Closed  // it is not stored, and never will be
	Refused // it was not stored now
)

// DeadStats is what became of a consumer's dead letters since the node leads.
type DeadStats struct {
	Subject   string `json:"subject"`
	Moved     uint64 `json:"moved"`
	Waiting   int    `json:"waiting"`
	Failed    uint64 `json:"failed,omitempty"`
	LastError string `json:"last_error,omitempty"`
}

// deadState is what a reader has for its dead letters. Guarded by the reader's mu.
type deadState struct {
	subject string // "": none
	under   bool   // a burying is under way
	next    topics.Nanos
	pause   time.Duration
	moved   uint64
	failed  uint64
	err     string
	answers map[topics.Sequence][]string // who waits to hear that a message is terminated

	round   uint64                     // number of the last burying
	refused map[topics.Sequence]uint64 // letters that were refused alone, and in which round
	most    int                        // letters in a parcel, less after a refusal; 0: parcelMost
}

const (
	burialsMost   = 64 // parcels under way of one engine
	burialPause   = 250 * time.Millisecond
	burialPauseTo = 15 * time.Second
	burialTimeout = 10 * time.Second
	burialSoon    = 20 * time.Millisecond
)

// bury begins to bury, if there is something to bury. The caller holds r.mu.
func (r *reader) bury(now topics.Nanos) {
	d := &r.dead
	if r.c.NumDying() == 0 {
		d.answers, d.refused, d.most = nil, nil, 0
		return
	}
	if d.under || now < d.next || r.failed || r.e.o.Letters == nil {
		return
	}
	if !r.c.Buries() {
		r.c.DropDying(now)
		r.recordAcks(now, false)
		return
	}
	d.round++
	b := &burying{r: r, c: r.c, round: d.round}
	d.under = r.e.spawn(b.run)
}

// dying tells whether a message waits to be buried. The caller holds r.mu.
func (r *reader) dying(seq topics.Sequence) bool { return r.c.Dies(seq) }

// answerBuried has the sender of an acknowledgement answered once the message is buried.
// The caller holds r.mu.
func (r *reader) answerBuried(seq topics.Sequence, reply []byte) {
	d := &r.dead
	if d.answers == nil {
		d.answers = map[topics.Sequence][]string{}
	}
	if len(d.answers[seq]) < 16 { // the rest ask again
		d.answers[seq] = append(d.answers[seq], string(reply))
	}
}

// deadStats are for infos. The caller holds r.mu.
func (r *reader) deadStats() *DeadStats {
	d := &r.dead
	if d.subject == "" {
		return nil
	}
	return &DeadStats{Subject: d.subject, Moved: d.moved, Waiting: r.c.NumDying(), Failed: d.failed, LastError: d.err}
}
