// Package operate runs stream operators inside the broker.
//
// An operator lives in the group of its first durable output, so that a step's outputs,
// its progress and what it changed are one entry of one log, behind a guard that lets
// every step through once (topics.Guard). On every node that has a replica of the group
// there is a unit for it, with a goroutine of its own:
//
//	hooks of broker/state ──► unit's queue ──► engine.Commit / engine.Apply ──► state
//	                                             │ where the group is led
//	inputs' topics ──────────► engine.Run ──► Group.SubmitGuarded ──► log
//
// A unit follows the log and nothing else: what is committed comes to it from where
// entries are applied, on the leader as everywhere; a step that it has run itself is
// committed, any other one is applied, after what it had run meanwhile is thrown away.
// So a change of the lead needs no ceremony: whoever leads takes in what the log has and
// goes on. A leader that was replaced proposes in vain: its steps are no longer the next.
//
// What a unit holds is written to files before the group's store flushes past the steps
// that it is of, so that the log always has what the files lack. A unit that can't run a
// step keeps it, and goes on once it can (standstill.go); one that misses a step (its replica
// is new, its queue was full) gets the state from another replica and goes on from there.
//
// The files:
//
//   - engine.go, early.go, sweep.go: all units of a node, what the state's hooks tell them, also before the catalogue knows them, and what is left behind
//   - unit.go, epoch.go: one operator on this node, what comes out of the log
//   - primary.go, reading.go, inputs.go: reading, topics that are gone, running and proposing
//   - standstill.go, rebuild.go: steps that can't be run, the state of another replica
//   - modes.go, passive.go: what recovery modes other than active do
//   - savepoint.go, mark.go, savepointstore.go, restore.go, shadow.go: states under a name, versions on trial
//   - timing.go: how time goes, what standbys are given, whether they are the same
//   - adverts.go: what outputs advertise
//   - outbox.go, lane.go, aside.go: what goes to topics of other groups, late records and dead letters
//   - instances.go, rescale.go: several instances
//   - succession.go, share.go, follow.go: others in their place, what those take over, when
//   - service.go, verbs.go, report.go, look.go: $HERALD.OP.> for any client
package operate
