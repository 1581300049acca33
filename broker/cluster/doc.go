// Package cluster answers $HERALD.CLUSTER.>: what the cluster looks like, and the
// changes that only an operator decides.
//
//	STATUS    nodes, groups, damage, and what to do next
//	ADD       take a node (back) among those that hold topics
//	DRAIN     move every group away from a node
//	REMOVE    forget a node; its replicas are placed elsewhere
//	TRANSFER  make another node lead a group, or all groups that a node leads
//	SCRUB     read every byte a group has on disk, on all its nodes
//
// Bodies and answers are JSON (status.go, request.go). The subjects are served in
// the system account, and in the default account only while no authentication is
// configured. They are never announced to other nodes: whoever is asked answers,
// after asking the other nodes over the links between them ("cluster.report" and
// the like), so that one request tells of the whole cluster.
//
// Requests run on goroutines of the service, at most requestsMax at once; more are
// refused with 503.
package cluster
