// Package filter decides by their content which messages a subscription gets: a
// condition over subject, headers and payload in the language of topics/expr,
// compiled once and shared by all who ask for the same.
//
//	set := filter.NewSet()
//	f, err := set.Get(`amount > 100 && header["Region"] == "eu"`, filter.JSON)
//	ok, err := f.Match(message)
//	f.Release()
//
// Payloads are JSON, or Avro or Protobuf by a schema that the filter's codec names. A
// message that a condition can't be evaluated over (a field is missing, types don't fit,
// the payload isn't what the codec reads) doesn't match, and is an error with a Reason. It
// is never silent: whoever uses a filter counts its results in a Tally, which keeps
// the first error as an example.
//
// Evaluation is pure: it reads no clock and draws nothing at random, so the same
// message gives the same result live, from a topic, on every node and after a
// restart. The work of one evaluation is bounded (expr.CostMax), the payload is
// decoded at most once for all filters that look at a message, and not at all for
// those that look at subject and headers only.
package filter
