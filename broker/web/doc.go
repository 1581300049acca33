// Package web serves subscribers and publishers without a NATS client over HTTP:
// GET /subscribe as JSON frames over websocket or as Server-Sent Events, POST
// /publish. docs/web.md has the parameters, frames and close codes.
//
// Each subscriber is a client of the broker like any other (front.Invite): it has a
// user's permissions and limits, is shown by connz, and reads topics through the
// JetStream API. The package speaks the NATS protocol for it (link.go).
//
//	front ─► link reader ─► feed (live.go, stored.go) ─► queue, bounded ─► writer ─► socket
//
// The link's reader never waits for a socket: what a subscriber doesn't take waits in
// its own bounded queue. Live messages that find it full end the subscriber, as slow,
// with a reason; stored ones are asked for only while there is room. So a slow
// subscriber costs the others nothing but that memory.
//
// Goroutines of a subscriber: the HTTP server's, which writes; the link's reader; for a
// websocket one that reads frames; for a topic one that asks for messages. Server.Close
// ends and waits for all of them.
package web
