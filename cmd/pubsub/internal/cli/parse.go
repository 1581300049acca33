package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
)

// parseDuration reads Go durations and also days and weeks: "90s", "7d", "2w".
func parseDuration(s string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			f, err := strconv.ParseFloat(n, 64)
			if err != nil || f < 0 || f*float64(unit) > math.MaxInt64 {
				return 0, fmt.Errorf("%q is not a duration (like 90s, 15m, 7d)", s)
			}
			return time.Duration(f * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration (like 90s, 15m, 7d)", s)
	}
	return d, nil
}

// parseSize reads bytes with units: "512", "64KiB", "1MB", "10GiB"; -1 is none.
func parseSize(s string) (int64, error) {
	if s == "-1" || s == "unlimited" {
		return -1, nil
	}
	units := []struct {
		suffix string
		factor int64
	}{
		{"kib", 1 << 10},
		{"mib", 1 << 20},
		{"gib", 1 << 30},
		{"tib", 1 << 40},
		{"kb", 1e3},
		{"mb", 1e6},
		{"gb", 1e9},
		{"tb", 1e12},
		{"k", 1 << 10},
		{"m", 1 << 20},
		{"g", 1 << 30},
		{"t", 1 << 40},
		{"b", 1},
	}
	number, factor := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f < 0 || f*float64(factor) >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size (like 512, 64KiB, 10GB)", s)
	}
	return int64(f * float64(factor)), nil
}

// takesPlace marks commands with a place as an argument: -10 is one there, not a flag.
const takesPlace = "place"

// placesAsArguments puts what looks like a place but would be taken for flags behind "--",
// for the commands that take one as their last argument.
func placesAsArguments(root *cobra.Command, in []string) []string {
	cmd, _, err := root.Find(in)
	if err != nil || cmd.Annotations[takesPlace] == "" || slices.Contains(in, "--") {
		return in
	}
	var out, places []string
	for _, arg := range in {
		if len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9' {
			places = append(places, arg)
			continue
		}
		out = append(out, arg)
	}
	if len(places) == 0 {
		return in
	}
	return append(append(out, "--"), places...)
}

// parseTime reads a moment: a date, a date and time, or a duration ago, the
// latter with or without a minus.
func parseTime(s string, now time.Time) (time.Time, error) {
	if s == "now" {
		return now, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	if d, err := parseDuration(strings.TrimPrefix(s, "-")); err == nil {
		return now.Add(-d), nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms > 1e11 {
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time (like 2026-11-30, 2026-11-30T10:00:00Z, 15m for 15 minutes ago)", s)
}

// place is a parsed --from or --to.
type place struct {
	position client.Position
	back     uint64    // the last so many messages, when not 0
	end      bool      // the end of what is stored now
	sequence uint64    // of --to
	time     time.Time // of --to
}

const placeHelp = "start, end, new, last, a sequence (100), the last N (-10), or a time (@2026-11-30; @15m or -15m for 15 minutes ago)"

// parsePlace reads rpk's grammar of places.
func parsePlace(s string, now time.Time) (place, error) {
	switch s {
	case "start", "first", "all", "beginning":
		return place{position: client.First()}, nil
	case "end":
		return place{position: client.Next(), end: true}, nil
	case "new", "next":
		return place{position: client.Next()}, nil
	case "last":
		return place{position: client.Last()}, nil
	}
	if rest, ok := strings.CutPrefix(s, "@"); ok {
		t, err := parseTime(rest, now)
		return place{position: client.Since(t), time: t}, err
	}
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		if d, err := parseDuration(rest); err == nil && d > 0 && !digits(rest) {
			t := now.Add(-d)
			return place{position: client.Since(t), time: t}, nil
		}
		n, err := strconv.ParseUint(rest, 10, 64)
		if err != nil || n == 0 {
			return place{}, fmt.Errorf("%q is not a place: %s", s, placeHelp)
		}
		return place{back: n}, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 64)
	if err != nil {
		return place{}, fmt.Errorf("%q is not a place: %s", s, placeHelp)
	}
	return place{position: client.At(n), sequence: n}, nil
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// parseHeaders reads "Name: value" flags; a name may repeat.
func parseHeaders(flags []string) (client.Header, error) {
	var h client.Header
	for _, flag := range flags {
		name, value, ok := strings.Cut(flag, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("header %q is not \"Name: value\"", flag)
		}
		if h == nil {
			h = client.Header{}
		}
		name = strings.TrimSpace(name)
		h[name] = append(h[name], strings.TrimSpace(value))
	}
	return h, nil
}
