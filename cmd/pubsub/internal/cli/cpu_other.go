//go:build !unix

package cli

import "time"

// cpuTime is unknown here.
func cpuTime() time.Duration { return 0 }
