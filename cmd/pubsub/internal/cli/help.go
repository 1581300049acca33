package cli

import "runtime/debug"

const rootHelp = `pubsub talks to a Herald broker (or any NATS server): publish and subscribe live
or durably, advertise what you publish, discover what there is.

  brokerd &                                   start a broker on this machine
  pubsub sub 'orders.>'                       print messages as they come
  pubsub pub orders.1 '{"n":1}'               send one
  pubsub pub --durable orders.1 '{"n":1}'     store one, creating the topic
  pubsub sub --durable 'orders.>' --all       print what is stored, and what comes
  pubsub demo                                 see all of it on real data

Data goes to standard output, everything else to standard error.

Which broker: --server, else NATS_URL, else the context (--context, NATS_CONTEXT,
"pubsub context select"), else nats://127.0.0.1:4222.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 4 nobody answers or no
topic captures the subject, 5 time-out, 6 refused (identity, permission, limit,
schema), 7 no broker or an unhealthy one, 8 conflict, 130 interrupted.`

// version is the module's version, as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
