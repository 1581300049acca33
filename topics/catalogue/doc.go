// Package catalogue is the state that group 0 agrees on: which topics and which
// advertisements exist, in which account.
//
// A Catalogue is a pure state machine. It changes only by Apply, with commands
// (command.go) that carry everything that could differ between nodes: the time
// and the limits in force when they were proposed. It is not safe for callers at
// once; what it hands out (*Topic, *Advertisement) is never changed afterwards
// and may be kept.
//
// A topic lives in two groups: the catalogue decides that it exists, its data
// group holds it. Three fields tie them together:
//
//   - State: Creating until the data group is known to have it; Deleting from
//     the decision to delete it until the data group is known to have dropped it.
//   - Revision: the config's number, one higher with each update.
//   - Synced: the highest revision the data group is known to have.
//
// What is not Live with Synced == Revision is unfinished business, which
// broker/state brings to an end on every change of leader. Nothing is ever
// deleted because it is missing somewhere: only a committed command deletes.
//
// In a cluster there are two more tables (tables.go): the nodes, and the data groups
// with the nodes that are to hold them. A catalogue without them is that of a node
// alone, and is written as before.
package catalogue
