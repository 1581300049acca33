//go:build !linux

package daemon

// CoarseTimers does nothing on this system.
func CoarseTimers() {}
