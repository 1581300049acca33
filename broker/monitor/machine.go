package monitor

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// share is how much of the machine's memory and disk the pages tell as the
// durable side's when the options set no bound.
const shareNum, shareDen = 3, 4

// memoryShare is that share of the machine's memory in bytes, 0 when unknown.
func memoryShare() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "MemTotal:" {
			continue
		}
		kb, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0
		}
		return kb << 10 / shareDen * shareNum
	}
	return 0
}

// diskShare is that share of what is free where dir is, in bytes, 0 when
// unknown.
func diskShare(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Bavail) * int64(s.Bsize) / shareDen * shareNum
}
