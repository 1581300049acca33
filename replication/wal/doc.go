// Package wal is a node's write-ahead log: one sequence of records on disk that
// all its data groups share, so that whatever they have to store at one moment
// costs one write and one fdatasync together. Each Group is a raft.LogStore.
//
// # Files
//
// The log is a run of segment files numbered without holes, each preallocated
// and, when its entries are no longer wanted, recycled under a new number: a
// recycled file's blocks are written already, so that fdatasync has no extent to
// convert and no length to journal. All integers are little-endian.
//
//	<number, 16 hex digits>.seg    part of the log
//	<number, 16 hex digits>.free   spare
//	marker                         the last acknowledged position, two generations
//
//	segment header, 64 bytes
//	  0 magic "HERALWAL"  8 version u32   12 crc u32 (of all other bytes)
//	 16 number u64       24 salt u64      32 node u64 (hash of the node's name)
//	 40 prevEnd u64      48 prevChain u32 52 zero u32   56 batch u64
//
//	record, 8-byte aligned: 56 bytes of header, data, extensions, zeros to 8
//	  0 crc u32 (salt, then everything after this field)   4 prev u32
//	  8 data length u32  12 extensions length u32  16 group u32
//	 20 magic u8         21 kind u8   22 type u8   23 flags u8
//	 24 index u64        32 term u64  40 appendedAt i64 (ns)  48 batch u64
//
//	marker, two slots at 0 and 4096 of 64 bytes each
//	  0 magic "HWMK"      4 crc u32 (of all other bytes)
//	  8 generation u64   16 segment u64   24 offset u64   32 node u64
//	 40 batch u64        48 chain u32     52 zeros
//
// Segments are given up from the oldest on. What is wanted of those that hold little is
// carried forward to the end, see carry.go.
//
// # Why a reader can trust it
//
// A recycled file is full of records with good checksums. The salt, new at every
// use and seeding every checksum, makes them strangers; prev, the crc of the
// record before (of the segment header for the first), makes a record good in one
// place only.
//
// A batch is what one fdatasync made durable; its records share a batch number,
// the last carries flagEnd. Batch n+1 is written after the fdatasync of batch n
// has returned. So when the records of the last segment stop making sense at some
// place, the batch that was being written there is known, and a good record of a
// later batch behind that place proves that the damage hit something that was
// durable: a CorruptError. If there is none, and the marker does not lie beyond
// the place either, it is a write torn by a crash, which nobody was told about,
// and it is cut off. A segment that isn't the last must be good up to the end
// which its successor's header states.
//
// The marker is written (not synced) after each batch, and synced within a
// second and on Close: it notices a damaged end after a kill at once, after a
// power cut up to a second late.
//
// Every read from disk checks the checksum again.
//
// # Who does what
//
// There is no writer goroutine: of the callers with something to store, one
// writes for all and then hands that role on (see write.go). That saves a lone
// caller two goroutine switches. One goroutine per Log, the keeper, prepares spare
// segments, syncs the marker and watches the free space.
package wal
