package topics

// Message is one stored message. The slices alias the store's memory: they are
// read-only, and valid for as long as the caller holds them (buffers of entries
// and file reads are never recycled while referenced).
type Message struct {
	Sequence Sequence
	Time     Nanos // when the entry that carried it was proposed
	Subject  string
	Header   []byte // the whole block "NATS/1.0\r\n…\r\n\r\n", or empty
	Payload  []byte
}

// State is a topic's counters at one applied index.
type State struct {
	Messages  uint64
	Bytes     uint64
	First     Sequence // first live message; Last+1 when empty
	FirstTime Nanos    // 0 when empty
	Last      Sequence // last assigned, live or not
	LastTime  Nanos    // time of the last assigned, 0 if none ever
	Subjects  int      // distinct subjects of live messages
	Deleted   uint64   // dead sequences between First and Last
	Consumers int
}

// PublishResult is what applying one publish gave. Exactly one of Fault and
// Sequence is set; Duplicate tells that Sequence is that of an earlier message
// with the same Nats-Msg-Id.
type PublishResult struct {
	Sequence  Sequence
	Duplicate bool
	Fault     *Fault
	Value     string // counter total as decimal text, for topics with allow_msg_counter
}
