// Package datafile is the format of the files that hold flushed messages.
//
// A file is written once, from front to back, and never changed. It holds the
// messages of any number of topics, sorted by topic and sequence, cut into runs:
// a run is up to RunMessages messages and about RunBytes bytes of one topic, the
// unit in which messages are read and indexed.
//
//	header     magic "HERALDR1", file number u64, reserved u32, crc u32
//	records    one per message
//	           crc u32, subject u16, header u32, payload u32, sequence u64, time i64,
//	           subject, header, payload
//	           (the crc covers the topic's id, which is not stored, and all that
//	           follows it: a record read in another's place is noticed)
//	blocks     one per run, in two parts with a crc u32 at the end of each
//	           dictionary: the subjects of the run, with counts and places
//	           columns: sequence, length, subject, time and expiry of each message
//	directory  one entry of 96 bytes per run
//	footer     directory offset u64, runs u32, directory crc u32, file number u64,
//	           crc u32 of all before the footer (0: not known), crc u32,
//	           magic "HERALDRE"
//
// Integers are little-endian; checksums are CRC-32C. Opening a file reads the
// footer and the directory; blocks and records are read when asked for, and
// each is verified each time it comes from the disk. Whatever is not as it was
// written gives a *CorruptError.
package datafile
