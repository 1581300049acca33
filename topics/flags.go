package topics

// PublishSourced is a bit of Publish.Flags: the message comes from another
// topic (a mirror's or source's), so the checks of its origin are not repeated.
const PublishSourced uint8 = 1 << 0

// PublishTimed is a bit of Publish.Flags: the record says when the message was
// first stored, as a mirror's must.
const PublishTimed uint8 = 1 << 1

// PublishRestored is a bit of Publish.Flags: the message comes from a backup and is
// stored as it is. Nothing is checked, and it replaces nothing.
const PublishRestored uint8 = 1 << 2
