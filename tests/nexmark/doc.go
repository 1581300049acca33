// Nexmark runs the queries of the Nexmark benchmark (an auction house: people, auctions
// and bids) as operators.
//
//	go run ./tests/nexmark -events 100000        # events per second of processor time
//	go run ./tests/nexmark -nodes 1              # the same through a broker process, or 3 or 5
//	go test ./tests/nexmark                      # results against a batch computation
//
// The queries are files of queries/; the events are made by generator.go, each from
// nothing but a seed and its number, so that any event can be made again, by any number
// of producers. batch.go computes what each query should give from all events at once,
// with maps and sorts and nothing of the operators. Everything runs in this process,
// through the engine, no network and no log, unless -nodes is given: then real brokers have
// the events in a topic and run the queries, and what they give is held against this process.
package main
