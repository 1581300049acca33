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
//   - receivers whose messages are byte for byte the same share one buffer.
//
// At the end of a read batch everything is handed over in a fixed order:
// captures to the topics, deliveries to others, then what the session itself
// is sent. That order makes PING/PONG a barrier.
package front
