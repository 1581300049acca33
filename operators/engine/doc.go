// Package engine runs an operator's graph in steps that can be committed, replicated
// and repeated.
//
// The primary's Run takes what arrived, in the order it chose, with a clock, and runs
// the graph above its uncommitted state. What comes out is a Step: what was read, the
// clock, what only the primary can know (which inputs are idle), the outputs, and what
// changed in the state. Once a step is in the log every replica takes it in, by Commit
// (the primary), or by Apply (a standby), which carries out the changes, or runs the
// step again and compares. Whoever is primary next goes on from there: nothing is lost,
// nothing is done twice, nothing has to be loaded (active standby of Hwang et al.,
// ICDE 2005, with its determinants in the log).
//
// The same input in the same order gives the same output and the same state, however
// it is cut into steps, as long as nothing in the graph looks at the clock: event time
// advances after each record, not after each step.
//
//	Run ──► Step ──► log ──► Commit / Apply
//	 │                          │
//	 └─ Overlay, up to InFlight ┴─► Store
//
// An Instance is for one goroutine. It starts none, reads no clock and does no I/O but
// its Store's.
package engine
