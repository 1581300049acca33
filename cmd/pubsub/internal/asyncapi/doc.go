// Package asyncapi writes advertisements as an AsyncAPI 3.1 document and reads such
// documents as advertisements.
//
// An advertisement is a channel with one message and one operation: its subject is the
// address, its named tokens the parameters, its role the action. What AsyncAPI has no word
// for stands beside under x-herald-<field>, so that a document of our own gives back what
// it was made from, to the byte of the schemas. A document of others gives one
// advertisement for each operation, with what there is.
package asyncapi
