// Package observe counts what is really published in an account, beside what is
// advertised: how much, when last, by how many, how many keys, and how much of it is as
// its schema says.
//
// Publishers look the counters of a subject up when they cache its match, and tell them
// once a read batch (broker/front's Observer): no message pays for a lock. Memory is
// bounded: a counter for each advertisement, which has no more than a few words until
// something is published, and for traffic that nobody advertises those of the 512 most
// used patterns (undeclared.go).
//
// Each node counts what enters the cluster there; Stats of several nodes are summed by
// Merge.
package observe
