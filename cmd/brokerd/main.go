// Command brokerd is the Herald broker: publish/subscribe, durable topics and
// the JetStream API for NATS clients, in one process.
//
//	brokerd                  durable topics in ./herald-data, clients on 127.0.0.1:4222
//	brokerd --dev            to try things out: a console, and nothing is kept
//	brokerd -c herald.conf   as the file says; the grammar is nats-server's
//	brokerd -t -c FILE       check a file
//	brokerd config show FILE print what would be in force
//	brokerd config explain   what options there are; with one, all about it
//	brokerd -h               every flag
package main

import (
	"os"

	"github.com/heraldmq/herald/broker/daemon"
)

func main() {
	daemon.CoarseTimers()
	os.Exit(daemon.Main(os.Args, os.Stdout, os.Stderr))
}
