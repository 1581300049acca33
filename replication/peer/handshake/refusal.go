package handshake

import "fmt"

// Code says why a node is refused.
type Code byte

const (
	OK           Code = 0
	BadSecret    Code = 1
	OtherMode    Code = 2
	OtherCluster Code = 3
	OtherFormat  Code = 4
	Duplicate    Code = 5 // another node has this name
	Already      Code = 6 // the two are connected; not an error
	Unwelcome    Code = 7 // removed from the cluster
	Itself       Code = 8
)

const badSecret = "the secrets differ: give all nodes the same cluster.authorization"

// Refusal is why two nodes don't connect.
type Refusal struct {
	Code   Code
	Remote string // its name, "" if it wasn't said
	Text   string
	Ours   bool // we refuse it, not it us
}

func (r *Refusal) Error() string {
	who := "the other node"
	if r.Remote != "" {
		who = fmt.Sprintf("node %q", r.Remote)
	}
	if r.Ours {
		return fmt.Sprintf("peer: %s is refused: %s", who, r.Text)
	}
	return fmt.Sprintf("peer: %s refuses this node: %s", who, r.Text)
}
