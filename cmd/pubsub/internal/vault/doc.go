// Package vault keeps topics outside of a broker: as backups, which are directories of
// checksummed parts with a manifest, and as exports, which are lines of JSON.
//
// Both are read from and given back to the broker by its own requests for backups
// (STREAM.SNAPSHOT and STREAM.RESTORE), so that sequences, times, headers and the
// progress of consumers stay what they were.
//
// A backup is taken while the broker works. Each part is complete on disk before the
// manifest names it: whenever taking it ends, the next run goes on behind the last
// part. So does a run of a backup that is complete: it adds what is new.
package vault
