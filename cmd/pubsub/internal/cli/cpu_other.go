//go:build !unix

package cli

import "time"

// cpuTime is unknown here.
func cpuTime() time.Duration { return 0 }

// fileLimit is not known here.
func fileLimit() (uint64, bool) { return 0, false }
