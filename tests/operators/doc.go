// Package operators holds operators on three real broker processes against a batch: the
// same records, computed at once. Primaries are killed, paused and cut off meanwhile, and
// what the output topics hold in the end must be the batch's answer byte for byte, each
// result once.
//
//	go test ./tests/operators                              some checks, short
//	HERALD_CHAOS=1 go test ./tests/operators               every check, short (about two minutes)
//	HERALD_LONG=1 go test -timeout 2h ./tests/operators    in full: ten minutes of failures
//	go test ./tests/operators -v -run Test09 -seed 7       one check, repeated
//
// brokerd is a broker with a process function, the example for programs of one's own.
package operators
