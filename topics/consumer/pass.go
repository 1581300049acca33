package consumer

import "github.com/heraldmq/herald/topics"

// Pass tells that a new message, at or after Cursor, is not for the consumer after
// all: its content filter says so. It changes the live copy only. The replicated ones
// follow with the next delivery, as they do over messages of other subjects.
func (c *Consumer) Pass(seq topics.Sequence) {
	l := c.live
	if seq < l.cursor {
		return
	}
	l.tally.passed(seq)
	l.cursor = seq + 1
}
