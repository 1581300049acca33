package replication_test

import (
	"fmt"
	"io"
	"os"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// counter is a state machine without files: it counts the entries.
type counter struct{ n int }

func (c *counter) Apply(entries []replication.Entry) []any {
	results := make([]any, len(entries))
	for i := range entries {
		c.n++
		results[i] = c.n
	}
	return results
}

func (c *counter) Applied() topics.Index                   { return 0 }
func (c *counter) Snapshot() (replication.Snapshot, error) { return count(c.n), nil }

func (c *counter) Restore(r io.Reader) error {
	_, err := fmt.Fscan(r, &c.n)
	return err
}

type count int

func (n count) Persist(w io.Writer) error { _, err := fmt.Fprint(w, int(n)); return err }
func (count) Release()                    {}

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 { // the second time everything is still there
		node, err := replication.Open(replication.Config{Dir: dir})
		if err != nil {
			panic(err)
		}
		group, err := node.Start(topics.CatalogueGroup, &counter{})
		if err != nil {
			panic(err)
		}
		_, result, err := group.Propose([]byte("entry")).Result()
		fmt.Println(result, err)
		if err := node.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
}
