package jetstream

import (
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/subject"
)

// consumerDead checks the subject that metadata names for dead letters.
func consumerDead(c *topics.ConsumerConfig, s *topics.Config, env *environment) *topics.Fault {
	to, ok := c.Metadata[consumer.KeyDeadSubject]
	if !ok {
		return nil
	}
	bad := func(text string) *topics.Fault { return badWhere(consumer.KeyDeadSubject + " " + text) }
	switch {
	case !subject.ValidLiteral(to):
		return bad("must be a subject without wildcards, not \"" + to + "\"")
	case c.AckPolicy != topics.AckExplicit && c.AckPolicy != topics.AckAll:
		return bad("needs ack policy explicit or all: nothing is given up otherwise")
	}
	if env.keeps == nil {
		return nil
	}
	keeper := env.keeps(to)
	switch {
	case keeper == nil:
		return bad("\"" + to + "\" is kept by no stream, dead letters would be lost: create one that captures it first")
	case keeper.Name == s.Name && (len(c.Filters()) == 0 || subject.MatchAny(c.Filters(), to)):
		return bad("\"" + to + "\" is what this consumer reads itself: use a stream of its own, or filter it out")
	}
	return nil
}

// mayNotBury refuses dead letters to where the consumer's creator may not publish.
func mayNotBury(to string) *topics.Fault {
	return topics.NewFault(403, 10012, "%s: you may not publish to \"%s\"", consumer.KeyDeadSubject, to)
}

// consumerKey checks the key that metadata names.
func consumerKey(c *topics.ConsumerConfig, _ *topics.Config, _ *environment) *topics.Fault {
	text, ok := c.Metadata[consumer.KeyOrder]
	if !ok {
		return nil
	}
	if _, err := consumer.ParseKey(text); err != nil {
		return badWhere(consumer.KeyOrder + ": " + err.Error())
	}
	switch {
	case c.AckPolicy != topics.AckExplicit:
		return badWhere(consumer.KeyOrder + " needs ack policy explicit: the next message of a key comes when the one before it is acknowledged")
	case c.MaxAckPending <= 0:
		return badWhere(consumer.KeyOrder + " needs max_ack_pending: it bounds how many messages wait for their key")
	}
	return nil
}
