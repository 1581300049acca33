// Package operators is stream processing as functions over messages and state: it
// knows neither the network nor consensus. The broker feeds it and commits what it
// gives.
package operators
