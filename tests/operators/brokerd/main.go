// Command brokerd is the Herald broker with a process function of one's own: the
// example to begin with. Everything else, flags, configuration, clusters, is brokerd's.
//
// The function `bursts` counts the records of a key until the key has been quiet for
// some time, and then says how many there were and what they added up to:
//
//	steps:
//	  - key: k
//	  - {process: bursts, with: {quiet_ms: 5000}}
//
// What it remembers is in state, not in variables, so that a standby can go on in its
// place; its clock is event time, so that what it says doesn't depend on when records
// were read.
package main

import (
	"os"

	"github.com/heraldmq/herald/broker/daemon"
	"github.com/heraldmq/herald/tests/operators/bursts"
)

func main() {
	daemon.CoarseTimers()
	os.Exit(daemon.MainWith(bursts.Functions, os.Args, os.Stdout, os.Stderr))
}
