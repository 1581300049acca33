// Package config reads how a broker was asked to run: nats-server's command
// line flags and its configuration grammar, as typed Options.
//
// The grammar is read by the conf package of the nats-server module; what the
// keys mean is decided here. Load is the way in: it parses the flags, reads the
// file they name, lets flags override the file and checks the whole. It reports
// every fault at once, each with file, line and column, in plain words:
//
//	herald.conf:3:3: unknown key "max_paylod" (did you mean "max_payload"?)
//	herald.conf:7:5: ping_interval wants a duration such as "2s", not text "soon"
//
// A key is honoured, or it is a fault that says what to do instead; only keys
// that can't change what the broker does are ignored with a warning.
package config
