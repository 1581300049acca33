// Package tests holds what looks at Herald from outside: the rules of its
// structure, real NATS clients against a running broker, crashes, and benches.
// Unit tests live beside the code they test.
package tests
