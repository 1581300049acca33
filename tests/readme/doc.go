// Package readme runs what the README tells a first-time user to type.
package readme
