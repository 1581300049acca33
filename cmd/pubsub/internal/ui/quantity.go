package ui

import (
	"encoding/json"
	"fmt"
	"time"
)

// Count writes a number with thousands separated.
func Count[N ~int | ~int64 | ~uint64 | ~uint32 | ~int32](n N) string {
	s := fmt.Sprint(n)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Bytes writes a size in binary units.
func Bytes[N ~int | ~int64 | ~uint64](n N) string {
	f := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 || unit == "TiB" {
			if unit == "B" {
				return fmt.Sprintf("%d B", int64(n))
			}
			return fmt.Sprintf("%.1f %s", f, unit)
		}
		f /= 1024
	}
	return ""
}

// Limit writes a limit where -1 and 0 mean none.
func Limit(n int64, write func(int64) string) string {
	if n <= 0 {
		return "unlimited"
	}
	return write(n)
}

// Duration writes a duration in days where it is that long.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return "0s"
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	case d > time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.String()
}

// Since writes how long ago t was, "never" for the zero time.
func Since(t, now time.Time) string {
	if t.IsZero() || t.Unix() <= 0 {
		return "never"
	}
	return Duration(now.Sub(t).Round(time.Second)) + " ago"
}

type rawJSON []byte

// MarshalJSON gives the bytes as they are.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

func isJSON(b []byte) bool { return len(b) > 0 && json.Valid(b) }
