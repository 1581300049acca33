// Package security attacks a broker from outside, as those would who wrote the
// advisories about its kind: one file per kind of flaw (the letters are those of
// the list in docs/security.md).
//
//	accounts_test.go     C  one account's requests about another's things
//	permissions_test.go  H  denied messages, on every way to a subscription
//	sidedoors_test.go    H  having the broker publish what one may not
//	headers_test.go      I  headers that only the broker may set
//	names_test.go        J  bytes in names that end lines and tokens
//	prelogin_test.go     D, E  memory and garbage before login
//	secrets_test.go      F  where secrets must not be
package security
