package state

import (
	"errors"
	"fmt"
	"sync"

	"github.com/heraldmq/herald/topics"
)

// A consumer with mem_storage lives in the memory of the nodes that have it: it
// survives a change of the leader, but not the restart of the only node. Clients
// rely on that: an ordered consumer that finds itself gone is made anew, with a
// heartbeat missed; one that came back without its client would linger.

// forget deletes the consumers with mem_storage of a group whose only voter has
// just started. In a group that is to have more it leaves them, even while there is
// only one: others have kept them, or it has been running all the time.
func (s *State) forget(r *replica) error {
	log := r.repl.Load()
	if log == nil || r.group.Replicas() != 1 || log.Voters() != 1 {
		return nil
	}
	if _, leads := log.Leader(); !leads {
		return nil
	}
	type place struct {
		id   topics.TopicID
		name string
	}
	var gone []place
	r.data.InMemory(func(id topics.TopicID, name string) { gone = append(gone, place{id, name}) })
	var dropped sync.WaitGroup
	errs := make([]error, len(gone))
	for i, p := range gone {
		dropped.Add(1)
		r.queue.submit(topics.RecordConsumerDelete, appendText(appendTopic(nil, p.id), p.name), func(_ any, err error) {
			errs[i] = err
			dropped.Done()
		})
	}
	dropped.Wait() // the queue answers even when it is closed
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("drop the consumers of group %d that were in memory only: %w", r.id, err)
	}
	return nil
}
