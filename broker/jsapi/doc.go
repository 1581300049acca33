// Package jsapi is the JetStream API as it looks on the wire: the requests,
// replies and advisories as Go types with the JSON names clients know, the
// table of error codes, and the strict decoder of requests.
//
// It is a leaf: it knows package topics and nothing of how the broker works.
// Values are plain data, safe for any number of readers. Every reply carries a
// type (see Reply); a refusal is the same reply with an Error instead of its
// payload. Clients branch on err_code, so the codes of errors.go never change.
package jsapi
