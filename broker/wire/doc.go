// Package wire is the NATS client protocol as bytes: a parser that works in the
// caller's read buffer, encoders that append to the caller's write buffer, the
// JSON of INFO and CONNECT, and blocks of message headers.
//
// The parser keeps no state between calls and copies nothing: what a Command
// points to is the read buffer. It never panics, whatever it is fed, and it
// bounds what a peer can make its reader hold: a control line by
// Limits.ControlLine, a message by Limits.Payload.
package wire

import "errors"

// Parse errors. All of them end the connection; the text after the prefix is
// what the peer is told, where it is told anything.
var (
	// ErrOperation: the line starts with no verb of a client.
	ErrOperation = errors.New("wire: unknown protocol operation")
	// ErrControlLine: no end of line within the limit.
	ErrControlLine = errors.New("wire: maximum control line exceeded")
	// ErrPayload: the message announces more bytes than allowed.
	ErrPayload = errors.New("wire: maximum payload violation")
	// ErrArguments: a known verb with arguments that make no sense. The
	// connection closes without a word.
	ErrArguments = errors.New("wire: malformed arguments")
)

// Texts of -ERR that clients know. Never send any other: clients close for good
// on texts they don't know.
const (
	TextOperation          = "Unknown Protocol Operation"
	TextAuthorization      = "Authorization Violation"
	TextAuthTimeout        = "Authentication Timeout"
	TextAuthExpired        = "User Authentication Expired"
	TextAuthRevoked        = "User Authentication Revoked"
	TextMaxConnections     = "maximum connections exceeded"
	TextMaxAccountConns    = "maximum account active connections exceeded"
	TextMaxSubscriptions   = "maximum subscriptions exceeded"
	TextMaxPayload         = "Maximum Payload Violation"
	TextMaxControlLine     = "maximum control line exceeded"
	TextInvalidSubject     = "Invalid Subject"
	TextInvalidPublish     = "Invalid Publish Subject"
	TextStale              = "Stale Connection"
	TextTLSRequired        = "Secure Connection - TLS Required"
	TextThrottled          = "Connection throttling is active. Please try again later."
	TextInvalidProtocol    = "invalid client protocol"
	TextNoRespondersHeader = "no responders requires headers support"
	TextAccountFailure     = "Failed Account Registration"
)
