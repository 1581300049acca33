// Package front is everything a connection is: listeners for TCP, TLS and
// websocket, sessions that speak the NATS client protocol, accounts with their
// interest, and the way of a message from whoever publishes it to whoever
// wants it.
//
// Other rooms of the broker take part through an Account: they subscribe with
// a Handler, publish through a Publisher, and register topics, which are just
// another kind of subscriber (see Sink).
//
// The hot path is built so that work is paid per read batch or per cached
// match, never per message under a lock:
//
//   - a session's reader parses straight in its read buffer;
//   - the subject is looked up in the reader's own match cache, which the
//     account's interest index invalidates by a generation counter;
//   - what is to be delivered is staged per receiver during the whole read
//     batch and handed over at its end, with one lock and one wake-up each;
//   - receivers whose messages are byte for byte the same share one buffer;
//   - a large message isn't copied: what is queued for its receivers is the
//     part of the read buffer it was read into, which is used again once they
//     have all been sent it.
//
// The other nodes of a cluster are receivers like any other: what they listen to is
// in the index (see Remote), what is published for them is staged as one batch for
// each, and what they send goes to subscriptions of this node alone (see Inbound).
//
// At the end of a read batch everything is handed over in a fixed order:
// captures to the topics, deliveries to peers and to others, then what the session itself
// is sent. That order makes PING/PONG a barrier.
//
// # Goroutines
//
//   - acceptLoop, one per listener: started by Start, ended by closing the
//     listener, awaited by Close. The websocket listener is an http.Server.
//   - a reader per connection, which owns the session: its read buffer, match
//     cache and stages. It ends when the connection does; Close awaits it.
//   - a flusher per connection, which writes what waits in the outbox. Started
//     and awaited by the reader.
//   - one timer per connection, for authentication and pings; stopped by the
//     reader.
//
// # Bounds
//
// What a client can make the broker hold is bounded: a control line by
// max_control_line, a message by max_payload (nothing of a message before
// authentication), what it doesn't read by max_pending, after which it is cut
// off as a slow consumer. A publisher whose receivers are far behind but moving
// is held back, also when they are on another node: it stops reading its socket. Caches of matches start anew when
// full.
//
// # Locks
//
// A session's mu, an outbox's mu, an account's index and a watch's mu guard
// what stands below them. None is held while writing to a connection or calling
// a Handler or Sink; a watch's callback runs under that watch's own mutex, which
// is what keeps its calls in order.
package front
