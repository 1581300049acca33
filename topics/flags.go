package topics

// PublishSourced is a bit of Publish.Flags: the message comes from another
// topic (a mirror's or source's), so the checks of its origin are not repeated.
const PublishSourced uint8 = 1 << 0
