// Package chaos breaks clusters on purpose and holds what is left against what
// was answered: the checks of docs/reliability.md, one file per fault.
//
// A check starts three or five real servers, each on its own disk and in its own
// network namespace where this machine and user can have them, publishes tagged
// messages, does its damage, heals everything, makes every replica the leader in
// turn and reads it in full. It fails on a broken promise and on nothing else: a
// message that was acknowledged and can't be read, one stored twice, out of its
// publisher's order, damaged or never sent, or replicas that differ.
//
//	go test ./tests/chaos                                    a few checks, short
//	HERALD_CHAOS=1 go test ./tests/chaos                     every check, short (about eight minutes)
//	HERALD_LONG=1 go test -timeout 3h ./tests/chaos          in full
//	HERALD_LONG=1 go test ./tests/chaos -run Kills -share 0.5  half the time of the full form
//	go test ./tests/chaos -run Power -seed 7                 one check, repeated
//	go test ./tests/chaos -run Power -target nats-server     the same against nats-server
//	go run ./tests/chaos/scoreboard                          the table of both
//
// Servers of another make are found by HERALD_NATS_SERVER, beside the programs of
// this machine, or installed at the version that go.mod names.
package chaos
